/* What a training step ends with: cross entropy and its gradient, divergence, and the optimisers. f32, dense. */
#include "cpu/kernel.h"
#include "cpu/simd/simd_math.h"
#include "cpu/simd/simd_wide.h"

static int is_plain(const qn_tensor *t) { return t->dtype == QN_DTYPE_F32 && qn_cpu_is_dense(t); }
static const float *floats(const qn_tensor *t) { return (const float *)(const void *)qn_at(t, 0); }

static int all_plain(const qn_call *c) {
    for (int i = 0; i < c->n_src; i++)
        if (!c->src[i] || !is_plain(c->src[i])) return 0;
    for (int i = 0; i < c->n_dst; i++)
        if (!c->dst[i] || !is_plain(c->dst[i])) return 0;
    return 1;
}

/* ---- Cross entropy */

static float row_most(const float *x, int64_t n) {
    vf most = vf_set1(-INFINITY);
    int64_t i = 0;
    for (; i + VF_N <= n; i += VF_N) most = vf_max(most, vf_load(x + i));
    float m = vf_most(most);
    for (; i < n; i++) m = x[i] > m ? x[i] : m;
    return m;
}

/* The sum of e^(x - most): lanes add up runs, runs add up in double. */
static double weights_of(const float *x, int64_t n, float most) {
    double sum = 0;
    vf m = vf_set1(most);
    for (int64_t first = 0; first < n; first += 512) {
        vf run = vf_zero();
        int64_t i = first, end = n < first + 512 ? n : first + 512;
        for (; i + VF_N <= end; i += VF_N) run += vf_exp_below(vf_load(x + i) - m);
        if (i < end) { /* lanes beyond the end must add nothing */
            float t[VF_N] = {0};
            vf_storen(t, vf_exp_below(vf_loadn(x + i, (int)(end - i)) - m), (int)(end - i));
            run += vf_load(t);
        }
        sum += (double)vf_sum(run);
    }
    return sum;
}

/* The sum of label (x - shift), a label of 0 adding nothing whatever x is. */
static double likelihood_of(const float *x, const float *label, int64_t n, double shift) {
    vd a = vd_zero(), b = a, s = vd_set1(shift);
    int64_t i = 0;
    for (; i + VF_N <= n; i += VF_N) {
        vd p = vd_from(label + i), q = vd_from(label + i + VF_N / 2);
        a += vd_select((vl)(p == vd_zero()), p, p * (vd_from(x + i) - s));
        b += vd_select((vl)(q == vd_zero()), q, q * (vd_from(x + i + VF_N / 2) - s));
    }
    double rest = 0;
    for (; i < n; i++)
        if (label[i] != 0) rest += (double)label[i] * ((double)x[i] - shift);
    return vd_sum(a + b) + rest;
}

static void run_loss(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    int64_t n = s->n[0], rows = s->n[1];
    double *each = c->workspace, sum = 0;
    if (phase == 1) {
        for (int64_t r = 0; r < rows; r++) sum += each[r];
        *(float *)(void *)qn_at(c->dst[0], 0) = (float)(-sum / (double)rows);
        return;
    }
    for (int64_t r = qn_cpu_cut(rows, s->parts[0], part); r < qn_cpu_cut(rows, s->parts[0], part + 1); r++) {
        const float *x = floats(c->src[0]) + r * n, *label = floats(c->src[1]) + r * n;
        float most = row_most(x, n);
        each[r] = likelihood_of(x, label, n, (double)most + log(weights_of(x, n, most)));
    }
}

int QN_K(cross_entropy_loss)(const qn_call *c, qn_cpu_step *s) {
    int64_t count = qn_tensor_count(c->src[0]);
    if (!all_plain(c) || count == 0) return 0;
    s->n[0] = qn_ne(c->src[0], 0);
    s->n[1] = count / s->n[0];
    s->workspace = (size_t)s->n[1] * sizeof(double);
    qn_cpu_by_rows(s, "cross entropy rows", run_loss, s->n[1], (double)s->n[0] * 8, (double)s->n[0] * 20);
    s->n_phases = 2;
    s->parts[1] = 1;
    return 1;
}

