/* Memory of one job: small pieces from chunks, growing arrays as blocks of their own, everything released together.
 *
 * A limit on the total turns a hostile input into QN_NO_MEMORY instead of a machine that swaps. Every size is checked before it
 * is multiplied; a NULL result always means "no memory" and leaves what was there untouched. One thread at a time. */
#ifndef QUERN_BASE_ARENA_H
#define QUERN_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

typedef struct qn_arena_block qn_arena_block;

typedef struct qn_arena {
    qn_arena_block *blocks; /* every block, newest first: chunks and growing arrays alike */
    char *free_at;          /* unused part of the newest chunk */
    size_t free_bytes;
    size_t used, peak, limit; /* bytes taken from the C library now and at most; limit 0 means none */
    struct qn_arena *outer;   /* what is taken here counts there as well; NULL: nowhere. It must live longer. */
} qn_arena;

void qn_arena_init(qn_arena *arena, size_t limit);
void qn_arena_destroy(qn_arena *arena);
/* What an arena has taken and will take counts in `outer` as well, from now on; 0 when that is more than outer may take. */
int qn_arena_join(qn_arena *arena, qn_arena *outer);

/* count * size bytes, zeroed, aligned for any type; lives as long as the arena. A zero size gives a valid pointer. */
void *qn_arena_alloc(qn_arena *arena, size_t count, size_t size);

/* A block of its own that can be resized and released: for arrays that grow. memory may be NULL. New bytes are not zeroed. */
void *qn_arena_resize(qn_arena *arena, void *memory, size_t count, size_t size);
void qn_arena_release(qn_arena *arena, void *memory);

/* For QN_VEC_ROOM: at points to the array's pointer. Resizes to at least `need` items with room to spare and stores pointer and
 * capacity; 0 when there is no memory, with both as they were. */
int qn_arena_room(qn_arena *arena, void *at, size_t *capacity, size_t need, size_t size);

/* A growing array. QN_VEC_ROOM(arena, &v, extra) is true when v.at[v.n .. v.n + extra - 1] may be written; false: no memory, and
 * the vector is what it was. Items move when it grows: keep indices, not pointers. */
#define QN_VEC(type)   \
    struct {           \
        type *at;      \
        size_t n, cap; \
    }
#define QN_VEC_ROOM(arena, v, extra) \
    ((v)->n + (extra) <= (v)->cap || qn_arena_room((arena), &(v)->at, &(v)->cap, (v)->n + (extra), sizeof *(v)->at))
#define QN_VEC_FREE(arena, v) (qn_arena_release((arena), (v)->at), (v)->at = NULL, (v)->n = (v)->cap = 0)

#endif
