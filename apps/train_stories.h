/* The example of `quern train` that makes a language model; cmd_train.c hands over to it. */
#ifndef QN_APPS_TRAIN_STORIES_H
#define QN_APPS_TRAIN_STORIES_H

int train_wants_stories(int argc, char **argv); /* --example stories is among the arguments */
int train_stories(int argc, char **argv);

#endif
