/* What is read off spectra: log_mel, the energies a recogniser hears, with its gradient, and welch_peaks, the strongest tones.
 * A spectrum is a row [2 N] as fft leaves it: N real parts, then N imaginary ones, of which the first N / 2 + 1 count. */
#include <math.h>

#include "op/op_emit.h"
#include "op/op_state.h"
#include "op/ref.h"

static const double FLOOR_ENERGY = 1e-10, DECADES = 8, LN10 = 2.30258509299404568402;

static int64_t bins_of(const qn_tensor *spectrum) { return qn_ne(spectrum, 0) / 4 + 1; }

static qn_status need_spectrum(qn_infer_call *c, int slot) {
    const qn_tensor *x = c->src[slot];
    if (qn_ne(x, 0) % 2) return qn_reject_src(c, slot, QN_REASON_SHAPE_MULTIPLE, x->rank - 1, 2, qn_ne(x, 0));
    if (qn_ne(x, 0) == 0) return qn_reject_src(c, slot, QN_REASON_SHAPE_EMPTY, x->rank - 1, 0, 0);
    return QN_OK;
}

/* |X|^2 of the first bins of a row whose parts are half apart. */
static void load_power(const qn_tensor *x, const char *row, int64_t bins, double *p) {
    int64_t step = qn_nb(x, 0), gap = qn_ne(x, 0) / 2 * step;
    for (int64_t i = 0; i < bins; i++) {
        double re = qn_load_one((qn_dtype)x->dtype, row + i * step), im = qn_load_one((qn_dtype)x->dtype, row + i * step + gap);
        p[i] = re * re + im * im;
    }
}

/* ---- welch_peaks */

qn_status qn_infer_welch_peaks(qn_infer_call *c) {
    const qn_attr_welch_peaks *at = c->attr;
    const qn_tensor *x = c->src[0];
    QN_TRY(need_spectrum(c, 0));
    if (qn_ne(x, 1) % at->n_segments)
        return qn_reject_src(c, 0, QN_REASON_SHAPE_MULTIPLE, x->rank - 2, at->n_segments, qn_ne(x, 1));
    int64_t bins = bins_of(x);
    if (bins > INT32_MAX) return qn_reject_src(c, 0, QN_REASON_SHAPE_LARGE, x->rank - 1, INT32_MAX, qn_ne(x, 0));
    if (at->k > bins) return qn_reject_attr(c, "k", QN_REASON_ATTR_HIGH, -1, qn_f_bits((double)bins), qn_f_bits((double)at->k));
    if (qn_tensor_count(x)) QN_TRY(qn_scratch_add(c, bins, 2, 1));
    c->flops_each = 4.0 * (double)bins * (double)at->n_segments / (double)at->k;
    for (int i = 0; i < 2; i++) {
        qn_out_like(c, i, x, i ? x->dtype : (uint32_t)QN_DTYPE_I32);
        c->out[i].d[x->rank - 1] = at->k;
        if (x->rank > 1) c->out[i].d[x->rank - 2] /= at->n_segments;
    }
    return QN_OK;
}

/* Whether bin i is stronger than bin j; NaN is strongest, ties go to the lower. */
static int stronger(const double *p, int64_t i, int64_t j) {
    if (isnan(p[i]) || isnan(p[j])) return isnan(p[i]) && isnan(p[j]) ? i < j : isnan(p[i]);
    return p[i] != p[j] ? p[i] > p[j] : i < j;
}

/* The strongest bin that is weaker than `last`, or the strongest of all for -1. */
static int64_t next_peak(const double *p, int64_t bins, int64_t last) {
    int64_t best = -1;
    for (int64_t i = 0; i < bins; i++)
        if ((last < 0 || stronger(p, last, i)) && i != last && (best < 0 || stronger(p, i, best))) best = i;
    return best;
}

qn_status qn_ref_welch_peaks(const qn_call *c) {
    const qn_attr_welch_peaks *at = c->attr;
    const qn_tensor *x = c->src[0];
    int64_t bins = bins_of(x), n = qn_ne(x, 0) / 2;
    double *sum = c->workspace, *p = sum + bins;
    qn_rows from, to;
    qn_rows_begin(&from, x->rank, x->shape);
    for (qn_rows_begin(&to, c->dst[0]->rank, c->dst[0]->shape); to.live; qn_rows_next(&to)) {
        for (int64_t i = 0; i < bins; i++) sum[i] = 0;
        for (int64_t s = 0; s < at->n_segments; s++, qn_rows_next(&from)) {
            load_power(x, qn_row(&from, x), bins, p);
            for (int64_t i = 0; i < bins; i++) sum[i] += p[i] * (i == 0 || 2 * i == n ? 1 : 2);
        }
        for (int64_t i = 0; i < bins; i++) sum[i] /= (double)at->n_segments;
        for (int64_t k = 0, bin = -1; k < at->k; k++) {
            bin = next_peak(sum, bins, bin);
            qn_store_one(QN_DTYPE_I32, qn_row(&to, c->dst[0]) + k * qn_nb(c->dst[0], 0), (double)bin);
            qn_store_row(c->dst[1], qn_row(&to, c->dst[1]), k, 1, &sum[bin]);
        }
    }
    return QN_OK;
}

