/* Offsets in the arena: largest first, each in the lowest gap that is free for its whole life. */
#include <stdlib.h>

#include "plan/plan.h"

typedef struct block {
    uint64_t offset, bytes;
    int32_t born, dies;
    qn_val value;
} block;

/* Largest first; of equals the earlier value, so that a plan is the same every time. */
static int by_size(const void *a, const void *b) {
    const block *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->value < y->value ? -1 : x->value > y->value;
}

/* Placed blocks are kept by offset; those that live at another time do not count. */
static uint64_t lowest_gap(const block *placed, size_t n, const block *b) {
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const block *o = &placed[i];
        if (o->dies < b->born || o->born > b->dies) continue;
        if (o->offset >= at + b->bytes) break;
        if (o->offset + o->bytes > at) at = o->offset + o->bytes;
    }
    return at;
}

static void insert_by_offset(block *placed, size_t n, const block *b) {
    size_t i = n;
    for (; i > 0 && placed[i - 1].offset > b->offset; i--) placed[i] = placed[i - 1];
    placed[i] = *b;
}

/* The most bytes alive at one step: nothing can be smaller. */
static uint64_t most_alive(const block *blocks, size_t n, uint64_t *alive, size_t steps) {
    uint64_t most = 0, now = 0;
    memset(alive, 0, (steps + 2) * sizeof *alive);
    for (size_t i = 0; i < n; i++) { /* differences; wrap-around of the subtraction cancels in the sum */
        alive[blocks[i].born] += blocks[i].bytes;
        alive[blocks[i].dies + 1] -= blocks[i].bytes;
    }
    for (size_t k = 0; k <= steps; k++) {
        now += alive[k];
        if (now > most) most = now;
    }
    return most;
}

qn_status qn_plan_place(qn_schedule *p, qn_error *error) {
    size_t n = 0, values = p->graph->values.n, steps = p->graph->nodes.n;
    block *blocks = qn_arena_resize(&p->arena, NULL, values + 1, sizeof *blocks);
    block *placed = qn_arena_resize(&p->arena, NULL, values + 1, sizeof *placed);
    uint64_t *alive = qn_arena_resize(&p->arena, NULL, steps + 2, sizeof *alive), total = 0;
    if (!blocks || !placed || !alive) return qn_error_set(error, QN_NO_MEMORY, "no memory to place %zu values", values);
    for (size_t v = 0; v < values; v++) {
        const qn_plan_slot *s = &p->slots[v];
        if (s->storage != QN_STORAGE_ARENA) continue;
        blocks[n++] = (block){0, qn_plan_padded(s->bytes), s->born, s->dies, (qn_val)v};
        if (__builtin_add_overflow(total, qn_plan_padded(s->bytes), &total))
            return qn_error_set(error, QN_INVALID, "the values of this graph take more than 64 bits of bytes");
    }
    p->totals.unshared_bytes = total;
    p->totals.lower_bound = most_alive(blocks, n, alive, steps);
    qsort(blocks, n, sizeof *blocks, by_size);
    for (size_t i = 0; i < n; i++) {
        blocks[i].offset = lowest_gap(placed, i, &blocks[i]);
        insert_by_offset(placed, i, &blocks[i]);
        p->slots[blocks[i].value].offset = blocks[i].offset;
        if (blocks[i].offset + blocks[i].bytes > p->totals.arena_bytes)
            p->totals.arena_bytes = blocks[i].offset + blocks[i].bytes;
    }
    qn_arena_release(&p->arena, blocks);
    qn_arena_release(&p->arena, placed);
    qn_arena_release(&p->arena, alive);
    return QN_OK;
}
