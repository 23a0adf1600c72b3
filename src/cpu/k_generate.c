/* Numbers made from a few others: arange, and timestep_embedding, whose frequencies are worked out once for all times. */
#include "cpu/k_rope.h"

enum { CHUNK = 1024, SOME = 256 };

/* ---- arange: a number is computed from its place in doubles and rounded once */

static void run_arange(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_attr_arange *at = c->attr;
    int64_t n = qn_ne(c->dst[0], 0), chunks = (n + CHUNK - 1) / CHUNK, end = qn_cpu_cut(chunks, s->parts[0], part + 1) * CHUNK;
    float *y = (float *)(void *)qn_at(c->dst[0], 0);
    double lane[VF_N];
    (void)phase;
    for (int i = 0; i < VF_N; i++) lane[i] = i;
    vd low = vd_load(lane), high = vd_load(lane + VF_N / 2), start = vd_set1((double)at->start), step = vd_set1((double)at->step);
    if (end > n) end = n;
    for (int64_t i = qn_cpu_cut(chunks, s->parts[0], part) * CHUNK; i < end; i += VF_N) {
        vd place = vd_set1((double)i);
        vf v = vf_of_wide(start + step * (place + low), start + step * (place + high));
        qn_lanes_put_at(QN_DTYPE_F32, (char *)y, i, v, end);
    }
}

int QN_K(arange)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *y = c->dst[0];
    if (qn_tensor_count(y) == 0 || !qn_cpu_is_dense(y)) return 0;
    return qn_cpu_by_rows(s, "arange", run_arange, (qn_ne(y, 0) + CHUNK - 1) / CHUNK, CHUNK * 4.0, CHUNK * 4.0);
}

/* ---- timestep_embedding, f32. Frequencies are at most 1, so no angle is larger than the time. */

static void run_embedding(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_attr_timestep_embedding *at = c->attr;
    const qn_tensor *t = c->src[0];
    int64_t half = at->dim / 2, times = qn_ne(t, 0), end = qn_cpu_cut(times, s->parts[phase], part + 1);
    double *by = c->workspace, angle[SOME];
    if (phase == 0) {
        for (int64_t j = 0; j < half; j++) by[j] = exp(-log(at->max_period) * (double)j / (double)half);
        return;
    }
    for (int64_t i = qn_cpu_cut(times, s->parts[1], part); i < end; i++) {
        double when = (double)*(const float *)(const void *)qn_at(t, i * 4);
        float *y = (float *)(void *)qn_at(c->dst[0], i * at->dim * 4);
        for (int64_t first = 0; first < half; first += SOME) {
            int64_t some = half - first < SOME ? half - first : SOME;
            for (int64_t j = 0; j < some; j++) angle[j] = when * by[first + j];
            cos_sin_any(angle, some, fabs(when), 1, 1, y + first, y + half + first);
        }
        if (at->dim % 2) y[at->dim - 1] = 0;
    }
}

int QN_K(timestep_embedding)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *t = c->src[0], *y = c->dst[0];
    double dim = (double)qn_ne(y, 0);
    if (t->dtype != QN_DTYPE_F32 || qn_tensor_count(y) == 0 || !qn_cpu_is_dense(t) || !qn_cpu_is_dense(y)) return 0;
    qn_cpu_by_rows(s, "timestep_embedding rows", run_embedding, qn_ne(t, 0), 4 * dim, 20 * dim);
    s->n_phases = 2;
    s->parts[1] = s->parts[0];
    s->parts[0] = 1;
    s->workspace = (size_t)(qn_ne(y, 0) / 2) * sizeof(double);
    return 1;
}
