/* fft of f32, f16, bf16 and c64 rows, of any length, in f32; numbers of c64 are pairs of floats. Many rows run side by side, one in each
 * lane; a long one is a matrix, and where there are few, the lanes are its columns and rows. A length with a large prime factor is done by
 * Bluestein's identity, as in the reference: a convolution with a chirp, in transforms of a power of two. Roots are made once in a run, as
 * products of two doubles each, so that they are exact to f32. Which numbers are added in which order depends on a row's length and not on
 * how many rows there are. */
#include <math.h>

#include "cpu/k_fft.h"
#include "cpu/simd/simd_turn.h"

enum { FINE = 256, LONG = 4096, SHORT = 256, MOST = 1 << 24, PARTS = 16, LINE = 16 };

/* ---- What a call needs, and where it lies in the workspace */

/* e^(-2 pi i j / order) as coarse[j / FINE] fine[j % FINE], complex numbers of doubles. */
typedef struct table {
    int64_t order;
    double *fine, *coarse;
} table;

typedef struct plan {
    int64_t n, rows; /* numbers of a row, and how many rows */
    int64_t m;       /* length of the transforms that are run */
    int chirped;     /* m is not n */
    int matrix;      /* a row is one, whoever else is in the call: the bits depend on it */
    int wide;        /* lanes are columns and rows of a matrix, not rows of the tensor: they do not */
    float scale, sign;
    table roots, turns; /* of order m, and of order 2 n for the chirp */
    float *w, *chirp, *kernel, *each;
    int64_t each_floats; /* scratch of a part */
    float *mid;          /* of all rows, when each is a matrix and there is no chirp */
    qn_fft_lanes lanes;
    qn_fft_split split;
} plan;

/* A tensor of c64 as the floats it is made of, which lie as pairs; others as they are. */
static qn_tensor as_floats(const qn_tensor *t) {
    qn_tensor f = *t;
    if (t->dtype != QN_DTYPE_C64) return f;
    f.dtype = QN_DTYPE_F32;
    f.shape[f.rank] = 2;
    f.stride[f.rank++] = 4;
    return f;
}
static int32_t layout_of(const qn_call *c) {
    return c->src[0]->dtype == QN_DTYPE_C64 ? 1 : ((const qn_attr_fft *)c->attr)->layout;
}

static int64_t row_length(const qn_tensor *x, int32_t layout) { return layout == 1 ? qn_ne(x, 1) : qn_ne(x, 0) / 2; }

/* The shape of a long line as a matrix: the divisor nearest below the square root. */
static int64_t divisor_of(int64_t n) {
    int64_t d = (int64_t)sqrt((double)n);
    while (n % d) d--;
    return d;
}

static void choose(plan *p) {
    qn_fft_lanes f;
    p->m = p->n;
    p->chirped = !qn_fft_factorise(&f, p->n);
    if (p->chirped)
        for (p->m = 1; p->m < 2 * p->n - 1;) p->m *= 2;
    p->matrix = p->m > SHORT && divisor_of(p->m) >= 4;
    p->wide = p->matrix && (p->m > LONG || p->rows < VF_N / 2);
}

/* Whatever lies in the workspace begins at a line: vectors that reach into two take twice as long. */
static int64_t in_lines(int64_t floats) { return (floats + LINE - 1) / LINE * LINE; }
static float *take(float **at, int64_t n) {
    float *here = *at;
    *at += in_lines(n);
    return here;
}

/* Floats of a table's numbers: doubles, in pairs. */
static int64_t table_floats(int64_t order) { return in_lines(4 * (FINE + order / FINE + 1)); }

static void place_table(table *t, int64_t order, float **at) {
    double *here = (double *)(void *)take(at, table_floats(order));
    *t = (table){order, here, here + 2 * FINE};
}

/* Of the lanes' lengths, and between columns and rows. */
static int64_t roots_floats(const plan *p, int64_t d) { return in_lines(p->matrix ? 2 * (d + p->m / d + p->m) : 2 * d); }

