/* log_mel and log_mel_back in f32. Energies are sums of doubles: what lies on the floor, and which is the loudest, decide
 * where gradients go, so they must not hang on the order of a sum. Bins in which a filter has nothing are left out. */
#include <math.h>

#include "cpu/kernel.h"
#include "cpu/simd/simd_math.h"
#include "cpu/simd/simd_wide.h"

static const double FLOOR_ENERGY = 1e-10, DECADES = 8, LN10 = 2.30258509299404568402;

enum { TOGETHER = 4, BLOCK = 2 * VF_N }; /* rows, and bins, that are worked on in registers */

/* Bins are filled up with zeros to whole blocks, rows and filters to whole groups of TOGETHER. */
typedef struct mel {
    const qn_tensor *x, *filters;
    int64_t bins, mels, rows, frames;     /* frames: rows that share a floor */
    int64_t wide, tall, high;             /* bins, mels and rows, filled up */
    int64_t *first, *end;                 /* of each filter, what is not zero, in whole vectors */
    double *weight, *power, *e, *de, *dp; /* [tall, wide], [high, wide], [high, tall] twice, and a group's [TOGETHER, wide] */
} mel;

static int64_t up_to(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/* Where things lie in the workspace; returns its bytes. The forward op keeps the power of one group for each part. */
static size_t mel_of(const qn_call *c, mel *v, int back, int64_t parts) {
    const qn_tensor *x = c->src[back], *filters = c->src[back + 1];
    int per_clip = back ? ((const qn_attr_log_mel_back *)c->attr)->per_clip : ((const qn_attr_log_mel *)c->attr)->per_clip;
    *v = (mel){.x = x, .filters = filters, .bins = qn_ne(x, 0) / 4 + 1, .mels = qn_ne(filters, 1)};
    v->rows = qn_tensor_count(x) / qn_ne(x, 0);
    v->frames = per_clip ? qn_ne(x, 1) : 1;
    v->wide = up_to(v->bins, BLOCK);
    v->tall = up_to(v->mels, TOGETHER);
    v->high = up_to(v->rows, TOGETHER);
    int64_t powers = (back ? v->high : parts * TOGETHER) * v->wide, energies = v->high * v->tall;
    if (c->workspace) {
        v->first = c->workspace;
        v->end = v->first + v->tall;
        v->weight = (double *)(void *)(v->end + v->tall);
        v->power = v->weight + v->tall * v->wide;
        v->e = v->power + powers;
        v->de = v->e + energies;
        v->dp = v->de + energies;
    }
    int64_t gradients = back ? energies + parts * TOGETHER * v->wide : 0;
    return (size_t)(2 * v->tall + v->tall * v->wide + powers + energies + gradients) * sizeof(double);
}

static const float *row_at(const qn_tensor *t, int64_t row) {
    qn_rows it;
    qn_rows_begin_at(&it, t->rank, t->shape, row);
    return (const float *)(const void *)qn_row(&it, t);
}

static void load_filters(const mel *v) {
    for (int64_t m = 0; m < v->tall; m++) {
        double *to = v->weight + m * v->wide;
        int64_t a = 0, b = v->bins;
        const float *f = m < v->mels ? (const float *)(const void *)qn_at(v->filters, m * qn_nb(v->filters, 1)) : NULL;
        for (int64_t i = 0; i < v->wide; i++) to[i] = f && i < v->bins ? (double)f[i] : 0;
        while (a < b && to[a] == 0) a++;
        while (b > a && to[b - 1] == 0) b--;
        v->first[m] = a / (VF_N / 2) * (VF_N / 2);
        v->end[m] = up_to(b, VF_N / 2);
    }
}

/* |X|^2 of a row; whether all of it is finite. */
static int power_of(const mel *v, const float *x, double *p) {
    const float *im = x + qn_ne(v->x, 0) / 2;
    double sum = 0;
    for (int64_t i = 0; i < v->bins; i++) p[i] = (double)x[i] * (double)x[i] + (double)im[i] * (double)im[i];
    for (int64_t i = 0; i < v->bins; i++) sum += p[i];
    for (int64_t i = v->bins; i < v->wide; i++) p[i] = 0;
    return isfinite(sum);
}

/* The energies of a group of rows, whose powers p gets. Nothing times what is not finite is not nothing: then every bin
 * counts. */
static void energies_of(const mel *v, int64_t group, double *p) {
    int64_t row = group * TOGETHER;
    int finite = 1;
    for (int r = 0; r < TOGETHER; r++) {
        if (row + r < v->rows) finite &= power_of(v, row_at(v->x, row + r), p + r * v->wide);
        else memset(p + r * v->wide, 0, (size_t)v->wide * sizeof *p);
    }
    for (int64_t m = 0; m < v->tall; m++) {
        vd sum[TOGETHER] = {{0}};
        const double *w = v->weight + m * v->wide;
        for (int64_t i = finite ? v->first[m] : 0, end = finite ? v->end[m] : v->wide; i < end; i += VF_N / 2)
            for (int r = 0; r < TOGETHER; r++) sum[r] = vd_fma(vd_load(w + i), vd_load(p + r * v->wide + i), sum[r]);
        for (int r = 0; r < TOGETHER; r++) v->e[(row + r) * v->tall + m] = vd_sum(sum[r]);
    }
}

static double log_energy(double e) { return log10(e > FLOOR_ENERGY ? e : FLOOR_ENERGY); }

/* Where the loudest of a clip is, the first on ties. */
static int64_t loudest(const mel *v, int64_t clip) {
    const double *e = v->e + clip * v->frames * v->tall;
    int64_t best = 0;
    for (int64_t f = 0; f < v->frames; f++)
        for (int64_t i = f * v->tall; i < f * v->tall + v->mels; i++)
            if (e[i] > e[best]) best = i;
    return best + clip * v->frames * v->tall;
}

/* ---- Forward: phase 0 looks at the filters, 1 makes energies, 2 their logarithms */

static void logs(const double *e, int64_t n, double floor, float *y) {
    vf low = vf_set1((float)floor), by = vf_set1((float)(1 / LN10)), four = vf_set1(4.0f), quarter = vf_set1(0.25f);
    for (int64_t i = 0; i < n; i += VF_N) {
        float t[VF_N];
        int some = (int)(n - i < VF_N ? n - i : VF_N), large = 0;
        for (int k = 0; k < VF_N; k++) {
            double now = k < some && e[i + k] > FLOOR_ENERGY ? e[i + k] : FLOOR_ENERGY;
            t[k] = (float)now;
            large |= now > 1e37;
        }
        if (large) /* beyond f32 */
            for (int k = 0; k < some; k++) y[i + k] = (float)((fmax(log_energy(e[i + k]), floor) + 4) / 4);
        else vf_storen(y + i, (vf_max(vf_log(vf_load(t)) * by, low) + four) * quarter, some);
    }
}

static void run_mel(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    mel v;
    mel_of(c, &v, 0, s->parts[1]);
    if (phase == 0) {
        load_filters(&v);
        return;
    }
    int64_t units = phase == 1 ? v.high / TOGETHER : v.rows / v.frames, u = qn_cpu_cut(units, s->parts[phase], part);
    for (int64_t end = qn_cpu_cut(units, s->parts[phase], part + 1); u < end; u++) {
        if (phase == 1) {
            energies_of(&v, u, v.power + part * TOGETHER * v.wide);
            continue;
        }
        double floor = log_energy(v.e[loudest(&v, u)]) - DECADES;
        for (int64_t row = u * v.frames; row < (u + 1) * v.frames; row++)
            logs(v.e + row * v.tall, v.mels, floor, (float *)(uintptr_t)row_at(c->dst[0], row));
    }
}

static int is_rows(const qn_tensor *t) { return t->dtype == QN_DTYPE_F32 && (qn_ne(t, 0) == 1 || qn_nb(t, 0) == 4); }

int QN_K(log_mel)(const qn_call *c, qn_cpu_step *s) {
    mel v;
    if (!is_rows(c->src[0]) || !is_rows(c->src[1]) || !is_rows(c->dst[0]) || qn_tensor_count(c->dst[0]) == 0) return 0;
    mel_of(c, &v, 0, 1);
    qn_cpu_by_rows(s, "log_mel", run_mel, v.high / TOGETHER, 0, TOGETHER * (double)v.bins * (double)v.mels);
    s->n_phases = 3;
    s->parts[1] = s->parts[0];
    s->parts[0] = 1;
    s->parts[2] = qn_cpu_parts(v.rows / v.frames, 0, 20.0 * (double)(v.mels * v.frames));
    s->workspace = mel_of(c, &v, 0, s->parts[1]);
    return 1;
}

/* ---- Backward: phase 2 makes the gradients of energies, 3 takes them to the spectrum and to the filters */

/* Whether an energy is not above the floor; near it, by its logarithm. */
static int is_low(double e, double floor, double limit) {
    double now = e > FLOOR_ENERGY ? e : FLOOR_ENERGY;
    if (now > limit * (1 + 1e-9)) return 0;
    if (now < limit * (1 - 1e-9)) return 1;
    return !(log_energy(e) > floor);
}

static void energy_gradients(const mel *v, int64_t clip, int detach) {
    int64_t top = loudest(v, clip);
    double floor = log_energy(v->e[top]) - DECADES, limit = pow(10, floor), through = 0;
    for (int64_t f = clip * v->frames; f < (clip + 1) * v->frames; f++)
        for (int64_t i = f * v->tall; i < f * v->tall + v->mels; i++) {
            double dl = v->de[i] / 4, e = v->e[i];
            int low = is_low(e, floor, limit);
            if (low) through += dl;
            v->de[i] = low ? 0 : e > FLOOR_ENERGY ? dl / (e * LN10) : 0;
        }
    if (!detach && v->e[top] > FLOOR_ENERGY) v->de[top] += through / (v->e[top] * LN10);
}

/* TOGETHER sums over k of by[k by_step] times row k of a matrix, the weights of each sum by_apart behind those before; to [..,
 * wide]. */
static void blend(const mel *v, const double *by, int64_t by_step, int64_t by_apart, const double *rows, int64_t n, double *to) {
    for (int64_t i = 0; i < v->wide; i += BLOCK) {
        vd sum[TOGETHER][4] = {{{0}}};
        for (int64_t k = 0; k < n; k++) {
            const double *x = rows + k * v->wide + i, *w = by + k * by_step;
            vd x0 = vd_load(x), x1 = vd_load(x + VF_N / 2), x2 = vd_load(x + VF_N), x3 = vd_load(x + VF_N * 3 / 2);
            for (int r = 0; r < TOGETHER; r++) {
                vd weight = vd_set1(w[r * by_apart]);
                sum[r][0] = vd_fma(weight, x0, sum[r][0]);
                sum[r][1] = vd_fma(weight, x1, sum[r][1]);
                sum[r][2] = vd_fma(weight, x2, sum[r][2]);
                sum[r][3] = vd_fma(weight, x3, sum[r][3]);
            }
        }
        for (int r = 0; r < TOGETHER; r++)
            for (int k = 0; k < 4; k++) vd_store(to + r * v->wide + i + k * (VF_N / 2), sum[r][k]);
    }
}

static void spectrum_gradients(const mel *v, const qn_tensor *dx, int64_t group, double *dp) {
    int64_t n = qn_ne(v->x, 0) / 2, some = v->bins < n ? v->bins : n; /* a row of one number has one bin */
    blend(v, v->de + group * TOGETHER * v->tall, 1, v->tall, v->weight, v->mels, dp);
    for (int64_t row = group * TOGETHER; row < (group + 1) * TOGETHER && row < v->rows; row++, dp += v->wide) {
        const float *x = row_at(v->x, row);
        float *to = (float *)(uintptr_t)row_at(dx, row);
        for (int64_t i = 0; i < some; i++) {
            to[i] = (float)(2 * dp[i] * (double)x[i]);
            to[n + i] = (float)(2 * dp[i] * (double)x[n + i]);
        }
        for (int64_t i = some; i < n; i++) to[i] = to[n + i] = 0;
    }
}

static void filter_gradients(const mel *v, const qn_tensor *df, int64_t group, double *dp) {
    blend(v, v->de + group * TOGETHER, v->tall, 1, v->power, v->rows, dp);
    for (int64_t m = group * TOGETHER; m < (group + 1) * TOGETHER && m < v->mels; m++, dp += v->wide) {
        float *to = (float *)(void *)qn_at(df, m * qn_nb(df, 1));
        for (int64_t i = 0; i < v->bins; i++) to[i] = (float)dp[i];
    }
}

/* Before the energies' gradients are made, those of their logarithms are in their place; what fills rows up is zero. */
static void load_gradients(const mel *v, const qn_tensor *g, int64_t group) {
    for (int64_t row = group * TOGETHER; row < (group + 1) * TOGETHER; row++) {
        const float *from = row < v->rows ? row_at(g, row) : NULL;
        for (int64_t m = 0; m < v->tall; m++) v->de[row * v->tall + m] = from && m < v->mels ? (double)from[m] : 0;
    }
}

static void run_back(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    mel v;
    mel_of(c, &v, 1, s->parts[3]);
    if (phase == 0) {
        load_filters(&v);
        return;
    }
    int64_t groups = v.high / TOGETHER, filters = v.tall / TOGETHER;
    int64_t units = phase == 1 ? groups : phase == 2 ? v.rows / v.frames : groups + filters;
    int64_t u = qn_cpu_cut(units, s->parts[phase], part);
    double *dp = v.dp + part * TOGETHER * v.wide;
    for (int64_t end = qn_cpu_cut(units, s->parts[phase], part + 1); u < end; u++) {
        if (phase == 1) {
            energies_of(&v, u, v.power + u * TOGETHER * v.wide);
            load_gradients(&v, c->src[0], u);
        } else if (phase == 2) {
            energy_gradients(&v, u, ((const qn_attr_log_mel_back *)c->attr)->detach_floor);
        } else if (u < filters) {
            filter_gradients(&v, c->dst[1], u, dp);
        } else {
            spectrum_gradients(&v, c->dst[0], u - filters, dp);
        }
    }
}

int QN_K(log_mel_back)(const qn_call *c, qn_cpu_step *s) {
    mel v;
    for (int i = 0; i < 3; i++)
        if (!is_rows(c->src[i])) return 0;
    for (int i = 0; i < c->n_dst; i++)
        if (!c->dst[i] || !is_rows(c->dst[i])) return 0;
    if (qn_tensor_count(c->src[0]) == 0 || qn_tensor_count(c->src[1]) == 0) return 0;
    mel_of(c, &v, 1, 1);
    int64_t units = (v.high + v.tall) / TOGETHER;
    double cells = (double)v.wide * (double)v.tall;
    qn_cpu_by_rows(s, "log_mel_back", run_back, v.high / TOGETHER, 0, TOGETHER * cells);
    s->n_phases = 4;
    s->parts[1] = s->parts[0];
    s->parts[0] = 1;
    s->parts[2] = qn_cpu_parts(v.rows / v.frames, 0, 20.0 * (double)(v.mels * v.frames));
    s->parts[3] = qn_cpu_parts(units, 0, 2 * cells * (double)v.high / (double)units);
    s->workspace = mel_of(c, &v, 1, s->parts[3]);
    return 1;
}