/* ---- log_mel */

/* Rows that share one floor. */
static int64_t frames_of(const qn_tensor *spectrum, int32_t per_clip) { return per_clip ? qn_ne(spectrum, 1) : 1; }

static qn_status check_log_mel(qn_infer_call *c, int first) {
    QN_TRY(need_spectrum(c, first));
    QN_TRY(qn_need_rank(c, first + 1, 2));
    QN_TRY(qn_need_extent(c, first + 1, 0, bins_of(c->src[first])));
    return qn_need_one_dtype(c, first);
}

qn_status qn_infer_log_mel(qn_infer_call *c) {
    const qn_tensor *x = c->src[0], *filters = c->src[1];
    int64_t frames = frames_of(x, ((const qn_attr_log_mel *)c->attr)->per_clip), bins = bins_of(x), mels = qn_ne(filters, 1);
    QN_TRY(check_log_mel(c, 0));
    QN_TRY(qn_scratch_add(c, bins, 2, 1)); /* the power, and a filter */
    QN_TRY(qn_scratch_add(c, frames, mels, 1));
    int64_t d[QN_MAX_RANK];
    memcpy(d, x->shape, sizeof d);
    d[x->rank - 1] = mels;
    QN_TRY(qn_out_shape(c, 0, x->dtype, x->rank, d));
    if (qn_tensor_count(x) == 0 || mels == 0) c->workspace = 0;
    c->flops_each = 2.0 * (double)bins;
    return QN_OK;
}

qn_status qn_infer_log_mel_back(qn_infer_call *c) {
    const qn_tensor *x = c->src[1], *filters = c->src[2];
    int64_t frames = frames_of(x, ((const qn_attr_log_mel_back *)c->attr)->per_clip), bins = bins_of(x), mels = qn_ne(filters, 1);
    QN_TRY(check_log_mel(c, 1));
    for (int k = 1; k < x->rank || k < c->src[0]->rank; k++) QN_TRY(qn_need_extent(c, 0, k, qn_ne(x, k)));
    QN_TRY(qn_need_extent(c, 0, 0, mels));
    QN_TRY(qn_scratch_add(c, bins, 3, 1)); /* the power, its gradient, and a filter */
    QN_TRY(qn_scratch_add(c, frames, mels, 2));
    QN_TRY(qn_scratch_add(c, mels, bins, 1)); /* the filters' gradient */
    if (mels == 0) c->workspace = 0;
    qn_out_like(c, 0, x, x->dtype);
    qn_out_like(c, 1, filters, filters->dtype);
    c->flops_each = 4.0 * (double)mels;
    return QN_OK;
}

/* Energies of one frame, from its power. */
static void energies(const qn_tensor *filters, const double *p, int64_t bins, double *filter, double *e) {
    for (int64_t m = 0; m < qn_ne(filters, 1); m++) {
        qn_load_row(filters, qn_at(filters, m * qn_nb(filters, 1)), 0, bins, filter);
        e[m] = 0;
        for (int64_t i = 0; i < bins; i++) e[m] += filter[i] * p[i];
    }
}

static double log_energy(double e) { return log10(e > FLOOR_ENERGY ? e : FLOOR_ENERGY); }

static int64_t loudest(const double *e, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (e[i] > e[best]) best = i;
    return best;
}

qn_status qn_ref_log_mel(const qn_call *c) {
    const qn_tensor *x = c->src[0], *filters = c->src[1], *y = c->dst[0];
    int64_t bins = bins_of(x), mels = qn_ne(filters, 1), frames = frames_of(x, ((const qn_attr_log_mel *)c->attr)->per_clip);
    double *p = c->workspace, *filter = p + bins, *e = filter + bins;
    qn_rows from, to;
    qn_rows_begin(&to, y->rank, y->shape);
    if (!to.live) return QN_OK;
    for (qn_rows_begin(&from, x->rank, x->shape); from.live;) {
        for (int64_t f = 0; f < frames; f++, qn_rows_next(&from)) {
            load_power(x, qn_row(&from, x), bins, p);
            energies(filters, p, bins, filter, e + f * mels);
        }
        double floor = log_energy(e[loudest(e, frames * mels)]) - DECADES;
        for (int64_t f = 0; f < frames; f++, qn_rows_next(&to)) {
            double *row = e + f * mels;
            for (int64_t m = 0; m < mels; m++) row[m] = (fmax(log_energy(row[m]), floor) + 4) / 4;
            qn_store_row(y, qn_row(&to, y), 0, mels, row);
        }
    }
    return QN_OK;
}

