/* The passes of k_fft.h, and long lines as matrices. */
#include "cpu/k_fft.h"
#include "cpu/simd/simd_turn.h"

int qn_fft_factorise(qn_fft_lanes *f, int64_t n) {
    f->n = n;
    f->count = 0;
    for (; n % 4 == 0; n /= 4) f->factor[f->count++] = 4;
    for (int p = 2; p <= QN_FFT_RADIX && n > 1; p++)
        for (; n % p == 0; n /= p) f->factor[f->count++] = p;
    return n == 1;
}

/* ---- Passes. `done` is the length of the transforms in x, which lie as [frequency][which]; those in y are p times as long. */

typedef struct num {
    vf re, im;
} num;

QN_INLINE num get(const float *x, int64_t i) { return (num){vf_load(x + 2 * i * VF_N), vf_load(x + (2 * i + 1) * VF_N)}; }
QN_INLINE void put(float *x, int64_t i, vf re, vf im) {
    vf_store(x + 2 * i * VF_N, re);
    vf_store(x + (2 * i + 1) * VF_N, im);
}
QN_INLINE num root(const float *w, int64_t i) { return (num){vf_set1(w[2 * i]), vf_set1(w[2 * i + 1])}; }
QN_INLINE num times(num a, num w) { return (num){vf_fma(a.re, w.re, -(a.im * w.im)), vf_fma(a.re, w.im, a.im * w.re)}; }

/* A pass makes p numbers of p, which are turned by w before, the first one not; they come out `to` numbers apart from y's number `r` on. */
QN_INLINE void four(const num *in, float *y, int64_t r, int64_t to, const num *w, int plain) {
    num a = in[0], b = in[1], c = in[2], d = in[3];
    if (!plain) {
        b = times(b, w[1]);
        c = times(c, w[2]);
        d = times(d, w[3]);
    }
    num s = {a.re + c.re, a.im + c.im}, t = {a.re - c.re, a.im - c.im}, u = {b.re + d.re, b.im + d.im},
        v = {b.re - d.re, b.im - d.im};
    put(y, r, s.re + u.re, s.im + u.im);
    put(y, r + to, t.re + v.im, t.im - v.re);
    put(y, r + 2 * to, s.re - u.re, s.im - u.im);
    put(y, r + 3 * to, t.re - v.im, t.im + v.re);
}

QN_INLINE void two(const num *in, float *y, int64_t r, int64_t to, const num *w, int plain) {
    num a = in[0], b = plain ? in[1] : times(in[1], w[1]);
    put(y, r, a.re + b.re, a.im + b.im);
    put(y, r + to, a.re - b.re, a.im - b.im);
}

/* Odd p: numbers q and p - q meet conjugate roots, so their sum goes with the cosine and their difference with the sine. unit:
 * the roots of 1 of order p. */
QN_INLINE void odd(int p, const num *in, float *y, int64_t r, int64_t to, const num *w, const num *unit, int plain) {
    num a = in[0], sum[QN_FFT_RADIX / 2 + 1], off[QN_FFT_RADIX / 2 + 1], all = a;
    for (int q = 1; q <= p / 2; q++) {
        num b = plain ? in[q] : times(in[q], w[q]), c = plain ? in[p - q] : times(in[p - q], w[p - q]);
        sum[q] = (num){b.re + c.re, b.im + c.im};
        off[q] = (num){b.re - c.re, b.im - c.im};
        all = (num){all.re + sum[q].re, all.im + sum[q].im};
    }
    put(y, r, all.re, all.im);
    for (int s = 1; s <= p / 2; s++) {
        num even = a, other = {vf_zero(), vf_zero()};
        for (int q = 1, at = s; q <= p / 2; q++, at = at + s < p ? at + s : at + s - p) {
            even = (num){vf_fma(sum[q].re, unit[at].re, even.re), vf_fma(sum[q].im, unit[at].re, even.im)};
            other = (num){vf_fma(off[q].im, unit[at].im, other.re), vf_fma(off[q].re, unit[at].im, other.im)};
        }
        put(y, r + s * to, even.re - other.re, even.im + other.im);
        put(y, r + (p - s) * to, even.re + other.re, even.im - other.im);
    }
}

