/* batch_norm and its gradient. A channel is a plane of each image: sums run in lanes over a plane and in double over the planes. Where a
 * plane is one number, channels lie side by side and each lane has one of its own, in double throughout. Either way a channel's result
 * has the form  x' a + b  with x' = x - mean, and its gradient  g a + x' b + c. */
#include "cpu/k_norm.h"
#include "cpu/simd/simd_wide.h"

/* x and what lies like it, as [images, channels, plane]. */
typedef struct form {
    uint32_t dtype;
    int64_t images, channels, plane;
    int64_t channel_step, image_step; /* bytes */
} form;

/* Of VF_N channels or of the first lane's alone: sums, then what they come to. */
typedef struct moments {
    double n, mean[VF_N], var[VF_N], r[VF_N], q[VF_N], qx[VF_N]; /* q, qx: sums of g and of g x' */
} moments;

typedef struct terms {
    float mean[VF_N], a[VF_N], b[VF_N], c[VF_N];
} terms;

static form form_of(const qn_tensor *x) {
    int64_t size = qn_float_bytes(x->dtype), plane = 1;
    for (int i = 2; i < x->rank; i++) plane *= x->shape[i];
    return (form){x->dtype, x->shape[0], x->shape[1], plane, plane * size, x->shape[1] * plane * size};
}

static int by_columns(const form *f) { return f->plane == 1; }
static double number_at(const qn_tensor *t, int64_t i, double otherwise) {
    double v = otherwise;
    if (t) qn_load_row(t, qn_at(t, 0), i, 1, &v);
    return v;
}
static void put_number(const qn_call *c, int slot, int64_t i, double v) {
    const qn_tensor *t = slot < c->n_dst ? c->dst[slot] : NULL;
    if (t) qn_store_row(t, qn_at(t, 0), i, 1, &v);
}
static double unbias(double n) { return n > 1 ? n / (n - 1) : 1; }

/* ---- Sums */

QN_INLINE void moments_columns(uint32_t dtype, const form *f, const char *x, int64_t some, moments *m) {
    vd low = vd_zero(), high = low, a = low, b = low;
    for (int64_t i = 0; i < f->images; i++) {
        vf v = qn_lanes_at(dtype, x + i * f->image_step, 0, some);
        a += vd_low(v);
        b += vd_high(v);
    }
    a /= m->n;
    b /= m->n;
    for (int64_t i = 0; i < f->images; i++) {
        vf v = qn_lanes_at(dtype, x + i * f->image_step, 0, some);
        vd p = vd_low(v) - a, q = vd_high(v) - b;
        low += p * p;
        high += q * q;
    }
    vd_store(m->mean, a);
    vd_store(m->mean + VF_N / 2, b);
    vd_store(m->var, low);
    vd_store(m->var + VF_N / 2, high);
}

QN_INLINE void moments_planes(uint32_t dtype, const form *f, const char *x, moments *m) {
    double sum = 0, off;
    away_sums away = {0, 0};
    for (int64_t i = 0; i < f->images; i++) sum += sum_row(dtype, x + i * f->image_step, f->plane);
    float near = (float)(sum / m->n);
    for (int64_t i = 0; i < f->images; i++) {
        away_sums one = sums_away(dtype, CENTRED, x + i * f->image_step, f->plane, near);
        away.squares += one.squares;
        away.d += one.d;
    }
    m->var[0] = squares_about_mean(away, m->n, &off);
    m->mean[0] = (double)near + off;
}

QN_INLINE void sums_columns(uint32_t dtype, const form *f, const char *g, const char *x, int64_t some, moments *m) {
    vd a = vd_load(m->mean), b = vd_load(m->mean + VF_N / 2), q_low = vd_zero(), q_high = q_low, low = q_low, high = q_low;
    for (int64_t i = 0; i < f->images; i++) {
        vf up = qn_lanes_at(dtype, g + i * f->image_step, 0, some), v = qn_lanes_at(dtype, x + i * f->image_step, 0, some);
        q_low += vd_low(up);
        q_high += vd_high(up);
        low += vd_low(up) * (vd_low(v) - a);
        high += vd_high(up) * (vd_high(v) - b);
    }
    vd_store(m->q, q_low);
    vd_store(m->q + VF_N / 2, q_high);
    vd_store(m->qx, low);
    vd_store(m->qx + VF_N / 2, high);
}

