/* Images and volumes cut into the patches under a kernel (im2col, im2col_3d), patches folded back (im2col_back, im2col_3d_back), and
 * columns laid over a signal (col2im_1d). */
#include "cpu/k_copy.h"
#include "cpu/k_gemm.h"
#include "cpu/simd/simd_turn.h"
#include "op/op_window.h"

enum { LINE = 64 };

static size_t in_lines(int64_t bytes) { return (size_t)((bytes + LINE - 1) / LINE) * LINE; }
static int is_f32_dense(const qn_tensor *t) { return t->dtype == QN_DTYPE_F32 && qn_cpu_is_dense(t); }

/* ---- im2col: a row of [channel, tap] for each position of the window */

typedef struct patches {
    qn_windows w;
    int64_t batch, channels, length; /* length: of a row */
    uint32_t from, to;
} patches;

/* The windows of a kernel over an image whose last axes they lie on. */
static patches patches_in(qn_windows w, int axes, const qn_tensor *image, const qn_tensor *kernel) {
    qn_extents x = qn_extents_of(image);
    patches p = {.w = w, .channels = qn_ne(image, axes), .batch = qn_ne(image, axes + 1)};
    qn_windows_fit(&p.w, axes, &x, kernel);
    return p;
}

/* A volume has its channels and its batch on one axis. */
static patches patches_in_volume(qn_windows w, int32_t ic, const qn_tensor *image, const qn_tensor *kernel) {
    patches p = patches_in(w, 3, image, kernel);
    p.channels = ic;
    p.batch = qn_ne(image, 3) / ic;
    return p;
}

static int64_t kernel_taps(const patches *p) { return p->w.of[0].taps * p->w.of[1].taps * p->w.of[2].taps; }
static int64_t samples_of(const patches *p) { return p->w.of[0].in * p->w.of[1].in * p->w.of[2].in; }
static int64_t positions_of(const patches *p) { return p->w.of[0].out * p->w.of[1].out * p->w.of[2].out; }

static patches patches_of(const qn_call *c) {
    const qn_attr_im2col *at = c->attr;
    const qn_attr_im2col_3d *deep = c->attr;
    const qn_tensor *x = c->src[1];
    patches p;
    if (c->op == QN_OP_im2col_3d) p = patches_in_volume((qn_windows)QN_WINDOWS_3D(deep), deep->ic, x, c->src[0]);
    else if (at->is_2d) p = patches_in((qn_windows)QN_WINDOWS_2D(at), 2, x, c->src[0]);
    else p = patches_in((qn_windows)QN_WINDOWS_1D(at), 1, x, c->src[0]);
    p.from = x->dtype;
    p.to = c->dst[0]->dtype;
    p.length = p.channels * kernel_taps(&p);
    return p;
}

/* A row of positions, by its place on the height and the depth. */
typedef struct line {
    int64_t oh, od;
} line;
static line line_of(const patches *p, int64_t row) { return (line){row % p->w.of[1].out, row / p->w.of[1].out}; }

/* The samples that a row of taps stands on at a row of positions; NULL: in the padding. */
static inline const char *samples_at(const patches *p, const char *image, line at, int64_t kh, int64_t kd) {
    const qn_window *w = &p->w.of[0], *h = &p->w.of[1], *d = &p->w.of[2];
    int64_t y = qn_window_sample(h, at.oh, kh), z = qn_window_sample(d, at.od, kd);
    if (y < 0 || y >= h->in || z < 0 || z >= d->in) return NULL;
    return image + (z * h->in + y) * w->in * qn_float_bytes(p->from);
}

/* What one row of taps sees, which begins at sample x. */
QN_INLINE void one_row(const qn_window *w, int64_t size, const char *samples, int64_t x, char *to) {
    if (x >= 0 && x + (w->taps - 1) * w->dilation < w->in) {
        if (w->dilation == 1 && w->taps >= 8) memcpy(to, samples + x * size, (size_t)(w->taps * size));
        else
            for (int64_t k = 0; k < w->taps; k++) memcpy(to + k * size, samples + (x + k * w->dilation) * size, (size_t)size);
        return;
    }
    for (int64_t k = 0, at = x; k < w->taps; k++, at += w->dilation, to += size) {
        if (at >= 0 && at < w->in) memcpy(to, samples + at * size, (size_t)size);
        else memset(to, 0, (size_t)size);
    }
}