/* What a pass turns by, and the matrix whose columns x still is and y is the rows of, if it is one: numbers are crossed on their way. */
typedef struct turns {
    num w[QN_FFT_RADIX], unit[QN_FFT_RADIX];
    const qn_fft_split *across;
} turns;

QN_INLINE void one(int p, const num *in, float *y, int64_t r, int64_t to, const turns *by, int plain) {
    if (p == 4) four(in, y, r, to, by->w, plain);
    else if (p == 2) two(in, y, r, to, by->w, plain);
    else odd(p, in, y, r, to, by->w, by->unit, plain);
}

QN_INLINE void each(int p, const float *x, float *y, int64_t rest, int64_t to, const turns *by, int plain) {
    num in[QN_FFT_RADIX];
    for (int64_t r = 0; r < rest; r++) {
        in[0] = get(x, r);
        for (int q = 1; q < p; q++) in[q] = get(x, r + q * rest);
        one(p, in, y, r, to, by, plain);
    }
}

QN_INLINE num crossed(const qn_fft_split *f, const float *x, int64_t at) {
    return times(get(x, at), (num){vf_set1(f->cross_re[at]), vf_set1(f->cross_im[at])});
}

QN_INLINE void each_crossed(int p, const float *x, float *y, int64_t rest, int64_t to, const turns *by, int plain) {
    const qn_fft_split *f = by->across;
    const int64_t rows = f->columns.n, columns = f->rows.n, step = rest / rows;
    num in[QN_FFT_RADIX];
    for (int64_t k = 0; k < rows; k++)
        for (int64_t j = 0; j < step; j++) {
            int64_t at = k * columns + j;
            in[0] = crossed(f, x, at);
            for (int q = 1; q < p; q++) in[q] = crossed(f, x, at + q * step);
            one(p, in, y, j * rows + k, to, by, plain);
        }
}

QN_INLINE void each_of(int p, int plain, int is_crossed, const float *x, float *y, int64_t rest, int64_t to, const turns *by) {
    if (is_crossed) each_crossed(p, x, y, rest, to, by, plain);
    else each(p, x, y, rest, to, by, plain);
}

/* The small ones are written out. */
QN_INLINE void by_radix(int p, int plain, int is_crossed, const float *x, float *y, int64_t rest, int64_t to, const turns *by) {
    if (p == 4) each_of(4, plain, is_crossed, x, y, rest, to, by);
    else if (p == 2) each_of(2, plain, is_crossed, x, y, rest, to, by);
    else if (p == 3) each_of(3, plain, is_crossed, x, y, rest, to, by);
    else if (p == 5) each_of(5, plain, is_crossed, x, y, rest, to, by);
    else each_of(p, plain, is_crossed, x, y, rest, to, by);
}

/* `lines` lines side by side: number i of line j is at i lines + j. The first pass of lines that are rows of a matrix takes its columns. */
static void pass(const qn_fft_lanes *f, int64_t lines, int p, int64_t done, const float *x, float *y,
                 const qn_fft_split *across) {
    const int64_t turn = f->n / (done * p), rest = turn * lines, step = 2 * VF_N * rest;
    turns by;
    by.across = across;
    for (int q = 0; q < p; q++) by.unit[q] = root(f->w, f->n / p * q);
    for (int64_t k = 0; k < done; k++, x += p * step, y += step) {
        for (int q = 1; q < p; q++) by.w[q] = root(f->w, q * k * turn);
        if (across) by_radix(p, 1, 1, x, y, rest, done * rest, &by);
        else if (k == 0) by_radix(p, 1, 0, x, y, rest, done * rest, &by);
        else by_radix(p, 0, 0, x, y, rest, done * rest, &by);
    }
}

static float *run_lines(const qn_fft_lanes *f, int64_t lines, float *x, float *y, const qn_fft_split *across) {
    int64_t done = 1;
    for (int i = 0; i < f->count; i++) {
        float *swap = x;
        pass(f, lines, f->factor[i], done, x, y, i == 0 ? across : NULL);
        done *= f->factor[i];
        x = y;
        y = swap;
    }
    return x;
}