QN_INLINE void sums_planes(uint32_t dtype, const form *f, const char *g, const char *x, moments *m) {
    vf mean = vf_set1((float)m->mean[0]);
    double q = 0, qx = 0, rest = m->mean[0] - (double)(float)m->mean[0];
    for (int64_t image = 0; image < f->images; image++, g += f->image_step, x += f->image_step)
        for (int64_t first = 0; first < f->plane; first += RUN) {
            int64_t end = f->plane < first + RUN ? f->plane : first + RUN;
            vf a = vf_zero(), b = a;
            for (int64_t i = first; i < end; i += VF_N) {
                vf up = qn_lanes_at(dtype, g, i, f->plane);
                a += up;
                b = vf_fma(up, qn_lanes_at(dtype, x, i, f->plane) - mean, b);
            }
            q += (double)vf_sum(a);
            qx += (double)vf_sum(b);
        }
    m->q[0] = q;
    m->qx[0] = qx - rest * q;
}

/* ---- Results */

QN_INLINE void write_forward(uint32_t dtype, const form *f, const char *x, char *y, int64_t n, vf mean, vf a, vf b) {
    for (int64_t image = 0; image < f->images; image++, x += f->image_step, y += f->image_step)
        for (int64_t i = 0; i < n; i += VF_N) qn_lanes_put_at(dtype, y, i, vf_fma(qn_lanes_at(dtype, x, i, n) - mean, a, b), n);
}

QN_INLINE void write_back(uint32_t dtype, const form *f, const char *g, const char *x, char *y, int64_t n, vf mean, vf a, vf b,
                          vf c) {
    for (int64_t image = 0; image < f->images; image++, g += f->image_step, x += f->image_step, y += f->image_step)
        for (int64_t i = 0; i < n; i += VF_N) {
            vf up = qn_lanes_at(dtype, g, i, n), away = qn_lanes_at(dtype, x, i, n) - mean;
            qn_lanes_put_at(dtype, y, i, vf_fma(up, a, vf_fma(away, b, c)), n);
        }
}

/* A channel's terms in its lane; with one channel for all lanes, in every lane. */
static vf spread(const form *f, const float *t) { return by_columns(f) ? vf_load(t) : vf_set1(t[0]); }

/* ---- Channels: `count` of them from `first` on, VF_N when they lie side by side, else one */

static void find_moments(const qn_call *c, const form *f, const qn_tensor *x, int64_t first, int64_t count, int statistics,
                         moments *m) {
    const qn_attr_batch_norm *at = c->attr; /* its gradient has the same attributes in the same places */
    const char *from = qn_at(x, first * f->channel_step);
    m->n = (double)f->images * (double)f->plane;
#define COLUMNS(d) moments_columns(d, f, from, count, m)
#define PLANES(d) moments_planes(d, f, from, m)
    if (at->training && by_columns(f)) QN_BY_FLOAT(f->dtype, COLUMNS);
    else if (at->training) QN_BY_FLOAT(f->dtype, PLANES);
#undef COLUMNS
#undef PLANES
    for (int64_t k = 0; k < count; k++) {
        m->mean[k] = at->training ? m->mean[k] : number_at(c->src[statistics], first + k, 0);
        m->var[k] = at->training ? m->var[k] / m->n : number_at(c->src[statistics + 1], first + k, 1);
        m->r[k] = 1 / sqrt(m->var[k] + (double)at->eps);
    }
    for (int64_t k = count; k < VF_N; k++) m->mean[k] = 0;
}

static void forward(const qn_call *c, const form *f, int64_t first, int64_t count) {
    const qn_attr_batch_norm *at = c->attr;
    moments m;
    terms t = {{0}, {0}, {0}, {0}};
    double step = (double)at->momentum;
    find_moments(c, f, c->src[0], first, count, 3, &m);
    for (int64_t k = 0, i = first; k < count; k++, i++) {
        double a = m.r[k] * number_at(c->src[1], i, 1);
        t.mean[k] = (float)m.mean[k];
        t.a[k] = (float)a;
        t.b[k] = (float)(number_at(c->src[2], i, 0) - lost(m.mean[k] - (double)t.mean[k], a));
        if (!at->training) continue;
        put_number(c, 1, i, m.mean[k]);
        put_number(c, 2, i, m.r[k]);
        put_number(c, 3, i, (1 - step) * number_at(c->src[3], i, 0) + step * m.mean[k]);
        put_number(c, 4, i, (1 - step) * number_at(c->src[4], i, 0) + step * m.var[k] * unbias(m.n));
    }
    vf mean = spread(f, t.mean), a = spread(f, t.a), b = spread(f, t.b);
    const char *x = qn_at(c->src[0], first * f->channel_step);
    char *y = qn_at(c->dst[0], first * f->channel_step);
    int64_t n = by_columns(f) ? count : f->plane;
#define WRITE(d) write_forward(d, f, x, y, n, mean, a, b)
    QN_BY_FLOAT(f->dtype, WRITE);
#undef WRITE
}

static const qn_tensor *source(const qn_call *c, int slot) { return slot < c->n_src ? c->src[slot] : NULL; }

