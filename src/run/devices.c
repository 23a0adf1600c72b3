/* The devices of this machine, from every backend: the one list that names them all. */
#include <stdio.h>
#include <unistd.h>

#include <quern/device.h>

#include "cpu/cpu.h"
#include "thread/cores.h"
#include "vulkan/vulkan.h"

/* Ops with a kernel that can run here: of a level that the build has, the machine has and nobody masks; and the best such level. */
static int count_kernels(int *best) {
    uint32_t levels = qn_cpu_levels();
    int kernels = 0;
    for (int op = 0; op < QN_OP_COUNT; op++) {
        int any = 0;
        for (int l = 0; l < QN_CPU_LEVEL_COUNT; l++) {
            if (!(levels >> l & 1) || !qn_cpu_has_kernel_at(l, op)) continue;
            any = 1;
            if (l > *best) *best = l;
        }
        kernels += any;
    }
    return kernels;
}

static void describe_cpu(qn_device_info *info) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
    memset(info, 0, sizeof *info);
    info->size = sizeof *info;
    info->features = QN_DEVICE_TRUSTED | QN_DEVICE_UNIFIED;
    snprintf(info->backend, sizeof info->backend, "cpu");
    int best = -1, kernels = count_kernels(&best);
    if (best < 0) snprintf(info->name, sizeof info->name, "references alone");
    else snprintf(info->name, sizeof info->name, "%s kernels, references for the rest", qn_cpu_level_name(best));
    snprintf(info->driver, sizeof info->driver, "quern %s", qn_version());
    snprintf(info->verdict, sizeof info->verdict, "is the reference");
    info->memory_bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    info->n_kernels = (uint32_t)kernels;
    info->n_cores = (uint32_t)qn_cores();
}

/* Opening it is the test; what it says of itself then is the last word. */
static void describe_vulkan(int index, qn_device_info *info) {
    qn_error error = {QN_OK, ""};
    qn_device *device = NULL;
    qn_vulkan_options options = {.index = index};
    memset(info, 0, sizeof *info);
    info->size = sizeof *info;
    info->index = index;
    snprintf(info->backend, sizeof info->backend, "vulkan");
    if (qn_vulkan_describe(index, info, &error) == QN_OK && info->verdict[0]) return;
    if (qn_vulkan_open(&options, &device, &error) == QN_OK) {
        qn_device_describe(device, info);
        qn_device_destroy(device);
        return;
    }
    snprintf(info->verdict, sizeof info->verdict, "cannot be used: %.300s", error.text);
}

qn_status qn_device_list(qn_device_info *infos, int room, int *count, qn_error *error) {
    if ((!count && room != 1) || room < 0 || (room && !infos))
        return qn_error_set(error, QN_ARGUMENT, "device list: a count, and room for what is asked, are needed");
    if (error) *error = (qn_error){QN_OK, ""};
    int n = count ? qn_vulkan_count(error) : 0;
    if (count) *count = 1 + n;
    if (room > 0) describe_cpu(&infos[0]);
    for (int i = 0; i < n && i + 1 < room; i++) describe_vulkan(i, &infos[i + 1]);
    return QN_OK;
}

/* What the loader lists, without opening any of it: a driver that computes on the CPU takes seconds to be tested. */
static qn_status find_gpu(int *index, qn_error *error) {
    qn_error why = {QN_OK, ""};
    qn_device_info info = {.size = sizeof info};
    int n = qn_vulkan_count(&why);
    for (int i = 0; i < n; i++) {
        if (qn_vulkan_describe(i, &info, &why) != QN_OK) continue;
        if (info.features & QN_DEVICE_SOFTWARE)
            qn_error_set(&why, QN_UNSUPPORTED, "there is no GPU here: %s is a driver that computes on the CPU", info.name);
        else if (info.verdict[0]) qn_error_set(&why, QN_UNSUPPORTED, "%s %s", info.name, info.verdict);
        else return *index = i, QN_OK;
    }
    return qn_error_set(error, why.status == QN_NO_MEMORY ? QN_NO_MEMORY : QN_UNSUPPORTED, "%s", why.text);
}

qn_status qn_device_open(const char *backend, int index, qn_device **device, qn_error *error) {
    if (!backend || !device) return qn_error_set(error, QN_ARGUMENT, "device: a backend's name and room for a handle are needed");
    *device = NULL;
    if (strcmp(backend, "vulkan") != 0)
        return qn_error_set(error, QN_UNSUPPORTED,
                            "device: there is no backend '%s' to open; 'vulkan' is one, the CPU needs no opening", backend);
    qn_vulkan_options options = {.index = index};
    if (index == QN_DEVICE_FIRST_GPU) QN_TRY(find_gpu(&options.index, error));
    return qn_vulkan_open(&options, device, error);
}

void qn_device_close(qn_device *device) {
    if (device) qn_device_destroy(device);
}
