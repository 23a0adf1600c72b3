/* Running the network. A set is all the places a text may be at: states that wait for a byte, each with the frame of those who
 * wait for its rule to end. Frames and sets are entered once and found again by their content, so texts that come back to
 * where they were cost a look-up a byte. A rule called last in another needs no frame of its own: when it ends, so does its
 * caller. */
#include <stdlib.h>

#include "text/grammar_parts.h"
#include "base/heap.h"

enum {
    MOST_ITEMS = 1 << 16, /* of one set: more is a grammar nobody can follow */
    TIDY_SETS = 1 << 12,  /* from here on old sets and frames are thrown away when a token is accepted */
    TIDY_POOL = 1 << 20,
    HARD_SETS = 1 << 16, /* never more, whatever one token needs */
    HARD_POOL = 1 << 24,
    FIRST_SLOTS = 1 << 8,
    ROOT_FRAME = 0
};

typedef struct local_frame { /* of a rule called at this place; its callers may be local too, written as ~number */
    int32_t rule;
    int32_t known;   /* its number once it is entered, else -1 */
    int32_t callers; /* the list of those that wait for it */
    int32_t calls;   /* the list of those in which it waits */
    int32_t pending; /* callers that have no number yet */
} local_frame;

typedef struct caller {
    run_item item;
    int32_t callee;             /* local frame */
    int32_t next, next_of_same; /* in callers; in calls */
} caller;

struct closure {
    qn_arena arena;
    QN_VEC(run_item) work; /* every item met, in order; `done` of them are followed */
    QN_VEC(run_item) out;  /* those that wait for a byte or a token */
    QN_VEC(local_frame) locals;
    QN_VEC(caller) callers;
    QN_VEC(int32_t) ready; /* local frames whose callers are all known */
    int32_t *seen;         /* hash of work: numbers + 1 */
    size_t seen_mask;
    int32_t *local_of;      /* by rule: number + 1 of its local frame */
    int failed, full, ends; /* full: it failed for the bounds' sake */
};

static uint64_t mix(uint64_t x) {
    x ^= x >> 31;
    x *= 0x9E3779B97F4A7C15u;
    return x ^ x >> 29;
}

static uint64_t hash_items(const run_item *items, size_t n, uint64_t seed) {
    uint64_t h = seed * 0x2545F4914F6CDD1Du + n;
    for (size_t i = 0; i < n; i++) h = mix(h ^ ((uint64_t)(uint32_t)items[i].state << 32 | (uint32_t)items[i].frame));
    return h;
}

static int by_item(const void *a, const void *b) {
    const run_item *x = a, *y = b;
    if (x->state != y->state) return x->state < y->state ? -1 : 1;
    return x->frame < y->frame ? -1 : x->frame > y->frame;
}

/* ---- One place of the text: from the items behind a byte to all they lead to at once. */

static void grow_seen(closure *c) {
    size_t slots = c->seen ? (c->seen_mask + 1) * 2 : 1024;
    int32_t *seen = qn_arena_resize(&c->arena, c->seen, slots, sizeof *seen);
    if (!seen) {
        c->failed = 1;
        return;
    }
    memset(seen, 0, slots * sizeof *seen);
    c->seen = seen;
    c->seen_mask = slots - 1;
    for (size_t i = 0; i < c->work.n; i++) {
        uint64_t at = hash_items(&c->work.at[i], 1, 0);
        while (seen[at & c->seen_mask]) at++;
        seen[at & c->seen_mask] = (int32_t)i + 1;
    }
}

/* Says so where the bounds end a search: then no memory would help. */
static int is_too_much(closure *c, int too_much) {
    c->full |= too_much;
    return too_much;
}

int qn_text_run_is_full(const run *r) { return r->scratch && r->scratch->full; }

