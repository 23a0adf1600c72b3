/* The arena: one list of blocks, each with a header that remembers its size, so that accounting and release need no search. */
#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 64 * 1024, INNER_CHUNK_BYTES = 4 * 1024, ALIGN = 16 }; /* of inner arenas there may be many */

struct qn_arena_block {
    qn_arena_block *next, *prev;
    size_t bytes; /* without the header */
    size_t pad;   /* keeps the payload aligned to 16 */
};

void qn_arena_init(qn_arena *arena, size_t limit) {
    memset(arena, 0, sizeof *arena);
    arena->limit = limit;
}

static int may_take(const qn_arena *arena, size_t bytes) {
    for (; arena; arena = arena->outer) {
        if (bytes > SIZE_MAX / 2 - sizeof(qn_arena_block) - arena->used) {
            return 0;
        }
        if (arena->limit && arena->used + bytes > arena->limit) {
            return 0;
        }
    }
    return 1;
}

static void account(qn_arena *arena, size_t more, size_t less) {
    for (; arena; arena = arena->outer) {
        arena->used = arena->used + more - less;
        if (arena->used > arena->peak) {
            arena->peak = arena->used;
        }
    }
}

void qn_arena_destroy(qn_arena *arena) {
    qn_arena_block *block = arena->blocks;
    account(arena, 0, arena->used);
    while (block) {
        qn_arena_block *next = block->next;
        free(block);
        block = next;
    }
    memset(arena, 0, sizeof *arena);
}

int qn_arena_join(qn_arena *arena, qn_arena *outer) {
    if (!may_take(outer, arena->used)) {
        return 0;
    }
    account(outer, arena->used, 0);
    arena->outer = outer;
    return 1;
}

static void link_block(qn_arena *arena, qn_arena_block *block) {
    block->prev = NULL;
    block->next = arena->blocks;
    if (arena->blocks) {
        arena->blocks->prev = block;
    }
    arena->blocks = block;
}

static qn_arena_block *new_block(qn_arena *arena, size_t bytes) {
    if (!may_take(arena, bytes)) {
        return NULL;
    }
    qn_arena_block *block = malloc(sizeof *block + bytes);
    if (block) {
        block->bytes = bytes;
        link_block(arena, block);
        account(arena, bytes, 0);
    }
    return block;
}

void *qn_arena_alloc(qn_arena *arena, size_t count, size_t size) {
    if (size && count > (SIZE_MAX / 4) / size) {
        return NULL;
    }
    size_t bytes = (count * size + ALIGN - 1) / ALIGN * ALIGN;
    if (bytes == 0) {
        bytes = ALIGN;
    }
    if (bytes > arena->free_bytes) {
        size_t chunk = arena->outer ? INNER_CHUNK_BYTES : CHUNK_BYTES;
        int own = bytes > chunk / 4; /* large pieces must not waste the rest of a chunk */
        qn_arena_block *block = new_block(arena, own ? bytes : chunk);
        if (!block) {
            return NULL;
        }
        if (own) {
            return memset(block + 1, 0, bytes);
        }
        arena->free_at = (char *)(block + 1);
        arena->free_bytes = chunk;
    }
    void *memory = arena->free_at;
    arena->free_at += bytes;
    arena->free_bytes -= bytes;
    return memset(memory, 0, bytes);
}

void *qn_arena_resize(qn_arena *arena, void *memory, size_t count, size_t size) {
    if (size && count > (SIZE_MAX / 4) / size) {
        return NULL;
    }
    size_t bytes = count * size;
    if (!memory) {
        qn_arena_block *block = new_block(arena, bytes);
        return block ? block + 1 : NULL;
    }
    qn_arena_block *old = (qn_arena_block *)memory - 1;
    size_t before = old->bytes;
    if (bytes > before && !may_take(arena, bytes - before)) {
        return NULL;
    }
    qn_arena_block *block = realloc(old, sizeof *block + bytes);
    if (!block) {
        return NULL;
    }
    block->bytes = bytes;
    account(arena, bytes, before);
    if (block->prev) {
        block->prev->next = block;
    } else {
        arena->blocks = block;
    }
    if (block->next) {
        block->next->prev = block;
    }
    return block + 1;
}

void qn_arena_release(qn_arena *arena, void *memory) {
    if (!memory) {
        return;
    }
    qn_arena_block *block = (qn_arena_block *)memory - 1;
    if (block->prev) {
        block->prev->next = block->next;
    } else {
        arena->blocks = block->next;
    }
    if (block->next) {
        block->next->prev = block->prev;
    }
    account(arena, 0, block->bytes);
    free(block);
}

int qn_arena_room(qn_arena *arena, void *at, size_t *capacity, size_t need, size_t size) {
    void *memory; /* through memcpy, because the array may be of any type */
    memcpy(&memory, at, sizeof memory);
    size_t wanted = *capacity < 16 ? 32 : *capacity + *capacity / 2;
    if (wanted < need) {
        wanted = need;
    }
    void *grown = qn_arena_resize(arena, memory, wanted, size);
    if (!grown && wanted > need) { /* near the limit the exact size may still fit */
        wanted = need;
        grown = qn_arena_resize(arena, memory, wanted, size);
    }
    if (grown) {
        memcpy(at, &grown, sizeof grown);
        *capacity = wanted;
    }
    return grown != NULL;
}
