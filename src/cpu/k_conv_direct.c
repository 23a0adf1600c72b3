/* Convolution with output channels along the lanes: patches are read where they lie in the image, padded where it must be, so nothing
 * is written down for them. Sums run over channel, then tap, as the product of patches has them.
 *
 * The image is laid out padded (and thinned, where one tap skips samples) either whole, by a phase of its own that all share, when the
 * weights are the larger side, or strip by strip, each part its own, when the image is. */
#include "cpu/k_conv_mend.h"
#include "cpu/k_gemm.h"

enum { STRIP = 320 << 10, LINE = 64, UNITS = 16 };

typedef struct plan {
    int flat;           /* one tap, no padding: pixels are one row */
    int shared;         /* the image is laid out whole */
    int in_place;       /* it is as it should be */
    int vectors, most;  /* of a tile */
    int64_t wide, high; /* of the output: pixels of a row, rows */
    int64_t row,
        rows; /* of the image as laid out for all rows: floats, rows; a strip has fewer rows (or, when flat, a shorter row) */
    int64_t strips, blocks, splits; /* of the output along its rows, of channels, and how the blocks are cut */
    int64_t strip;                  /* most rows of a strip, or pixels when flat */
    size_t weights, whole, slot;    /* bytes */
    int64_t parts;
} plan;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static size_t in_lines(int64_t floats) { return (size_t)ceil_div(floats * 4, LINE) * LINE; }

static int is_flat(const qn_conv *v) {
    return v->taps == 1 && v->of[0].pad == 0 && v->of[1].pad == 0 && (v->of[0].out - 1) * v->of[0].stride < v->of[0].in &&
           (v->of[1].out - 1) * v->of[1].stride < v->of[1].in;
}

/* Rows of the image, or floats of one, that `count` outputs look at. */
static int64_t reach(const qn_window *w, int64_t count) { return (count - 1) * w->stride + (w->taps - 1) * w->dilation + 1; }

static int64_t lane_width(const plan *p) { return p->vectors * VF_N; }

/* What is cut into strips: rows, or tiles of pixels. */
static int64_t cuttable(const plan *p) { return p->flat ? ceil_div(p->wide, p->most) : p->high; }

static plan plan_of(const qn_conv *v) {
    plan p = {.flat = is_flat(v), .vectors = 2, .most = QN_CONV_PIXELS};
    p.wide = p.flat ? v->pixels : v->of[0].out;
    p.high = p.flat ? 1 : v->of[1].out;
    if (p.wide <= QN_CONV_PIXELS / 2 && v->channels % (4 * VF_N) == 0) p.vectors = 4, p.most = QN_CONV_PIXELS / 2;
    p.blocks = ceil_div(v->channels, lane_width(&p));
    p.row = p.flat ? p.wide : reach(&v->of[0], p.wide);
    p.rows = reach(&v->of[1], p.high);
    int64_t image = v->deep * p.row * p.rows, weights = v->deep * v->taps * p.blocks * lane_width(&p);
    p.shared = image <= weights;
    p.in_place = p.shared && qn_conv_is_plain(v);
    p.strips = p.shared ? 1 : ceil_div(image * 4, STRIP);
    if (!p.shared && p.strips < UNITS) p.strips = UNITS;
    if (p.strips > cuttable(&p)) p.strips = cuttable(&p);
    p.strip = ceil_div(cuttable(&p), p.strips) * (p.flat ? p.most : 1);
    p.splits = ceil_div(UNITS, p.strips);
    if (p.splits > p.blocks) p.splits = p.blocks;
    p.weights = in_lines(weights * v->groups);
    p.whole = p.shared && !p.in_place ? in_lines(image * v->groups * v->images) : 0;
    p.slot = p.shared ? 0 : in_lines(v->deep * (p.flat ? p.strip : p.row * reach(&v->of[1], p.strip)));
    int64_t units = v->images * v->groups * p.strips * p.splits;
    p.parts = units > 64 ? 64 : units;
    return p;
}

/* ---- Weights: for each block of channels a line of them for every channel and tap */

static void pack_block(const qn_conv *v, const plan *p, int64_t number, float *to) {
    int64_t k = v->deep * v->taps, lanes = lane_width(p), group = number / p->blocks, first = number % p->blocks * lanes;
    int64_t some = v->channels - first < lanes ? v->channels - first : lanes;
    qn_gemm_side side = {.data = (const char *)(v->w + (group * v->channels + first) * k), .along = k * 4, .deep = 4};
    to += number * lanes * k;
    if (some < lanes) memset(to, 0, (size_t)(lanes * k) * 4);
    for (int64_t done = 0; done < k; done += 512) {
        int depth = (int)(k - done < 512 ? k - done : 512);
        qn_gemm_plain_fetch(QN_DTYPE_F32, k * 4, 4, depth)(&side, 0, 0, some, done, depth, to + done * lanes, (int)lanes);
    }
    for (int64_t i = 0; some < lanes && i < k; i++) memset(to + i * lanes + some, 0, (size_t)(lanes - some) * 4);
}