float *qn_fft_run_lanes(const qn_fft_lanes *f, float *x, float *y) { return run_lines(f, 1, x, y, NULL); }

/* ---- Long lines: number i C + j is at row i and column j of R by C, frequency k + R l at row l and column k of C by R. */

float *qn_fft_run_split(const qn_fft_split *f, float *x, float *y) {
    float *columns = run_lines(&f->columns, f->rows.n, x, y, NULL);
    return run_lines(&f->rows, f->columns.n, columns, columns == x ? y : x, f);
}

static num line_get(const qn_fft_line *l, int64_t i, int some) {
    num a;
    if (!l->pairs) {
        a = (num){qn_lanes_at(l->dtype, l->at, i, i + some), qn_lanes_at(l->dtype, l->at + l->gap, i, i + some)};
    } else {
        const char *from = l->at + 2 * i * qn_float_bytes(l->dtype);
        vf low = qn_lanes_at(l->dtype, from, 0, 2 * some);
        vf high = 2 * some > VF_N ? qn_lanes_at(l->dtype, from, VF_N, 2 * some) : vf_zero();
        a = (num){vf_even(low, high), vf_odd(low, high)};
    }
    return (num){a.re * vf_set1(l->re_by), a.im * vf_set1(l->im_by)};
}

static void line_put(const qn_fft_line *l, int64_t i, int some, num a) {
    a = (num){a.re * vf_set1(l->re_by), a.im * vf_set1(l->im_by)};
    if (!l->pairs) {
        qn_lanes_put_at(l->dtype, l->at, i, a.re, i + some);
        qn_lanes_put_at(l->dtype, l->at + l->gap, i, a.im, i + some);
        return;
    }
    char *to = l->at + 2 * i * qn_float_bytes(l->dtype);
    qn_lanes_put_at(l->dtype, to, 0, vf_zip_low(a.re, a.im), 2 * some);
    if (2 * some > VF_N) qn_lanes_put_at(l->dtype, to, VF_N, vf_zip_high(a.re, a.im), 2 * some);
}

static int some_of(int64_t n, int64_t first) { return (int)(n - first < VF_N ? n - first : VF_N); }

void qn_fft_columns(const qn_fft_split *f, const qn_fft_line *from, int64_t group, float *mid, float *x, float *y) {
    const int64_t rows = f->columns.n, columns = f->rows.n, j = group * VF_N;
    const int some = some_of(columns, j);
    for (int64_t i = 0; i < rows; i++) {
        num a = line_get(from, i * columns + j, some);
        put(x, i, a.re, a.im);
    }
    const float *z = qn_fft_run_lanes(&f->columns, x, y);
    for (int64_t k = 0; k < rows; k += VF_N) {
        vf re[VF_N], im[VF_N];
        int many = some_of(rows, k);
        for (int t = 0; t < VF_N; t++) {
            int64_t at = (k + t) * columns + j;
            num a = {vf_zero(), vf_zero()};
            if (t < many) a = times(get(z, k + t), (num){vf_loadn(f->cross_re + at, some), vf_loadn(f->cross_im + at, some)});
            re[t] = a.re;
            im[t] = a.im;
        }
        vf_turn(re);
        vf_turn(im);
        for (int t = 0; t < some; t++) {
            vf_storen(mid + (j + t) * rows + k, re[t], many);
            vf_storen(mid + rows * columns + (j + t) * rows + k, im[t], many);
        }
    }
}

void qn_fft_rows(const qn_fft_split *f, const float *mid, int64_t group, const qn_fft_line *to, float *x, float *y) {
    const int64_t rows = f->columns.n, columns = f->rows.n, k = group * VF_N;
    const int some = some_of(rows, k);
    for (int64_t j = 0; j < columns; j++)
        put(x, j, vf_loadn(mid + j * rows + k, some), vf_loadn(mid + rows * columns + j * rows + k, some));
    const float *z = qn_fft_run_lanes(&f->rows, x, y);
    for (int64_t l = 0; l < columns; l++) line_put(to, l * rows + k, some, get(z, l));
}
