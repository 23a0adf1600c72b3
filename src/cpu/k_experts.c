/* grouped_matmul, mul_mat_id of plain floats, and affine_matmul_id: rows are counted into lists by expert, and some rows of a list at a
 * time multiplied with some columns of its matrix by the f32 product, whose every element is one chain: so a row has the bits it has alone.
 * And out_prod_id, where a list is what is summed over. */
#include "cpu/k_experts.h"

#include "cpu/k_affine.h"
#include "cpu/k_gemm.h"
#include "cpu/k_lanes.h"

enum { ROWS = 32, COLUMNS = 256, PARTS = 8, LINE = 64 };
/* Numbers of a step that are remembered: parts of the products and bytes of scratch for each, which a step around this one leaves alone. */
enum { AT_PARTS = 2, AT_SCRATCH };

/* Row `i` of the op. */
typedef struct places {
    const char *x;
    char *y;
} places;
typedef places (*place_fn)(const qn_call *c, int64_t i);

typedef struct product {
    int64_t rows, count, used; /* rows of activations, matrices, rows to a line of ids */
    int64_t n, k;              /* columns and depth of a matrix */
    const qn_tensor *x, *w, *ids, *y;
    int64_t along, deep; /* byte strides of a matrix: along its columns, and along the summed axis */
    int64_t matrix;      /* bytes from one to the next */
    place_fn place;
    const qn_affine *codes; /* the matrices, when they are not floats */
} product;

static size_t in_lines(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }
static size_t lists_bytes(const product *p) { return in_lines((size_t)(p->count + 1 + p->rows) * sizeof(int32_t)); }

/* A side whose rows lie anywhere. */
static void fetch_rows(const qn_gemm_side *side, int64_t batch, int64_t first, int64_t count, int64_t first_k, int depth,
                       float *panel, int step) {
    const char *const *rows = side->context;
    int64_t size = qn_float_bytes(side->dtype);
    (void)batch;
    for (int64_t i = 0; i < count; i++) {
        float *to = panel + i / step * ((int64_t)step * depth) + i % step;
        const char *from = rows[first + i] + first_k * size;
        for (int p = 0; p < depth; p++, to += step)
            *to = side->dtype == QN_DTYPE_F32   ? ((const float *)(const void *)from)[p]
                  : side->dtype == QN_DTYPE_F16 ? qn_f16_to_f32(((const uint16_t *)(const void *)from)[p])
                                                : qn_bf16_to_f32(((const uint16_t *)(const void *)from)[p]);
    }
}

/* m rows and n columns of matrix number `which`, from column `first` on; sums go to `to`, n to a row. */
static int describe(const product *p, int64_t which, int64_t first, int64_t m, int64_t n, const char *const *rows, float *to,
                    qn_gemm *g) {
    *g = (qn_gemm){.m = m, .n = n, .k = p->k, .c = (char *)to, .c_row = n * 4, .c_column = 4, .c_dtype = QN_DTYPE_F32};
    g->a = (qn_gemm_side){.dtype = p->x->dtype, .fetch = fetch_rows, .context = rows};
    g->b = (qn_gemm_side){.data = qn_at(p->w, which * p->matrix + first * p->along), .dtype = p->w->dtype};
    g->b.along = p->along;
    g->b.deep = p->deep;
    if (p->codes) g->b = (qn_gemm_side){.fetch = qn_affine_fetch, .context = p->codes, .along = which, .deep = first};
    return qn_gemm_settle(g);
}

/* The cut of a product that one thread computes. */
static qn_gemm_cut cut_of(const qn_gemm *g) {
    qn_gemm_cut cut = qn_gemm_plan(g);
    cut.parts[0] = cut.parts[1] = 1;
    cut.workspace = cut.shared + cut.slot;
    return cut;
}