/* Addresses from `at` on; returns where they end. With NULL, only sizes come out: nothing is read or written then. */
static size_t place(plan *p, float *base) {
    float *at = base;
    int64_t d = p->matrix ? divisor_of(p->m) : p->m;
    size_t floats = (size_t)table_floats(p->m) + (size_t)(p->chirped ? table_floats(2 * p->n) : 0);
    floats += (size_t)roots_floats(p, d);
    floats += (size_t)(p->chirped ? in_lines(2 * p->n) + in_lines(2 * p->m) : 0);
    floats += (size_t)(p->wide && !p->chirped ? in_lines(2 * p->m * p->rows) : 0);
    p->each_floats = 4 * VF_N * (p->wide ? p->m / d : p->m) + (p->wide && p->chirped ? 4 * p->m : 0);
    if (!base) return floats;
    place_table(&p->roots, p->m, &at);
    if (p->chirped) place_table(&p->turns, 2 * p->n, &at);
    p->w = take(&at, roots_floats(p, d));
    qn_fft_factorise(&p->lanes, d);
    p->lanes.w = p->w;
    if (p->matrix) {
        p->split.columns = p->lanes;
        qn_fft_factorise(&p->split.rows, p->m / d);
        p->split.rows.w = p->w + 2 * d;
        p->split.cross_re = p->split.rows.w + 2 * (p->m / d);
        p->split.cross_im = p->split.cross_re + p->m;
    }
    if (p->chirped) {
        p->chirp = take(&at, 2 * p->n);
        p->kernel = take(&at, 2 * p->m);
    } else if (p->wide) {
        p->mid = take(&at, 2 * p->m * p->rows);
    }
    p->each = at;
    return floats;
}

static void plan_of(const qn_call *c, plan *p) {
    const qn_attr_fft *at = c->attr;
    qn_tensor x = as_floats(c->src[0]);
    *p = (plan){.n = row_length(&x, layout_of(c)), .sign = at->inverse ? -1.0f : 1.0f, .scale = 1};
    p->rows = qn_tensor_count(&x) / (2 * p->n);
    if (at->norm == 2) p->scale = (float)(1 / sqrt((double)p->n));
    else if (at->norm == (at->inverse ? 1 : 3)) p->scale = (float)(1 / (double)p->n);
    choose(p);
}

/* ---- Tables */

static void fill_table(const table *t) {
    const double turn = -6.28318530717958647692 / (double)t->order;
    for (int64_t j = 0; j < FINE; j++) {
        t->fine[2 * j] = cos(turn * (double)j);
        t->fine[2 * j + 1] = sin(turn * (double)j);
    }
    for (int64_t j = 0; j <= t->order / FINE; j++) {
        double angle = -6.28318530717958647692 * ((double)(j * FINE) / (double)t->order);
        t->coarse[2 * j] = cos(angle);
        t->coarse[2 * j + 1] = sin(angle);
    }
}

static inline void root_of(const table *t, int64_t j, float *re, float *im) {
    const double *a = t->coarse + 2 * (j / FINE), *b = t->fine + 2 * (j % FINE);
    *re = (float)(a[0] * b[0] - a[1] * b[1]);
    *im = (float)(a[0] * b[1] + a[1] * b[0]);
}

/* The roots of the lanes' lengths, by one part; those between columns and rows, some rows each part. */
static void fill_roots(const plan *p, int64_t part, int64_t parts) {
    int64_t d = p->lanes.n, more = p->matrix ? p->m / d : 0, k = qn_cpu_cut(p->matrix ? d : 0, parts, part);
    if (part == 0) {
        for (int64_t j = 0; j < d; j++) root_of(&p->roots, j * (p->m / d), p->w + 2 * j, p->w + 2 * j + 1);
        for (int64_t j = 0; j < more; j++) root_of(&p->roots, j * d, p->w + 2 * (d + j), p->w + 2 * (d + j) + 1);
    }
    float *re = p->w + 2 * (d + more), *im = re + p->m;
    for (int64_t end = qn_cpu_cut(p->matrix ? d : 0, parts, part + 1); k < end; k++)
        for (int64_t j = 0; j < more; j++) root_of(&p->roots, k * j, re + k * more + j, im + k * more + j);
}

/* ---- Rows as lanes: numbers i of VF_N rows are the vectors 2 i and 2 i + 1 */

/* Where the rows of a tensor have their numbers. */
typedef struct rows {
    qn_tensor walk;
    qn_fft_line line; /* but for the address */
} rows;

static rows rows_of(const qn_tensor *t, int32_t layout, int64_t n) {
    int64_t size = qn_float_bytes(t->dtype);
    rows r = {*t, {NULL, t->dtype, 1, size, 1, 1}};
    if (layout == 1) r.walk.rank--;
    r.line.pairs = layout == 1;
    if (layout == 0) r.line.gap = n * size;
    return r;
}

static int some_of(int64_t n, int64_t first) { return (int)(n - first < VF_N ? n - first : VF_N); }

/* The vector that float `j` of a part of the line belongs to, and what it is multiplied with. */
static inline int64_t place_of(const qn_fft_line *l, int part, int64_t j) { return l->pairs ? j : 2 * j + part; }
static inline vf weight_of(const qn_fft_line *l, int part, int64_t j) {
    return vf_set1((l->pairs ? j & 1 : part) ? l->im_by : l->re_by);
}

