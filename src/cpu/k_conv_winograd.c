/* Convolution by 3x3 with stride 1 in squares of 4x4 outputs, as Winograd has it: 36 products of transformed samples and weights
 * where there would be 144. Sums of a square are as exact as its largest samples let them be; a square that is not finite is
 * computed tap by tap, so that an infinity or NaN stays in the windows that see it.
 *
 * Transformed samples lie as [place][channels by VF_N][square][VF_N], weights as [block of channels][place][channel][lanes]. */
#include "cpu/k_conv_mend.h"
#include "cpu/k_gemm.h"
#include "cpu/simd/simd_turn.h"

enum { OUT = 4, IN = 6, PLACES = IN * IN, LANES = 2 * VF_N, LINE = 64, UNITS = 16, DEEP = 48 };
enum {
    CHUNK = 7,
    WIDE = 32,
    SEGMENT = 8,
    SOME = 32
}; /* squares whose samples, and whose outputs, are at hand; channels packed at a time */

typedef struct plan {
    int own; /* a part transforms the samples it needs, for all channels coming out; otherwise a phase does it for all */
    int64_t across, down, squares; /* of an image; of all images */
    int64_t deep;                  /* channels going in, in vectors */
    int64_t blocks, strips, strip; /* of channels coming out; of squares, and the most of one */
    int64_t units, parts;
    size_t weights, samples, slot; /* bytes; of all groups, and of a part */
} plan;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static size_t in_lines(int64_t floats) { return (size_t)ceil_div(floats * 4, LINE) * LINE; }

static plan plan_of(const qn_conv *v) {
    plan p = {.across = ceil_div(v->of[0].out, OUT), .down = ceil_div(v->of[1].out, OUT), .deep = ceil_div(v->deep, VF_N)};
    p.squares = p.across * p.down * v->images;
    p.own = p.squares >= 8 * QN_CONV_PIXELS;
    p.blocks = ceil_div(v->channels, LANES);
    p.strips = ceil_div(p.squares, QN_CONV_PIXELS);
    p.strip = ceil_div(p.squares, p.strips);
    p.units = v->groups * p.strips * (p.own ? 1 : p.blocks);
    int64_t parts = p.units >= 4 * UNITS ? 4 * UNITS
                    : p.own              ? UNITS / 2
                                         : UNITS; /* few: what each has for itself should stay cached */
    p.parts = p.units < parts ? p.units : parts;
    p.weights = in_lines(v->groups * p.blocks * PLACES * p.deep * VF_N * LANES);
    p.samples = p.own ? 0 : in_lines(v->groups * PLACES * p.deep * p.squares * VF_N);
    p.slot = in_lines(PLACES * p.strip * LANES) + (p.own ? in_lines(PLACES * p.deep * p.strip * VF_N) : 0);
    return p;
}

/* ---- Weights */

static inline void spread_three(vf a, vf b, vf c, vf *to, int step) {
    vf even = (a + c) * vf_set1(-1.0f / 6), odd = b * vf_set1(-1.0f / 6);
    vf far = vf_fma(c, vf_set1(1.0f / 6), a * vf_set1(1.0f / 24)), slope = b * vf_set1(1.0f / 12);
    to[0] = a * vf_set1(0.25f);
    to[step] = even + odd;
    to[2 * step] = even - odd;
    to[3 * step] = far + slope;
    to[4 * step] = far - slope;
    to[5 * step] = c;
}

/* One vector of channels: nine taps, `step` floats apart, become 36 places. */
static void transform_weights(const float *taps, int64_t step, float *to, int64_t place_step) {
    vf half[IN * 3], row[IN];
    for (int x = 0; x < 3; x++)
        spread_three(vf_load(taps + x * step), vf_load(taps + (3 + x) * step), vf_load(taps + (6 + x) * step), half + x, 3);
    for (int y = 0; y < IN; y++) {
        spread_three(half[3 * y], half[3 * y + 1], half[3 * y + 2], row, 1);
        for (int x = 0; x < IN; x++) vf_store(to + (y * IN + x) * place_step, row[x]);
    }
}