/* The most that any number of rows needs. */
static size_t scratch_of(const product *p) {
    size_t most = 0;
    qn_gemm g;
    for (int64_t m = 1; m <= ROWS; m++) {
        if (!describe(p, 0, 0, m, p->n < COLUMNS ? p->n : COLUMNS, NULL, NULL, &g)) return 0;
        size_t need = cut_of(&g).workspace, rest = p->n % COLUMNS && p->n > COLUMNS;
        if (rest && describe(p, 0, 0, m, p->n % COLUMNS, NULL, NULL, &g) && cut_of(&g).workspace > need)
            need = cut_of(&g).workspace;
        if (need > most) most = need;
    }
    return in_lines(most) + ROWS * COLUMNS * sizeof(float);
}

static void run_unit(const qn_call *c, const product *p, const int32_t *start, const int32_t *list, int64_t unit, char *scratch) {
    int64_t which = unit % p->count, first = unit / p->count * COLUMNS, n = p->n - first < COLUMNS ? p->n - first : COLUMNS;
    float *sums = (float *)(void *)scratch;
    int64_t step = qn_nb(p->y, 0);
    for (int32_t at = start[which], end = start[which + 1]; at < end; at += ROWS) {
        int m = end - at < ROWS ? end - at : ROWS;
        const char *rows[ROWS];
        qn_gemm g;
        for (int i = 0; i < m; i++) rows[i] = p->place(c, list[at + i]).x;
        if (!describe(p, which, first, m, n, rows, sums, &g)) return;
        qn_gemm_cut cut = cut_of(&g);
        qn_gemm_part(&g, &cut, scratch + ROWS * COLUMNS * sizeof(float), 0, 0);
        qn_gemm_part(&g, &cut, scratch + ROWS * COLUMNS * sizeof(float), 1, 0);
        for (int i = 0; i < m; i++) {
            char *to = p->place(c, list[at + i]).y + first * step;
            for (int64_t j = 0; j < n; j += VF_N)
                qn_lanes_put_at(p->y->dtype, to, j, qn_lanes_at(QN_DTYPE_F32, (char *)(sums + i * n), j, n), n);
        }
    }
}

/* First the lists, then the products; neighbouring units are the experts of the same columns, so a part has some of each. */
static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part, const product *p) {
    int32_t *start = c->workspace, *list = start + p->count + 1;
    if (phase == 0) {
        qn_experts_sort(p->ids, p->used, p->rows, p->count, start, list);
        return;
    }
    int64_t units = p->count * ((p->n + COLUMNS - 1) / COLUMNS), end = qn_cpu_cut(units, s->n[AT_PARTS], part + 1);
    char *scratch = (char *)c->workspace + lists_bytes(p) + (size_t)part * (size_t)s->n[AT_SCRATCH];
    for (int64_t u = qn_cpu_cut(units, s->n[AT_PARTS], part); u < end; u++) run_unit(c, p, start, list, u, scratch);
}

static int prepare(qn_cpu_step *s, const product *p, qn_cpu_run_fn run_op) {
    if (qn_tensor_count(p->y) == 0 || p->k == 0 || p->rows > INT32_MAX || p->count > INT32_MAX - 1) return 0;
    if ((!p->codes && !qn_lanes_float(p->w->dtype)) || !qn_lanes_rows(p->x) || !qn_lanes_rows(p->y)) return 0;
    size_t scratch = scratch_of(p);
    if (scratch == 0) return 0;
    int64_t units = p->count * ((p->n + COLUMNS - 1) / COLUMNS);
    double flops = 2.0 * (double)p->rows * (double)p->n * (double)p->k / (double)units;
    s->run = run_op;
    s->name = "gemm f32 by expert";
    s->n_phases = 2;
    s->parts[0] = 1;
    s->parts[1] = qn_cpu_parts(units, 0, flops / 4);
    if (s->parts[1] > PARTS) s->parts[1] = PARTS;
    s->n[AT_PARTS] = s->parts[1];
    s->n[AT_SCRATCH] = (int64_t)scratch;
    s->workspace = lists_bytes(p) + (size_t)s->parts[1] * scratch;
    return 1;
}

/* ---- grouped_matmul */