static void back_row(float *dx, const float *x, const float *label, int64_t n, double step) {
    float most = row_most(x, n);
    double mass = vd_add_up(label, n);
    vf shift = vf_set1(most), weight = vf_set1((float)(mass / weights_of(x, n, most))), by = vf_set1((float)step);
    int64_t i = 0;
    for (; i + VF_N <= n; i += VF_N) vf_store(dx + i, (weight * vf_exp_below(vf_load(x + i) - shift) - vf_load(label + i)) * by);
    int some = (int)(n - i);
    if (some) vf_storen(dx + i, (weight * vf_exp_below(vf_loadn(x + i, some) - shift) - vf_loadn(label + i, some)) * by, some);
}

static void run_loss_back(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    int64_t n = s->n[0], rows = s->n[1];
    double step = (double)floats(c->src[0])[0] / (double)rows;
    for (int64_t r = qn_cpu_cut(rows, s->parts[0], part); r < qn_cpu_cut(rows, s->parts[0], part + 1); r++)
        back_row((float *)(void *)qn_at(c->dst[0], r * n * 4), floats(c->src[1]) + r * n, floats(c->src[2]) + r * n, n, step);
}

int QN_K(cross_entropy_loss_back)(const qn_call *c, qn_cpu_step *s) {
    int64_t count = qn_tensor_count(c->dst[0]);
    if (!all_plain(c) || count == 0) return 0;
    s->n[0] = qn_ne(c->dst[0], 0);
    s->n[1] = count / s->n[0];
    return qn_cpu_by_rows(s, "cross entropy rows", run_loss_back, s->n[1], (double)s->n[0] * 12, (double)s->n[0] * 40);
}

/* ---- Divergence from a teacher, in double: where both agree little is left of large terms */

/* ln of the sum of e^(x by) over a row. */
static double log_sum_at(const float *x, int64_t n, double by) {
    double most = (double)row_most(x, n) * by, sum = 0;
    vd low = vd_zero(), high = vd_zero();
    int64_t i = 0;
    for (; i + VF_N <= n; i += VF_N) {
        vf v = vf_load(x + i);
        low += vd_exp(vd_low(v) * by - most);
        high += vd_exp(vd_high(v) * by - most);
    }
    for (; i < n; i++) sum += exp((double)x[i] * by - most);
    return most + log(sum + vd_sum(low + high));
}

/* p (ln p - ln q) where the teacher has a p. */
static vd divergence(vd x, vd z, double by, double x_sum, double z_sum) {
    vd ln_p = z * by - z_sum, p = vd_exp(ln_p);
    return vd_select(p == vd_zero(), vd_zero(), p * (ln_p - (x * by - x_sum)));
}

static void run_kl(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    int64_t n = s->n[0], rows = s->n[1];
    double *each = c->workspace, sum = 0, by = 1 / (double)((const qn_attr_kl_loss *)c->attr)->temperature;
    if (phase == 1) {
        for (int64_t r = 0; r < rows; r++) sum += each[r];
        *(float *)(void *)qn_at(c->dst[0], 0) = (float)(sum / (double)rows);
        return;
    }
    for (int64_t r = qn_cpu_cut(rows, s->parts[0], part); r < qn_cpu_cut(rows, s->parts[0], part + 1); r++) {
        const float *x = floats(c->src[0]) + r * n, *z = floats(c->src[1]) + r * n;
        double x_sum = log_sum_at(x, n, by), z_sum = log_sum_at(z, n, by), rest = 0;
        vd low = vd_zero(), high = vd_zero();
        int64_t i = 0;
        for (; i + VF_N <= n; i += VF_N) {
            vf a = vf_load(x + i), b = vf_load(z + i);
            low += divergence(vd_low(a), vd_low(b), by, x_sum, z_sum);
            high += divergence(vd_high(a), vd_high(b), by, x_sum, z_sum);
        }
        for (; i < n; i++) {
            double ln_p = (double)z[i] * by - z_sum, p = exp(ln_p);
            if (p != 0) rest += p * (ln_p - ((double)x[i] * by - x_sum));
        }
        each[r] = rest + vd_sum(low + high);
    }
}

int QN_K(kl_loss)(const qn_call *c, qn_cpu_step *s) {
    int64_t count = qn_tensor_count(c->src[0]);
    if (!all_plain(c) || count == 0) return 0;
    s->n[0] = qn_ne(c->src[0], 0);
    s->n[1] = count / s->n[0];
    s->workspace = (size_t)s->n[1] * sizeof(double);
    qn_cpu_by_rows(s, "divergence of rows", run_kl, s->n[1], (double)s->n[0] * 8, (double)s->n[0] * 60);
    s->n_phases = 2;
    s->parts[1] = 1;
    return 1;
}