/* One row of the matrix, elements of `size` bytes. */
QN_INLINE void one_patch(const patches *p, int64_t size, const char *image, line at, int64_t ow, char *to) {
    const qn_window *w = &p->w.of[0];
    const int64_t x = qn_window_sample(w, ow, 0), taps = w->taps;
    for (int64_t c = 0; c < p->channels; c++, image += samples_of(p) * size)
        for (int64_t kd = 0; kd < p->w.of[2].taps; kd++)
            for (int64_t kh = 0; kh < p->w.of[1].taps; kh++, to += taps * size) {
                const char *samples = samples_at(p, image, at, kh, kd);
                if (samples) one_row(w, size, samples, x, to);
                else memset(to, 0, (size_t)(taps * size));
            }
}

/* What a tap sees from n neighbouring positions, the first of which stands on sample x: neighbours too, and zeros beyond the ends. */
static vf see_run(const qn_window *w, uint32_t dtype, const char *samples, int64_t x, int n) {
    float lane[2 * VF_N];
    int64_t first = x < 0 ? -x : 0, end = w->in - x < n ? w->in - x : n;
    if (!samples || first >= end) return vf_zero();
    if (first == 0) return qn_lanes_at(dtype, samples, x, x + end);
    vf_store(lane, vf_zero());
    vf_store(lane + first, qn_lanes_at(dtype, samples, 0, end - first));
    return vf_load(lane);
}

/* Rows of the matrix for n neighbouring positions: lanes lie along the positions, until squares of VF_N columns are turned. */
static void some_patches(const patches *p, const char *image, line at, int64_t ow, int n, char *to) {
    const qn_window *w = &p->w.of[0], *h = &p->w.of[1];
    const int64_t x = qn_window_sample(w, ow, 0), rows = kernel_taps(p) / w->taps,
                  plane = samples_of(p) * qn_float_bytes(p->from);
    const char *samples = samples_at(p, image, at, 0, 0);
    int64_t kw = 0, k = 0;
    for (int64_t e = 0; e < p->length; e += VF_N) {
        vf v[VF_N];
        for (int t = 0; t < VF_N; t++) {
            if (kw == w->taps) {
                kw = 0;
                if (++k == rows) {
                    k = 0;
                    image += plane;
                }
                samples = e + t < p->length ? samples_at(p, image, at, k % h->taps, k / h->taps) : NULL;
            }
            v[t] = see_run(w, p->from, samples, x + kw++ * w->dilation, n);
        }
        vf_turn(v);
        for (int i = 0; i < n; i++) qn_lanes_put_at(p->to, to + i * p->length * qn_float_bytes(p->to), e, v[i], p->length);
    }
}

/* Positions that stand side by side are done together; a row of them ends what is done together. */
static void run_turned(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    patches p = patches_of(c);
    int64_t each = positions_of(&p), across = p.w.of[0].out, runs = (across + VF_N - 1) / VF_N, lines = each / across;
    int64_t units = p.batch * lines * runs, u = qn_cpu_cut(units, s->parts[0], part);
    (void)phase;
    for (int64_t end = qn_cpu_cut(units, s->parts[0], part + 1); u < end; u++) {
        int64_t row = u / runs, ow = u % runs * VF_N, some = across - ow < VF_N ? across - ow : VF_N;
        const char *image = qn_at(c->src[1], row / lines * p.channels * samples_of(&p) * qn_float_bytes(p.from));
        char *to = qn_at(c->dst[0], (row * across + ow) * p.length * qn_float_bytes(p.to));
        some_patches(&p, image, line_of(&p, row % lines), ow, (int)some, to);
    }
}

static void run_patches(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    patches p = patches_of(c);
    int64_t each = positions_of(&p), across = p.w.of[0].out, rows = p.batch * each, r = qn_cpu_cut(rows, s->parts[0], part);
    int64_t in = qn_float_bytes(p.from), out = qn_float_bytes(p.to);
    char *own = (char *)c->workspace + in_lines(p.length * 4) * (size_t)part;
    (void)phase;
    for (int64_t end = qn_cpu_cut(rows, s->parts[0], part + 1); r < end; r++) {
        const char *image = qn_at(c->src[1], r / each * p.channels * samples_of(&p) * in);
        char *to = qn_at(c->dst[0], r * p.length * out), *first = p.from == p.to ? to : own;
        if (in == 4) one_patch(&p, 4, image, line_of(&p, r % each / across), r % across, first);
        else one_patch(&p, 2, image, line_of(&p, r % each / across), r % across, first);
        if (first != to) qn_copy_row(p.from, first, p.to, to, p.length);
    }
}

