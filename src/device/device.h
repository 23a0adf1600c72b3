/* What a device is to the rest of the library: memory of its own, an answer to "can you run this?", and programs: lists of steps
 * that are checked and translated once and then run many times.
 *
 * A program works in one arena, a range of the device's memory. Tensors of its steps are ordinary descriptors whose `data` is
 * not a pointer but a byte offset into that arena (QN_AT makes one); `size` bounds them as usual.
 *
 * The functions here are the shared front (device_check.c): they check once, against the op table's own guard, so that a backend
 * may trust what reaches it. A device and its programs belong to one thread at a time. After QN_DEVICE the device is gone:
 * destroy its programs and buffers, then it, and open it again. */
#ifndef QN_DEVICE_DEVICE_H
#define QN_DEVICE_DEVICE_H

#include <quern/device.h>

typedef struct qn_device_buffer qn_device_buffer;
typedef struct qn_program qn_program;

#define QN_AT(offset) ((void *)(uintptr_t)(offset))

typedef struct qn_device_range {
    uint64_t offset, bytes;
} qn_device_range;

typedef struct qn_device_step {
    int op, subop;
    const void *attr; /* qn_attr_<op>; NULL takes the defaults */
    int n_src, n_dst;
    const qn_tensor *src[QN_MAX_SRC];
    const qn_tensor *dst[QN_MAX_DST];
    int is_commit; /* a copy that is left out when a step before it found an index out of range */
} qn_device_step;

enum {
    QN_PROGRAM_TIMED = 1u, /* a time for every step; steps then never overlap */
    QN_PROGRAM_SERIAL = 2u /* a barrier between any two steps, needed or not: to find a wrong one */
};

typedef struct qn_program_options {
    uint64_t arena_bytes;
    qn_device_buffer *arena; /* at least arena_bytes, kept by the caller; NULL: the program has its own */
    int n_steps;
    const qn_device_step *steps;
    /* Ranges of the arena that a run can fill first and read last, each by its number. */
    int n_inputs, n_outputs;
    const qn_device_range *inputs, *outputs;
    uint32_t flags;
} qn_program_options;

/* Memory that a program takes beside its arena: scratch and parameters of its kernels on the device, what waits to be copied on the
 * host. */
typedef struct qn_program_need {
    uint64_t device, host;
} qn_program_need;

/* A step the front has accepted. Ranges are bytes of the arena, [low, high); empty ones are left out. */
typedef struct qn_device_extent {
    uint64_t low, high;
} qn_device_extent;

typedef struct qn_checked_step {
    int op, subop, n_src, n_dst, is_commit;
    const void *attr;            /* never NULL for an op that has any */
    const qn_tensor *const *src; /* QN_MAX_SRC entries */
    const qn_tensor *const *dst; /* QN_MAX_DST entries */
    int64_t index_limit[QN_MAX_SRC];
    int n_reads, n_writes;
    qn_device_extent reads[QN_MAX_SRC], writes[QN_MAX_DST];
} qn_checked_step;

typedef struct qn_device_vtable {
    void (*destroy)(qn_device *device);
    void (*describe)(const qn_device *device, qn_device_info *info);
    qn_status (*supports)(qn_device *device, const qn_checked_step *step, qn_error *error);
    qn_status (*buffer_create)(qn_device *device, uint64_t bytes, qn_device_buffer **buffer, qn_error *error);
    void (*buffer_destroy)(qn_device_buffer *buffer);
    qn_status (*upload)(qn_device_buffer *buffer, uint64_t offset, const void *from, uint64_t bytes, qn_error *error);
    qn_status (*download)(qn_device_buffer *buffer, uint64_t offset, void *to, uint64_t bytes, qn_error *error);
    /* steps: one per step of options, in order; they need not outlive the call */
    qn_status (*program_measure)(qn_device *device, const qn_program_options *options, const qn_checked_step *steps,
                                 qn_program_need *need, qn_error *error);
    qn_status (*program_create)(qn_device *device, const qn_program_options *options, const qn_checked_step *steps,
                                qn_program **program, qn_error *error);
    void (*program_destroy)(qn_program *program);
    qn_status (*program_run)(qn_program *program, const void *const *inputs, void *const *outputs, uint64_t timeout_ns,
                             qn_error *error);
    qn_status (*program_times)(qn_program *program, double *ns, int n, qn_error *error);
    int (*program_began)(qn_program *program, uint64_t *when); /* NULL: never known */
} qn_device_vtable;

/* What every backend's record begins with. */
struct qn_device {
    const qn_device_vtable *calls;
    uint64_t
        copy_most; /* an upload or a download goes through so much memory of the host at a time, or less when it is smaller */
    uint64_t copy_held; /* what the largest so far took: it is kept, for all who use the device */
};
struct qn_device_buffer {
    qn_device *device;
    uint64_t bytes;
};
struct qn_program {
    qn_device *device;
    uint64_t arena_bytes;
    int n_steps, n_inputs, n_outputs;
    qn_program_need need;
    int bad_step; /* of a run that was QN_RANGE */
};

void qn_device_destroy(qn_device *device);

/* QN_OK when the device has a kernel for this step; else QN_UNSUPPORTED and why, or what the guard has against it. Data may be
 * NULL throughout: descriptors are enough. */
qn_status qn_device_supports(qn_device *device, const qn_device_step *step, qn_error *error);

qn_status qn_device_buffer_create(qn_device *device, uint64_t bytes, qn_device_buffer **buffer, qn_error *error);
void qn_device_buffer_destroy(qn_device_buffer *buffer);
qn_status qn_device_upload(qn_device_buffer *buffer, uint64_t offset, const void *from, uint64_t bytes, qn_error *error);
qn_status qn_device_download(qn_device_buffer *buffer, uint64_t offset, void *to, uint64_t bytes, qn_error *error);

/* What qn_program_create would allocate, without doing it. The options' arena may be missing. */
qn_status qn_program_measure(qn_device *device, const qn_program_options *options, qn_program_need *need, qn_error *error);
/* Checks every step, asks for every kernel, records. Nothing of options is kept but the arena. */
qn_status qn_program_create(qn_device *device, const qn_program_options *options, qn_program **program, qn_error *error);
void qn_program_destroy(qn_program *program);
/* One submission: the inputs that are not NULL, the steps, the outputs that are not NULL; returns when all is done. Either array
 * may be NULL for none. An index out of range is QN_RANGE, and names the step; of the arena only what steps behind it commit is then
 * to be relied on, and what optimisers update with what came of it. */
qn_status qn_program_run(qn_program *program, const void *const *inputs, void *const *outputs, uint64_t timeout_ns,
                         qn_error *error);
/* Nanoseconds of each step of the last run of a timed program. */
qn_status qn_program_times(qn_program *program, double *ns, int n, qn_error *error);
/* When the first step of that run began, on the host's clock (base/clock.h), off by at most the device's clock_bound. 0: it is not
 * known. Asked soon after the run, or clocks that drift have parted. */
int qn_program_began(qn_program *program, uint64_t *when);

#endif