static places grouped_place(const qn_call *c, int64_t i) {
    return (places){qn_at(c->src[0], i * qn_nb(c->src[0], 1)), qn_at(c->dst[0], i * qn_nb(c->dst[0], 1))};
}

static product grouped(const qn_call *c) {
    const qn_tensor *w = c->src[1];
    product p = {.x = c->src[0], .w = w, .ids = c->src[2], .y = c->dst[0], .place = grouped_place};
    p.rows = p.used = qn_ne(p.y, 1);
    p.count = qn_ne(w, 2);
    p.n = qn_ne(w, 0);
    p.k = qn_ne(w, 1);
    p.along = qn_nb(w, 0);
    p.deep = qn_nb(w, 1);
    p.matrix = qn_nb(w, 2);
    return p;
}

static void run_grouped(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    product p = grouped(c);
    run(c, s, phase, part, &p);
}

int QN_K(grouped_matmul)(const qn_call *c, qn_cpu_step *s) {
    product p = grouped(c);
    return prepare(s, &p, run_grouped);
}

/* ---- mul_mat_id */

static places expert_place(const qn_call *c, int64_t i) {
    const qn_tensor *b = c->src[1], *y = c->dst[0];
    int64_t token = i / qn_ne(y, 1), which = i % qn_ne(y, 1);
    return (places){qn_at(b, qn_off4(b, 0, token, which % qn_ne(b, 1), 0)), qn_at(y, qn_off4(y, 0, token, which, 0))};
}

static product by_expert(const qn_call *c) {
    const qn_tensor *w = c->src[0];
    product p = {.x = c->src[1], .w = w, .ids = c->src[2], .y = c->dst[0], .place = expert_place};
    p.used = qn_ne(p.y, 1);
    p.rows = p.used * qn_ne(p.y, 2);
    p.count = qn_ne(w, 2);
    p.n = qn_ne(w, 1);
    p.k = qn_ne(w, 0);
    p.along = qn_nb(w, 1);
    p.deep = qn_nb(w, 0);
    p.matrix = qn_nb(w, 2);
    return p;
}

static void run_by_expert(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    product p = by_expert(c);
    run(c, s, phase, part, &p);
}

void QN_K(experts_few)(const qn_call *c, qn_cpu_step *s); /* k_experts_few.c: a few tokens with experts that stay */

int QN_K(mul_mat_id_floats)(const qn_call *c, qn_cpu_step *s);
int QN_K(mul_mat_id_floats)(const qn_call *c, qn_cpu_step *s) {
    product p = by_expert(c);
    if (!prepare(s, &p, run_by_expert)) return 0;
    QN_K(experts_few)(c, s);
    return 1;
}

/* ---- affine_matmul_id */

static places coded_place(const qn_call *c, int64_t i) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    int64_t token = i / qn_ne(y, 1), which = i % qn_ne(y, 1);
    return (places){qn_at(x, qn_off4(x, 0, token, which % qn_ne(x, 1), 0)), qn_at(y, qn_off4(y, 0, token, which, 0))};
}

static int of_codes(const qn_call *c, qn_affine *a, product *p) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    if (!qn_affine_describe(c, 1, a)) return 0;
    *p = (product){.x = x, .w = a->codes, .ids = c->src[4], .y = y, .place = coded_place, .codes = a};
    p->used = qn_ne(y, 1);
    p->rows = p->used * qn_ne(y, 2);
    p->count = qn_ne(a->codes, 2);
    p->n = qn_ne(y, 0);
    p->k = a->length;
    return 1;
}

static void run_of_codes(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_affine a;
    product p;
    if (of_codes(c, &a, &p)) run(c, s, phase, part, &p);
}

int QN_K(affine_matmul_id)(const qn_call *c, qn_cpu_step *s) {
    qn_affine a;
    product p;
    if (!of_codes(c, &a, &p) || !prepare(s, &p, run_of_codes)) return 0;
    qn_affine_few(c, s);
    return 1;
}