static void meet(closure *c, int32_t state, int32_t frame) {
    run_item item = {state, frame};
    if (c->failed || state < 0) return;
    if (!c->seen || 2 * c->work.n >= c->seen_mask) grow_seen(c);
    if (c->failed) return;
    uint64_t at = hash_items(&item, 1, 0);
    for (; c->seen[at & c->seen_mask]; at++) {
        const run_item *there = &c->work.at[c->seen[at & c->seen_mask] - 1];
        if (there->state == state && there->frame == frame) return;
    }
    if (is_too_much(c, c->work.n >= MOST_ITEMS) || !QN_VEC_ROOM(&c->arena, &c->work, 1)) {
        c->failed = 1;
        return;
    }
    c->work.at[c->work.n++] = item;
    c->seen[at & c->seen_mask] = (int32_t)c->work.n;
}

/* One more waits for a rule that is called here. */
static void call(const run *r, closure *c, int32_t rule, run_item back) {
    int32_t local = c->local_of[rule] - 1;
    if (local < 0) {
        if (!QN_VEC_ROOM(&c->arena, &c->locals, 1)) c->failed = 1;
        if (c->failed) return;
        local = (int32_t)c->locals.n++;
        c->locals.at[local] = (local_frame){rule, -1, -1, -1, 0};
        c->local_of[rule] = local + 1;
        meet(c, r->net->rules.at[rule].start, ~local);
    }
    if (!QN_VEC_ROOM(&c->arena, &c->callers, 1)) c->failed = 1;
    if (c->failed) return;
    int32_t here = (int32_t)c->callers.n++;
    caller *k = &c->callers.at[here];
    *k = (caller){back, local, c->locals.at[local].callers, -1};
    c->locals.at[local].callers = here;
    if (back.frame >= 0) return;
    k->next_of_same = c->locals.at[~back.frame].calls;
    c->locals.at[~back.frame].calls = here;
    c->locals.at[local].pending++;
}

static void follow(const run *r, closure *c, run_item item) {
    const net_state *s = &r->net->states.at[item.state];
    switch ((net_kind)s->kind) {
    case NET_BYTE:
    case NET_TOKEN:
        if (!QN_VEC_ROOM(&c->arena, &c->out, 1)) c->failed = 1;
        if (!c->failed) c->out.at[c->out.n++] = item;
        return;
    case NET_SPLIT:
        meet(c, s->a, item.frame);
        meet(c, s->b, item.frame);
        return;
    case NET_CALL:
        if (r->net->rules.at[s->b].nullable) meet(c, s->a, item.frame);
        if (r->net->states.at[s->a].kind == NET_END) meet(c, r->net->rules.at[s->b].start, item.frame);
        else call(r, c, s->b, (run_item){s->a, item.frame});
        return;
    case NET_END:
        if (item.frame < 0) return; /* the rule is empty here, and its callers went on when they called it */
        if (item.frame == ROOT_FRAME) c->ends = 1;
        for (uint32_t i = 0; i < r->frames.at[item.frame].n; i++) {
            run_item back = r->pool.at[r->frames.at[item.frame].at + i];
            meet(c, back.state, back.frame);
        }
        return;
    }
}

/* ---- Entering frames and sets. */

/* Twice the slots, all free. */
static int32_t *grow_slots(run *r, int32_t *old, size_t *mask) {
    size_t slots = old ? (*mask + 1) * 2 : FIRST_SLOTS;
    int32_t *grown = qn_arena_resize(&r->arena, old, slots, sizeof *grown);
    if (!grown) return NULL;
    memset(grown, 0, slots * sizeof *grown);
    *mask = slots - 1;
    return grown;
}

static void put_slot(int32_t *slots, size_t mask, uint64_t hash, size_t number) {
    while (slots[hash & mask]) hash++;
    slots[hash & mask] = (int32_t)number + 1;
}

