/* From nothing to an open device: the loader, an instance, the facts about a physical device, the logical one. Everything hangs
 * from the instance record, so two devices in one process share nothing and the last one out closes the loader. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/heap.h"
#include "base/memory.h"
#include "vulkan/vk.h"

enum { GLOBAL, INSTANCE, DEVICE }; /* the last column of vk_calls.def */

static const char *const library_names[] = {"libvulkan.so.1", "libvulkan.so"};
static const char *const layer_name = "VK_LAYER_KHRONOS_validation";

typedef struct result_name {
    VkResult result;
    const char *name;
} result_name;

#define NAMED(name) \
    { VK_##name, #name }
static const result_name result_names[] = {
    NAMED(SUCCESS),
    NAMED(NOT_READY),
    NAMED(TIMEOUT),
    NAMED(INCOMPLETE),
    NAMED(ERROR_OUT_OF_HOST_MEMORY),
    NAMED(ERROR_OUT_OF_DEVICE_MEMORY),
    NAMED(ERROR_INITIALIZATION_FAILED),
    NAMED(ERROR_DEVICE_LOST),
    NAMED(ERROR_MEMORY_MAP_FAILED),
    NAMED(ERROR_LAYER_NOT_PRESENT),
    NAMED(ERROR_EXTENSION_NOT_PRESENT),
    NAMED(ERROR_FEATURE_NOT_PRESENT),
    NAMED(ERROR_INCOMPATIBLE_DRIVER),
    NAMED(ERROR_TOO_MANY_OBJECTS),
    NAMED(ERROR_FRAGMENTED_POOL),
    NAMED(ERROR_FRAGMENTATION),
};

const char *qn_vk_result_name(VkResult r) {
    for (size_t i = 0; i < sizeof result_names / sizeof *result_names; i++)
        if (result_names[i].result == r) return result_names[i].name;
    return "an unknown result";
}

/* "vkQueueSubmit(d->queue, ...)": the name ends at the parenthesis. */
static qn_status fail(const char *call, VkResult r, qn_error *error) {
    qn_status status = r == VK_ERROR_OUT_OF_HOST_MEMORY ? QN_NO_MEMORY : QN_DEVICE;
    return qn_error_set(error, status, "%.*s: %s", (int)strcspn(call, "("), call, qn_vk_result_name(r));
}

qn_status qn_vk_fail(qn_vk_device *d, const char *call, VkResult r, qn_error *error) {
    if (r == VK_ERROR_DEVICE_LOST) d->lost = 1;
    return fail(call, r, error);
}

static VkBool32 VKAPI_PTR on_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity, VkDebugUtilsMessageTypeFlagsEXT types,
                                     const VkDebugUtilsMessengerCallbackDataEXT *data, void *user) {
    qn_vk_instance *in = user;
    (void)severity;
    (void)types;
    if (in->n_messages++ == 0 && data->pMessage) snprintf(in->first_message, sizeof in->first_message, "%s", data->pMessage);
    return VK_FALSE;
}

/* The layer's warnings and errors, counted. */
static VkDebugUtilsMessengerCreateInfoEXT listener(qn_vk_instance *in) {
    return (VkDebugUtilsMessengerCreateInfoEXT){
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
        .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT,
        .pfnUserCallback = on_message,
        .pUserData = in};
}

/* ---- The instance */

static PFN_vkGetInstanceProcAddr open_library(qn_vk_instance *in) {
    PFN_vkGetInstanceProcAddr get = NULL;
    for (size_t i = 0; i < sizeof library_names / sizeof *library_names && !in->library; i++)
        in->library = dlopen(library_names[i], RTLD_NOW | RTLD_LOCAL);
    void *symbol = in->library ? dlsym(in->library, "vkGetInstanceProcAddr") : NULL;
    memcpy(&get, &symbol, sizeof get); /* C has no cast from an object's pointer to a function's */
    return get;
}

