/* A library to preload: whoever opens /proc/cpuinfo gets the file that QUERN_CPUINFO names. tools/plain_core.sh says when it is
 * needed and why. Made by: cc -shared -fPIC -o plain_core.so plain_core.c -ldl */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* RTLD_NEXT; and no fortified inlines of the functions below */
#endif
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *instead_of(const char *path) {
    const char *other = path && strcmp(path, "/proc/cpuinfo") == 0 ? getenv("QUERN_CPUINFO") : NULL;
    return other ? other : path;
}

/* ISO C has no cast from dlsym's void * to a function. */
typedef union symbol {
    void *object;
    int (*open)(const char *, int, ...);
    int (*openat)(int, const char *, int, ...);
    FILE *(*fopen)(const char *, const char *);
} symbol;

static symbol next(const char *name) { return (symbol){.object = dlsym(RTLD_NEXT, name)}; }

/* The mode is there only for files that are made; passing on what was not given would read past the arguments. */
#define MODE(flags)                                                   \
    int mode = 0;                                                     \
    if (((flags)&O_CREAT) != 0 || ((flags)&O_TMPFILE) == O_TMPFILE) { \
        va_list rest;                                                 \
        va_start(rest, flags);                                        \
        mode = va_arg(rest, int);                                     \
        va_end(rest);                                                 \
    }

#define OPEN(name)                                              \
    int name(const char *path, int flags, ...);                 \
    int name(const char *path, int flags, ...) {                \
        MODE(flags)                                             \
        return next(#name).open(instead_of(path), flags, mode); \
    }
#define OPENAT(name)                                                   \
    int name(int dir, const char *path, int flags, ...);               \
    int name(int dir, const char *path, int flags, ...) {              \
        MODE(flags)                                                    \
        return next(#name).openat(dir, instead_of(path), flags, mode); \
    }
#define FOPEN(name)                                 \
    FILE *name(const char *path, const char *mode); \
    FILE *name(const char *path, const char *mode) { return next(#name).fopen(instead_of(path), mode); }
#define FORTIFIED(name)                    \
    int name(const char *path, int flags); \
    int name(const char *path, int flags) { return next(#name).open(instead_of(path), flags); }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
FOPEN(fopen)
FOPEN(fopen64)
FORTIFIED(__open_2)
FORTIFIED(__open64_2)