static void rows_in(const qn_fft_line *l, char *const *row, int some, int64_t n, float *x) {
    int64_t floats = l->pairs ? 2 * n : n;
    for (int part = 0; part < (l->pairs ? 1 : 2); part++)
        for (int64_t j = 0; j < floats; j += VF_N) {
            vf r[VF_N];
            for (int k = 0; k < VF_N; k++) r[k] = k < some ? qn_lanes_at(l->dtype, row[k] + part * l->gap, j, floats) : vf_zero();
            vf_turn(r);
            for (int t = 0; t < some_of(floats, j); t++)
                vf_store(x + place_of(l, part, j + t) * VF_N, r[t] * weight_of(l, part, j + t));
        }
}

static void rows_out(const qn_fft_line *l, char *const *row, int some, int64_t n, const float *x) {
    int64_t floats = l->pairs ? 2 * n : n;
    for (int part = 0; part < (l->pairs ? 1 : 2); part++)
        for (int64_t j = 0; j < floats; j += VF_N) {
            vf r[VF_N];
            int many = some_of(floats, j);
            for (int t = 0; t < VF_N; t++)
                r[t] = t < many ? vf_load(x + place_of(l, part, j + t) * VF_N) * weight_of(l, part, j + t) : vf_zero();
            vf_turn(r);
            for (int k = 0; k < some; k++) qn_lanes_put_at(l->dtype, row[k] + part * l->gap, j, r[k], floats);
        }
}

/* ---- Chirps. All tables hold n real parts, then n imaginary ones. */

/* x_i = x_i w_i, and its conjugate when `turned`, times `by`. */
static void weigh_lanes(float *x, const float *w, int64_t n, float by, int turned) {
    for (int64_t i = 0; i < n; i++, x += 2 * VF_N) {
        vf re = vf_load(x), im = vf_load(x + VF_N), a = vf_set1(w[i] * by), b = vf_set1(w[n + i] * by);
        vf to = vf_fma(re, b, im * a);
        vf_store(x, vf_fma(re, a, -(im * b)));
        vf_store(x + VF_N, turned ? -to : to);
    }
}

static void weigh_line(float *re, float *im, const float *w, int64_t n, float by, int turned) {
    for (int64_t i = 0; i < n; i += VF_N) {
        int some = some_of(n, i);
        vf x = vf_loadn(re + i, some), y = vf_loadn(im + i, some), a = vf_loadn(w + i, some), b = vf_loadn(w + n + i, some);
        a *= vf_set1(by), b *= vf_set1(by); /* as the lanes do: a product that is rounded below the smallest float shows when */
        vf to = vf_fma(x, b, y * a);
        vf_storen(re + i, vf_fma(x, a, -(y * b)), some);
        vf_storen(im + i, turned ? -to : to, some);
    }
}

static void run_line(const plan *p, float *line, float *mid, float *x, float *y) {
    qn_fft_line l = {(char *)line, QN_DTYPE_F32, 0, p->m * 4, 1, 1};
    for (int64_t g = 0; g < qn_fft_groups(p->split.rows.n); g++) qn_fft_columns(&p->split, &l, g, mid, x, y);
    for (int64_t g = 0; g < qn_fft_groups(p->split.columns.n); g++) qn_fft_rows(&p->split, mid, g, &l, x, y);
}

/* The chirp e^(-pi i j^2 / n), and the transform of its conjugate, wrapped around. */
static void fill_chirp(const plan *p, float *each) {
    float *re = p->kernel, *im = re + p->m;
    for (int64_t i = 0; i < 2 * p->m; i++) re[i] = 0;
    for (int64_t j = 0, square = 0; j < p->n; square = (square + 2 * j + 1) % (2 * p->n), j++) {
        root_of(&p->turns, square, p->chirp + j, p->chirp + p->n + j);
        re[j] = re[(p->m - j) % p->m] = p->chirp[j];
        im[j] = im[(p->m - j) % p->m] = -p->chirp[p->n + j];
    }
    float *x = each, *y = x + p->each_floats / 2;
    if (p->matrix) {
        x = each + 4 * p->m;
        run_line(p, p->kernel, each, x, x + (p->each_floats - 4 * p->m) / 2);
        return;
    }
    for (int64_t i = 0; i < p->m; i++) {
        vf_store(x + 2 * i * VF_N, vf_set1(re[i]));
        vf_store(x + (2 * i + 1) * VF_N, vf_set1(im[i]));
    }
    const float *z = qn_fft_run_lanes(&p->lanes, x, y);
    for (int64_t i = 0; i < p->m; i++) {
        re[i] = z[2 * i * VF_N];
        im[i] = z[(2 * i + 1) * VF_N];
    }
}

