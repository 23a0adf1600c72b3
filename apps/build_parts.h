/* What this build lacks. cmake/parts.cmake writes the table when the build is configured. */
#ifndef QN_APPS_BUILD_PARTS_H
#define QN_APPS_BUILD_PARTS_H

#include <stddef.h>

typedef struct build_part {
    const char *part; /* "models", "Vulkan", "shader mul_mat_coop"; NULL behind the last */
    const char *why;  /* a sentence without its full stop */
} build_part;

extern const build_part build_lacks[];

/* Why the part is not here; NULL: it is, or there is none of that name. */
const char *build_lacks_why(const char *part);

#endif