typedef struct mel_back {
    const qn_tensor *g, *x, *filters, *dx;
    int64_t bins, mels, frames;
    int detach;
    double *p, *dp, *filter, *e, *de, *dfilters;
} mel_back;

/* de from the gradient of the result, which lies in it: values on the floor pass theirs on to the loudest. */
static void energy_gradients(const mel_back *b) {
    int64_t n = b->frames * b->mels, top = loudest(b->e, n);
    double floor = log_energy(b->e[top]) - DECADES, through = 0;
    for (int64_t i = 0; i < n; i++) {
        double dl = b->de[i] / 4, e = b->e[i];
        int low = !(log_energy(e) > floor);
        if (low) through += dl;
        b->de[i] = low ? 0 : e > FLOOR_ENERGY ? dl / (e * LN10) : 0;
    }
    if (!b->detach && b->e[top] > FLOOR_ENERGY) b->de[top] += through / (b->e[top] * LN10);
}

/* One frame: its energies' gradients to the filters and to the spectrum. */
static void frame_back(const mel_back *b, const char *row, char *out, const double *de) {
    const qn_tensor *x = b->x, *dx = b->dx;
    int64_t n = qn_ne(x, 0) / 2;
    load_power(x, row, b->bins, b->p);
    for (int64_t i = 0; i < b->bins; i++) b->dp[i] = 0;
    for (int64_t m = 0; m < b->mels; m++) {
        qn_load_row(b->filters, qn_at(b->filters, m * qn_nb(b->filters, 1)), 0, b->bins, b->filter);
        for (int64_t i = 0; i < b->bins; i++) {
            b->dp[i] += de[m] * b->filter[i];
            b->dfilters[m * b->bins + i] += de[m] * b->p[i];
        }
    }
    for (int64_t i = 0; i < 2 * n; i++) {
        int64_t bin = i % n;
        double slope = bin < b->bins ? 2 * b->dp[bin] * qn_load_one((qn_dtype)x->dtype, row + i * qn_nb(x, 0)) : 0;
        qn_store_one((qn_dtype)dx->dtype, out + i * qn_nb(dx, 0), slope);
    }
}

static void mel_back_run(const mel_back *b) {
    qn_rows ahead, at, grads; /* the frames of a clip are walked twice */
    qn_rows_begin(&at, b->x->rank, b->x->shape);
    qn_rows_begin(&grads, b->g->rank, b->g->shape);
    for (qn_rows_begin(&ahead, b->x->rank, b->x->shape); ahead.live;) {
        for (int64_t f = 0; f < b->frames; f++, qn_rows_next(&ahead), qn_rows_next(&grads)) {
            load_power(b->x, qn_row(&ahead, b->x), b->bins, b->p);
            energies(b->filters, b->p, b->bins, b->filter, b->e + f * b->mels);
            qn_load_row(b->g, qn_row(&grads, b->g), 0, b->mels, b->de + f * b->mels);
        }
        energy_gradients(b);
        for (int64_t f = 0; f < b->frames; f++, qn_rows_next(&at))
            frame_back(b, qn_row(&at, b->x), qn_row(&at, b->dx), b->de + f * b->mels);
    }
}

qn_status qn_ref_log_mel_back(const qn_call *c) {
    const qn_attr_log_mel_back *at = c->attr;
    mel_back b = {.g = c->src[0], .x = c->src[1], .filters = c->src[2], .dx = c->dst[0], .detach = at->detach_floor};
    b.bins = bins_of(b.x);
    b.mels = qn_ne(b.filters, 1);
    b.frames = frames_of(b.x, at->per_clip);
    if (b.mels == 0) {
        qn_fill(b.dx, 0);
        return QN_OK;
    }
    b.p = c->workspace;
    b.dp = b.p + b.bins;
    b.filter = b.dp + b.bins;
    b.e = b.filter + b.bins;
    b.de = b.e + b.frames * b.mels;
    b.dfilters = b.de + b.frames * b.mels;
    for (int64_t i = 0; i < b.mels * b.bins; i++) b.dfilters[i] = 0;
    mel_back_run(&b);
    for (int64_t m = 0; m < b.mels; m++)
        qn_store_row(c->dst[1], qn_at(c->dst[1], m * qn_nb(c->dst[1], 1)), 0, b.bins, b.dfilters + m * b.bins);
    return QN_OK;
}

void qn_vjp_log_mel(qn_vjp_call *v) {
    const qn_attr_log_mel *at = v->attr;
    qn_attr_log_mel_back back = qn_attr_log_mel_back_default();
    qn_val src[3] = {v->grad[0], v->src[0], v->src[1]}, out[2];
    back.per_clip = at->per_clip;
    back.detach_floor = at->detach_floor;
    qn_emit_many(v, QN_OP_log_mel_back, 0, &back, 3, src, 2, out);
    for (int i = 0; i < 2; i++)
        if (v->want[i]) v->out[i] = out[i];
}
