/* What devices and executors record beneath the dispatcher: work on the host, calls into drivers, work on devices. Times are
 * qn_record_time's. All of it costs one branch when nothing is recorded. */
#ifndef QN_PROF_RECORD_WORK_H
#define QN_PROF_RECORD_WORK_H

#include <quern/record.h>

/* Now, on the clock of the records; later than any time this context gave or was given before. 0 when nothing is recorded. */
uint64_t qn_record_time(qn_context *context);
/* Id of the innermost op that is open, else 0; and of the last op that ended. */
uint64_t qn_record_open_op(qn_context *context);
uint64_t qn_record_last_op(qn_context *context);
/* A number that ties a submission to the device work it starts. Unique in the recorder. */
uint64_t qn_record_correlation(qn_context *context);

/* Host work that is no dispatcher call: a kernel inside an op, a step of a plan, a collective ("gloo:all_reduce"). */
typedef struct qn_record_host {
    uint32_t size; /* sizeof(qn_record_host) */
    int32_t n_src;
    const char *name;
    uint64_t start, end; /* inside the op that is open, if one is */
    double flops;        /* 0: not known */
    uint64_t bytes;
    const qn_tensor *const *src; /* shapes to write down, n_src of them */
} qn_record_host;
/* Returns the id it gave the event; 0 when nothing is recorded. */
uint64_t qn_record_host_work(qn_context *context, const qn_record_host *work);

/* A call into a device's driver on this thread: submit, copy, wait. It belongs to the op that is open. */
void qn_record_runtime(qn_context *context, const char *name, uint64_t start, uint64_t end, uint64_t correlation);

void qn_record_device_work(qn_context *context, const qn_record_work *work);

/* That the op with the second id is the gradient of the op with the first. */
void qn_record_link(qn_context *context, uint64_t forward_op, uint64_t backward_op);

#endif