/* Fills the functions of one origin; 0 when the loader lacks one. */
static int load_calls(qn_vk_instance *in, PFN_vkGetInstanceProcAddr get, int wanted) {
    int ok = 1;
#define QN_VK_CALL(name, from) \
    if ((from) == wanted) ok &= (in->vk.name = (PFN_vk##name)get(in->handle, "vk" #name)) != NULL;
#include "vulkan/vk_calls.def"
#undef QN_VK_CALL
    return ok;
}

static int has_layer(qn_vk_instance *in) {
    VkLayerProperties layers[64];
    uint32_t n = 64;
    VkResult r = in->vk.EnumerateInstanceLayerProperties(&n, layers);
    if (r != VK_SUCCESS && r != VK_INCOMPLETE) return 0;
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(layers[i].layerName, layer_name) == 0) return 1;
    return 0;
}

static qn_status create_handle(qn_vk_instance *in, uint32_t flags, qn_error *error) {
    static const char *const debug_extension = "VK_EXT_debug_utils";
    VkApplicationInfo app = {
        .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .pApplicationName = "quern", .apiVersion = VK_API_VERSION_1_3};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app};
    VkDebugUtilsMessengerCreateInfoEXT listen = listener(in);
    if ((flags & QN_VULKAN_VALIDATE) && has_layer(in)) {
        in->validating = 1;
        info.pNext = &listen;
        info.enabledLayerCount = info.enabledExtensionCount = 1;
        info.ppEnabledLayerNames = &layer_name;
        info.ppEnabledExtensionNames = &debug_extension;
    }
    VkResult r = in->vk.CreateInstance(&info, NULL, &in->handle);
    return r == VK_SUCCESS ? QN_OK : fail("vkCreateInstance", r, error);
}

static void listen_to(qn_vk_instance *in, PFN_vkGetInstanceProcAddr get) {
    VkDebugUtilsMessengerCreateInfoEXT info = listener(in);
    PFN_vkCreateDebugUtilsMessengerEXT create = (PFN_vkCreateDebugUtilsMessengerEXT)get(in->handle,
                                                                                        "vkCreateDebugUtilsMessengerEXT");
    if (!create || create(in->handle, &info, NULL, &in->messenger) != VK_SUCCESS) in->messenger = VK_NULL_HANDLE;
}

static qn_status fill_instance(qn_vk_instance *in, uint32_t flags, qn_error *error) {
    PFN_vkGetInstanceProcAddr get = in->get = open_library(in);
    if (!get) return qn_error_set(error, QN_DEVICE, "there is no Vulkan loader here (libvulkan.so.1)");
    if (!load_calls(in, get, GLOBAL)) return qn_error_set(error, QN_DEVICE, "the Vulkan loader is older than 1.1");
    QN_TRY(create_handle(in, flags, error));
    if (!load_calls(in, get, INSTANCE))
        return qn_error_set(error, QN_DEVICE, "the Vulkan loader does not know the calls of version 1.1");
    if (in->validating) listen_to(in, get);
    return QN_OK;
}

qn_status qn_vk_instance_create(uint32_t flags, qn_vk_instance **instance, qn_error *error) {
    qn_allocator memory = qn_memory_default();
    qn_vk_instance *in = memory.allocate(memory.user, sizeof *in, _Alignof(max_align_t));
    if (!in) return qn_error_set(error, QN_NO_MEMORY, "no memory for a Vulkan instance");
    memset(in, 0, sizeof *in);
    qn_status status = fill_instance(in, flags, error);
    if (status == QN_OK) *instance = in;
    else qn_vk_instance_destroy(in);
    return status;
}

void qn_vk_instance_destroy(qn_vk_instance *in) {
    if (!in) return;
    if (in->messenger && in->library) {
        PFN_vkDestroyDebugUtilsMessengerEXT destroy = (PFN_vkDestroyDebugUtilsMessengerEXT)in->get(
            in->handle, "vkDestroyDebugUtilsMessengerEXT");
        if (destroy) destroy(in->handle, in->messenger, NULL);
    }
    if (in->handle && in->vk.DestroyInstance) in->vk.DestroyInstance(in->handle, NULL);
    if (in->library) dlclose(in->library);
    qn_allocator memory = qn_memory_default();
    memory.release(memory.user, in, sizeof *in);
}

/* ---- Physical devices */

enum { DEVICES_MAX = 16 };

static int list_devices(qn_vk_instance *in, VkPhysicalDevice *list, qn_error *error) {
    uint32_t n = DEVICES_MAX;
    VkResult r = in->vk.EnumeratePhysicalDevices(in->handle, &n, list);
    if (r != VK_SUCCESS && r != VK_INCOMPLETE) {
        fail("vkEnumeratePhysicalDevices", r, error);
        return 0;
    }
    if (n == 0) qn_error_set(error, QN_DEVICE, "the Vulkan loader found no driver with a device");
    return (int)n;
}

int qn_vk_instance_count(qn_vk_instance *in, qn_error *error) {
    VkPhysicalDevice list[DEVICES_MAX];
    return list_devices(in, list, error);
}

