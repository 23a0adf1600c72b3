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

/* The first number of each is not turned, and with `plain`, none is. */
QN_INLINE void fours(const float *x, float *y, int64_t rest, int64_t to, const num *w, int plain) {
    for (int64_t r = 0; r < rest; r++) {
        num a = get(x, r), b = get(x, r + rest), c = get(x, r + 2 * rest), d = get(x, r + 3 * rest);
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
}

QN_INLINE void twos(const float *x, float *y, int64_t rest, int64_t to, const num *w) {
    for (int64_t r = 0; r < rest; r++) {
        num a = get(x, r), b = times(get(x, r + rest), w[1]);
        put(y, r, a.re + b.re, a.im + b.im);
        put(y, r + to, a.re - b.re, a.im - b.im);
    }
}

/* Odd p: numbers q and p - q meet conjugate roots, so their sum goes with the cosine and their difference with the sine. unit:
 * the roots of 1 of order p. */
QN_INLINE void odds(int p, const float *x, float *y, int64_t rest, int64_t to, const num *w, const num *unit) {
    for (int64_t r = 0; r < rest; r++) {
        num a = get(x, r), sum[QN_FFT_RADIX / 2 + 1], off[QN_FFT_RADIX / 2 + 1], all = a;
        for (int q = 1; q <= p / 2; q++) {
            num b = times(get(x, r + q * rest), w[q]), c = times(get(x, r + (p - q) * rest), w[p - q]);
            sum[q] = (num){b.re + c.re, b.im + c.im};
            off[q] = (num){b.re - c.re, b.im - c.im};
            all = (num){all.re + sum[q].re, all.im + sum[q].im};
        }
        put(y, r, all.re, all.im);
        for (int s = 1; s <= p / 2; s++) {
            num even = a, odd = {vf_zero(), vf_zero()};
            for (int q = 1, at = s; q <= p / 2; q++, at = at + s < p ? at + s : at + s - p) {
                even = (num){vf_fma(sum[q].re, unit[at].re, even.re), vf_fma(sum[q].im, unit[at].re, even.im)};
                odd = (num){vf_fma(off[q].im, unit[at].im, odd.re), vf_fma(off[q].re, unit[at].im, odd.im)};
            }
            put(y, r + s * to, even.re - odd.re, even.im + odd.im);
            put(y, r + (p - s) * to, even.re + odd.re, even.im - odd.im);
        }
    }
}

static void pass(const qn_fft_lanes *f, int64_t lines, int p, int64_t done, const float *x, float *y) {
    const int64_t turn = f->n / (done * p), rest = turn * lines, step = 2 * VF_N * rest;
    num w[QN_FFT_RADIX], unit[QN_FFT_RADIX];
    for (int q = 0; q < p; q++) unit[q] = root(f->w, f->n / p * q);
    for (int64_t k = 0; k < done; k++, x += p * step, y += step) {
        for (int q = 1; q < p; q++) w[q] = root(f->w, q * k * turn);
        if (p == 4 && k == 0) fours(x, y, rest, done * rest, w, 1);
        else if (p == 4) fours(x, y, rest, done * rest, w, 0);
        else if (p == 2) twos(x, y, rest, done * rest, w);
        else if (p == 3) odds(3, x, y, rest, done * rest, w, unit);
        else if (p == 5) odds(5, x, y, rest, done * rest, w, unit);
        else odds(p, x, y, rest, done * rest, w, unit);
    }
}

/* `lines` lines side by side: number i of line j is at i lines + j. */
static float *run_lines(const qn_fft_lanes *f, int64_t lines, float *x, float *y) {
    int64_t done = 1;
    for (int i = 0; i < f->count; i++) {
        float *swap = x;
        pass(f, lines, f->factor[i], done, x, y);
        done *= f->factor[i];
        x = y;
        y = swap;
    }
    return x;
}

float *qn_fft_run_lanes(const qn_fft_lanes *f, float *x, float *y) { return run_lines(f, 1, x, y); }

/* ---- Long lines: number i C + j is at row i and column j of R by C, frequency k + R l at row l and column k of C by R. */

float *qn_fft_run_split(const qn_fft_split *f, float *x, float *y) {
    const int64_t rows = f->columns.n, columns = f->rows.n;
    const float *z = run_lines(&f->columns, columns, x, y);
    float *mid = z == x ? y : x;
    for (int64_t k = 0; k < rows; k++)
        for (int64_t j = 0; j < columns; j++) {
            int64_t at = k * columns + j;
            num a = times(get(z, at), (num){vf_set1(f->cross_re[at]), vf_set1(f->cross_im[at])});
            put(mid, j * rows + k, a.re, a.im);
        }
    return run_lines(&f->rows, rows, mid, mid == x ? y : x);
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