/* Block `number` of all groups. Lanes and channels that are not there are 0. */
static void pack_block(const qn_conv *v, const plan *p, int64_t number, float *to) {
    int64_t k = v->deep * 9, group = number / p->blocks, first = number % p->blocks * LANES, place = p->deep * VF_N * LANES;
    int64_t some = v->channels - first < LANES ? v->channels - first : LANES;
    float panel[SOME * 9 * LANES];
    qn_gemm_side side = {.data = (const char *)(v->w + (group * v->channels + first) * k), .along = k * 4, .deep = 4};
    to += number * PLACES * place;
    for (int64_t c = 0; c < v->deep; c += SOME) {
        int depth = (int)(v->deep - c < SOME ? v->deep - c : SOME) * 9;
        qn_gemm_plain_fetch(QN_DTYPE_F32, k * 4, 4, depth)(&side, 0, 0, some, c * 9, depth, panel, LANES);
        for (int64_t i = 0; some < LANES && i < depth; i++) memset(panel + i * LANES + some, 0, (size_t)(LANES - some) * 4);
        for (int64_t i = 0; i < depth / 9; i++)
            for (int lane = 0; lane < LANES; lane += VF_N)
                transform_weights(panel + i * 9 * LANES + lane, LANES, to + (c + i) * LANES + lane, place);
    }
    for (int64_t c = v->deep; c < p->deep * VF_N; c++)
        for (int i = 0; i < PLACES; i++) memset(to + i * place + c * LANES, 0, LANES * 4);
}

/* ---- Samples */

static inline void spread_six(const vf *d, int step, vf *t) {
    vf d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step], d5 = d[5 * step];
    vf even = vf_fma(d2, vf_set1(-4), d4), odd = vf_fma(d1, vf_set1(-4), d3), near = d4 - d2, slope = d3 - d1;
    t[0] = vf_fma(d0, vf_set1(4), vf_fma(d2, vf_set1(-5), d4));
    t[1] = even + odd;
    t[2] = even - odd;
    t[3] = vf_fma(slope, vf_set1(2), near);
    t[4] = vf_fma(slope, vf_set1(-2), near);
    t[5] = vf_fma(d1, vf_set1(4), vf_fma(d3, vf_set1(-5), d5));
}

static void transform_square(const vf *from, float *to, int64_t place_step) {
    vf half[PLACES];
    QN_UNROLL
    for (int x = 0; x < IN; x++) {
        vf column[IN];
        spread_six(from + x, WIDE, column);
        QN_UNROLL
        for (int y = 0; y < IN; y++) half[y * IN + x] = column[y];
    }
    QN_UNROLL
    for (int y = 0; y < IN; y++) {
        vf row[IN];
        spread_six(half + y * IN, 1, row);
        QN_UNROLL
        for (int x = 0; x < IN; x++) vf_store(to + (y * IN + x) * place_step, row[x]);
    }
}

/* Six rows from y on, from sample x on, of as many channels as lanes, lanes last. What lies outside of the image is 0. */
static void gather_rows(const qn_conv *v, const float *planes, int channels, int64_t y, int64_t x, vf rows[IN][WIDE]) {
    float lines[VF_N][WIDE + VF_N];
    int64_t before = x < 0 ? -x : 0, from = x < 0 ? 0 : x, have = v->of[0].in - from;
    if (have > WIDE - before) have = WIDE - before;
    memset(lines, 0, sizeof lines);
    for (int i = 0; i < IN; i++, y++) {
        if (y < 0 || y >= v->of[1].in) {
            memset(rows[i], 0, sizeof rows[i]);
            continue;
        }
        for (int c = 0; c < channels; c++) {
            const float *line = planes + c * v->samples + y * v->of[0].in + from;
            int64_t j = 0;
            for (; j + VF_N <= have; j += VF_N) vf_store(lines[c] + before + j, vf_load(line + j));
            if (j < have) vf_store(lines[c] + before + j, vf_loadn(line + j, (int)(have - j)));
        }
        for (int at = 0; at < WIDE; at += VF_N) {
            QN_UNROLL
            for (int c = 0; c < VF_N; c++) rows[i][at + c] = vf_load(lines[c] + at);
            vf_turn(rows[i] + at);
        }
    }
}

/* Squares [first, first + count) of all, of VF_N of the group's channels: those of vector `block`. */
static void spread_squares(const qn_conv *v, const plan *p, int64_t group, int64_t block, int64_t first, int64_t count, float *to,
                           int64_t place_step) {
    vf rows[IN][WIDE];
    int64_t left = v->deep - block * VF_N;
    for (int64_t run; count > 0; first += run, count -= run) {
        int64_t x = first % p->across, y = first / p->across % p->down, image = first / p->across / p->down;
        run = p->across - x < count ? p->across - x : count;
        if (run > CHUNK) run = CHUNK;
        const float *planes = v->x + ((image * v->groups + group) * v->deep + block * VF_N) * v->samples;
        gather_rows(v, planes, left < VF_N ? (int)left : VF_N, y * OUT - v->of[1].pad, x * OUT - v->of[0].pad, rows);
        for (int64_t i = 0; i < run; i++, to += VF_N) transform_square(rows[0] + i * OUT, to, place_step);
    }
}

