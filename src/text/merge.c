/* Byte-pair merging with a heap; see merge.h. */
#include "text/merge.h"
#include "base/heap.h"

#include <stdlib.h>

static int before(const merge_place *a, const merge_place *b) {
    return a->order < b->order || (a->order == b->order && a->left < b->left);
}

static int push(merger *m, merge_place p) {
    if (m->places == m->places_room) {
        size_t room = m->places_room ? m->places_room * 2 : 64;
        merge_place *grown = room < SIZE_MAX / 64 ? qn_heap_resize(m->place, room * sizeof *grown) : NULL;
        if (!grown) return 0;
        m->place = grown;
        m->places_room = room;
    }
    size_t i = m->places++;
    while (i > 0) {
        size_t up = (i - 1) / 2;
        if (!before(&p, &m->place[up])) break;
        m->place[i] = m->place[up];
        i = up;
    }
    m->place[i] = p;
    return 1;
}

static merge_place pop(merger *m) {
    merge_place best = m->place[0], last = m->place[--m->places];
    size_t i = 0;
    for (;;) {
        size_t down = 2 * i + 1;
        if (down >= m->places) break;
        if (down + 1 < m->places && before(&m->place[down + 1], &m->place[down])) down++;
        if (!before(&m->place[down], &last)) break;
        m->place[i] = m->place[down];
        i = down;
    }
    m->place[i] = last;
    return best;
}

int qn_text_merge_add(merger *m, const char *at, size_t n, int32_t id) {
    if (m->n == m->room) {
        size_t room = m->room ? m->room * 2 : 64;
        merge_symbol *grown = room < SIZE_MAX / 64 ? qn_heap_resize(m->symbol, room * sizeof *grown) : NULL;
        if (!grown) return 0;
        m->symbol = grown;
        m->room = room;
    }
    int32_t here = (int32_t)m->n++;
    m->symbol[here] = (merge_symbol){at, (uint32_t)n, id, here - 1, -1};
    if (here) m->symbol[here - 1].next = here;
    return 1;
}

static int consider(merger *m, int32_t left) {
    if (left < 0 || m->symbol[left].next < 0) return 1;
    const merge_symbol *l = &m->symbol[left], *r = &m->symbol[l->next];
    merge_place p = {.left = left, .bytes = l->n + r->n};
    return m->rank(m->t, l, r, &p.order, &p.id) ? push(m, p) : 1;
}

int qn_text_merge_run(merger *m) {
    m->places = 0;
    for (size_t i = 0; i + 1 < m->n; i++)
        if (!consider(m, (int32_t)i)) return 0;
    while (m->places) {
        merge_place p = pop(m);
        merge_symbol *l = &m->symbol[p.left];
        if (l->n == 0 || l->next < 0) continue;
        merge_symbol *r = &m->symbol[l->next];
        if (l->n + r->n != p.bytes) continue;
        l->n = p.bytes;
        l->id = p.id;
        l->next = r->next;
        r->n = 0;
        if (l->next >= 0) m->symbol[l->next].prev = p.left;
        if (!consider(m, l->prev) || !consider(m, p.left)) return 0;
    }
    return 1;
}

void qn_text_merge_free(merger *m) {
    qn_heap_free(m->symbol);
    qn_heap_free(m->place);
}
