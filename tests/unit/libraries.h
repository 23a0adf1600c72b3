/* Libraries that a build may do without (cmake/text.cmake): what cannot be tested then says so, the rest is tested all the same. */
#ifndef QN_TESTS_LIBRARIES_H
#define QN_TESTS_LIBRARIES_H

#include "cmocka_setup.h"

#ifdef QN_HAVE_PCRE2
enum { HAVE_PCRE2 = 1 };
#else
enum { HAVE_PCRE2 = 0 };
#endif

#ifdef QN_HAVE_UTF8PROC
enum { HAVE_UTF8PROC = 1 };
#else
enum { HAVE_UTF8PROC = 0 };
#endif

#define NEED_LIBRARY(name)                                                        \
    do {                                                                          \
        if (!HAVE_##name) {                                                       \
            print_message("not tested: this build was made without " #name "\n"); \
            skip();                                                               \
        }                                                                         \
    } while (0)

#endif
