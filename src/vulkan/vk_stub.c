/* Stands in for the backend when this build has none: the same functions, and a sentence that says what was missing. */
#include "vulkan/vulkan.h"

#ifndef QN_VULKAN_WHY
#define QN_VULKAN_WHY "it was left out"
#endif

static const char *const why = "this build has no Vulkan: " QN_VULKAN_WHY;

int qn_vulkan_count(qn_error *error) {
    qn_error_set(error, QN_UNSUPPORTED, "%s", why);
    return 0;
}
qn_status qn_vulkan_describe(int index, qn_device_info *info, qn_error *error) {
    (void)index;
    (void)info;
    return qn_error_set(error, QN_UNSUPPORTED, "%s", why);
}
qn_status qn_vulkan_open(const qn_vulkan_options *options, qn_device **device, qn_error *error) {
    (void)options;
    if (device) *device = NULL;
    return qn_error_set(error, QN_UNSUPPORTED, "%s", why);
}
int qn_vulkan_messages(const qn_device *device, int *active, const char **first) {
    (void)device;
    if (active) *active = 0;
    if (first) *first = "";
    return 0;
}
void qn_vulkan_inject(qn_device *device, qn_vulkan_fault fault) {
    (void)device;
    (void)fault;
}
void qn_vulkan_bar(qn_device *device, uint32_t families, int tile) {
    (void)device;
    (void)families;
    (void)tile;
}
const char *qn_vulkan_tile_name(const qn_device *device, int number, char *text, size_t room) {
    (void)device;
    (void)number;
    (void)text;
    (void)room;
    return NULL;
}
const char *qn_vulkan_facts(const qn_device *device, char *text, size_t room) {
    (void)device;
    if (room) text[0] = 0;
    return text;
}
void qn_vulkan_show_modules(qn_device *device, qn_vulkan_module_fn show, void *user) {
    (void)device;
    (void)show;
    (void)user;
}
int qn_vulkan_pipelines(const qn_device *device) {
    (void)device;
    return 0;
}
uint64_t qn_vulkan_held(const qn_device *device, int on_host) {
    (void)device;
    (void)on_host;
    return 0;
}
int qn_vulkan_barriers(const qn_program *program) {
    (void)program;
    return 0;
}
int qn_vulkan_op_count(void) { return 0; }
int qn_vulkan_has_op(int op) {
    (void)op;
    return 0;
}
