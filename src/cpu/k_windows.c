/* Images cut into square windows and put together again (win_part, win_unpart), and what attention adds by how far a query is from a key
 * (get_rel_pos, add_rel_pos). Of dense tensors a row of a window is one run of memory on both sides. */
#include "cpu/k_lanes.h"
#include "cpu/k_past.h"
#include "op/op_layout.h"

/* ---- win_part and win_unpart: copies of rows of windows */

typedef struct windows {
    int64_t size, across, down; /* pixels along a side of a window; windows in a row of them, and how many rows */
    int64_t width, height;      /* of the image, in pixels */
    int64_t pixel;              /* bytes */
} windows;

static windows windows_of(const qn_call *c, int64_t size, const qn_tensor *image) {
    windows w = {.size = size, .width = qn_ne(image, 1), .height = qn_ne(image, 2)};
    w.across = w.width / size + (w.width % size != 0);
    w.down = w.height / size + (w.height % size != 0);
    w.pixel = qn_ne(image, 0) * qn_dtype_bytes(c->dst[0]->dtype);
    return w;
}

/* Bytes that row `row` of window `which` shares with the image, and where they are there: those beyond its right and lower edge are
 * not. */
static int64_t shared_bytes(const windows *w, int64_t which, int64_t row, int64_t *at) {
    int64_t y = which / w->across * w->size + row, x = which % w->across * w->size;
    *at = (y * w->width + x) * w->pixel;
    if (y >= w->height) return 0;
    return (w->width - x < w->size ? w->width - x : w->size) * w->pixel;
}

static void run_part(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    windows w = windows_of(c, ((const qn_attr_win_part *)c->attr)->w, c->src[0]);
    int64_t rows = w.across * w.down * w.size, bytes = w.size * w.pixel, at;
    (void)phase;
    for (int64_t r = qn_cpu_cut(rows, s->parts[0], part), end = qn_cpu_cut(rows, s->parts[0], part + 1); r < end; r++) {
        int64_t have = shared_bytes(&w, r / w.size, r % w.size, &at);
        char *to = qn_at(c->dst[0], r * bytes);
        if (have) memcpy(to, qn_at(c->src[0], at), (size_t)have);
        memset(to + have, 0, (size_t)(bytes - have));
    }
}

static void run_unpart(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    windows w = windows_of(c, ((const qn_attr_win_unpart *)c->attr)->w, c->dst[0]);
    int64_t rows = w.across * w.down * w.size, bytes = w.size * w.pixel, at;
    (void)phase;
    for (int64_t r = qn_cpu_cut(rows, s->parts[0], part), end = qn_cpu_cut(rows, s->parts[0], part + 1); r < end; r++) {
        int64_t have = shared_bytes(&w, r / w.size, r % w.size, &at);
        if (have) memcpy(qn_at(c->dst[0], at), qn_at(c->src[0], r * bytes), (size_t)have);
    }
}

static int prepare_windows(const qn_call *c, qn_cpu_step *s, const char *name, qn_cpu_run_fn run, const windows *w) {
    if (qn_tensor_count(c->dst[0]) == 0 || !qn_cpu_is_dense(c->src[0]) || !qn_cpu_is_dense(c->dst[0])) return 0;
    return qn_cpu_by_rows(s, name, run, w->across * w->down * w->size, 2.0 * (double)w->size * (double)w->pixel, 0);
}

int QN_K(win_part)(const qn_call *c, qn_cpu_step *s) {
    windows w = windows_of(c, ((const qn_attr_win_part *)c->attr)->w, c->src[0]);
    return prepare_windows(c, s, "win_part rows", run_part, &w);
}

int QN_K(win_unpart)(const qn_call *c, qn_cpu_step *s) {
    windows w = windows_of(c, ((const qn_attr_win_unpart *)c->attr)->w, c->dst[0]);
    return prepare_windows(c, s, "win_unpart rows", run_unpart, &w);
}

/* ---- get_rel_pos: from key to key the row of the table is the one before, so a query has one row and then those of the query before it */

static void run_get_rel_pos(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *y = c->dst[0];
    int64_t keys = qn_ne(y, 1), queries = qn_ne(y, 2), row = qn_ne(y, 0) * qn_dtype_bytes(y->dtype);
    (void)phase;
    int64_t first = qn_cpu_cut(queries, s->parts[0], part), end = qn_cpu_cut(queries, s->parts[0], part + 1);
    for (int64_t q = first; q < end; q++) {
        const char *from = qn_at(c->src[0], (q + keys - 1) * row);
        char *to = qn_at(y, q * keys * row);
        memcpy(to, from, (size_t)row);
        if (q > first) qn_far_copy(to + row, to - keys * row, (keys - 1) * row, to - row);
        else
            for (int64_t k = 1; k < keys; k++) memcpy(to + k * row, from - k * row, (size_t)row);
    }
}

int QN_K(get_rel_pos)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *y = c->dst[0];
    if (qn_tensor_count(y) == 0 || !qn_cpu_is_dense(y) || !qn_cpu_is_dense(c->src[0])) return 0;
    double row = (double)(qn_ne(y, 0) * qn_dtype_bytes(y->dtype));
    return qn_cpu_by_rows(s, "get_rel_pos rows", run_get_rel_pos, qn_ne(y, 2), 2 * row * (double)qn_ne(y, 1), 0);
}

/* ---- add_rel_pos, f32: a query has a row of terms for the keys' columns and one for their rows */

static void run_add_rel_pos(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    int64_t side = qn_ne(c->src[1], 0), keys = side * side, queries = qn_tensor_count(c->dst[0]) / keys;
    (void)phase;
    for (int64_t q = qn_cpu_cut(queries, s->parts[0], part), end = qn_cpu_cut(queries, s->parts[0], part + 1); q < end; q++) {
        const float *a = (const float *)(const void *)qn_at(c->src[0], q * keys * 4);
        const float *pw = (const float *)(const void *)qn_at(c->src[1], q * side * 4);
        const float *ph = (const float *)(const void *)qn_at(c->src[2], q * side * 4);
        float *y = (float *)(void *)qn_at(c->dst[0], q * keys * 4);
        for (int64_t h = 0; h < side; h++, a += side, y += side)
            for (int64_t i = 0; i < side; i += VF_N) {
                int some = side - i < VF_N ? (int)(side - i) : VF_N;
                vf_storen(y + i, vf_loadn(a + i, some) + vf_set1(ph[h]) + vf_loadn(pw + i, some), some);
            }
    }
}

int QN_K(add_rel_pos)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *y = c->dst[0];
    if (y->dtype != QN_DTYPE_F32 || qn_tensor_count(y) == 0 || !qn_cpu_is_dense(y)) return 0;
    for (int i = 0; i < 3; i++)
        if (!qn_cpu_is_dense(c->src[i])) return 0;
    double keys = (double)qn_ne(y, 0);
    return qn_cpu_by_rows(s, "add_rel_pos rows", run_add_rel_pos, qn_tensor_count(y) / qn_ne(y, 0), 8 * keys, 2 * keys);
}