/* Neighbouring positions see neighbours when windows step by one; longer rows of taps are runs of memory themselves. */
static int prepare_patches(const qn_call *c, qn_cpu_step *s, const char *rows, const char *turned) {
    const qn_tensor *x = c->src[1], *y = c->dst[0];
    if (qn_tensor_count(x) == 0 || qn_tensor_count(y) == 0 || !qn_cpu_is_dense(x) || !qn_cpu_is_dense(y)) return 0;
    if (!qn_lanes_float(x->dtype) || !qn_lanes_float(y->dtype)) return 0;
    patches p = patches_of(c);
    const qn_window *w = &p.w.of[0];
    int64_t across = w->out, positions = p.batch * positions_of(&p), runs = positions / across * ((across + VF_N - 1) / VF_N);
    double bytes = (double)p.length * 12;
    if (w->stride == 1 && w->taps < 8 && across >= VF_N / 2)
        return qn_cpu_by_rows(s, turned, run_turned, runs, bytes * (double)positions / (double)runs, 0);
    qn_cpu_by_rows(s, rows, run_patches, positions, bytes, 0);
    s->workspace = p.from == p.to ? 0 : in_lines(p.length * 4) * (size_t)s->parts[0];
    return 1;
}

int QN_K(im2col)(const qn_call *c, qn_cpu_step *s) { return prepare_patches(c, s, "im2col rows", "im2col turned"); }
int QN_K(im2col_3d)(const qn_call *c, qn_cpu_step *s) { return prepare_patches(c, s, "im2col_3d rows", "im2col_3d turned"); }

/* ---- im2col_back: patches of some channels and a row of positions are turned, so that lanes lie along the row, and each tap is then a
 * run of neighbours that is added to a run of the image. An element is summed by one unit, over positions from first to last. */

enum { DEPTH = 256, WIDE = 64 }; /* most taps of some channels, unless one has more, and positions turned at a time */

static patches patches_back_of(const qn_call *c) {
    const qn_attr_im2col_back *at = c->attr;
    const qn_attr_im2col_3d_back *deep = c->attr;
    const qn_tensor *dx = c->dst[0];
    patches p;
    if (c->op == QN_OP_im2col_3d_back) p = patches_in_volume((qn_windows)QN_WINDOWS_3D(deep), deep->ic, dx, c->src[1]);
    else if (at->is_2d) p = patches_in((qn_windows)QN_WINDOWS_2D(at), 2, dx, c->src[1]);
    else p = patches_in((qn_windows)QN_WINDOWS_1D(at), 1, dx, c->src[1]);
    p.from = c->src[0]->dtype;
    p.to = dx->dtype;
    p.length = p.channels * kernel_taps(&p);
    return p;
}

static int64_t channels_of(const patches *p) {
    int64_t taps = kernel_taps(p), some = taps > DEPTH ? 1 : DEPTH / taps;
    return some < p->channels ? some : p->channels;
}

/* One tap at `n` positions, the first of which falls on sample x of a row; those beyond its ends are padding. */
static void add_tap(const qn_window *w, const float *from, int n, int64_t x, float *row) {
    if (w->stride == 1 && n == VF_N && x >= 0 && x + VF_N <= w->in) {
        vf_store(row + x, vf_load(row + x) + vf_load(from));
    } else if (w->stride == 1) {
        int64_t first = x < 0 ? -x : 0, end = w->in - x < n ? w->in - x : n;
        if (first >= end) return;
        int some = (int)(end - first);
        vf_storen(row + x + first, vf_loadn(row + x + first, some) + vf_loadn(from + first, some), some);
    } else
        for (int i = 0; i < n; i++, x += w->stride)
            if (x >= 0 && x < w->in) row[x] += from[i];
}

/* Positions [first, first + count) of a row of them, counted through the depth, whose turned taps of `some` channels lie in panels.
 * Taps of one row that are neighbours overlap: between them come all other rows, so that none waits for the one before it to be
 * written. */
