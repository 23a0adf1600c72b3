/* The cursors of section 9. Each loop names the case it handles; their order is the rule. */
#include "prof/prof_interval.h"

#include "prof/prof_sort.h"

qn_status qn_prof_range_push(qn_arena *arena, prof_ranges *list, prof_num start, prof_num end) {
    if (!QN_VEC_ROOM(arena, list, 1)) {
        return QN_NO_MEMORY;
    }
    prof_range range = {start, end};
    list->at[list->n++] = range;
    return QN_OK;
}

qn_status qn_prof_range_merge(qn_arena *arena, prof_ranges *list, prof_num start, prof_num end) {
    prof_range *last = list->n ? &list->at[list->n - 1] : NULL;
    if (!last || (prof_gt(end, last->end) && !prof_le(start, last->end))) {
        return qn_prof_range_push(arena, list, start, end);
    }
    if (prof_gt(end, last->end)) {
        last->end = end;
    }
    return QN_OK;
}

static int starts_before(const void *a, const void *b, const void *unused) {
    (void)unused;
    return prof_lt(((const prof_range *)a)->start, ((const prof_range *)b)->start);
}

qn_status qn_prof_ranges_merge(qn_arena *arena, const prof_ranges *in, prof_ranges *out) {
    if (!QN_VEC_ROOM(arena, out, in->n)) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < in->n; i++) {
        out->at[i] = in->at[i];
    }
    if (qn_prof_sort(arena, out->at, in->n, sizeof *out->at, starts_before, NULL) != QN_OK) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < in->n; i++) { /* in place: the merged part is never ahead of what is read */
        prof_range next = out->at[i];
        qn_prof_range_merge(arena, out, next.start, next.end);
    }
    return QN_OK;
}

typedef struct meet { /* one step of A and B: the piece found, if any */
    prof_range a, b;
    size_t ia, ib;
    const prof_range *bs;
    size_t nb;
} meet;

static void next_b(meet *m) {
    if (++m->ib < m->nb) {
        m->b = m->bs[m->ib];
    }
}

/* Advances by one case; 1 when `piece` holds a result. `a_done` is set when the current a is used up. */
static int meet_step(meet *m, prof_range *piece, int *a_done) {
    *a_done = 0;
    if (prof_le(m->b.end, m->a.start)) {
        next_b(m);
        return 0;
    }
    if (prof_le(m->b.start, m->a.start)) {
        piece->start = m->a.start;
        if (prof_lt(m->b.end, m->a.end)) {
            piece->end = m->b.end;
            m->a.start = m->b.end;
            next_b(m);
        } else {
            piece->end = m->a.end;
            m->b.start = m->a.end;
            *a_done = 1;
        }
        return 1;
    }
    if (prof_lt(m->b.end, m->a.end)) {
        *piece = m->b;
        m->a.start = m->b.end;
        next_b(m);
        return 1;
    }
    *a_done = 1;
    if (prof_lt(m->b.start, m->a.end)) {
        piece->start = m->b.start;
        piece->end = m->a.end;
        m->b.start = m->a.end;
        return 1;
    }
    return 0;
}

qn_status qn_prof_ranges_meet(qn_arena *arena, const prof_ranges *a, const prof_ranges *b, prof_ranges *out) {
    if (a->n == 0 || b->n == 0) {
        return QN_OK;
    }
    meet m = {a->at[0], b->at[0], 0, 0, b->at, b->n};
    while (m.ia < a->n && m.ib < b->n) {
        prof_range piece;
        int a_done;
        if (meet_step(&m, &piece, &a_done) && qn_prof_range_push(arena, out, piece.start, piece.end) != QN_OK) {
            return QN_NO_MEMORY;
        }
        if (a_done && ++m.ia < a->n) {
            m.a = a->at[m.ia];
        }
    }
    return QN_OK;
}

qn_status qn_prof_pieces_clip(qn_arena *arena, const prof_pieces *a, prof_num start, prof_num end, prof_pieces *out) {
    prof_range whole = {start, end};
    for (meet m = {whole, whole, 0, 0, &whole, 1}; m.ia < a->n && m.ib < 1; m.ia++) {
        m.a.start = a->at[m.ia].start;
        m.a.end = a->at[m.ia].end;
        for (int a_done = 0; !a_done && m.ib < 1;) {
            prof_range piece;
            if (!meet_step(&m, &piece, &a_done)) {
                continue;
            }
            if (!QN_VEC_ROOM(arena, out, 1)) {
                return QN_NO_MEMORY;
            }
            prof_piece valued = {piece.start, piece.end, a->at[m.ia].value};
            out->at[out->n++] = valued;
        }
    }
    return QN_OK;
}

qn_status qn_prof_ranges_minus(qn_arena *arena, const prof_ranges *a, const prof_ranges *b, prof_ranges *out) {
    meet m = {{{{0}, 0}, {{0}, 0}}, {{{0}, 0}, {{0}, 0}}, 0, 0, b->at, b->n};
    if (b->n) {
        m.b = b->at[0];
    }
    for (; m.ia < a->n; m.ia++) {
        m.a = a->at[m.ia];
        for (int a_done = 0; !a_done;) {
            int emit = 0;
            prof_num upto = m.a.end;
            if (m.ib >= b->n) {
                emit = a_done = 1;
            } else if (prof_le(m.b.end, m.a.start)) {
                next_b(&m);
            } else if (prof_le(m.b.start, m.a.start)) {
                if (prof_lt(m.b.end, m.a.end)) {
                    m.a.start = m.b.end;
                    next_b(&m);
                } else {
                    m.b.start = m.a.end;
                    a_done = 1;
                }
            } else if (prof_lt(m.b.start, m.a.end)) {
                emit = 1;
                upto = m.b.start;
            } else {
                emit = a_done = 1;
            }
            if (emit && qn_prof_range_push(arena, out, m.a.start, upto) != QN_OK) {
                return QN_NO_MEMORY;
            }
            if (emit && !a_done) {
                m.a.start = upto;
            }
        }
    }
    return QN_OK;
}

prof_num qn_prof_ranges_sum(const prof_ranges *list) {
    prof_num sum = prof_int(0);
    for (size_t i = 0; i < list->n; i++) {
        sum = prof_add(sum, prof_sub(list->at[i].end, list->at[i].start));
    }
    return sum;
}

/* The first range that ends behind `start`, or begins at or behind it. */
static size_t first_behind(const prof_ranges *b, prof_num start, int begins) {
    size_t low = 0, high = b->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (begins ? prof_lt(b->at[middle].start, start) : prof_le(b->at[middle].end, start)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

size_t qn_prof_ranges_in(prof_num start, prof_num end, const prof_ranges *b) {
    size_t first = first_behind(b, start, 0), behind = first_behind(b, end, 1);
    return behind > first ? behind - first : 0;
}

prof_num qn_prof_ranges_sum_in(prof_num start, prof_num end, const prof_ranges *b) {
    prof_num sum = prof_int(0);
    size_t low = first_behind(b, start, 0); /* what ends before is passed over at once */
    if (low == b->n) {
        return sum;
    }
    prof_range whole = {start, end}, piece;
    int a_done = 0;
    for (meet m = {whole, b->at[low], 0, low, b->at, b->n}; !a_done && m.ib < b->n;) {
        if (meet_step(&m, &piece, &a_done)) {
            sum = prof_add(sum, prof_sub(piece.end, piece.start));
        }
    }
    return sum;
}