/* The terms of channel i, whose sums are in lane k; and the gradients that are one number for it. */
static void find_terms(const qn_call *c, const moments *m, int64_t i, int64_t k, terms *t) {
    const qn_attr_batch_norm *at = c->attr;
    double gamma = number_at(c->src[2], i, 1), r = m->r[k], q = m->q[k], qh = m->qx[k] * r, step = (double)at->momentum;
    double share = at->training ? 1 / m->n : 0; /* running statistics do not depend on x */
    double up_mean = number_at(source(c, 5), i, 0) + step * number_at(source(c, 7), i, 0);
    double up_var = step * unbias(m->n) * number_at(source(c, 8), i, 0) - 0.5 * r * r * r * number_at(source(c, 6), i, 0);
    double b = share * (2 * up_var - gamma * r * r * qh);
    t->mean[k] = (float)m->mean[k];
    t->a[k] = (float)(gamma * r);
    t->b[k] = (float)b;
    t->c[k] = (float)(share * (up_mean - gamma * r * q) - lost(m->mean[k] - (double)t->mean[k], b));
    put_number(c, 1, i, qh);
    put_number(c, 2, i, q);
    put_number(c, 3, i, at->training ? (1 - step) * number_at(source(c, 7), i, 0) : -gamma * r * q);
    put_number(c, 4, i, at->training ? (1 - step) * number_at(source(c, 8), i, 0) : -0.5 * gamma * r * r * qh);
}

static void backward(const qn_call *c, const form *f, int64_t first, int64_t count) {
    moments m;
    terms t = {{0}, {0}, {0}, {0}};
    const char *g = qn_at(c->src[0], first * f->channel_step), *x = qn_at(c->src[1], first * f->channel_step);
    char *dx = qn_at(c->dst[0], first * f->channel_step);
    int64_t n = by_columns(f) ? count : f->plane;
    find_moments(c, f, c->src[1], first, count, 3, &m);
#define COLUMNS(d) sums_columns(d, f, g, x, count, &m)
#define PLANES(d) sums_planes(d, f, g, x, &m)
    if (by_columns(f)) QN_BY_FLOAT(f->dtype, COLUMNS);
    else QN_BY_FLOAT(f->dtype, PLANES);
#undef COLUMNS
#undef PLANES
    for (int64_t k = 0; k < count; k++) find_terms(c, &m, first + k, k, &t);
    vf mean = spread(f, t.mean), a = spread(f, t.a), b = spread(f, t.b), more = spread(f, t.c);
#define WRITE(d) write_back(d, f, g, x, dx, n, mean, a, b, more)
    QN_BY_FLOAT(f->dtype, WRITE);
#undef WRITE
}

/* ---- Ops */

static int64_t units_of(const form *f) { return by_columns(f) ? (f->channels + VF_N - 1) / VF_N : f->channels; }

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    int back = c->op == QN_OP_batch_norm_back;
    form f = form_of(c->src[back]);
    int64_t each = by_columns(&f) ? VF_N : 1, units = units_of(&f), u = qn_cpu_cut(units, s->parts[0], part);
    (void)phase;
    for (int64_t end = qn_cpu_cut(units, s->parts[0], part + 1); u < end; u++) {
        int64_t first = u * each, count = f.channels - first < each ? f.channels - first : each;
        if (back) backward(c, &f, first, count);
        else forward(c, &f, first, count);
    }
}

/* Planes of a few numbers fill no vector, and of a few numbers in all little is left after their means are taken off, at worst rounding
 * alone: the reference does those. Means that were known before take off the same from a number whoever comes with it. */
enum { SHORT = 16 };

static int prepare(const qn_call *c, qn_cpu_step *s, const qn_tensor *x, const char *name) {
    const qn_tensor *y = c->dst[0];
    if (qn_tensor_count(x) == 0 || !qn_lanes_float(x->dtype) || y->dtype != x->dtype) return 0;
    if (!qn_cpu_is_dense(x) || !qn_cpu_is_dense(y)) return 0;
    form f = form_of(x);
    int training = ((const qn_attr_batch_norm *)c->attr)->training;
    if (training && (f.images * f.plane < SHORT || (f.plane > 1 && f.plane < SHORT))) return 0;
    return qn_cpu_by_rows(s, name, run, units_of(&f), 16.0 * (double)(qn_tensor_count(x) / units_of(&f)), 0);
}

int QN_K(batch_norm)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, c->src[0], "batch_norm channels"); }

int QN_K(batch_norm_back)(const qn_call *c, qn_cpu_step *s) {
    if (!qn_cpu_is_dense(c->src[0])) return 0;
    return prepare(c, s, c->src[1], "batch_norm_back channels");
}