static void add_panels(const patches *p, const float *panel, int64_t some, int64_t row, int64_t first, int64_t count,
                       float *image) {
    const qn_window *w = &p->w.of[0], *h = &p->w.of[1], *d = &p->w.of[2];
    const int64_t taps = kernel_taps(p), samples = samples_of(p);
    for (int64_t done = 0; done < count; done += VF_N, panel += some * taps * VF_N) {
        int n = count - done < VF_N ? (int)(count - done) : VF_N;
        for (int64_t kw = 0; kw < w->taps; kw++) {
            int64_t x = qn_window_sample(w, first + done, kw);
            for (int64_t k = 0; k < d->taps * h->taps; k++) {
                int64_t y = qn_window_sample(h, row % h->out, k % h->taps), z = qn_window_sample(d, row / h->out, k / h->taps);
                const float *from = panel + (k * w->taps + kw) * VF_N;
                if (y < 0 || y >= h->in || z < 0 || z >= d->in) continue;
                for (int64_t c = 0; c < some; c++)
                    add_tap(w, from + c * taps * VF_N, n, x, image + c * samples + (z * h->in + y) * w->in);
            }
        }
    }
}

static void run_fold(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    patches p = patches_back_of(c);
    int64_t most = channels_of(&p), blocks = (p.channels + most - 1) / most, taps = kernel_taps(&p), samples = samples_of(&p);
    int64_t across = p.w.of[0].out, positions = positions_of(&p);
    int64_t size = qn_float_bytes(p.from), units = p.batch * blocks;
    float *panel = (float *)(void *)((char *)c->workspace + in_lines(most * taps * WIDE * 4) * (size_t)part);
    qn_gemm_fetch_fn turn = qn_gemm_plain_fetch(p.from, p.length * size, size, most * taps);
    (void)phase;
    for (int64_t u = qn_cpu_cut(units, s->parts[0], part), end = qn_cpu_cut(units, s->parts[0], part + 1); u < end; u++) {
        int64_t n = u / blocks, first = u % blocks * most, some = p.channels - first < most ? p.channels - first : most;
        float *image = (float *)(void *)qn_at(c->dst[0], (n * p.channels + first) * samples * 4);
        memset(image, 0, (size_t)(some * samples) * sizeof *image);
        for (int64_t r = 0; r < positions;) {
            int64_t ow = r % across, count = across - ow < WIDE ? across - ow : WIDE;
            qn_gemm_side side = {.data = qn_at(c->src[0], (n * positions + r) * p.length * size),
                                 .along = p.length * size,
                                 .deep = size,
                                 .dtype = p.from};
            turn(&side, 0, 0, count, first * taps, (int)(some * taps), panel, VF_N);
            add_panels(&p, panel, some, r / across, ow, count, image);
            r += count;
        }
    }
}

static int prepare_fold(const qn_call *c, qn_cpu_step *s, const char *name) {
    const qn_tensor *g = c->src[0], *dx = c->dst[0];
    if (qn_tensor_count(g) == 0 || !is_f32_dense(dx) || qn_tensor_count(dx) == 0) return 0;
    if (!qn_lanes_float(g->dtype) || !qn_cpu_is_dense(g)) return 0;
    patches p = patches_back_of(c);
    int64_t taps = kernel_taps(&p), most = channels_of(&p);
    if (taps > 1 << 16 || p.w.of[0].stride < 1) return 0;
    qn_cpu_by_rows(s, name, run_fold, p.batch * ((p.channels + most - 1) / most),
                   8.0 * (double)(most * taps) * (double)positions_of(&p), 0);
    s->workspace = in_lines(most * taps * WIDE * 4) * (size_t)s->parts[0];
    return 1;
}

int QN_K(im2col_back)(const qn_call *c, qn_cpu_step *s) { return prepare_fold(c, s, "im2col_back by channels"); }
int QN_K(im2col_3d_back)(const qn_call *c, qn_cpu_step *s) { return prepare_fold(c, s, "im2col_3d_back by channels"); }

/* ---- col2im_1d: the taps of a column are neighbours in the signal too, so columns are added as they lie, a stretch of the signal of
 * some channels at a time. A sample is summed over columns from first to last, wherever stretches end. */

enum { CHANNELS = 16, STRETCH = 1024 };

typedef struct columns {
    qn_window w;
    int64_t channels, blocks, stretches; /* channels of the signal; what it is cut into */
    uint32_t dtype;
} columns;