static void find_queue(qn_vk_instance *in, qn_vk_facts *f) {
    VkQueueFamilyProperties families[32];
    uint32_t n = 32;
    in->vk.GetPhysicalDeviceQueueFamilyProperties(f->handle, &n, families);
    f->queue_family = UINT32_MAX;
    for (uint32_t i = 0; i < n && i < 32; i++) {
        if (!(families[i].queueFlags & VK_QUEUE_COMPUTE_BIT)) continue;
        f->queue_family = i;
        f->timestamp_bits = families[i].timestampValidBits;
        return;
    }
}

int qn_vk_facts_lists(qn_vk_instance *in, const qn_vk_facts *f, const char *extension) {
    uint32_t n = 0;
    if (in->vk.EnumerateDeviceExtensionProperties(f->handle, NULL, &n, NULL) != VK_SUCCESS) return 0;
    VkExtensionProperties *list = qn_heap_zeroed(n, sizeof *list);
    VkResult r = list ? in->vk.EnumerateDeviceExtensionProperties(f->handle, NULL, &n, list) : VK_ERROR_OUT_OF_HOST_MEMORY;
    int found = 0;
    for (uint32_t i = 0; i < n && (r == VK_SUCCESS || r == VK_INCOMPLETE); i++)
        found |= strcmp(list[i].extensionName, extension) == 0;
    qn_heap_free(list);
    return found;
}

static void need(qn_vk_facts *f, int has, const char *what) {
    size_t used = strlen(f->lacks);
    if (!has) snprintf(f->lacks + used, sizeof f->lacks - used, "%s%s", used ? ", " : "", what);
}

static void find_features(qn_vk_instance *in, qn_vk_facts *f) {
    VkPhysicalDeviceVulkan12Features v12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    VkPhysicalDeviceVulkan11Features v11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &v12};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &v11};
    in->vk.GetPhysicalDeviceFeatures2(f->handle, &features);
    need(f, v12.bufferDeviceAddress, "bufferDeviceAddress");
    need(f, v12.timelineSemaphore, "timelineSemaphore");
    need(f, v11.storageBuffer16BitAccess, "storageBuffer16BitAccess");
    need(f, v12.storageBuffer8BitAccess, "storageBuffer8BitAccess");
    need(f, features.features.shaderInt64, "shaderInt64");
    need(f, f->queue_family != UINT32_MAX, "a compute queue");
    need(f,
         f->properties.limits.maxComputeWorkGroupInvocations >= QN_VK_LANES &&
             f->properties.limits.maxComputeWorkGroupSize[0] >= QN_VK_LANES,
         "workgroups of 256");
    if (v11.storageBuffer16BitAccess) f->info.features |= QN_DEVICE_F16_STORAGE;
    if (v12.shaderFloat16) f->info.features |= QN_DEVICE_F16_ARITHMETIC;
    if (f->timestamp_bits) f->info.features |= QN_DEVICE_TIMESTAMPS;
}

static void find_properties(qn_vk_instance *in, qn_vk_facts *f) {
    VkPhysicalDeviceDriverProperties driver = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
    VkPhysicalDeviceVulkan11Properties v11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, .pNext = &driver};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &v11};
    in->vk.GetPhysicalDeviceProperties2(f->handle, &p);
    f->properties = p.properties;
    if (p.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU) f->info.features |= QN_DEVICE_SOFTWARE;
    f->max_allocation = v11.maxMemoryAllocationSize;
    f->info.subgroup = v11.subgroupSize;
    f->info.api_version = p.properties.apiVersion;
    memcpy(f->info.uuid, v11.deviceUUID, sizeof f->info.uuid);
    snprintf(f->info.name, sizeof f->info.name, "%.255s", p.properties.deviceName);
    snprintf(f->info.driver, sizeof f->info.driver, "%.100s %.200s", driver.driverName, driver.driverInfo);
}

