/* One block of memory that holds every buffer of a request, with red zones between them, so that "nothing else changed" is one
 * comparison with a copy. Under AddressSanitizer the red zones are poisoned while an op runs, so reads outside a buffer are
 * caught too. The allocation counter proves that dispatch never allocates. */
#include <stdlib.h>
#include <string.h>

#include "check.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define WITH_ASAN 1
#else
#define WITH_ASAN 0
#endif
#if WITH_ASAN || defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define WITH_HOOKS 1 /* these bring an allocator of their own, and hooks into it */
#else
#define WITH_HOOKS 0
#endif

#if WITH_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

enum { MAX_ZONE = 256 };

typedef struct zone {
    size_t from, to;
} zone;

enum { FEW = 1 << 20 };

static size_t capacity; /* what the largest source of the mode needs, in pages that cost nothing until they are used */
static unsigned char *base, *shadow, *kept;
static size_t used;
static zone zones[MAX_ZONE];
static int n_zone, poisoned;

static int arena_open(void) {
    if (base) return 1;
    capacity = (size_t)(qc_set.room > FEW ? 400 : 48) << 20;
    base = aligned_alloc(64, capacity);
    shadow = aligned_alloc(64, capacity);
    kept = aligned_alloc(64, capacity);
    return base && shadow && kept;
}

void qc_arena_free(void) {
    qc_unguard();
    free(base);
    free(shadow);
    free(kept);
    base = shadow = kept = NULL;
}

void qc_arena_reset(void) {
    qc_unguard();
    used = 0;
    n_zone = 0;
}

size_t qc_arena_used(void) { return used; }

int qc_arena_contains(const void *p) {
    return base && (const unsigned char *)p >= base && (const unsigned char *)p < base + capacity;
}

void *qc_alloc(size_t bytes, size_t align) {
    if (!arena_open() || bytes > capacity || n_zone + 2 > MAX_ZONE) return NULL;
    size_t from = used + QC_RED;
    from = (from + align - 1) / align * align;
    size_t to = from + bytes + QC_RED;
    if (to > capacity) return NULL;
    memset(base + used, 0xa5, to - used);
    zones[n_zone++] = (zone){used, from};
    zones[n_zone++] = (zone){from + bytes, to};
    used = to;
    return base + from;
}

void qc_arena_keep(void) { memcpy(kept, base, used); }
void qc_arena_rewind(void) { memcpy(base, kept, used); }

void qc_guard(void) {
    memcpy(shadow, base, used);
    for (int i = 0; i < n_zone; i++) ASAN_POISON_MEMORY_REGION(base + zones[i].from, zones[i].to - zones[i].from);
    poisoned = 1;
}

void qc_unguard(void) {
    if (poisoned) ASAN_UNPOISON_MEMORY_REGION(base, used);
    poisoned = 0;
}

void qc_allow(const void *p, size_t bytes) {
    size_t at = (size_t)((const unsigned char *)p - base);
    memcpy(shadow + at, base + at, bytes);
}

int qc_changed(const unsigned char **where) {
    *where = NULL;
    if (used == 0 || memcmp(shadow, base, used) == 0) return 0;
    size_t i = 0;
    while (shadow[i] == base[i]) i++;
    *where = base + i;
    return 1;
}

/* ---- Counting allocations */

/* Atomic, because a kernel's threads allocate where they should not, if they do. */
static _Atomic int64_t counted;
static _Atomic int armed;

void qc_trap_arm(void) {
    counted = 0;
    armed = 1;
}

int64_t qc_trap_disarm(void) {
    armed = 0;
    return counted;
}

#if WITH_HOOKS
/* Declared here because gcc's package lacks the header that has it. */
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                              void (*on_free)(const volatile void *));

static void count_malloc(const volatile void *p, size_t n) {
    (void)p, (void)n;
    counted += armed;
}
static void count_free(const volatile void *p) { (void)p; }

__attribute__((constructor)) static void install_hooks(void) {
    __sanitizer_install_malloc_and_free_hooks(count_malloc, count_free);
}

#elif defined(__GLIBC__)
/* Our own names in front of the C library's, which keeps its own under these. */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t m);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n) {
    counted += armed;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t m) {
    counted += armed;
    return __libc_calloc(n, m);
}
void *realloc(void *p, size_t n) {
    counted += armed;
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t align, size_t n) {
    counted += armed;
    return __libc_memalign(align, n);
}
#endif
