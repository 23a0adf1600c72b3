/* region: a program of elementwise steps over broadcast sources, see region.h. Its reference keeps a register per step for a
 * run of elements; sources are read before outputs are written, so the first output may lie over a source. */
#include "op/op_axes.h"
#include "op/region.h"

enum { RUN = 64 }; /* elements at a time: all registers of the longest program fit a stack */

qn_status qn_infer_region_code(qn_infer_call *c) {
    const qn_code *code = &((const qn_attr_region *)c->attr)->code;
    qn_dtype dtypes[QN_REGION_MAX_SOURCES];
    qn_region region;
    qn_region_fault fault;
    QN_TRY(qn_op_broadcast(c, c->n_src, c->src[0]->dtype));
    for (int i = 0; i < c->n_src; i++) dtypes[i] = c->src[i] ? (qn_dtype)c->src[i]->dtype : QN_DTYPE_NONE;
    if (!qn_region_decode(code, c->n_src, dtypes, &region, &fault))
        return qn_reject_attr(c, "code", fault.reason, fault.dim, fault.expected, fault.actual);
    qn_shape shape = c->out[0];
    for (int i = 0; i < region.n_outputs; i++)
        QN_TRY(qn_out_shape(c, i, (uint32_t)region.step[region.output[i]].dtype, shape.rank, shape.d));
    c->flops_each = region.n_steps;
    return QN_OK;
}

typedef struct machine {
    qn_region region;
    int n_src;
    qn_tensor src[QN_REGION_MAX_SOURCES]; /* stretched to the output */
    const char *row[QN_REGION_MAX_SOURCES];
    double in[QN_REGION_MAX_SOURCES][RUN];
    double at[QN_REGION_MAX_STEPS][RUN]; /* results of the steps */
} machine;

static const double *operand(const machine *m, const qn_region_step *s, int i) {
    if (i >= s->n_operands) return m->in[0]; /* not looked at */
    return s->operand[i] < QN_REGION_STEP_BIT ? m->in[s->operand[i]] : m->at[s->operand[i] - QN_REGION_STEP_BIT];
}

static void run_steps(machine *m, int64_t n) {
    for (int k = 0; k < m->region.n_steps; k++) {
        const qn_region_step *s = &m->region.step[k];
        const double *a = operand(m, s, 0), *b = operand(m, s, 1), *c = operand(m, s, 2);
        for (int64_t i = 0; i < n; i++) m->at[k][i] = qn_region_round(s->dtype, qn_region_value(s, a[i], b[i], c[i]));
    }
}

qn_status qn_ref_region(const qn_call *c) {
    const qn_tensor *y = c->dst[0];
    machine m;
    qn_rows it;
    memset(m.in[0], 0, sizeof m.in[0]);
    qn_region_read(&((const qn_attr_region *)c->attr)->code, &m.region);
    m.n_src = c->n_src;
    for (int s = 0; s < c->n_src; s++)
        if (c->src[s]) m.src[s] = qn_op_stretch(c->src[s], y);
    for (qn_rows_begin(&it, y->rank, y->shape); it.live; qn_rows_next(&it)) {
        for (int s = 0; s < c->n_src; s++)
            if (c->src[s]) m.row[s] = qn_row(&it, &m.src[s]);
        for (int64_t i = 0; i < it.n; i += RUN) {
            int64_t n = it.n - i < RUN ? it.n - i : RUN;
            for (int s = 0; s < c->n_src; s++)
                if (c->src[s]) qn_load_row(&m.src[s], m.row[s], i, n, m.in[s]);
            run_steps(&m, n);
            for (int o = 0; o < m.region.n_outputs; o++)
                if (o < c->n_dst && c->dst[o]) qn_store_row(c->dst[o], qn_row(&it, c->dst[o]), i, n, m.at[m.region.output[o]]);
        }
    }
    return QN_OK;
}
