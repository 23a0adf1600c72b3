/* Batches of products. A product has batch axes already; the new one joins them, and where one operand is the same for all
 * items it is shared, not copied. */
#include "grad/vmap.h"

/* mul_mat and out_prod have up to four axes, and their second operand's may be a multiple of the first's: the batch goes into the
 * first of four on both sides, which leaves each group together. A single matrix a for all goes with every b as it is; then the
 * items' rows of b may as well be rows of one matrix. */
int qn_vmap_mul_mat(qn_vmap_call *c) {
    int single = !c->batched[0] && qn_sd(&c->item[0], 2) == 1 && qn_sd(&c->item[0], 3) == 1;
    if (c->item[0].rank > 4 || c->item[1].rank > 4) return 0;
    if (single && c->op == QN_OP_mul_mat && c->item[1].rank <= 2) return qn_vmap_fold(c, 1, 2);
    if (single) return qn_vmap_fold(c, 1, 4);
    return qn_vmap_fold(c, 0, 4) && qn_vmap_fold(c, 1, 4);
}

/* Vectors become matrices of one row or column, so that the batch is not taken for one; the result loses that axis again. */
int qn_vmap_matmul(qn_vmap_call *c) {
    int rank = c->rank > 2 ? c->rank : 2;
    for (int i = 0; i < 2; i++) {
        int vector = c->item[i].rank == 1;
        if (!c->batched[i]) continue;
        if (!qn_vmap_lead(c, i, rank)) return 0;
        if (!vector || i == 0) continue;
        c->as[i].d[rank - 1] = c->item[i].d[0]; /* a column */
        c->as[i].d[rank] = 1;
    }
    return 1;
}

static int put_first(qn_dims *axes, int shift, int first) {
    for (int i = 0; i < axes->rank; i++) axes->d[i] += shift;
    if (!first) return 1;
    if (axes->rank == QN_MAX_RANK) return 0;
    memmove(axes->d + 1, axes->d, sizeof *axes->d * (size_t)axes->rank);
    axes->d[0] = 0;
    axes->rank++;
    return 1;
}

/* With a batch on both sides it is one more batch axis, the first; on one side it is the first of that side's own axes. */
int qn_vmap_dot_general(qn_vmap_call *c) {
    qn_attr_dot_general *at = (qn_attr_dot_general *)(void *)c->attr;
    int both = c->batched[0] && c->batched[1], batches = at->lb.rank, left = c->item[0].rank - at->lc.rank - batches;
    for (int i = 0; i < 2; i++)
        if (c->batched[i] && !qn_vmap_lead(c, i, c->item[i].rank)) return 0;
    if (!both) c->batch_axis = batches + (c->batched[1] ? left : 0);
    int fits = put_first(&at->lc, c->batched[0], 0) & put_first(&at->rc, c->batched[1], 0);
    return fits & put_first(&at->lb, c->batched[0], both) & put_first(&at->rb, c->batched[1], both);
}
