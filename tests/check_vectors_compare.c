/* When does a result agree with a golden one? Integers exactly, floats and blocks by the normalised mean square error that ggml's
 * own test uses, indices by what they pick, since ties may be broken either way. */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

#include "tensor/convert.h"
#include "check_vectors.h"

static int64_t count_of(const qn_vec_tensor *t) { return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; }

/* All elements as doubles, block types through f32 as every kernel reads them. NULL when there is no memory or no decoder. */
static double *decoded(const qn_vec_tensor *t, const void *dense) {
    int64_t n = count_of(t);
    size_t room = (size_t)n ? (size_t)n : 1;
    double *out = malloc(room * sizeof *out);
    if (!out) return NULL;
    if (qn_dtype_describe(t->dtype)->kind != QN_KIND_BLOCK) {
        if (qn_convert(t->dtype, dense, QN_DTYPE_F64, out, n) == QN_OK) return out;
        free(out);
        return NULL;
    }
    float *half_way = malloc(room * sizeof *half_way);
    if (half_way && qn_convert(t->dtype, dense, QN_DTYPE_F32, half_way, n) == QN_OK) {
        for (int64_t i = 0; i < n; i++) out[i] = (double)half_way[i];
        free(half_way);
        return out;
    }
    free(half_way);
    free(out);
    return NULL;
}

/* -1, 0 or 1: what an infinity is to the comparison; the largest finite number counts as one, some kernels start there. */
static int infinite(double v) { return v >= (double)FLT_MAX ? 1 : v <= -(double)FLT_MAX ? -1 : 0; }

static int floats_agree(double bound, int64_t n, const double *got, const double *want, char *text, size_t size) {
    double error = 0, scale = 0, worst = -1;
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(got[i]) != isnan(want[i]) || (!isnan(got[i]) && infinite(got[i]) != infinite(want[i]))) {
            snprintf(text, size, "element %lld is %.9g, expected %.9g", (long long)i, got[i], want[i]);
            return 0;
        }
        if (isnan(got[i]) || infinite(got[i])) continue;
        double off = got[i] - want[i];
        if (fabs(off) > worst) worst = fabs(off), at = i;
        error += off * off;
        scale += got[i] * got[i];
    }
    if (error == 0) return 1;
    double nmse = scale > 0 ? error / scale : INFINITY;
    if (nmse <= bound) return 1;
    snprintf(text, size, "nmse %.3g, bound %.3g (element %lld is %.9g, expected %.9g)", nmse, bound, (long long)at, got[at],
             want[at]);
    return 0;
}

static int numbers_agree(const qn_vec_case *c, const void *got, const void *want, char *text, size_t size) {
    const qn_dtype_info *info = qn_dtype_describe(c->dst.dtype);
    if (memcmp(got, want, (size_t)c->dst.bytes) == 0) return 1; /* also when it holds NaN, whose payload must then be the same */
    double *a = decoded(&c->dst, got), *b = decoded(&c->dst, want);
    int verdict = -1;
    if (a && b) {
        int exact = info->kind != QN_KIND_FLOAT && info->kind != QN_KIND_BLOCK;
        verdict = floats_agree(exact ? 0 : c->max_nmse, count_of(&c->dst), a, b, text, size);
        if (verdict && exact) { /* 64-bit integers that a double cannot tell apart */
            snprintf(text, size, "integers differ in their low bits");
            verdict = 0;
        }
    }
    free(a);
    free(b);
    return verdict;
}

/* ---- Indices */

static int by_value(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    if (isnan(a) || isnan(b)) return isnan(a) - isnan(b);
    return (a > b) - (a < b);
}

static int by_index(const void *x, const void *y) {
    int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    return (a > b) - (a < b);
}

typedef struct picks { /* of one row: indices sorted, and the values they pick */
    int32_t *index;
    double *value;
} picks;

/* NULL, or what is wrong with the indices. With `set` the values come sorted. */
static const char *pick(picks *p, const int32_t *index, int64_t n, const double *row, int64_t width, int set) {
    for (int64_t i = 0; i < n; i++) {
        if (index[i] < 0 || index[i] >= width) return "an index is outside its row";
        p->index[i] = index[i];
        p->value[i] = row[index[i]];
    }
    if (!set) return NULL;
    qsort(p->index, (size_t)n, sizeof *p->index, by_index);
    qsort(p->value, (size_t)n, sizeof *p->value, by_value);
    for (int64_t i = 1; i < n; i++)
        if (p->index[i] == p->index[i - 1]) return "an index comes twice";
    return NULL;
}

static int row_picks_agree(picks p[2], const int32_t *got, const int32_t *want, int64_t n, const double *row, int64_t width,
                           int set, char *text, size_t size) {
    const char *wrong = pick(&p[0], got, n, row, width, set);
    if (!wrong && pick(&p[1], want, n, row, width, set)) wrong = "the golden indices are not usable";
    for (int64_t i = 0; !wrong && i < n; i++)
        if (by_value(&p[0].value[i], &p[1].value[i]) != 0) wrong = "another value was picked";
    if (wrong) snprintf(text, size, "%s", wrong);
    return !wrong;
}

static int picks_agree(const qn_vec_case *c, int set, const int32_t *got, const int32_t *want, const void *row0, char *text,
                       size_t size) {
    int64_t width = c->src[0].ne[0], total = count_of(&c->dst), from = count_of(&c->src[0]);
    int64_t rows = width > 0 ? from / width : 0;
    if (rows == 0) return 1;
    int64_t n = total / rows;
    size_t room = (size_t)n + 1;
    double *values = decoded(&c->src[0], row0);
    picks p[2] = {{malloc(room * sizeof(int32_t)), malloc(room * sizeof(double))},
                  {malloc(room * sizeof(int32_t)), malloc(room * sizeof(double))}};
    int verdict = -1;
    if (values && p[0].index && p[0].value && p[1].index && p[1].value) {
        verdict = 1;
        for (int64_t r = 0; r < rows && verdict == 1; r++)
            verdict = row_picks_agree(p, got + r * n, want + r * n, n, values + r * width, width, set, text, size);
    }
    for (int i = 0; i < 2; i++) {
        free(p[i].index);
        free(p[i].value);
    }
    free(values);
    return verdict;
}

int qn_vec_agrees(const qn_vec_case *c, qn_vec_compare how, const void *got, const void *want, const void *row0, char *text,
                  size_t size) {
    if (count_of(&c->dst) == 0) return 1;
    if (how == QN_VEC_NUMBERS || c->dst.dtype != QN_DTYPE_I32) return numbers_agree(c, got, want, text, size);
    return picks_agree(c, how == QN_VEC_PICK_SET, got, want, row0, text, size);
}
