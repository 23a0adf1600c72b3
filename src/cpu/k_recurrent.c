/* Recurrences over a matrix state per sequence and head: rwkv_wkv6, gated_linear_attn, rwkv_wkv7, and their gradients, in f32.
 * The states lie behind the rows of results; the first token of a head writes its state there, and the others work on it in place.
 * Lanes lie along its rows. */
#include "cpu/k_state_turned.h"

typedef struct form {
    int64_t heads, width, seqs, steps;
    float scale;
    const float *rows[6], *states;
    float *y, *next;         /* results, and behind them the states */
    const float *gy, *gnext; /* the gradients of both */
    float *drows[6], *dstates;
} form;

static float *floats_of(const qn_tensor *t) { return (float *)(void *)qn_at(t, 0); }

/* The sources are n_in of rows, and then the states. */
static int read_form(const qn_tensor *const *src, int n_in, form *f) {
    const qn_tensor *states = src[n_in];
    *f = (form){.heads = qn_ne(src[0], 1), .width = qn_ne(src[0], 0), .seqs = qn_ne(states, 1), .scale = 1};
    for (int i = 0; i <= n_in; i++)
        if (src[i]->dtype != QN_DTYPE_F32 || !qn_cpu_is_dense(src[i])) return 0;
    if (qn_tensor_count(states) == 0) return 0;
    f->steps = qn_ne(src[0], 2) / f->seqs;
    for (int i = 0; i < n_in; i++) f->rows[i] = floats_of(src[i]);
    f->states = floats_of(states);
    return 1;
}

static int form_of(const qn_call *c, int n_in, form *f) {
    if (!read_form(c->src, n_in, f) || !qn_cpu_is_dense(c->dst[0])) return 0;
    f->y = floats_of(c->dst[0]);
    f->next = f->y ? f->y + f->seqs * f->steps * f->heads * f->width : NULL; /* nothing lies anywhere yet when a plan is made */
    return 1;
}

/* Gradients come as the results do, and go out as the sources came. */
static int back_form_of(const qn_call *c, int n_in, form *f) {
    if (!read_form(c->src + 1, n_in, f) || c->src[0]->dtype != QN_DTYPE_F32 || !qn_cpu_is_dense(c->src[0])) return 0;
    for (int i = 0; i <= n_in; i++)
        if (!c->dst[i] || !qn_cpu_is_dense(c->dst[i])) return 0;
    f->gy = floats_of(c->src[0]);
    f->gnext = f->gy ? f->gy + f->seqs * f->steps * f->heads * f->width : NULL;
    for (int i = 0; i < n_in; i++) f->drows[i] = floats_of(c->dst[i]);
    f->dstates = floats_of(c->dst[n_in]);
    return 1;
}

QN_INLINE vf part_of(const float *p, int64_t j, int64_t n) { return qn_lanes_at(QN_DTYPE_F32, (const char *)p, j, n); }
QN_INLINE void put_part(float *p, int64_t j, vf v, int64_t n) { qn_lanes_put_at(QN_DTYPE_F32, (char *)p, j, v, n); }

/* y_j = sum_i r_i (S'_ij + f_i k_i v_j), S_ij = d_i S'_ij + k_i v_j; two vectors of columns at a time, for their sums are long
 * chains. */
static void step_wkv6(const form *f, const float *const *x, const float *from, float *s, float *y) {
    const float *k = x[0], *r = x[2], *first = x[3], *decay = x[4];
    const int64_t n = f->width;
    for (int64_t j = 0; j < n; j += 2 * VF_N) {
        int64_t more = j + VF_N < n ? j + VF_N
                                    : j; /* the second is the first again, before it is stored, when there is no other */
        vf v0 = part_of(x[1], j, n), v1 = part_of(x[1], more, n), y0 = vf_zero(), y1 = y0;
        for (int64_t i = 0; i < n; i++) {
            vf s0 = part_of(from + i * n, j, n), s1 = part_of(from + i * n, more, n);
            vf ki = vf_set1(k[i]), kv0 = ki * v0, kv1 = ki * v1, fi = vf_set1(first[i]), ri = vf_set1(r[i]),
               di = vf_set1(decay[i]);
            y0 = vf_fma(ri, vf_fma(fi, kv0, s0), y0);
            y1 = vf_fma(ri, vf_fma(fi, kv1, s1), y1);
            put_part(s + i * n, more, vf_fma(di, s1, kv1), n);
            put_part(s + i * n, j, vf_fma(di, s0, kv0), n);
        }
        put_part(y, more, y1, n);
        put_part(y, j, y0, n);
    }
}