static int room_for_frame(run *r) {
    if (r->frame_slots && 2 * r->frames.n < r->frame_mask) return 1;
    int32_t *grown = grow_slots(r, r->frame_slots, &r->frame_mask);
    if (!grown) return 0;
    r->frame_slots = grown;
    for (size_t i = 0; i < r->frames.n; i++) put_slot(grown, r->frame_mask, r->frames.at[i].hash, i);
    return 1;
}

static int room_for_set(run *r) {
    if (r->set_slots && 2 * r->sets.n < r->set_mask) return 1;
    int32_t *grown = grow_slots(r, r->set_slots, &r->set_mask);
    if (!grown) return 0;
    r->set_slots = grown;
    for (size_t i = 1; i < r->sets.n; i++) put_slot(grown, r->set_mask, r->sets.at[i].hash, i);
    return 1;
}

/* The frame with these callers, sorted; `unique` when it is part of a circle and so like no other. -1: no memory. */
static int32_t enter_frame(run *r, const run_item *items, size_t n, uint64_t hash, int unique) {
    if (!room_for_frame(r)) return -1;
    uint64_t at = hash;
    for (; r->frame_slots[at & r->frame_mask]; at++) {
        int32_t number = r->frame_slots[at & r->frame_mask] - 1;
        const run_frame *f = &r->frames.at[number];
        if (!unique && f->hash == hash && f->n == n && memcmp(r->pool.at + f->at, items, n * sizeof *items) == 0) return number;
    }
    if (is_too_much(r->scratch, r->pool.n + n > HARD_POOL) || !QN_VEC_ROOM(&r->arena, &r->pool, n) ||
        !QN_VEC_ROOM(&r->arena, &r->frames, 1))
        return -1;
    if (n) memcpy(r->pool.at + r->pool.n, items, n * sizeof *items);
    r->frames.at[r->frames.n] = (run_frame){(uint32_t)r->pool.n, (uint32_t)n, hash};
    r->pool.n += n;
    r->frame_slots[at & r->frame_mask] = (int32_t)r->frames.n + 1;
    return (int32_t)r->frames.n++;
}

/* Callers of a local frame behind the end of c->work, with the numbers their frames have; returns how many, leaves c->work.n. */
static size_t list_callers(closure *c, const local_frame *f) {
    size_t n = 0;
    for (int32_t k = f->callers; k >= 0; k = c->callers.at[k].next) {
        if (!QN_VEC_ROOM(&c->arena, &c->work, n + 1)) c->failed = 1;
        if (c->failed) return 0;
        run_item item = c->callers.at[k].item;
        if (item.frame < 0) item.frame = c->locals.at[~item.frame].known;
        c->work.at[c->work.n + n++] = item;
    }
    return n;
}

static void enter_ready(run *r, closure *c, int32_t local) {
    size_t n = list_callers(c, &c->locals.at[local]);
    if (c->failed) return;
    run_item *items = c->work.at + c->work.n;
    qsort(items, n, sizeof *items, by_item);
    int32_t number = enter_frame(r, items, n, hash_items(items, n, 1), 0);
    c->locals.at[local].known = number;
    if (number < 0) c->failed = 1;
    for (int32_t k = c->locals.at[local].calls; k >= 0 && !c->failed; k = c->callers.at[k].next_of_same) {
        int32_t callee = c->callers.at[k].callee;
        if (--c->locals.at[callee].pending == 0) c->ready.at[c->ready.n++] = callee;
    }
}

/* Frames in a circle (of a rule that calls itself first) get their numbers before their callers have theirs. */
static void enter_circle(run *r, closure *c) {
    size_t first = c->ready.n;
    for (size_t i = 0; i < c->locals.n && !c->failed; i++) {
        if (c->locals.at[i].known >= 0) continue;
        size_t n = list_callers(c, &c->locals.at[i]);
        if (c->failed) return;
        int32_t number = enter_frame(r, c->work.at + c->work.n, n, mix((uint64_t)r->frames.n), 1);
        if (number < 0) c->failed = 1;
        c->locals.at[i].known = number;
        c->ready.at[c->ready.n++] = (int32_t)i;
    }
    for (size_t i = first; i < c->ready.n && !c->failed; i++) {
        const local_frame *f = &c->locals.at[c->ready.at[i]];
        size_t n = list_callers(c, f);
        if (!c->failed && n) memcpy(r->pool.at + r->frames.at[f->known].at, c->work.at + c->work.n, n * sizeof *c->work.at);
    }
}

