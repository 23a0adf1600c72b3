/* The Vulkan backend as the rest of the library sees it. Left out of a build, the same functions exist and say so. */
#ifndef QN_VULKAN_VULKAN_H
#define QN_VULKAN_VULKAN_H

#include "device/device.h"

enum {
    QN_VULKAN_VALIDATE = 1u,     /* with the Khronos validation layer, where it is installed; see qn_vulkan_messages */
    QN_VULKAN_NO_SELF_TEST = 2u, /* trust it unseen: for the self-test itself and for tests */
    QN_VULKAN_EVERY_KERNEL = 4u  /* also those that only pay on hardware, when the device is a CPU: for tests */
};

typedef struct qn_vulkan_options {
    int index;         /* as qn_vulkan_count numbers them */
    uint32_t flags;    /* QN_VULKAN_* */
    const char *cache; /* folder of the pipeline cache; NULL: QUERN_CACHE, else XDG_CACHE_HOME/quern, else HOME/.cache/quern;
                          "" for none */
} qn_vulkan_options;

/* How many devices the Vulkan loader knows; 0 and a sentence when there is no loader or no driver. */
int qn_vulkan_count(qn_error *error);
/* Facts about one device, without opening it. */
qn_status qn_vulkan_describe(int index, qn_device_info *info, qn_error *error);
/* Opens a device, unless it lacks what every kernel needs or its self-test disagrees with the reference. */
qn_status qn_vulkan_open(const qn_vulkan_options *options, qn_device **device, qn_error *error);

/* Whether the validation layer is on, how many warnings and errors it had so far, and the first one's text. */
int qn_vulkan_messages(const qn_device *device, int *active, const char **first);

/* Faults to order for tests: the next call of that kind fails as if the driver had said so. */
typedef enum qn_vulkan_fault {
    QN_VULKAN_FAULT_NONE,
    QN_VULKAN_FAULT_LOST_ON_SUBMIT,
    QN_VULKAN_FAULT_LOST_ON_WAIT,
    QN_VULKAN_FAULT_TIMEOUT,
    QN_VULKAN_FAULT_NO_MEMORY
} qn_vulkan_fault;
void qn_vulkan_inject(qn_device *device, qn_vulkan_fault fault);

/* Families of kernels that can be left out, to compare one with another, and the tile that cooperative products are forced to use (-1: none).
 * The name of a tile is NULL beyond the last; a step that cannot use the forced one is unsupported. */
enum { QN_VULKAN_COOP = 1u, QN_VULKAN_PLAIN = 2u };
void qn_vulkan_bar(qn_device *device, uint32_t families, int tile);
const char *qn_vulkan_tile_name(const qn_device *device, int number, char *text, size_t room);

/* What the device says about its cooperative matrices, in words. */
const char *qn_vulkan_facts(const qn_device *device, char *text, size_t room);

/* Shows every module that is emitted for this device from now on, to whoever wants to check it. */
typedef void (*qn_vulkan_module_fn)(void *user, const uint32_t *words, size_t n_words);
void qn_vulkan_show_modules(qn_device *device, qn_vulkan_module_fn show, void *user);

/* Pipelines made since the device was opened, barriers in a program: what tests count. */
int qn_vulkan_pipelines(const qn_device *device);
int qn_vulkan_barriers(const qn_program *program);
/* Bytes of all buffers there are at the moment, in the device's memory or the host's. */
uint64_t qn_vulkan_held(const qn_device *device, int on_host);

/* Number of ops with at least one kernel; whether an op has one. */
int qn_vulkan_op_count(void);
int qn_vulkan_has_op(int op);

#endif
