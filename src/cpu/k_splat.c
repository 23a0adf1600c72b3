/* splat_prepare, and the scenes of k_splat.h. */
#include "cpu/k_splat.h"

#include <math.h>

#include "cpu/k_sort.h"

size_t qn_splat_open(qn_splat_scene *s, const qn_splat_view *view, int64_t n, void *workspace, int with_bits) {
    memset(s, 0, sizeof *s);
    s->view = s->blocks = *view;
    s->blocks.tile = QN_SPLAT_BLOCK;
    s->blocks.across = (view->width - 1) / QN_SPLAT_BLOCK + 1;
    s->blocks.down = (view->height - 1) / QN_SPLAT_BLOCK + 1;
    s->n = n;
    s->words = (n + 63) / 64;
    int64_t numbers = 4 * n + 1, bits = with_bits ? (s->blocks.across + s->blocks.down) * s->words : 0;
    if (workspace) {
        s->seen = workspace;
        s->order = (int64_t *)(void *)(s->seen + n);
        s->count = s->order + n;
        s->items = (uint64_t *)(void *)(s->count + 1);
        s->bits = s->items + 3 * n;
    }
    return (size_t)n * sizeof *s->seen + (size_t)(numbers + bits) * sizeof(int64_t);
}

void qn_splat_see_part(const qn_splat_scene *s, const qn_tensor *const *scene, int64_t parts, int64_t part) {
    int64_t bases = qn_op_splat_bases(scene[QN_SPLAT_COLOURS]), end = qn_cpu_cut(s->n, parts, part + 1);
    for (int64_t i = qn_cpu_cut(s->n, parts, part); i < end; i++) qn_op_splat_see(&s->view, scene, i, bases, &s->seen[i]);
}

/* A distance is not negative, so its bits are in its order: they are two digits of 32, the lower sorted by first. Below a digit stands
 * what keeps equals in their order. */
static uint64_t digit(double distance, int high, int64_t below) {
    uint64_t b;
    memcpy(&b, &distance, sizeof b);
    return (high ? b >> 32 << 32 : b << 32) | (uint64_t)below;
}

void qn_splat_sort(const qn_splat_scene *s) {
    uint64_t *items = s->items, *spare = items + s->n, *first = spare + s->n;
    int64_t count = 0;
    for (int64_t i = 0; i < s->n; i++)
        if (s->seen[i].valid != 0) items[count++] = digit(s->seen[i].distance, 0, i);
    const uint64_t *sorted = qn_sort_items(items, spare, count);
    for (int64_t i = 0; i < count; i++) first[i] = sorted[i] & UINT32_MAX;
    for (int64_t i = 0; i < count; i++) items[i] = digit(s->seen[first[i]].distance, 1, i);
    sorted = qn_sort_items(items, spare, count);
    for (int64_t i = 0; i < count; i++) s->order[i] = (int64_t)first[sorted[i] & UINT32_MAX];
    *s->count = count;
}

/* ---- Tiles */

/* From pixel a to pixel b as tiles of n. */
static void cut_range(double a, double b, int64_t tile, int64_t n, int64_t *first, int64_t *last) {
    double low = floor(a / (double)tile), high = floor(b / (double)tile);
    *first = low < 0 ? 0 : low > (double)n ? n : (int64_t)low;
    *last = high < 0 ? -1 : high > (double)(n - 1) ? n - 1 : (int64_t)high;
}

/* The box around the outline. It is made larger than rounding could make the outline that qn_op_splat_touches sees: a quadric so flat
 * that this is worth more than a thousandth has no outline, and a pixel is far more than is lost within a billion of them. */
static qn_splat_range range_of(const qn_splat_view *v, const qn_splat_seen *s) {
    qn_splat_range all = {0, v->across - 1, 0, v->down - 1}, some = {1, 0, 1, 0};
    if (s->everywhere != 0) return all;
    if (s->level < 0) return some;
    const double *b = s->bend;
    double room = 1.01 * s->level / (b[0] * b[2] - b[1] * b[1]), wide = sqrt(room * b[2]) * v->focal,
           high = sqrt(room * b[0]) * v->focal;
    double x = s->centre[0] * v->focal + 0.5 * (double)v->width, y = s->centre[1] * v->focal + 0.5 * (double)v->height;
    if (!(v->focal > 0) || !(fabs(x) + wide < 1e9) || !(fabs(y) + high < 1e9)) return all;
    cut_range(x - wide - 1, x + wide + 1, v->tile, v->across, &some.x0, &some.x1);
    cut_range(y - high - 1, y + high + 1, v->tile, v->down, &some.y0, &some.y1);
    return some;
}

/* ---- Bits */

void qn_splat_bits_part(const qn_splat_scene *s, int64_t parts, int64_t part) {
    int64_t first = qn_cpu_cut(s->words, parts, part), end = qn_cpu_cut(s->words, parts, part + 1), across = s->blocks.across;
    for (int64_t line = 0; line < across + s->blocks.down; line++)
        memset(s->bits + line * s->words + first, 0, (size_t)(end - first) * sizeof *s->bits);
    for (int64_t i = first * 64; i < end * 64 && i < *s->count; i++) {
        qn_splat_range r = range_of(&s->blocks, &s->seen[s->order[i]]);
        uint64_t bit = (uint64_t)1 << (i % 64), *word = s->bits + i / 64;
        if (r.x0 > r.x1 || r.y0 > r.y1) continue;
        for (int64_t x = r.x0; x <= r.x1; x++) word[x * s->words] |= bit;
        for (int64_t y = r.y0; y <= r.y1; y++) word[(across + y) * s->words] |= bit;
    }
}