/* S_ij = g_i S'_ij + k_i v_j, y_j = scale sum_i q_i S_ij */
static void step_gla(const form *f, const float *const *x, const float *from, float *s, float *y) {
    const float *k = x[0], *q = x[2], *g = x[3];
    const int64_t n = f->width;
    for (int64_t j = 0; j < n; j += 2 * VF_N) {
        int64_t more = j + VF_N < n ? j + VF_N : j;
        vf v0 = part_of(x[1], j, n), v1 = part_of(x[1], more, n), y0 = vf_zero(), y1 = y0;
        for (int64_t i = 0; i < n; i++) {
            vf ki = vf_set1(k[i]), gi = vf_set1(g[i]), qi = vf_set1(q[i]);
            vf s0 = vf_fma(gi, part_of(from + i * n, j, n), ki * v0), s1 = vf_fma(gi, part_of(from + i * n, more, n), ki * v1);
            y0 = vf_fma(qi, s0, y0);
            y1 = vf_fma(qi, s1, y1);
            put_part(s + i * n, more, s1, n);
            put_part(s + i * n, j, s0, n);
        }
        put_part(y, more, y1 * vf_set1(f->scale), n);
        put_part(y, j, y0 * vf_set1(f->scale), n);
    }
}

/* u_i = sum_j a_j S'_ij, S_ij = w_j S'_ij + v_i k_j + u_i b_j, y_i = sum_j r_j S_ij */
QN_INLINE qn_state_step wkv7_of(const float *const *x) {
    return (qn_state_step){.decay = x[1], .keys = x[2], .extra = x[5], .read = x[0]};
}
static void step_wkv7(const form *f, const float *const *x, const float *from, float *s, float *y) {
    const int64_t n = f->width;
    const qn_state_rows rows = {from, s, n, n, n, n};
    const qn_state_step step = wkv7_of(x);
    for (int64_t first = 0; first < n; first += QN_STATE_ROWS) {
        int64_t end = first + QN_STATE_ROWS < n ? first + QN_STATE_ROWS : n;
        vf u[QN_STATE_ROWS / VF_N]; /* all at once, so that no row waits for its own */
        for (int64_t i = first; i < end; i += VF_N) u[(i - first) / VF_N] = qn_state_dot(&rows, i, x[4]);
        for (int64_t i = first; i < end; i += VF_N)
            put_part(y, i, qn_state_next(&rows, i, &step, 1, 1, part_of(x[3], i, n), u[(i - first) / VF_N]), n);
    }
}

/* From the state before a token to that behind it, which may lie in the same place. */
typedef void (*step_fn)(const form *f, const float *const *x, const float *from, float *s, float *y);

/* A head's rows of a token, and those of the next asked for. Number per_head of the sources is the same for all tokens. */
static void token_rows(const form *f, int n_in, int per_head, int64_t token, int64_t head, const float **x) {
    int64_t n = f->width, row = f->heads * n;
    for (int i = 0; i < n_in; i++) {
        x[i] = f->rows[i] + (i == per_head ? 0 : token) * row + head * n;
        if (i != per_head && token + 1 < f->seqs * f->steps) qn_state_ask(x[i] + row, n);
    }
}

static void run_heads(const form *f, int n_in, int per_head, step_fn step, const qn_cpu_step *s, int64_t part) {
    int64_t units = f->seqs * f->heads, u = qn_cpu_cut(units, s->parts[0], part), n = f->width;
    for (int64_t end = qn_cpu_cut(units, s->parts[0], part + 1); u < end; u++) {
        int64_t head = u % f->heads, first = u / f->heads * f->steps;
        float *state = f->next + u * n * n;
        if (f->steps == 0) memcpy(state, f->states + u * n * n, (size_t)(n * n) * sizeof *state);
        for (int64_t t = first; t < first + f->steps; t++) {
            const float *x[6];
            token_rows(f, n_in, per_head, t, head, x);
            step(f, x, t == first ? f->states + u * n * n : state, state, f->y + (t * f->heads + head) * n);
        }
    }
}

static int prepare(const qn_call *c, qn_cpu_step *s, int n_in, const char *name, qn_cpu_run_fn run) {
    form f;
    if (!form_of(c, n_in, &f)) return 0;
    double cells = (double)f.width * (double)f.width;
    return qn_cpu_by_rows(s, name, run, f.seqs * f.heads, cells * 8, cells * 8 * (double)f.steps);
}