/* A frame is entered after its callers; what is left then lies in circles or behind them. */
static void enter_frames(run *r, closure *c) {
    c->ready.n = 0;
    if (!QN_VEC_ROOM(&c->arena, &c->ready, c->locals.n + 1)) c->failed = 1;
    for (size_t i = 0; i < c->locals.n && !c->failed; i++)
        if (c->locals.at[i].pending == 0) c->ready.at[c->ready.n++] = (int32_t)i;
    for (size_t i = 0; i < c->ready.n && !c->failed; i++) enter_ready(r, c, c->ready.at[i]);
    if (c->ready.n < c->locals.n && !c->failed) enter_circle(r, c);
}

/* The set with what the closure found. */
static int32_t enter_set(run *r, closure *c) {
    for (size_t i = 0; i < c->out.n; i++)
        if (c->out.at[i].frame < 0) c->out.at[i].frame = c->locals.at[~c->out.at[i].frame].known;
    if (c->out.n == 0 && !c->ends) return SET_DEAD;
    if (!room_for_set(r)) return SET_FAILED;
    if (c->out.n) qsort(c->out.at, c->out.n, sizeof *c->out.at, by_item);
    uint64_t hash = hash_items(c->out.at, c->out.n, 2 + (uint64_t)c->ends), at = hash;
    for (; r->set_slots[at & r->set_mask]; at++) {
        int32_t number = r->set_slots[at & r->set_mask] - 1;
        const run_set *s = &r->sets.at[number];
        if (s->hash == hash && s->ends == c->ends && s->n == c->out.n &&
            (s->n == 0 || memcmp(r->pool.at + s->at, c->out.at, s->n * sizeof *c->out.at) == 0))
            return number;
    }
    if (is_too_much(c, r->sets.n >= HARD_SETS || r->pool.n + c->out.n > HARD_POOL)) return SET_FAILED;
    if (!QN_VEC_ROOM(&r->arena, &r->pool, c->out.n) || !QN_VEC_ROOM(&r->arena, &r->sets, 1)) return SET_FAILED;
    if (c->out.n) memcpy(r->pool.at + r->pool.n, c->out.at, c->out.n * sizeof *c->out.at);
    r->sets.at[r->sets.n] = (run_set){(uint32_t)r->pool.n, (uint32_t)c->out.n, hash, NULL, (uint8_t)c->ends};
    r->pool.n += c->out.n;
    r->set_slots[at & r->set_mask] = (int32_t)r->sets.n + 1;
    return (int32_t)r->sets.n++;
}

static void begin(closure *c) {
    c->work.n = c->out.n = c->locals.n = c->callers.n = 0;
    c->failed = c->full = c->ends = 0;
    if (c->seen) memset(c->seen, 0, (c->seen_mask + 1) * sizeof *c->seen);
}

static int32_t finish(run *r) {
    closure *c = r->scratch;
    for (size_t i = 0; i < c->work.n && !c->failed; i++) follow(r, c, c->work.at[i]);
    if (!c->failed) enter_frames(r, c);
    for (size_t i = 0; i < c->locals.n; i++)
        c->local_of[c->locals.at[i].rule < 0 ? ~c->locals.at[i].rule : c->locals.at[i].rule] = 0;
    int32_t set = c->failed ? SET_FAILED : enter_set(r, c);
    if (c->seen_mask > 1 << 16) { /* a rare giant must not make every later place pay for clearing it */
        qn_arena_release(&c->arena, c->seen);
        c->seen = NULL;
        c->seen_mask = 0;
    }
    return set;
}