void qn_splat_walk(const qn_splat_scene *s, int64_t block, int (*each)(void *to, int64_t i), void *to) {
    const uint64_t *column = s->bits + block % s->blocks.across * s->words;
    const uint64_t *row = s->bits + (s->blocks.across + block / s->blocks.across) * s->words;
    qn_splat_box box = qn_op_splat_box(&s->blocks, block);
    qn_splat_window window = qn_op_splat_window(&s->blocks, &box);
    for (int64_t w = 0; w < s->words; w++)
        for (uint64_t both = column[w] & row[w]; both; both &= both - 1) {
            int64_t i = s->order[w * 64 + __builtin_ctzll(both)];
            if (qn_op_splat_touches(&s->seen[i], &window) && !each(to, i)) return;
        }
}

/* ---- splat_prepare: phase 0 sees the splats, 1 sorts them and makes the lists */

static void put_index(const qn_tensor *t, int64_t i1, int64_t i0, int64_t value) {
    *(int32_t *)(void *)qn_at(t, qn_off4(t, 0, 0, i1, i0)) = (int32_t)(value < INT32_MAX ? value : INT32_MAX);
}

typedef struct lists {
    const qn_splat_scene *s;
    const qn_tensor *ids;
    int64_t room, needed; /* for ids, and how many there are */
    int64_t *ends;        /* of each tile */
} lists;

/* Counts the tiles of one splat, or puts its number into their lists; only as long as there is room. */
static void list_one(lists *l, int64_t i, int put) {
    const qn_splat_view *v = &l->s->view;
    qn_splat_range r = range_of(v, &l->s->seen[i]);
    for (int64_t y = r.y0; y <= r.y1; y++)
        for (int64_t x = r.x0; x <= r.x1; x++) {
            int64_t tile = y * v->across + x;
            qn_splat_box box = qn_op_splat_box(v, tile);
            qn_splat_window window = qn_op_splat_window(v, &box);
            if (!qn_op_splat_touches(&l->s->seen[i], &window) || l->needed++ >= l->room) continue;
            if (put) put_index(l->ids, 0, l->ends[tile], i);
            l->ends[tile]++;
        }
}

static void put_lists(const qn_splat_scene *s, const qn_call *c, int64_t *ends) {
    int64_t tiles = s->view.across * s->view.down, start = 0, needed;
    lists l = {.s = s, .ids = c->dst[1], .room = qn_ne(c->dst[1], 0), .ends = ends};
    memset(ends, 0, (size_t)tiles * sizeof *ends);
    for (int64_t i = 0; i < *s->count; i++) list_one(&l, s->order[i], 0);
    needed = l.needed;
    for (int64_t t = 0; t < tiles; t++) {
        int64_t n = ends[t];
        put_index(c->dst[2], t, 0, n ? start : 0);
        put_index(c->dst[2], t, 1, n ? start + n : 0);
        ends[t] = start;
        start += n;
    }
    l.needed = 0;
    for (int64_t i = 0; i < *s->count && l.needed < l.room; i++) list_one(&l, s->order[i], 1);
    for (int64_t i = start; i < l.room; i++) put_index(c->dst[1], 0, i, 0);
    put_index(c->dst[3], 0, 0, needed);
}

static size_t open_prepare(const qn_call *c, qn_splat_scene *s) {
    const qn_attr_splat_prepare *at = c->attr;
    qn_splat_view view = QN_SPLAT_VIEW_OF(at);
    view.outward = at->outward;
    if (c->workspace) qn_op_splat_look(&view, c->src[QN_SPLAT_EYE]);
    return qn_splat_open(s, &view, qn_ne(c->src[QN_SPLAT_POSITIONS], 1), c->workspace, 0);
}

static void run_prepare(const qn_call *c, const qn_cpu_step *step, int phase, int64_t part) {
    qn_splat_scene s;
    open_prepare(c, &s);
    if (phase == 0) {
        qn_splat_see_part(&s, c->src, step->parts[0], part);
        int64_t end = qn_cpu_cut(s.n, step->parts[0], part + 1);
        for (int64_t i = qn_cpu_cut(s.n, step->parts[0], part); i < end; i++) qn_op_splat_store(c->dst[0], i, &s.seen[i]);
        return;
    }
    qn_splat_sort(&s);
    put_lists(&s, c, (int64_t *)(void *)s.bits);
}

int QN_K(splat_prepare)(const qn_call *c, qn_cpu_step *step) {
    qn_splat_scene s;
    size_t bytes = open_prepare(c, &s);
    if (!qn_splat_sortable(s.n)) return 0;
    step->run = run_prepare;
    step->name = "splats by tiles";
    step->n_phases = 2;
    step->parts[0] = qn_splat_see_parts(s.n);
    step->parts[1] = 1;
    step->workspace = bytes + (size_t)(s.view.across * s.view.down) * sizeof(int64_t);
    return 1;
}
