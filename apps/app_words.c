/* What verbs say about words of the command line that cannot be meant, and the small grammar of their numbers. */
#include <stdio.h>

#include "app.h"
#include "build_parts.h"

int app_apart(const char *who, const char *one, const char *other) {
    fprintf(stderr, "%s: '%s' and '%s' do not go together\n", who, one, other);
    return APP_USAGE;
}

void app_again(const char *who, const char *name, const char *before, const char *now) {
    if (before && strcmp(before, now) != 0)
        fprintf(stderr, "%s: %s is given more than once, and the last one counts\n", who, name);
}

int app_is_empty(const char *who, const char *what, const char *name) {
    if (!name || *name) return 0;
    fprintf(stderr, "%s: the name of %s is empty\n", who, what);
    return 1;
}

const char *app_s(int64_t n) { return n == 1 ? "" : "s"; }

const char *build_lacks_why(const char *part) {
    for (const build_part *row = build_lacks; row->part; row++)
        if (strcmp(row->part, part) == 0) return row->why;
    return NULL;
}