/* ---- Sums */

static inline void gather_six(const vf *m, vf *y) {
    vf a = m[1] + m[2], b = m[1] - m[2], c = m[3] + m[4], d = m[3] - m[4];
    y[0] = m[0] + a + c;
    y[1] = vf_fma(d, vf_set1(2), b);
    y[2] = vf_fma(c, vf_set1(4), a);
    y[3] = vf_fma(d, vf_set1(8), b) + m[5];
}

/* A square's outputs, into rows that are `row` floats long; nonzero when one of them is not finite. */
static int gather_square(const float *sums, int64_t place_step, float *to, int64_t row) {
    vf half[OUT * IN], all = vf_zero();
    QN_UNROLL
    for (int x = 0; x < IN; x++) {
        vf column[IN], y[OUT];
        QN_UNROLL
        for (int i = 0; i < IN; i++) column[i] = vf_load(sums + (i * IN + x) * place_step);
        gather_six(column, y);
        QN_UNROLL
        for (int i = 0; i < OUT; i++) half[i * IN + x] = y[i];
    }
    QN_UNROLL
    for (int i = 0; i < OUT; i++) {
        vf y[OUT];
        gather_six(half + i * IN, y);
        QN_UNROLL
        for (int x = 0; x < OUT; x++) {
            vf_store(to + i * row + x * LANES, y[x]);
            all += vf_abs(y[x]);
        }
    }
    float most = vf_sum(all);
    return most - most != 0;
}

/* Tap by tap: a square at (x, y) of one lane, as far as it lies in the plane. */
static void sum_square(const qn_conv *v, int64_t plane, int64_t x, int64_t y, float *to, int64_t row) {
    for (int64_t i = 0; i < OUT && y + i < v->of[1].out; i++)
        for (int64_t j = 0; j < OUT && x + j < v->of[0].out; j++)
            to[i * row + j * LANES] = qn_conv_again(v, plane, (y + i) * v->of[0].out + x + j);
}

/* Squares [first, first + count) of one row of them, whose sums begin at `sums`. */
static void finish_squares(const qn_conv *v, const plan *p, int64_t group, int64_t block, int64_t first, int64_t count,
                           const float *sums, int64_t place_step) {
    float rows[OUT][SEGMENT * OUT * LANES];
    int64_t x = first % p->across * OUT, y = first / p->across % p->down * OUT, image = first / p->across / p->down;
    int64_t channel = group * v->channels + block * LANES, left = v->channels - block * LANES;
    int64_t lanes = left < LANES ? left : LANES, wide = v->of[0].out - x < count * OUT ? v->of[0].out - x : count * OUT;
    for (int64_t i = 0; i < count; i++)
        for (int lane = 0; lane < LANES; lane += VF_N) {
            float *to = rows[0] + i * OUT * LANES + lane;
            if (!gather_square(sums + i * LANES + lane, place_step, to, SEGMENT * OUT * LANES)) continue;
            for (int64_t l = lane; l < lanes && l < lane + VF_N; l++)
                sum_square(v, image * v->groups * v->channels + channel + l, x + i * OUT, y, to + (l - lane),
                           SEGMENT * OUT * LANES);
        }
    for (int64_t i = 0; i < OUT && y + i < v->of[1].out; i++)
        qn_conv_store(v, image, channel, lanes, (y + i) * v->of[0].out + x, (int)wide, rows[i], LANES, 0);
}

/* One strip of one block of channels; samples are of the strip, squares of `row` in a row of them. */
static void run_block(const qn_conv *v, const plan *p, int64_t group, int64_t block, int64_t first, int64_t count,
                      const float *weights, const float *samples, int64_t row, float *sums) {
    int64_t tiles = ceil_div(count, QN_CONV_PIXELS);
    qn_conv_walk walk = {VF_N, 1, 0, p->deep, row * VF_N, VF_N, 1};
    weights += (group * p->blocks + block) * PLACES * p->deep * VF_N * LANES;
    for (int i = 0; i < PLACES; i++)
        for (int64_t t = 0; t < tiles; t++) {
            int64_t from = qn_cpu_cut(count, tiles, t), end = qn_cpu_cut(count, tiles, t + 1);
            qn_conv_tile((int)(end - from), 2, &walk, samples + (i * p->deep * row + from) * VF_N,
                         weights + i * p->deep * VF_N * LANES, sums + (i * p->strip + from) * LANES, LANES);
        }
    for (int64_t done = 0, run; done < count; done += run) {
        int64_t in_row = p->across - (first + done) % p->across;
        run = in_row < count - done ? in_row : count - done;
        if (run > SEGMENT) run = SEGMENT;
        finish_squares(v, p, group, block, first + done, run, sums + done * LANES, p->strip * LANES);
    }
}