/* ---- The image as it should lie */

static void lay_row(const float *from, const qn_window *w, int64_t floats, int64_t step, float *to) {
    int64_t before = w->pad < floats ? w->pad : floats, have = w->in < floats - before ? w->in : floats - before;
    if (step != 1) {
        for (int64_t i = 0; i < floats; i++) to[i] = from[i * step];
        return;
    }
    memset(to, 0, (size_t)before * 4);
    memcpy(to + before, from, (size_t)have * 4);
    memset(to + before + have, 0, (size_t)(floats - before - have) * 4);
}

/* Pixels [first, first + count) of a plane of one tap each. */
static void lay_pixels(const qn_conv *v, const float *plane, int64_t first, int64_t count, float *to) {
    const qn_window *w = &v->of[0], *h = &v->of[1];
    if (w->stride == 1 && h->stride == 1 && w->in == w->out) {
        memcpy(to, plane + first, (size_t)count * 4);
        return;
    }
    for (int64_t run; count > 0; first += run, to += run, count -= run) {
        int64_t x = first % w->out, y = first / w->out;
        run = w->out - x < count ? w->out - x : count;
        for (int64_t i = 0; i < run; i++) to[i] = plane[y * h->stride * w->in + (x + i) * w->stride];
    }
}

/* Output rows [first, first + count), or pixels when flat, of one channel's plane. */
static void lay_plane(const qn_conv *v, const plan *p, const float *plane, int64_t first, int64_t count, float *to) {
    const qn_window *h = &v->of[1];
    if (p->flat) {
        lay_pixels(v, plane, first, count, to);
        return;
    }
    int64_t y = first * h->stride - h->pad, rows = reach(h, count);
    for (int64_t i = 0; i < rows; i++, y++, to += p->row) {
        if (y < 0 || y >= h->in) memset(to, 0, (size_t)p->row * 4);
        else lay_row(plane + y * v->of[0].in, &v->of[0], p->row, 1, to);
    }
}

/* ---- Units */

typedef struct unit {
    const qn_conv *v;
    const plan *p;
    int64_t image, group, first, count; /* of output rows, or of pixels */
    int64_t block, end_block;
    const float *x, *weights; /* x: where the first of them looks */
    qn_conv_walk walk;
} unit;

/* inner: the pixels that see no padding. */
static void run_row(const unit *u, int64_t block, int64_t at, int64_t wide, const float *x, qn_range inner) {
    const plan *p = u->p;
    int64_t tiles = ceil_div(wide, p->most), lanes = lane_width(p), k = u->v->deep * u->v->taps;
    int64_t left = u->v->channels - block * lanes;
    const float *w = u->weights + block * lanes * k;
    float sums[QN_CONV_MOST];
    for (int64_t i = 0; i < tiles; i++) {
        int64_t from = qn_cpu_cut(wide, tiles, i), end = qn_cpu_cut(wide, tiles, i + 1);
        qn_conv_tile((int)(end - from), p->vectors, &u->walk, x + from * u->walk.pitch, w, sums, lanes);
        qn_conv_store(u->v, u->image, u->group * u->v->channels + block * lanes, left < lanes ? left : lanes, at + from,
                      (int)(end - from), sums, lanes, from < inner.first || end > inner.last);
    }
}

static void run_unit(const unit *u) {
    const plan *p = u->p;
    qn_range columns = qn_conv_inner(&u->v->of[0]), rows = qn_conv_inner(&u->v->of[1]), none = {0, 0};
    for (int64_t block = u->block; block < u->end_block; block++) {
        if (p->flat) run_row(u, block, u->first, u->count, u->x, (qn_range){0, u->count});
        for (int64_t i = u->first; !p->flat && i < u->first + u->count; i++)
            run_row(u, block, i * p->wide, p->wide, u->x + (i - u->first) * u->v->of[1].stride * p->row,
                    i >= rows.first && i < rows.last ? columns : none);
    }
}

/* The walk over an image whose planes are `plane` floats apart. */
static qn_conv_walk walk_of(const qn_conv *v, const plan *p, int64_t plane) {
    const qn_window *w = &v->of[0], *h = &v->of[1];
    if (p->flat) return (qn_conv_walk){1, 1, 0, 1, 0, v->deep, plane};
    return (qn_conv_walk){w->stride, v->deep, plane, h->taps, h->dilation * p->row, w->taps, w->dilation};
}

