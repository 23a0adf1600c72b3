/* mul_mat: rows of activations times rows of weights. Weights of plain floats go through the f32 product. */
#include "cpu/k_gemm.h"

#ifdef QN_FULL_LEVEL

/* The rows of b are the rows of the product, so that lanes lie along y. */
static int describe(const qn_call *c, qn_gemm *g) {
    const qn_tensor *a = c->src[0], *b = c->src[1], *y = c->dst[0];
    *g = (qn_gemm){.c = qn_at(y, 0), .c_dtype = y->dtype, .m = qn_ne(b, 1), .n = qn_ne(a, 1), .k = qn_ne(a, 0)};
    g->a = (qn_gemm_side){.data = qn_at(b, 0), .along = qn_nb(b, 1), .deep = qn_nb(b, 0), .dtype = b->dtype};
    g->b = (qn_gemm_side){.data = qn_at(a, 0), .along = qn_nb(a, 1), .deep = qn_nb(a, 0), .dtype = a->dtype};
    g->c_row = qn_nb(y, 1);
    g->c_column = qn_nb(y, 0);
    for (int i = 3; i > 1; i--) { /* a group of b's batches shares one of a's */
        if (qn_ne(a, i) < 1) return 0;
        int64_t share = qn_ne(b, i) / qn_ne(a, i);
        qn_gemm_axis(g, qn_ne(a, i), share * qn_nb(b, i), qn_nb(a, i), share * qn_nb(y, i));
        qn_gemm_axis(g, share, qn_nb(b, i), 0, qn_nb(y, i));
    }
    return qn_gemm_settle(g);
}

static void run_floats(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_gemm g;
    (void)s;
    if (!describe(c, &g)) return;
    qn_gemm_cut cut = qn_gemm_plan(&g);
    qn_gemm_part(&g, &cut, c->workspace, phase, part);
}

static int prepare_floats(const qn_call *c, qn_cpu_step *s) {
    qn_gemm g;
    if (!describe(c, &g)) return 0;
    qn_gemm_cut cut = qn_gemm_plan(&g);
    return qn_gemm_step(s, &cut, run_floats);
}

#endif

int QN_K(mul_mat)(const qn_call *c, qn_cpu_step *s) {
    if (qn_tensor_count(c->dst[0]) == 0 || qn_is_block(c->src[0]->dtype)) return 0;
#ifdef QN_FULL_LEVEL
    return prepare_floats(c, s);
#else
    (void)s;
    return 0;
#endif
}