static int32_t root_set(run *r) {
    begin(r->scratch);
    meet(r->scratch, r->net->rules.at[0].start, ROOT_FRAME);
    return finish(r);
}

int32_t qn_text_run_start(run *r, const network *net) {
    memset(r, 0, sizeof *r);
    r->net = net;
    qn_arena_init(&r->arena, 0);
    closure *c = qn_heap_zeroed(1, sizeof *c);
    if (!c) return SET_FAILED;
    r->scratch = c;
    qn_arena_init(&c->arena, 0);
    c->local_of = qn_arena_alloc(&c->arena, net->rules.n, sizeof *c->local_of);
    if (!c->local_of || !QN_VEC_ROOM(&r->arena, &r->sets, 1)) return SET_FAILED;
    r->sets.at[r->sets.n++] = (run_set){0}; /* SET_DEAD */
    if (enter_frame(r, NULL, 0, mix(1), 1) != ROOT_FRAME) return SET_FAILED;
    return root_set(r);
}

int32_t qn_text_run_restart(run *r) {
    if (r->sets.n < TIDY_SETS && r->pool.n < TIDY_POOL) return root_set(r);
    run fresh;
    int32_t start = qn_text_run_start(&fresh, r->net);
    run *unused = start == SET_FAILED ? &fresh : r;
    qn_text_run_free(unused);
    if (start != SET_FAILED) *r = fresh;
    return start;
}

void qn_text_run_free(run *r) {
    if (r->scratch) qn_arena_destroy(&r->scratch->arena);
    qn_heap_free(r->scratch);
    qn_arena_destroy(&r->arena);
}

/* Items of a set that take a byte, led on. */
static void take_byte(const run *r, closure *c, int32_t set, uint8_t byte) {
    const run_set *s = &r->sets.at[set];
    for (uint32_t i = 0; i < s->n; i++) {
        run_item item = r->pool.at[s->at + i];
        const net_state *n = &r->net->states.at[item.state];
        if (n->kind == NET_BYTE && byte >= n->low && byte <= n->high) meet(c, n->a, item.frame);
    }
}

int32_t qn_text_run_step(run *r, int32_t set, uint8_t byte) {
    if (set <= SET_DEAD) return set;
    int32_t *step = r->sets.at[set].step;
    if (step && step[byte] != SET_UNKNOWN) return step[byte];
    begin(r->scratch);
    take_byte(r, r->scratch, set, byte);
    int32_t next = r->scratch->work.n || r->scratch->failed ? finish(r) : SET_DEAD;
    if (next == SET_FAILED) return SET_FAILED;
    if (!step) {
        step = qn_arena_resize(&r->arena, NULL, 256, sizeof *step);
        if (!step) return SET_FAILED;
        memset(step, 0xFF, 256 * sizeof *step);
        r->sets.at[set].step = step;
    }
    step[byte] = next;
    return next;
}

int32_t qn_text_run_token(run *r, int32_t set, int32_t id, qn_text bytes) {
    int32_t by_bytes = bytes.length ? set : SET_DEAD;
    for (size_t i = 0; i < bytes.length && by_bytes > SET_DEAD; i++)
        by_bytes = qn_text_run_step(r, by_bytes, (uint8_t)bytes.at[i]);
    if (by_bytes == SET_FAILED || set <= SET_DEAD) return by_bytes;
    closure *c = r->scratch;
    begin(c);
    for (uint32_t i = 0; i < r->sets.at[set].n; i++) {
        run_item item = r->pool.at[r->sets.at[set].at + i];
        const net_state *n = &r->net->states.at[item.state];
        if (n->kind == NET_TOKEN && (n->b == id) != n->low) meet(c, n->a, item.frame);
    }
    if (!c->work.n && !c->failed) return by_bytes;
    for (uint32_t i = 0; by_bytes > SET_DEAD && i < r->sets.at[by_bytes].n;
         i++) { /* both: all items of the one and of the other */
        run_item item = r->pool.at[r->sets.at[by_bytes].at + i];
        meet(c, item.state, item.frame);
    }
    c->ends = by_bytes > SET_DEAD && r->sets.at[by_bytes].ends;
    return finish(r);
}