/* ---- out_prod_id: the matrix of an expert is the sum over its list of a row of g times a row of b, in the list's order. A tile of a
 * matrix takes some of the list at a time, and what each gives is added up. */

enum { TALL = 128, WIDE = 256, DEEP = 256, OUT_PARTS = 16 };

typedef struct outer {
    int64_t rows, count, used, m, n; /* entries of the lists, matrices, entries to a token; rows and columns of a matrix */
    const qn_tensor *b, *g, *ids, *y;
} outer;

static outer outer_of(const qn_call *c) {
    outer o = {.b = c->src[0], .g = c->src[1], .ids = c->src[2], .y = c->dst[0]};
    o.used = qn_ne(o.g, 1);
    o.rows = o.used * qn_ne(o.g, 2);
    o.count = qn_ne(o.y, 2);
    o.m = qn_ne(o.y, 1);
    o.n = qn_ne(o.y, 0);
    return o;
}

/* A side whose every line of a panel is a row that lies anywhere. */
static void fetch_lines(const qn_gemm_side *side, int64_t batch, int64_t first, int64_t count, int64_t first_k, int depth,
                        float *panel, int step) {
    const char *const *rows = side->context;
    (void)batch;
    for (int p = 0; p < depth; p++) {
        const char *from = rows[first_k + p] + first * 4;
        for (int64_t i = 0; i < count; i += step) {
            float *to = panel + i * depth + p * step;
            int64_t n = count - i < step ? count - i : step;
            for (int64_t k = 0; k < n; k += VF_N)
                qn_lanes_put_at(QN_DTYPE_F32, (char *)to, k, qn_lanes_at(QN_DTYPE_F32, from + i * 4, k, n), n);
        }
    }
}

/* A tile is WIDE wide wherever it ends. */
static int describe_outer(int64_t m, int64_t n, int64_t depth, const char *const *up, const char *const *in, float *tile,
                          qn_gemm *g) {
    *g = (qn_gemm){.m = m, .n = n, .k = depth, .c = (char *)tile, .c_row = WIDE * 4, .c_column = 4, .c_dtype = QN_DTYPE_F32};
    g->a = (qn_gemm_side){.dtype = QN_DTYPE_F32, .fetch = fetch_lines, .context = up};
    g->b = (qn_gemm_side){.dtype = QN_DTYPE_F32, .fetch = fetch_lines, .context = in};
    return qn_gemm_settle(g);
}

/* The most that any tile and any piece of a list needs. */
static size_t outer_scratch(const outer *o) {
    int64_t tall[2] = {o->m < TALL ? o->m : TALL, o->m % TALL}, wide[2] = {o->n < WIDE ? o->n : WIDE, o->n % WIDE};
    size_t most = 0;
    for (int i = 0; i < 4; i++)
        for (int64_t depth = 1; depth <= DEEP && depth <= o->rows; depth++) {
            qn_gemm g;
            if (tall[i / 2] == 0 || wide[i % 2] == 0) continue;
            if (!describe_outer(tall[i / 2], wide[i % 2], depth, NULL, NULL, NULL, &g)) return 0;
            size_t need = cut_of(&g).workspace;
            if (need > most) most = need;
        }
    return in_lines(most);
}

/* A tile of one matrix: m by n elements from row i and column j on. */
typedef struct tile {
    int64_t i, j, m, n;
} tile;

/* depth entries of a list, at most DEEP: what they add up to. */
static void outer_piece(const outer *o, const tile *t, const int32_t *list, int depth, float *sums, char *scratch) {
    const char *up[DEEP], *in[DEEP];
    qn_gemm g;
    for (int p = 0; p < depth; p++) {
        int64_t token = list[p] / o->used, which = list[p] % o->used;
        up[p] = qn_at(o->g, qn_off4(o->g, 0, token, which, 0)) + t->i * 4;
        in[p] = qn_at(o->b, qn_off4(o->b, 0, token, which % qn_ne(o->b, 1), 0)) + t->j * 4;
    }
    if (!describe_outer(t->m, t->n, depth, up, in, sums, &g)) return;
    qn_gemm_cut cut = cut_of(&g);
    qn_gemm_part(&g, &cut, scratch, 0, 0);
    qn_gemm_part(&g, &cut, scratch, 1, 0);
}