/* ---- Optimisers */

enum { CHUNK = 256 };

typedef struct adamw {
    vf alpha, beta1, beta2, rest1, rest2, eps, keep, m_up, v_up;
} adamw;

static inline vf step_adamw(const adamw *h, vf w, vf *m, vf *v, vf g) {
    *m = vf_fma(h->beta1, *m, h->rest1 * g);
    *v = vf_fma(h->beta2, *v, h->rest2 * g * g);
    return w * h->keep - h->alpha * (*m * h->m_up) / (vf_sqrt(*v * h->v_up) + h->eps);
}

static void run_adamw(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const float *k = floats(c->src[4]), *g = floats(c->src[3]);
    float *w = (float *)(void *)qn_at(c->dst[0], 0), *m = (float *)(void *)qn_at(c->dst[1], 0),
          *v = (float *)(void *)qn_at(c->dst[2], 0);
    adamw h = {vf_set1(k[0]),
               vf_set1(k[1]),
               vf_set1(k[2]),
               vf_set1((float)(1 - (double)k[1])),
               vf_set1((float)(1 - (double)k[2])),
               vf_set1(k[3]),
               vf_set1((float)(1 - (double)k[0] * (double)k[4])),
               vf_set1(k[5]),
               vf_set1(k[6])};
    int64_t n = s->n[0], chunks = (n + CHUNK - 1) / CHUNK;
    int64_t i = CHUNK * qn_cpu_cut(chunks, s->parts[0], part), end = CHUNK * qn_cpu_cut(chunks, s->parts[0], part + 1);
    if (end > n) end = n;
    for (; i + VF_N <= end; i += VF_N) {
        vf mx = vf_load(m + i), vx = vf_load(v + i);
        vf_store(w + i, step_adamw(&h, vf_load(w + i), &mx, &vx, vf_load(g + i)));
        vf_store(m + i, mx);
        vf_store(v + i, vx);
    }
    int some = (int)(end - i);
    if (some <= 0) return;
    vf mx = vf_loadn(m + i, some), vx = vf_loadn(v + i, some);
    vf_storen(w + i, step_adamw(&h, vf_loadn(w + i, some), &mx, &vx, vf_loadn(g + i, some)), some);
    vf_storen(m + i, mx, some);
    vf_storen(v + i, vx, some);
}

int QN_K(opt_step_adamw)(const qn_call *c, qn_cpu_step *s) {
    s->n[0] = qn_tensor_count(c->dst[0]);
    if (!all_plain(c) || s->n[0] == 0) return 0;
    return qn_cpu_by_rows(s, "adamw", run_adamw, (s->n[0] + CHUNK - 1) / CHUNK, CHUNK * 28.0, CHUNK * 20.0);
}

static void run_sgd(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const float *k = floats(c->src[2]), *g = floats(c->src[1]);
    float *w = (float *)(void *)qn_at(c->dst[0], 0);
    vf keep = vf_set1((float)(1 - (double)k[0] * (double)k[1])), rate = vf_set1(-k[0]);
    int64_t n = s->n[0], chunks = (n + CHUNK - 1) / CHUNK;
    int64_t i = CHUNK * qn_cpu_cut(chunks, s->parts[0], part), end = CHUNK * qn_cpu_cut(chunks, s->parts[0], part + 1);
    if (end > n) end = n;
    for (; i + VF_N <= end; i += VF_N) vf_store(w + i, vf_fma(rate, vf_load(g + i), vf_load(w + i) * keep));
    int some = (int)(end - i);
    if (some > 0) vf_storen(w + i, vf_fma(rate, vf_loadn(g + i, some), vf_loadn(w + i, some) * keep), some);
}

int QN_K(opt_step_sgd)(const qn_call *c, qn_cpu_step *s) {
    s->n[0] = qn_tensor_count(c->dst[0]);
    if (!all_plain(c) || s->n[0] == 0) return 0;
    return qn_cpu_by_rows(s, "sgd", run_sgd, (s->n[0] + CHUNK - 1) / CHUNK, CHUNK * 12.0, CHUNK * 3.0);
}