/* ---- Throwing away what no place refers to any more. */

typedef struct renumbering {
    int32_t *number; /* by old frame: its new number, -1 when nobody refers to it */
    int32_t *stack;
    size_t depth;
} renumbering;

static void mark(renumbering *m, const run *r, uint32_t at, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        int32_t frame = r->pool.at[at + i].frame;
        if (m->number[frame] >= 0) continue;
        m->number[frame] = 0;
        m->stack[m->depth++] = frame;
    }
}

static void mark_all(renumbering *m, const run *r, int32_t set) {
    memset(m->number, 0xFF, r->frames.n * sizeof *m->number);
    m->number[ROOT_FRAME] = 0;
    mark(m, r, r->sets.at[set].at, r->sets.at[set].n);
    while (m->depth) {
        const run_frame *f = &r->frames.at[m->stack[--m->depth]];
        mark(m, r, f->at, f->n);
    }
    for (size_t i = 0, next = 0; i < r->frames.n; i++)
        if (m->number[i] >= 0) m->number[i] = (int32_t)next++;
}

/* Frames in their old order, with the new numbers of their callers. */
static int copy_frames(const renumbering *m, const run *r, run *fresh) {
    closure *c = r->scratch;
    for (size_t i = 0; i < r->frames.n; i++) {
        const run_frame *f = &r->frames.at[i];
        if (m->number[i] < 0) continue;
        begin(c);
        if (!QN_VEC_ROOM(&c->arena, &c->work, f->n)) return 0;
        for (uint32_t k = 0; k < f->n; k++) {
            run_item item = r->pool.at[f->at + k];
            c->work.at[k] = (run_item){item.state, m->number[item.frame]};
        }
        uint64_t hash = i == ROOT_FRAME ? mix(1) : hash_items(c->work.at, f->n, 1);
        if (enter_frame(fresh, c->work.at, f->n, hash, 1) != m->number[i]) return 0;
    }
    return 1;
}

static int32_t copy_set(const renumbering *m, const run *r, int32_t set, run *fresh) {
    closure *c = r->scratch;
    begin(c);
    for (uint32_t i = 0; i < r->sets.at[set].n; i++) {
        run_item item = r->pool.at[r->sets.at[set].at + i];
        meet(c, item.state, m->number[item.frame]);
    }
    c->ends = r->sets.at[set].ends;
    return finish(fresh);
}

int32_t qn_text_run_tidy(run *r, int32_t set) {
    if (set <= SET_DEAD || (r->sets.n < TIDY_SETS && r->pool.n < TIDY_POOL)) return set;
    renumbering m = {qn_heap_alloc(r->frames.n * sizeof *m.number), qn_heap_alloc(r->frames.n * sizeof *m.stack), 0};
    run fresh = {.net = r->net, .scratch = r->scratch};
    int32_t start = SET_FAILED;
    qn_arena_init(&fresh.arena, 0);
    if (m.number && m.stack && QN_VEC_ROOM(&fresh.arena, &fresh.sets, 1)) {
        fresh.sets.at[fresh.sets.n++] = (run_set){0};
        mark_all(&m, r, set);
        if (copy_frames(&m, r, &fresh)) start = copy_set(&m, r, set, &fresh);
    }
    qn_heap_free(m.number);
    qn_heap_free(m.stack);
    if (start == SET_FAILED) {
        qn_arena_destroy(&fresh.arena);
        return SET_FAILED;
    }
    qn_arena_destroy(&r->arena);
    *r = fresh;
    return start;
}