static void run_unit(const qn_conv *v, const plan *p, int64_t number, const float *weights, const float *samples, float *slot) {
    int64_t strip = number % p->strips, block = number / p->strips % (p->own ? 1 : p->blocks);
    int64_t group = number / p->strips / (p->own ? 1 : p->blocks);
    int64_t first = qn_cpu_cut(p->squares, p->strips, strip), count = qn_cpu_cut(p->squares, p->strips, strip + 1) - first;
    if (!p->own) {
        samples += group * PLACES * p->deep * p->squares * VF_N + first * VF_N;
        run_block(v, p, group, block, first, count, weights, samples, p->squares, slot);
        return;
    }
    float *mine = slot + in_lines(PLACES * p->strip * LANES) / 4;
    for (int64_t i = 0; i < p->deep; i++)
        spread_squares(v, p, group, i, first, count, mine + i * count * VF_N, p->deep * count * VF_N);
    for (block = 0; block < p->blocks; block++) run_block(v, p, group, block, first, count, weights, mine, count, slot);
}

/* A unit of the second phase: a row of squares of one image, VF_N channels. */
static void share_row(const qn_conv *v, const plan *p, int64_t number, float *samples) {
    int64_t row = number % (p->down * v->images), block = number / (p->down * v->images) % p->deep;
    int64_t group = number / (p->down * v->images) / p->deep, place = p->deep * p->squares * VF_N;
    samples += group * PLACES * place + (block * p->squares + row * p->across) * VF_N;
    spread_squares(v, p, group, block, row * p->across, p->across, samples, place);
}

/* Phases: weights, unless they are packed; samples, unless parts have their own; sums. */
static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_conv v;
    if (!qn_conv_describe(c, &v)) return;
    plan p = plan_of(&v);
    char *workspace = c->workspace;
    float *weights = (float *)workspace, *samples = (float *)(workspace + p.weights);
    float *slot = (float *)(workspace + p.weights + p.samples + p.slot * (size_t)part);
    int64_t all = phase == 0 ? v.groups * p.blocks : phase == 1 ? v.images * v.groups * p.deep * p.down : p.units;
    int64_t number = qn_cpu_cut(all, s->parts[phase], part), end = qn_cpu_cut(all, s->parts[phase], part + 1);
    for (; number < end; number++) {
        if (phase == 2) run_unit(&v, &p, number, s->packed ? s->packed : weights, samples, slot);
        else if (phase == 1 && !p.own) share_row(&v, &p, number, samples);
        else if (phase == 0 && !s->packed) pack_block(&v, &p, number, weights);
    }
}

static void pack(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) {
    qn_conv v;
    (void)s;
    if (!qn_conv_describe(c, &v)) return;
    plan p = plan_of(&v);
    pack_block(&v, &p, part, packed);
}

int qn_conv_winograd(const qn_conv *v, qn_cpu_step *s) {
    const qn_window *w = &v->of[0], *h = &v->of[1], *d = &v->of[2];
    if (w->taps != 3 || h->taps != 3 || w->stride != 1 || h->stride != 1 || w->dilation != 1 || h->dilation != 1) return 0;
    if (d->in != 1 || d->taps != 1 || d->out != 1 || d->pad != 0) return 0;
    plan p = plan_of(v);
    /* Not where lanes or squares would be mostly empty, nor where a few squares would read all those weights, nor of few channels:
     * turning squares then costs much of what it saves, and it rounds some ten times as coarsely as plain sums do. Of one image, since
     * its bits may not depend on how many come with it. */
    int64_t squares = p.across * p.down;
    if (p.blocks * LANES * 3 > v->channels * 4 || v->deep < DEEP || squares < QN_CONV_PIXELS) return 0;
    if (squares * OUT * OUT > v->pixels * 2) return 0;
    s->run = run;
    s->name = "winograd f32 4x4";
    s->n_phases = 3;
    s->parts[0] = s->constant & 2u ? 1 : v->groups * p.blocks < UNITS ? v->groups * p.blocks : UNITS;
    s->parts[1] = p.own ? 1 : qn_cpu_parts(v->images * v->groups * p.deep * p.down, (double)(p.across * PLACES * VF_N * 4), 0);
    s->parts[2] = p.parts;
    s->workspace = p.weights + p.samples + p.slot * (size_t)s->parts[2];
    if (s->constant & 2u) {
        s->pack = pack;
        s->pack_slot = 1;
        s->pack_parts = v->groups * p.blocks;
        s->packed_bytes = p.weights;
        s->pack_also[0] = v->groups;
    }
    return 1;
}