static void place_unit(const qn_conv *v, const plan *p, int64_t number, const float *whole, float *own, unit *u) {
    int64_t split = number % p->splits, strip = number / p->splits % p->strips, plane = number / p->splits / p->strips;
    int64_t scale = p->flat ? p->most : 1, all = p->flat ? p->wide : p->high;
    u->group = plane % v->groups;
    u->image = plane / v->groups;
    u->block = qn_cpu_cut(p->blocks, p->splits, split);
    u->end_block = qn_cpu_cut(p->blocks, p->splits, split + 1);
    u->first = qn_cpu_cut(cuttable(p), p->strips, strip) * scale;
    int64_t end = qn_cpu_cut(cuttable(p), p->strips, strip + 1) * scale;
    u->count = (end < all ? end : all) - u->first;
    u->weights += u->group * p->blocks * lane_width(p) * v->deep * v->taps;
    if (p->shared) {
        u->walk = walk_of(v, p, p->row * p->rows);
        u->x = (p->in_place ? v->x : whole) + plane * v->deep * p->row * p->rows;
        return;
    }
    int64_t floats = p->flat ? u->count : p->row * reach(&v->of[1], u->count);
    for (int64_t c = 0; c < v->deep; c++)
        lay_plane(v, p, v->x + (plane * v->deep + c) * v->samples, u->first, u->count, own + c * floats);
    u->walk = walk_of(v, p, floats);
    u->x = own;
}

/* Phases: weights, unless they are packed; the whole image, unless it is not needed; the sums. */
static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_conv v;
    if (!qn_conv_describe(c, &v)) return;
    plan p = plan_of(&v);
    char *workspace = c->workspace;
    float *weights = (float *)workspace, *whole = (float *)(workspace + p.weights),
          *own = (float *)(workspace + p.weights + p.whole);
    int64_t all = phase == 0   ? v.groups * p.blocks
                  : phase == 1 ? v.images * v.groups * v.deep
                               : v.images * v.groups * p.strips * p.splits;
    int64_t number = qn_cpu_cut(all, s->parts[phase], part), end = qn_cpu_cut(all, s->parts[phase], part + 1);
    if (phase == 0) {
        for (; number < end && !s->packed; number++) pack_block(&v, &p, number, weights);
    } else if (phase == 1) {
        for (; number < end && p.whole; number++)
            lay_plane(&v, &p, v.x + number * v.samples, 0, p.flat ? p.wide : p.high, whole + number * p.row * p.rows);
    } else {
        for (; number < end; number++) {
            unit u = {.v = &v, .p = &p, .weights = s->packed ? s->packed : weights};
            place_unit(&v, &p, number, whole, own + part * (int64_t)(p.slot / 4), &u);
            run_unit(&u);
        }
    }
}

static void pack(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) {
    qn_conv v;
    (void)s;
    if (!qn_conv_describe(c, &v)) return;
    plan p = plan_of(&v);
    pack_block(&v, &p, part, packed);
}

int qn_conv_direct(const qn_conv *v, qn_cpu_step *s) {
    if (v->of[2].in != 1 || v->of[2].taps != 1 || v->of[2].out != 1 || v->of[2].pad != 0) return 0;
    int64_t lanes = 2 * VF_N;
    if (ceil_div(v->channels, lanes) * lanes * 3 > v->channels * 4 || v->deep * v->taps < 32) return 0;
    plan p = plan_of(v);
    if (!p.shared && qn_conv_is_plain(v) && v->deep < 512) return 0; /* short sums of a large image: turning the tiles shows */
    double flops = 2.0 * (double)(v->deep * v->taps * v->channels) * (double)(v->pixels * v->images * v->groups);
    s->run = run;
    s->name = "direct f32";
    s->n_phases = 3;
    s->parts[0] = s->constant & 2u ? 1 : v->groups * p.blocks < 16 ? v->groups * p.blocks : 16;
    s->parts[1] = p.whole ? qn_cpu_parts(v->images * v->groups * v->deep, (double)(p.row * p.rows) * 8, 0) : 1;
    s->parts[2] = flops < 2.0 * QN_CPU_PART_FLOPS ? 1 : p.parts;
    s->workspace = p.weights + p.whole + p.slot * (size_t)s->parts[2];
    if (s->constant & 2u) {
        s->pack = pack;
        s->pack_slot = 1;
        s->pack_parts = v->groups * p.blocks;
        s->packed_bytes = p.weights;
        s->pack_also[0] = v->groups;
        s->pack_also[1] = p.vectors;
    }
    return 1;
}