/* The transforms of rows that are lanes. */
static float *run_rows(const plan *p, float *x, float *y) {
    return p->matrix ? qn_fft_run_split(&p->split, x, y) : qn_fft_run_lanes(&p->lanes, x, y);
}

static float *chirped_lanes(const plan *p, float *x, float *y) {
    weigh_lanes(x, p->chirp, p->n, 1, 0);
    memset(x + 2 * p->n * VF_N, 0, (size_t)(2 * (p->m - p->n) * VF_N) * sizeof *x);
    float *a = run_rows(p, x, y), *other = a == x ? y : x;
    weigh_lanes(a, p->kernel, p->m, 1, 1); /* back, by the conjugate of the transform of the conjugate */
    a = run_rows(p, a, other);
    for (int64_t i = 0; i < p->n; i++) vf_store(a + (2 * i + 1) * VF_N, -vf_load(a + (2 * i + 1) * VF_N));
    weigh_lanes(a, p->chirp, p->n, (float)(1 / (double)p->m), 0);
    return a;
}

/* One row; f holds the numbers, split, and has room for m. */
static void chirped_line(const plan *p, float *f, float *mid, float *x, float *y) {
    float *re = f, *im = f + p->m;
    size_t rest = (size_t)(p->m - p->n) * sizeof *f;
    weigh_line(re, im, p->chirp, p->n, 1, 0);
    memset(re + p->n, 0, rest);
    memset(im + p->n, 0, rest);
    run_line(p, f, mid, x, y);
    weigh_line(re, im, p->kernel, p->m, 1, 1);
    run_line(p, f, mid, x, y);
    for (int64_t i = 0; i < p->n; i++) im[i] = -im[i];
    weigh_line(re, im, p->chirp, p->n, (float)(1 / (double)p->m), 0);
}

/* ---- Runs */

typedef struct ends {
    rows from, to;
} ends;

static ends ends_of(const qn_call *c, const plan *p) {
    qn_tensor x = as_floats(c->src[0]), y = as_floats(c->dst[0]);
    ends e = {rows_of(&x, layout_of(c), p->n), rows_of(&y, layout_of(c), p->n)};
    e.from.line.im_by = p->sign;
    e.to.line.re_by = p->scale;
    e.to.line.im_by = p->scale * p->sign;
    return e;
}

static void open_plan(const qn_call *c, plan *p) {
    plan_of(c, p);
    place(p, c->workspace);
}

static void run_lanes(const plan *p, ends *e, int64_t group, float *each) {
    char *from[VF_N], *to[VF_N];
    int some = 0;
    qn_rows it;
    for (qn_rows_begin_at(&it, e->from.walk.rank, e->from.walk.shape, group * VF_N); it.live && some < VF_N; qn_rows_next(&it)) {
        from[some] = qn_row(&it, &e->from.walk);
        to[some++] = qn_row(&it, &e->to.walk);
    }
    float *x = each, *y = x + p->each_floats / 2;
    rows_in(&e->from.line, from, some, p->n, x);
    rows_out(&e->to.line, to, some, p->n, p->chirped ? chirped_lanes(p, x, y) : run_rows(p, x, y));
}

/* A long row with a chirp: copied out, worked on, copied back. */
static void run_chirped(const plan *p, const qn_fft_line *from, const qn_fft_line *to, float *each) {
    float *f = each, *mid = f + 2 * p->m, *x = mid + 2 * p->m, *y = x + (p->each_floats - 4 * p->m) / 2;
    int64_t size = qn_float_bytes(from->dtype), step = from->pairs ? 2 * size : size;
    for (int64_t i = 0; i < p->n; i++) {
        f[i] = (float)qn_load_one((qn_dtype)from->dtype, from->at + i * step) * from->re_by;
        f[p->m + i] = (float)qn_load_one((qn_dtype)from->dtype, from->at + i * step + from->gap) * from->im_by;
    }
    chirped_line(p, f, mid, x, y);
    for (int64_t i = 0; i < p->n; i++) {
        qn_store_one((qn_dtype)to->dtype, to->at + i * step, (double)(f[i] * to->re_by));
        qn_store_one((qn_dtype)to->dtype, to->at + i * step + to->gap, (double)(f[p->m + i] * to->im_by));
    }
}

