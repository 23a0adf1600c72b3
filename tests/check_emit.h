/* An emitter that runs every op at once: what gradient rules write into when qn_check tries them. */
#ifndef QN_TESTS_CHECK_EMIT_H
#define QN_TESTS_CHECK_EMIT_H

#include "check.h"
#include "op/op_emit.h"

enum { QC_MAX_VALUE = 1024 };

typedef struct qc_tape {
    qn_emitter emitter;
    int n;
    qn_tensor value[QC_MAX_VALUE];
    void *owned[QC_MAX_VALUE]; /* NULL for views and for what the caller brought */
    qn_shape asked;
    char trouble[320]; /* the first thing that went wrong */
} qc_tape;

void qc_tape_begin(qc_tape *tape);
void qc_tape_end(qc_tape *tape);
/* A tensor of the caller's, which must outlive the tape. QN_VAL_NONE when the tape is full. */
qn_val qc_tape_bring(qc_tape *tape, const qn_tensor *t);
/* A new dense tensor, filled by the caller. */
qn_val qc_tape_new(qc_tape *tape, uint32_t dtype, int rank, const int64_t *shape);

#endif