#define RECURRENT_RUN(op, n_in, per_head, step, by)                                         \
    static void run_##op(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) { \
        form f;                                                                             \
        (void)phase;                                                                        \
        if (!form_of(c, n_in, &f)) return;                                                  \
        f.scale = by;                                                                       \
        run_heads(&f, n_in, per_head, step, s, part);                                       \
    }
RECURRENT_RUN(rwkv_wkv6, 5, 3, step_wkv6, 1)
RECURRENT_RUN(gated_linear_attn, 4, -1, step_gla, ((const qn_attr_gated_linear_attn *)c->attr)->scale)
RECURRENT_RUN(rwkv_wkv7, 6, -1, step_wkv7, 1)
int QN_K(rwkv_wkv6)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, 5, "rwkv_wkv6 heads", run_rwkv_wkv6); }
int QN_K(gated_linear_attn)(const qn_call *c, qn_cpu_step *s) {
    return prepare(c, s, 4, "gated_linear_attn heads", run_gated_linear_attn);
}

/* ---- rwkv_wkv7 over many tokens: a block of a head's rows is turned, and goes through all of them */

static int64_t turned_blocks(const form *f) { return (f->width + QN_TURNED_ROWS - 1) / QN_TURNED_ROWS; }

/* The rows of state number u from row `first` on. */
static void turned_wkv7(const form *f, int64_t u, int64_t first, float *tile) {
    const int64_t n = f->width, head = u % f->heads, begin = u / f->heads * f->steps, at = (u * n + first) * n;
    const int64_t some = n - first < QN_TURNED_ROWS ? n - first : QN_TURNED_ROWS;
    const qn_state_rows rows = {f->states + at, f->next + at, n, n, some, n};
    qn_turn_in(&rows, tile);
    for (int64_t t = begin; t < begin + f->steps; t++) {
        const float *x[6];
        vf v[QN_TURNED_VECTORS], a[QN_TURNED_VECTORS], y[QN_TURNED_VECTORS];
        token_rows(f, 6, -1, t, head, x);
        const qn_state_step step = wkv7_of(x);
        qn_turned_take(v, x[3] + first, some);
        qn_turned_dot(tile, n, x[4], a);
        qn_turned_next(tile, n, &step, 1, 1, v, a, y);
        qn_turned_give(f->y + (t * f->heads + head) * n + first, y, some);
    }
    qn_turn_out(&rows, tile);
}

static void run_turned_wkv7(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    form f;
    (void)phase;
    if (!form_of(c, 6, &f)) return;
    int64_t blocks = turned_blocks(&f), units = f.seqs * f.heads * blocks, u = qn_cpu_cut(units, s->parts[0], part);
    float *tile = (float *)c->workspace + part * qn_turned_floats(f.width);
    for (int64_t end = qn_cpu_cut(units, s->parts[0], part + 1); u < end; u++)
        turned_wkv7(&f, u / blocks, u % blocks * QN_TURNED_ROWS, tile);
}

int QN_K(rwkv_wkv7)(const qn_call *c, qn_cpu_step *s) {
    form f;
    if (!form_of(c, 6, &f)) return 0;
    if (f.steps < QN_TURNED_TOKENS) return prepare(c, s, 6, "rwkv_wkv7 heads", run_rwkv_wkv7);
    double cells = (double)f.width * QN_TURNED_ROWS;
    qn_cpu_by_rows(s, "rwkv_wkv7 turned rows", run_turned_wkv7, f.seqs * f.heads * turned_blocks(&f), cells * 8,
                   cells * 8 * (double)f.steps);
    s->workspace = (size_t)(s->parts[0] * qn_turned_floats(f.width)) * sizeof(float);
    return 1;
}

/* ---- Gradients: a head is run once more with all its states kept, then walked back. `grad` is that of the state behind a
 * token, and becomes that of the state before it; dx are rows of zeros, but for one that all tokens share. */

static float dot(const float *a, const float *b, int64_t n) {
    vf sum = vf_zero();
    for (int64_t j = 0; j < n; j += VF_N) sum = vf_fma(part_of(a, j, n), part_of(b, j, n), sum);
    return vf_sum(sum);
}

/* With g the gradient of S: dk_i = sum_j g_ij v_j + r_i f_i gv, dv_j = sum_i g_ij k_i + gy_j sum_i r_i f_i k_i,
 * dr_i = sum_j gy_j S'_ij + f_i k_i gv, df_i = r_i k_i gv, dd_i = sum_j g_ij S'_ij, where gv = sum_j gy_j v_j. */
