/* Between check_reject.c and check_faults.c: ways to spoil a request, and what must come of it. */
#ifndef QN_TESTS_CHECK_REJECT_H
#define QN_TESTS_CHECK_REJECT_H

#include "check.h"

enum { QC_MAX_BECAUSE = 6, QC_FAULT_END = -1, QC_FAULT_SKIP = 0, QC_FAULT_TRY = 1 };

typedef struct qc_fault {
    qn_status status;
    int arg_kind, arg; /* arg -1: any */
    int n_reason;
    uint16_t reason[QC_MAX_BECAUSE]; /* any of these names the fault; several where one spoiled number is wrong in two ways */
    const char *what;
} qc_fault;

/* Spoils the request in its i-th way: QC_FAULT_TRY, _SKIP when that way does not apply to this request, _END past the last. */
typedef int (*qc_fault_fn)(qc_built *b, int i, qc_fault *f);

void qc_want(qc_fault *f, qn_status status, int kind, int arg, const char *what);
void qc_because(qc_fault *f, qn_reason reason);

int qc_fault_source(qc_built *b, int i, qc_fault *f);
int qc_fault_source_dtype(qc_built *b, int i, qc_fault *f);
int qc_fault_dest(qc_built *b, int i, qc_fault *f);
int qc_fault_dest_form(qc_built *b, int i, qc_fault *f);
int qc_fault_parameter(qc_built *b, int i, qc_fault *f);
int qc_fault_alias(qc_built *b, int i, qc_fault *f);

#endif