static qn_fft_line line_at(const rows *r, int64_t row) {
    qn_rows it;
    qn_fft_line l = r->line;
    qn_rows_begin_at(&it, r->walk.rank, r->walk.shape, row);
    l.at = qn_row(&it, &r->walk);
    return l;
}

/* Phase 2 of a matrix has groups of columns of all rows, phase 3 of its rows. */
static void run_wide(const plan *p, ends *e, int phase, int64_t unit, float *each) {
    int64_t groups = qn_fft_groups(phase == 2 ? p->split.rows.n : p->split.columns.n), row = unit / groups;
    float *x = each, *y = x + p->each_floats / 2, *mid = p->mid + row * 2 * p->m;
    qn_fft_line from = line_at(&e->from, row), to = line_at(&e->to, row);
    if (phase == 2) qn_fft_columns(&p->split, &from, unit % groups, mid, x, y);
    else qn_fft_rows(&p->split, mid, unit % groups, &to, x, y);
}

/* How many units phase 2, or 3, is cut from. */
static int64_t units_of(const plan *p, int phase) {
    if (!p->wide) return qn_fft_groups(p->rows);
    if (p->chirped) return p->rows;
    int64_t d = divisor_of(p->m);
    return p->rows * qn_fft_groups(phase == 2 ? p->m / d : d);
}

/* Phase 0: fine and coarse roots. 1: roots. Then, with a chirp, 2: the chirp, 3: rows; without, 2: lanes or columns, 3: rows. */
static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    plan p;
    open_plan(c, &p);
    ends e = ends_of(c, &p);
    float *each = p.each + part * p.each_floats;
    if (phase == 0) {
        fill_table(&p.roots);
        if (p.chirped) fill_table(&p.turns);
    } else if (phase == 1) {
        fill_roots(&p, part, s->parts[1]);
    } else if (phase == 2 && p.chirped) {
        fill_chirp(&p, each);
    } else {
        int64_t units = units_of(&p, phase), u = qn_cpu_cut(units, s->parts[phase], part);
        for (int64_t end = qn_cpu_cut(units, s->parts[phase], part + 1); u < end; u++) {
            if (!p.wide) run_lanes(&p, &e, u, each);
            else if (!p.chirped) run_wide(&p, &e, phase, u, each);
            else {
                qn_fft_line from = line_at(&e.from, u), to = line_at(&e.to, u);
                run_chirped(&p, &from, &to, each);
            }
        }
    }
}

/* Numbers side by side in a row. */
static int is_tight(const qn_tensor *t, int32_t layout) {
    if (!qn_lanes_float(t->dtype)) return 0;
    int64_t size = qn_float_bytes(t->dtype);
    return qn_nb(t, 0) == size && (layout == 0 || qn_ne(t, 1) == 1 || qn_nb(t, 1) == 2 * size);
}

int QN_K(fft)(const qn_call *c, qn_cpu_step *s) {
    int32_t layout = layout_of(c);
    plan p;
    if (c->src[0]->dtype == QN_DTYPE_C64 && c->src[0]->rank == QN_MAX_RANK) return 0; /* no axis is left for the pairs */
    qn_tensor x = as_floats(c->src[0]), y = as_floats(c->dst[0]);
    if (qn_tensor_count(&x) == 0 || !is_tight(&x, layout) || !is_tight(&y, layout)) return 0;
    if (row_length(&x, layout) > MOST / 4 || qn_tensor_count(&x) > (int64_t)1 << 40) return 0;
    plan_of(c, &p);
    size_t floats = place(&p, NULL);
    double work = 5.0 * (double)p.m * log2((double)p.m + 1) * (p.chirped ? 2 : 1) * (double)p.rows;
    int last = p.chirped || p.wide ? 3 : 2;
    s->run = run;
    s->name = p.matrix ? "fft matrix" : "fft lanes";
    s->n_phases = last + 1;
    s->parts[0] = 1;
    s->parts[1] = p.matrix ? qn_cpu_parts(divisor_of(p.m), 0, 8.0 * (double)(p.m / divisor_of(p.m))) : 1;
    s->parts[2] = s->parts[3] = 1;
    for (int phase = p.chirped ? 3 : 2; phase <= last; phase++) {
        int64_t units = units_of(&p, phase);
        s->parts[phase] = qn_cpu_parts(units, 0, work / (double)units);
        if (s->parts[phase] > PARTS) s->parts[phase] = PARTS;
    }
    int64_t most = s->parts[2] > s->parts[last] ? s->parts[2] : s->parts[last];
    s->workspace = (floats + (size_t)(most * p.each_floats)) * sizeof(float);
    return 1;
}
