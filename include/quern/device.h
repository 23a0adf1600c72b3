/* The devices of this machine that Quern can compute on. */
#ifndef QUERN_DEVICE_H
#define QUERN_DEVICE_H

#include <quern/quern.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    QN_DEVICE_TRUSTED = 1u,     /* its self-test agreed with the reference */
    QN_DEVICE_F16_STORAGE = 2u, /* reads and writes 16-bit numbers */
    QN_DEVICE_F16_ARITHMETIC = 4u,
    QN_DEVICE_INT8_DOT = 8u,
    QN_DEVICE_COOPERATIVE = 16u, /* has cooperative matrices */
    QN_DEVICE_TIMESTAMPS = 32u,
    QN_DEVICE_UNIFIED = 64u,  /* shares its memory with the host */
    QN_DEVICE_SOFTWARE = 128u /* a driver that computes on the CPU, such as llvmpipe: for tests; the CPU itself is faster */
};

typedef struct qn_device_info {
    uint32_t size;    /* sizeof(qn_device_info), set by the library */
    int32_t index;    /* among the devices of its backend */
    char backend[16]; /* "cpu", "vulkan" */
    char name[256];
    char driver[320];
    char verdict[320]; /* of the self-test, or why the device cannot be used */
    uint8_t uuid[16];
    uint64_t memory_bytes;
    uint32_t features;    /* QN_DEVICE_* */
    uint32_t subgroup;    /* lanes that run together, 0 when that means nothing */
    uint32_t api_version; /* as Vulkan packs it, 0 elsewhere */
    uint32_t n_kernels;   /* ops it has kernels for */
    uint64_t clock_bound; /* nanoseconds by which its times may be off the host's clock, 0: its clock cannot be compared */
    uint32_t n_cores;     /* of the CPU: processors that this process may use; 0 elsewhere */
    uint32_t reserved;
} qn_device_info;

/* Describes up to `room` devices and sets *count to how many there are; each one is opened and tested. A backend that is not
 * there is no failure: `error` then holds the sentence and the status is QN_OK. The first is the CPU; for that one alone count may be
 * NULL, and no other backend is asked. */
QN_API qn_status qn_device_list(qn_device_info *infos, int room, int *count, qn_error *error);

typedef struct qn_device qn_device;
/* In place of an index: the first of the backend's devices that is no software. UNSUPPORTED, and a sentence, when there is none. */
enum { QN_DEVICE_FIRST_GPU = -1 };
/* Opens a device for plans to run on; it belongs to one thread at a time. After QN_DEVICE it is gone: destroy its plans, close it,
 * open it again and make the plans anew. */
QN_API qn_status qn_device_open(const char *backend, int index, qn_device **device, qn_error *error);
QN_API void qn_device_close(qn_device *device);
/* What qn_device_list says of it, without opening it again. */
QN_API qn_status qn_device_describe(const qn_device *device, qn_device_info *info);

#ifdef __cplusplus
}
#endif
#endif
