/* quern train: what its examples share, and the one with tales. */
#ifndef QN_APPS_TRAIN_STORIES_H
#define QN_APPS_TRAIN_STORIES_H

#include "app_profile.h"

/* Words of the command line, NULL where none was given. */
typedef struct train_words {
    const char *example, *threads, *seed;
    option_maybe profile;
    const char *data, *epochs, *images, *device, *require, *compare; /* of mnist */
    const char *steps, *rate, *from, *out, *curve, *tell;            /* of stories */
} train_words;

int train_stories(const train_words *w);

#endif
