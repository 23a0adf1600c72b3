/* Compiled pipelines on disk, one file per device and driver: a change of either has another name. The file is a hint: one that
 * is missing, damaged or not writable costs time and nothing else. Our own head and checksum guard the driver from bytes it did
 * not write, since drivers are not hardened against them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_limit.h"
#include "base/memory.h"
#include "vulkan/vk.h"

typedef struct cache_head {
    char magic[8];
    uint64_t bytes, sum;
} cache_head;

static const char magic[8] = {'q', 'n', 'v', 'k', 'p', 'c', '0', '1'};
enum { CACHE_BYTES_MAX = 256 << 20 };

/* FNV-1a */
static uint64_t checksum(const unsigned char *p, size_t n) {
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 1099511628211u;
    return h;
}

static int choose_folder(const char *given, char *to, size_t size) {
    const char *own = getenv("QUERN_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (given) n = snprintf(to, size, "%s", given);
    else if (own) n = snprintf(to, size, "%s", own);
    else if (xdg && xdg[0] == '/') n = snprintf(to, size, "%s/quern", xdg);
    else if (home && home[0] == '/') n = snprintf(to, size, "%s/.cache/quern", home);
    else n = 0;
    return n > 0 && (size_t)n < size;
}

static void choose_path(qn_vk_device *d, const char *given) {
    char folder[900], uuid[33];
    const VkPhysicalDeviceProperties *p = &d->facts.properties;
    const qn_device_info *info = &d->facts.info;
    d->cache_path[0] = '\0';
    if (!choose_folder(given, folder, sizeof folder)) return;
    for (size_t i = 0; i < 16; i++) snprintf(uuid + 2 * i, 3, "%02x", info->uuid[i]);
    uint64_t driver = checksum((const unsigned char *)info->driver, strlen(info->driver)) ^ p->driverVersion ^
                      checksum(p->pipelineCacheUUID, sizeof p->pipelineCacheUUID);
    snprintf(d->cache_path, sizeof d->cache_path, "%s/vulkan-%s-%016llx.bin", folder, uuid, (unsigned long long)driver);
}

/* The bytes behind a valid head; NULL when there are none. *size is the size of the allocation. */
static void *read_cache(const char *path, size_t *bytes, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    cache_head head;
    qn_allocator memory = qn_memory_default();
    void *data = NULL;
    if (fread(&head, sizeof head, 1, file) == 1 && memcmp(head.magic, magic, sizeof magic) == 0 && head.bytes > 0 &&
        head.bytes <= CACHE_BYTES_MAX)
        data = memory.allocate(memory.user, (size_t)head.bytes, 16);
    if (data) {
        *bytes = *size = (size_t)head.bytes;
        if (fread(data, 1, *bytes, file) != *bytes || fgetc(file) != EOF || checksum(data, *bytes) != head.sum) {
            memory.release(memory.user, data, *size);
            data = NULL;
        }
    }
    fclose(file);
    return data;
}

qn_status qn_vk_cache_open(qn_vk_device *d, const char *folder, qn_error *error) {
    choose_path(d, folder);
    size_t bytes = 0, size = 0;
    void *data = d->cache_path[0] ? read_cache(d->cache_path, &bytes, &size) : NULL;
    VkPipelineCacheCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO, .initialDataSize = data ? bytes : 0, .pInitialData = data};
    VkResult r = d->vk.CreatePipelineCache(d->handle, &info, NULL, &d->cache);
    if (r != VK_SUCCESS && data) {
        info.initialDataSize = 0;
        info.pInitialData = NULL;
        r = d->vk.CreatePipelineCache(d->handle, &info, NULL, &d->cache);
    }
    d->cache_stored = data ? bytes : 0;
    qn_allocator memory = qn_memory_default();
    if (data) memory.release(memory.user, data, size);
    return r == VK_SUCCESS ? QN_OK : qn_vk_fail(d, "vkCreatePipelineCache", r, error);
}

/* Creates the folders in front of the file's name, as mkdir -p does. */
static void make_folders(const char *path) {
    char part[1024];
    for (size_t i = 1; path[i] && i < sizeof part; i++) {
        if (path[i] != '/') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        mkdir(part, 0700); /* what fails here fails at the file too */
    }
}

/* Written beside and renamed, so that a reader finds the old file or the new one, whole. */
static void write_beside(const char *path, const void *data, size_t bytes) {
    char beside[1100];
    snprintf(beside, sizeof beside, "%s.%ld", path, (long)getpid());
    FILE *file = fopen(beside, "wb");
    if (!file) return;
    cache_head head = {.bytes = bytes, .sum = checksum(data, bytes)};
    memcpy(head.magic, magic, sizeof magic);
    int ok = fwrite(&head, sizeof head, 1, file) == 1 && fwrite(data, 1, bytes, file) == bytes;
    ok &= fclose(file) == 0;
    if (!ok || rename(beside, path) != 0) remove(beside);
}

static void write_cache(const char *path, const void *data, size_t bytes) {
    qn_file_limit limit;
    make_folders(path);
    qn_file_limit_hold(&limit);
    write_beside(path, data, bytes);
    qn_file_limit_release(&limit);
}

void qn_vk_cache_store(qn_vk_device *d) {
    size_t bytes = 0;
    if (!d->cache || !d->cache_path[0] || d->lost) return;
    if (d->vk.GetPipelineCacheData(d->handle, d->cache, &bytes, NULL) != VK_SUCCESS) return;
    if (bytes <= d->cache_stored || bytes > CACHE_BYTES_MAX) return;
    qn_allocator memory = qn_memory_default();
    size_t size = bytes;
    void *data = memory.allocate(memory.user, size, 16);
    if (!data) return;
    if (d->vk.GetPipelineCacheData(d->handle, d->cache, &bytes, data) == VK_SUCCESS) {
        write_cache(d->cache_path, data, bytes);
        d->cache_stored = bytes;
    }
    memory.release(memory.user, data, size);
}