static columns columns_of(const qn_call *c) {
    const qn_attr_col2im_1d *at = c->attr;
    const qn_tensor *cols = c->src[0];
    columns k = {.channels = at->oc, .dtype = cols->dtype};
    k.w = (qn_window){.in = qn_ne(c->dst[0], 0), .taps = qn_ne(cols, 0) / at->oc, .stride = at->s, .pad = at->p, .dilation = 1};
    k.w.out = qn_ne(cols, 1);
    k.blocks = (k.channels + CHANNELS - 1) / CHANNELS;
    k.stretches = (k.w.in + STRETCH - 1) / STRETCH;
    return k;
}

QN_INLINE void add_lanes(uint32_t dtype, const char *from, int64_t n, float *to) {
    int64_t i = 0;
    for (; i + VF_N <= n; i += VF_N) vf_store(to + i, vf_load(to + i) + qn_lanes(dtype, from, i));
    int some = (int)(n - i);
    if (some) vf_storen(to + i, vf_loadn(to + i, some) + qn_lanes_some(dtype, from, i, some), some);
}

/* Samples [from, to) of `some` channels, sums that lie `apart` floats from each other. */
QN_INLINE void add_columns(const columns *k, uint32_t dtype, const char *cols, int64_t some, int64_t from, int64_t to, float *sum,
                           int64_t apart) {
    const int64_t size = qn_float_bytes(dtype), taps = k->w.taps;
    const int64_t first = qn_window_outputs(&k->w, taps - 1, from, to).first, last = qn_window_outputs(&k->w, 0, from, to).last;
    for (int64_t c = 0; c < some; c++) memset(sum + c * apart, 0, (size_t)(to - from) * sizeof *sum);
    for (int64_t t = first; t < last; t++) {
        int64_t x = qn_window_sample(&k->w, t, 0), low = x < from ? from - x : 0, high = to - x < taps ? to - x : taps;
        const char *seen = cols + (t * k->channels * taps + low) * size;
        for (int64_t c = 0; c < some && low < high; c++, seen += taps * size)
            add_lanes(dtype, seen, high - low, sum + c * apart + (x + low - from));
    }
}

static void run_columns(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    columns k = columns_of(c);
    int64_t units = k.blocks * k.stretches, size = qn_float_bytes(k.dtype);
    float *own = (float *)c->workspace + CHANNELS * STRETCH * part;
    (void)phase;
    for (int64_t u = qn_cpu_cut(units, s->parts[0], part), end = qn_cpu_cut(units, s->parts[0], part + 1); u < end; u++) {
        int64_t channel = u / k.stretches * CHANNELS, from = u % k.stretches * STRETCH;
        int64_t some = k.channels - channel < CHANNELS ? k.channels - channel : CHANNELS;
        int64_t to = from + STRETCH < k.w.in ? from + STRETCH : k.w.in;
        const char *cols = qn_at(c->src[0], channel * k.w.taps * size);
        char *y = qn_at(c->dst[0], (channel * k.w.in + from) * size);
        float *sum = size == 4 ? (float *)(void *)y : own;
        int64_t apart = size == 4 ? k.w.in : STRETCH;
#define ADD(d) add_columns(&k, d, cols, some, from, to, sum, apart)
        QN_BY_FLOAT(k.dtype, ADD);
#undef ADD
        for (int64_t i = 0; i < some && size != 4; i++)
            qn_copy_row(QN_DTYPE_F32, (const char *)(sum + i * apart), k.dtype, y + i * k.w.in * size, to - from);
    }
}

int QN_K(col2im_1d)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *cols = c->src[0], *y = c->dst[0];
    if (!qn_lanes_float(cols->dtype) || !qn_cpu_is_dense(cols) || !qn_cpu_is_dense(y)) return 0;
    columns k = columns_of(c);
    double bytes = (double)(qn_float_bytes(k.dtype) * (3 * qn_tensor_count(cols) + qn_tensor_count(y)));
    qn_cpu_by_rows(s, "col2im_1d by stretches", run_columns, k.blocks * k.stretches, bytes / (double)(k.blocks * k.stretches), 0);
    s->workspace = k.dtype == QN_DTYPE_F32 ? 0 : CHANNELS * STRETCH * sizeof(float) * (size_t)s->parts[0];
    return 1;
}