qn_status qn_vk_instance_facts(qn_vk_instance *in, int index, qn_vk_facts *f, qn_error *error) {
    VkPhysicalDevice list[DEVICES_MAX];
    int n = list_devices(in, list, error);
    if (n == 0) return QN_DEVICE;
    if (index < 0 || index >= n) return qn_error_set(error, QN_ARGUMENT, "there is no Vulkan device %d; there are %d", index, n);
    memset(f, 0, sizeof *f);
    f->handle = list[index];
    f->info.size = sizeof f->info;
    f->info.index = index;
    snprintf(f->info.backend, sizeof f->info.backend, "vulkan");
    find_properties(in, f);
    if (f->properties.apiVersion < VK_API_VERSION_1_2) {
        need(f, 0, "Vulkan 1.2");
        return QN_OK;
    }
    find_queue(in, f);
    find_features(in, f);
    if (qn_vk_facts_lists(in, f, "VK_KHR_shader_integer_dot_product")) f->info.features |= QN_DEVICE_INT8_DOT;
    qn_vk_coop_find(in, f);
    in->vk.GetPhysicalDeviceMemoryProperties(f->handle, &f->memory);
    int host_heaps = 0;
    for (uint32_t i = 0; i < f->memory.memoryHeapCount; i++) {
        if (f->memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
            f->info.memory_bytes += f->memory.memoryHeaps[i].size;
        else host_heaps = 1;
    }
    if (!host_heaps) f->info.features |= QN_DEVICE_UNIFIED;
    return QN_OK;
}

/* ---- The logical device */

static qn_status create_device(qn_vk_device *d, qn_error *error) {
    float priority = 1;
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueFamilyIndex = d->facts.queue_family,
                                     .queueCount = 1,
                                     .pQueuePriorities = &priority};
    qn_vk_extras extras;
    qn_vk_coop_ask(&d->facts, &extras);
    qn_vk_clock_ask(d->instance, &d->facts, &extras);
    VkPhysicalDeviceVulkan12Features v12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                            .pNext = extras.chain,
                                            .bufferDeviceAddress = VK_TRUE,
                                            .storageBuffer8BitAccess = VK_TRUE,
                                            .timelineSemaphore = VK_TRUE,
                                            .vulkanMemoryModel = d->facts.coop.m != 0,
                                            .vulkanMemoryModelDeviceScope = d->facts.coop.m != 0,
                                            .shaderFloat16 = d->facts.coop.m != 0};
    VkPhysicalDeviceVulkan11Features v11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &v12, .storageBuffer16BitAccess = VK_TRUE};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &v11};
    features.features.shaderInt64 = VK_TRUE;
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .pNext = &features,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue,
                               .enabledExtensionCount = extras.n_names,
                               .ppEnabledExtensionNames = extras.names};
    VkResult r = d->instance->vk.CreateDevice(d->facts.handle, &info, NULL, &d->handle);
    if (r != VK_SUCCESS) return qn_vk_fail(d, "vkCreateDevice", r, error);
    int ok = 1;
#define QN_VK_CALL(name, from) \
    if ((from) == DEVICE) ok &= (d->vk.name = (PFN_vk##name)d->instance->vk.GetDeviceProcAddr(d->handle, "vk" #name)) != NULL;
#include "vulkan/vk_calls.def"
#undef QN_VK_CALL
    if (!ok) return qn_error_set(error, QN_DEVICE, "the driver of %s does not know the calls of Vulkan 1.2", d->facts.info.name);
    qn_vk_clock_open(d, extras.clock);
    return QN_OK;
}

qn_status qn_vk_device_make(qn_vk_device *d, qn_error *error) {
    if (d->facts.lacks[0]) return qn_error_set(error, QN_UNSUPPORTED, "%s lacks %s", d->facts.info.name, d->facts.lacks);
    QN_TRY(create_device(d, error));
    d->vk.GetDeviceQueue(d->handle, d->facts.queue_family, 0, &d->queue);
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .queueFamilyIndex = d->facts.queue_family};
    QN_VK_TRY(d, CreateCommandPool(d->handle, &pool, NULL, &d->pool), error);
    VkSemaphoreTypeCreateInfo timeline = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                          .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &timeline};
    QN_VK_TRY(d, CreateSemaphore(d->handle, &semaphore, NULL, &d->timeline), error);
    return qn_vk_pipelines_init(d, error);
}

void qn_vk_device_unmake(qn_vk_device *d) {
    if (!d->handle || !d->vk.DestroyDevice) return;
    if (d->vk.DeviceWaitIdle) d->vk.DeviceWaitIdle(d->handle);
    qn_vk_pipelines_destroy(d);
    qn_vk_memory_destroy(d, &d->staging);
    if (d->timeline) d->vk.DestroySemaphore(d->handle, d->timeline, NULL);
    if (d->pool) d->vk.DestroyCommandPool(d->handle, d->pool, NULL);
    d->vk.DestroyDevice(d->handle, NULL);
    d->handle = VK_NULL_HANDLE;
}