/* The tile into its matrix, or onto what is there. */
static void put_tile(const outer *o, const tile *t, char *to, const float *sums, int add) {
    for (int64_t r = 0; r < t->m; r++, to += qn_nb(o->y, 1), sums += WIDE)
        for (int64_t k = 0; k < t->n; k += VF_N) {
            vf sum = vf_load(sums + k);
            qn_lanes_put_at(QN_DTYPE_F32, to, k, add ? sum + qn_lanes_at(QN_DTYPE_F32, to, k, t->n) : sum, t->n);
        }
}

/* A matrix whose list is empty is zero. */
static void outer_tile(const outer *o, const tile *t, char *to, const int32_t *list, int64_t n, float *sums, char *scratch) {
    for (int64_t r = 0; n == 0 && r < t->m; r++) memset(to + r * qn_nb(o->y, 1), 0, (size_t)t->n * 4);
    for (int64_t at = 0; at < n; at += DEEP) {
        outer_piece(o, t, list + at, (int)(n - at < DEEP ? n - at : DEEP), sums, scratch);
        put_tile(o, t, to, sums, at > 0);
    }
}

static void run_outer(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    outer o = outer_of(c);
    int32_t *start = c->workspace, *list = start + o.count + 1;
    if (phase == 0) {
        qn_experts_sort(o.ids, o.used, o.rows, o.count, start, list);
        return;
    }
    int64_t across = (o.n + WIDE - 1) / WIDE, units = o.count * across * ((o.m + TALL - 1) / TALL);
    char *scratch = (char *)c->workspace + in_lines((size_t)(o.count + 1 + o.rows) * sizeof *start) + part * s->n[0];
    float *sums = (float *)(void *)(scratch + s->n[0]) - TALL * WIDE;
    for (int64_t u = qn_cpu_cut(units, s->parts[1], part), end = qn_cpu_cut(units, s->parts[1], part + 1); u < end; u++) {
        int64_t which = u % o.count;
        tile t = {.i = u / o.count / across * TALL, .j = u / o.count % across * WIDE};
        t.m = o.m - t.i < TALL ? o.m - t.i : TALL;
        t.n = o.n - t.j < WIDE ? o.n - t.j : WIDE;
        outer_tile(&o, &t, qn_at(o.y, qn_off4(o.y, 0, which, t.i, t.j)), list + start[which], start[which + 1] - start[which],
                   sums, scratch);
    }
}

int QN_K(out_prod_id)(const qn_call *c, qn_cpu_step *s) {
    outer o = outer_of(c);
    if (qn_tensor_count(o.y) == 0 || o.rows == 0 || o.rows > INT32_MAX || o.count > INT32_MAX - 1) return 0;
    if (o.y->dtype != QN_DTYPE_F32 || !qn_lanes_rows(o.b) || !qn_lanes_rows(o.g) || !qn_lanes_rows(o.y)) return 0;
    size_t scratch = outer_scratch(&o) + TALL * WIDE * sizeof(float);
    int64_t units = o.count * ((o.m + TALL - 1) / TALL) * ((o.n + WIDE - 1) / WIDE);
    s->run = run_outer;
    s->name = "gemm f32 by expert's list";
    s->n_phases = 2;
    s->parts[0] = 1;
    s->parts[1] = qn_cpu_parts(units, 4.0 * (double)qn_tensor_count(o.y) / (double)units,
                               0.5 * (double)o.rows * (double)o.m * (double)o.n / (double)units);
    if (s->parts[1] > OUT_PARTS) s->parts[1] = OUT_PARTS;
    s->n[0] = (int64_t)scratch;
    s->workspace = in_lines((size_t)(o.count + 1 + o.rows) * sizeof(int32_t)) + (size_t)s->parts[1] * scratch;
    return 1;
}
