/* Fourier transforms of f32: VF_N lines at a time, one in each lane, by passes of small radices that sort as they go; and one
 * long line as a matrix, whose columns and then rows are such lines. A complex number of the lanes is a vector of real parts
 * and behind it one of imaginary parts; a line in memory has its two parts wherever its layout puts them. */
#ifndef QN_CPU_K_FFT_H
#define QN_CPU_K_FFT_H

#include "cpu/k_lanes.h"

enum { QN_FFT_RADIX = 31, QN_FFT_FACTORS = 64 };

/* A length with small factors. */
typedef struct qn_fft_lanes {
    int64_t n;
    int count, factor[QN_FFT_FACTORS];
    const float *w; /* e^(-2 pi i j / n): n pairs */
} qn_fft_lanes;

/* Numbers of a line from `at` on: pairs, or all real parts and `gap` bytes behind them the imaginary ones. */
typedef struct qn_fft_line {
    char *at;
    uint32_t dtype;
    int pairs;
    int64_t gap;
    float re_by, im_by; /* what parts are multiplied with when they are read or written */
} qn_fft_line;

/* A long line as a matrix: the lengths of its columns and of its rows. */
typedef struct qn_fft_split {
    qn_fft_lanes columns, rows;
    const float *cross_re, *cross_im; /* e^(-2 pi i k j / n) at [k, j] */
} qn_fft_split;

/* Fills count and factors; 0 when n has a larger prime than the radices go to. */
#define qn_fft_factorise QN_K(fft_factorise)
int qn_fft_factorise(qn_fft_lanes *f, int64_t n);
/* The transforms of the lines in x, 2 n vectors; the result is in x or in y, as the return says. */
#define qn_fft_run_lanes QN_K(fft_run_lanes)
float *qn_fft_run_lanes(const qn_fft_lanes *f, float *x, float *y);
/* The same of long lines, as matrices: the bits that qn_fft_columns and qn_fft_rows make of one. */
#define qn_fft_run_split QN_K(fft_run_split)
float *qn_fft_run_split(const qn_fft_split *f, float *x, float *y);
/* Groups of VF_N columns of a line into the middle form, and groups of VF_N rows of that into the line that comes out: mid is 2 n
 * floats, x and y have room for 2 vectors for each number of a column or row. */
#define qn_fft_columns QN_K(fft_columns)
#define qn_fft_rows QN_K(fft_rows)
void qn_fft_columns(const qn_fft_split *f, const qn_fft_line *from, int64_t group, float *mid, float *x, float *y);
void qn_fft_rows(const qn_fft_split *f, const float *mid, int64_t group, const qn_fft_line *to, float *x, float *y);

static inline int64_t qn_fft_groups(int64_t n) { return (n + VF_N - 1) / VF_N; }

#endif