static void back_wkv6(const form *f, const float *const *x, const float *prev, const float *next, float *grad, const float *gy,
                      float *const *dx) {
    const float *k = x[0], *v = x[1], *r = x[2], *first = x[3], *decay = x[4];
    const int64_t n = f->width;
    float gv = dot(gy, v, n), through = 0;
    (void)next;
    for (int64_t i = 0; i < n; i++, prev += n, grad += n) {
        vf dk = vf_zero(), dr = dk, dd = dk, ki = vf_set1(k[i]), ri = vf_set1(r[i]), di = vf_set1(decay[i]);
        for (int64_t j = 0; j < n; j += VF_N) {
            vf s = part_of(prev, j, n), g = part_of(grad, j, n), up = part_of(gy, j, n);
            dk = vf_fma(g, part_of(v, j, n), dk);
            dr = vf_fma(up, s, dr);
            dd = vf_fma(g, s, dd);
            put_part(dx[1], j, vf_fma(g, ki, part_of(dx[1], j, n)), n);
            put_part(grad, j, vf_fma(di, g, ri * up), n);
        }
        through += r[i] * first[i] * k[i];
        dx[0][i] = vf_sum(dk) + r[i] * first[i] * gv;
        dx[2][i] = vf_sum(dr) + first[i] * k[i] * gv;
        dx[3][i] += r[i] * k[i] * gv;
        dx[4][i] = vf_sum(dd);
    }
    for (int64_t j = 0; j < n; j += VF_N)
        put_part(dx[1], j, vf_fma(vf_set1(through), part_of(gy, j, n), part_of(dx[1], j, n)), n);
}

static void back_gla(const form *f, const float *const *x, const float *prev, const float *next, float *grad, const float *gy,
                     float *const *dx) {
    const float *k = x[0], *v = x[1], *q = x[2], *decay = x[3];
    const int64_t n = f->width;
    for (int64_t i = 0; i < n; i++, prev += n, next += n, grad += n) {
        vf dk = vf_zero(), dq = dk, dg = dk, ki = vf_set1(k[i]), qi = vf_set1(f->scale * q[i]), by = vf_set1(decay[i]);
        for (int64_t j = 0; j < n; j += VF_N) {
            vf up = part_of(gy, j, n), g = vf_fma(qi, up, part_of(grad, j, n));
            dk = vf_fma(g, part_of(v, j, n), dk);
            dq = vf_fma(up, part_of(next, j, n), dq);
            dg = vf_fma(g, part_of(prev, j, n), dg);
            put_part(dx[1], j, vf_fma(g, ki, part_of(dx[1], j, n)), n);
            put_part(grad, j, by * g, n);
        }
        dx[0][i] = vf_sum(dk);
        dx[2][i] = f->scale * vf_sum(dq);
        dx[3][i] = vf_sum(dg);
    }
}

static void back_wkv7(const form *f, const float *const *x, const float *prev, const float *next, float *grad, const float *gy,
                      float *const *dx) {
    const float *r = x[0], *w = x[1], *k = x[2], *v = x[3], *a = x[4], *b = x[5];
    const int64_t n = f->width;
    for (int64_t i = 0; i < n; i++, prev += n, next += n, grad += n) {
        vf u = vf_zero(), du = u, dv = u, up = vf_set1(gy[i]), vi_now = vf_set1(v[i]);
        for (int64_t j = 0; j < n; j += VF_N) {
            vf g = vf_fma(up, part_of(r, j, n), part_of(grad, j, n));
            u = vf_fma(part_of(a, j, n), part_of(prev, j, n), u);
            du = vf_fma(g, part_of(b, j, n), du);
            dv = vf_fma(g, part_of(k, j, n), dv);
            put_part(grad, j, g, n);
        }
        u = vf_set1(vf_sum(u));
        du = vf_set1(vf_sum(du));
        dx[3][i] = vf_sum(dv);
        for (int64_t j = 0; j < n; j += VF_N) {
            vf g = part_of(grad, j, n), before = part_of(prev, j, n);
            put_part(dx[0], j, vf_fma(up, part_of(next, j, n), part_of(dx[0], j, n)), n);
            put_part(dx[1], j, vf_fma(g, before, part_of(dx[1], j, n)), n);
            put_part(dx[2], j, vf_fma(g, vi_now, part_of(dx[2], j, n)), n);
            put_part(dx[4], j, vf_fma(du, before, part_of(dx[4], j, n)), n);
            put_part(dx[5], j, vf_fma(g, u, part_of(dx[5], j, n)), n);
            put_part(grad, j, vf_fma(part_of(w, j, n), g, part_of(a, j, n) * du), n);
        }
    }
}

