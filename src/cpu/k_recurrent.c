/* Recurrences over a matrix state per sequence and head: rwkv_wkv6, gated_linear_attn, rwkv_wkv7, in f32. The states lie behind the rows
 * of results, and a head's is worked on there from its first token to its last; lanes lie along its rows. */
#include "cpu/k_norm.h"

typedef struct form {
    int64_t heads, width, seqs, steps;
    float scale;
    const float *rows[6], *states;
    float *y, *next; /* results, and behind them the states */
} form;

/* The sources are n_in of rows, and then the states. */
static int form_of(const qn_call *c, int n_in, form *f) {
    const qn_tensor *states = c->src[n_in];
    *f = (form){.heads = qn_ne(c->src[0], 1), .width = qn_ne(c->src[0], 0), .seqs = qn_ne(states, 1), .scale = 1};
    for (int i = 0; i <= n_in; i++)
        if (c->src[i]->dtype != QN_DTYPE_F32 || !qn_cpu_is_dense(c->src[i])) return 0;
    if (!qn_cpu_is_dense(c->dst[0]) || qn_tensor_count(states) == 0) return 0;
    int64_t tokens = qn_ne(c->src[0], 2);
    f->steps = tokens / f->seqs;
    for (int i = 0; i < n_in; i++) f->rows[i] = (const float *)(const void *)qn_at(c->src[i], 0);
    f->states = (const float *)(const void *)qn_at(states, 0);
    f->y = (float *)(void *)qn_at(c->dst[0], 0);
    f->next = f->y ? f->y + tokens * f->heads * f->width : NULL; /* nothing lies anywhere yet when a plan is made */
    return 1;
}

QN_INLINE vf part_of(const float *p, int64_t j, int64_t n) { return qn_lanes_at(QN_DTYPE_F32, (const char *)p, j, n); }
QN_INLINE void put_part(float *p, int64_t j, vf v, int64_t n) { qn_lanes_put_at(QN_DTYPE_F32, (char *)p, j, v, n); }

/* y_j = sum_i r_i (S'_ij + f_i k_i v_j), S_ij = d_i S'_ij + k_i v_j; two vectors of columns at a time, for their sums are long chains. */
static void step_wkv6(const form *f, const float *const *x, float *s, float *y) {
    const float *k = x[0], *r = x[2], *first = x[3], *decay = x[4];
    const int64_t n = f->width;
    for (int64_t j = 0; j < n; j += 2 * VF_N) {
        int64_t more = j + VF_N < n ? j + VF_N
                                    : j; /* the second is the first again, before it is stored, when there is no other */
        vf v0 = part_of(x[1], j, n), v1 = part_of(x[1], more, n), y0 = vf_zero(), y1 = y0;
        for (int64_t i = 0; i < n; i++) {
            vf s0 = part_of(s + i * n, j, n), s1 = part_of(s + i * n, more, n);
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
static void step_gla(const form *f, const float *const *x, float *s, float *y) {
    const float *k = x[0], *q = x[2], *g = x[3];
    const int64_t n = f->width;
    for (int64_t j = 0; j < n; j += 2 * VF_N) {
        int64_t more = j + VF_N < n ? j + VF_N : j;
        vf v0 = part_of(x[1], j, n), v1 = part_of(x[1], more, n), y0 = vf_zero(), y1 = y0;
        for (int64_t i = 0; i < n; i++) {
            vf ki = vf_set1(k[i]), gi = vf_set1(g[i]), qi = vf_set1(q[i]);
            vf s0 = vf_fma(gi, part_of(s + i * n, j, n), ki * v0), s1 = vf_fma(gi, part_of(s + i * n, more, n), ki * v1);
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
static void step_wkv7(const form *f, const float *const *x, float *s, float *y) {
    const float *r = x[0], *w = x[1], *k = x[2], *v = x[3], *a = x[4], *b = x[5];
    const int64_t n = f->width;
    for (int64_t i = 0; i < n; i++, s += n) {
        vf dot = vf_zero(), sum = dot;
        for (int64_t j = 0; j < n; j += VF_N) dot = vf_fma(part_of(a, j, n), part_of(s, j, n), dot);
        vf u = vf_set1(sum_of(dot)), vi_now = vf_set1(v[i]);
        for (int64_t j = 0; j < n; j += VF_N) {
            vf to = vf_fma(part_of(w, j, n), part_of(s, j, n), vf_fma(vi_now, part_of(k, j, n), u * part_of(b, j, n)));
            sum = vf_fma(part_of(r, j, n), to, sum);
            put_part(s, j, to, n);
        }
        y[i] = sum_of(sum);
    }
}

typedef void (*step_fn)(const form *f, const float *const *x, float *s, float *y);

/* Number per_head of the sources is the same for all tokens. */
static void run_heads(const form *f, int n_in, int per_head, step_fn step, const qn_cpu_step *s, int64_t part) {
    int64_t units = f->seqs * f->heads, u = qn_cpu_cut(units, s->parts[0], part), n = f->width;
    for (int64_t end = qn_cpu_cut(units, s->parts[0], part + 1); u < end; u++) {
        int64_t head = u % f->heads, first = u / f->heads * f->steps;
        float *state = f->next + u * n * n;
        memcpy(state, f->states + u * n * n, (size_t)(n * n) * sizeof *state);
        for (int64_t t = first; t < first + f->steps; t++) {
            const float *x[6];
            for (int i = 0; i < n_in; i++) x[i] = f->rows[i] + ((i == per_head ? 0 : t) * f->heads + head) * n;
            step(f, x, state, f->y + (t * f->heads + head) * n);
        }
    }
}

static int prepare(const qn_call *c, qn_cpu_step *s, int n_in, const char *name, qn_cpu_run_fn run) {
    form f;
    if (!form_of(c, n_in, &f)) return 0;
    double cells = (double)f.width * (double)f.width;
    return qn_cpu_by_rows(s, name, run, f.seqs * f.heads, cells * 8, cells * 8 * (double)f.steps);
}

#define RECURRENT(op, n_in, per_head, step, by)                                             \
    static void run_##op(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) { \
        form f;                                                                             \
        (void)phase;                                                                        \
        if (!form_of(c, n_in, &f)) return;                                                  \
        f.scale = by;                                                                       \
        run_heads(&f, n_in, per_head, step, s, part);                                       \
    }                                                                                       \
    int QN_K(op)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, n_in, #op " heads", run_##op); }
RECURRENT(rwkv_wkv6, 5, 3, step_wkv6, 1)
RECURRENT(gated_linear_attn, 4, -1, step_gla, ((const qn_attr_gated_linear_attn *)c->attr)->scale)
RECURRENT(rwkv_wkv7, 6, -1, step_wkv7, 1)