typedef void (*back_fn)(const form *f, const float *const *x, const float *prev, const float *next, float *grad, const float *gy,
                        float *const *dx);
typedef struct kind {
    int n_in, per_head;
    step_fn step;
    back_fn back;
} kind;

static void rows_at(const form *f, const kind *k, int64_t token, int64_t head, const float **x, float **dx) {
    for (int i = 0; i < k->n_in; i++) {
        int64_t at = ((i == k->per_head ? 0 : token) * f->heads + head) * f->width;
        x[i] = f->rows[i] + at;
        dx[i] = f->drows[i] + at;
    }
}

/* One sequence of a head; scratch: steps + 1 states, the gradient of one, a row. */
static void back_sequence(const form *f, const kind *k, int64_t seq, int64_t head, float *states) {
    const int64_t n = f->width, area = n * n, u = seq * f->heads + head, first = seq * f->steps;
    float *grad = states + (f->steps + 1) * area, *y = grad + area, *dx[6];
    const float *x[6];
    memcpy(states, f->states + u * area, (size_t)area * sizeof *states);
    memcpy(grad, f->gnext + u * area, (size_t)area * sizeof *grad);
    for (int64_t t = 0; t < f->steps; t++) {
        rows_at(f, k, first + t, head, x, dx);
        k->step(f, x, states + t * area, states + (t + 1) * area, y);
    }
    for (int64_t t = f->steps; t-- > 0;) {
        rows_at(f, k, first + t, head, x, dx);
        for (int i = 0; i < k->n_in; i++)
            if (i != k->per_head) memset(dx[i], 0, (size_t)n * sizeof *grad);
        k->back(f, x, states + t * area, states + (t + 1) * area, grad, f->gy + ((first + t) * f->heads + head) * n, dx);
    }
    memcpy(f->dstates + u * area, grad, (size_t)area * sizeof *grad);
}

enum { BACK_PARTS = 8 };

static int64_t back_floats(const form *f) { return (f->steps + 2) * f->width * f->width + f->width; }

/* What all tokens of a head share is added up by one part, sequence after sequence. */
static void back_heads(const form *f, const kind *k, const qn_call *c, const qn_cpu_step *s, int64_t part) {
    int64_t h = qn_cpu_cut(f->heads, s->parts[0], part), n = f->width;
    float *scratch = (float *)c->workspace + part * back_floats(f);
    for (int64_t end = qn_cpu_cut(f->heads, s->parts[0], part + 1); h < end; h++) {
        if (k->per_head >= 0) memset(f->drows[k->per_head] + h * n, 0, (size_t)n * sizeof *scratch);
        for (int64_t seq = 0; seq < f->seqs; seq++) back_sequence(f, k, seq, h, scratch);
    }
}

static int prepare_back(const qn_call *c, qn_cpu_step *s, int n_in, const char *name, qn_cpu_run_fn run) {
    form f;
    if (!back_form_of(c, n_in, &f) || f.steps < 1) return 0;
    double cells = (double)f.width * (double)f.width;
    qn_cpu_by_rows(s, name, run, f.heads, cells * 8, cells * 24 * (double)(f.steps * f.seqs));
    if (s->parts[0] > BACK_PARTS) s->parts[0] = BACK_PARTS;
    s->workspace = (size_t)(s->parts[0] * back_floats(&f)) * sizeof(float);
    return 1;
}

#define RECURRENT_BACK(op, n_in, per_head, step, back, by)                                  \
    static void run_##op(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) { \
        static const kind k = {n_in, per_head, step, back};                                 \
        form f;                                                                             \
        (void)phase;                                                                        \
        if (!back_form_of(c, n_in, &f)) return;                                             \
        f.scale = by;                                                                       \
        back_heads(&f, &k, c, s, part);                                                     \
    }                                                                                       \
    int QN_K(op)(const qn_call *c, qn_cpu_step *s) { return prepare_back(c, s, n_in, #op " heads", run_##op); }
RECURRENT_BACK(rwkv_wkv6_back, 5, 3, step_wkv6, back_wkv6, 1)
RECURRENT_BACK(gated_linear_attn_back, 4, -1, step_gla, back_gla, ((const qn_attr_gated_linear_attn_back *)c->attr)->scale)
RECURRENT_BACK(rwkv_wkv7_back, 6, -1, step_wkv7, back_wkv7, 1)
