/* What the files of this folder share. Functions of Vulkan are reached through tables filled at run time: the library does not
 * link the loader, it opens it. */
#ifndef QN_VULKAN_VK_H
#define QN_VULKAN_VK_H

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include "base/arena.h"
#include "op/op.h"
#include "vulkan/vulkan.h"

/* ---- Functions, all of them in one table */

typedef struct qn_vk_calls {
#define QN_VK_CALL(name, from) PFN_vk##name name;
#include "vulkan/vk_calls.def"
#undef QN_VK_CALL
} qn_vk_calls;

/* ---- Kernels */

/* What a kernel is given: 128 bytes, which every device has. Must agree with Push in glsl/common.glsl. */
typedef struct qn_vk_push {
    uint64_t a, b, y;
    uint32_t n[4];
    int32_t sa[4], sb[4], sy[4];
    uint32_t nb[4];
    uint32_t p[6];
} qn_vk_push;
_Static_assert(sizeof(qn_vk_push) == 128, "push constants are 128 bytes");

/* Must agree with common.glsl. The RAW ones are words that are only moved. */
typedef enum qn_vk_type {
    QN_VK_F32,
    QN_VK_F16,
    QN_VK_BF16,
    QN_VK_I32,
    QN_VK_RAW8,
    QN_VK_RAW16,
    QN_VK_RAW32,
    QN_VK_RAW64,
    QN_VK_BOOL,
    QN_VK_U8,
    QN_VK_I8,
    QN_VK_I16,
    QN_VK_U32,
    QN_VK_NO_TYPE,
    QN_VK_Q4_0 = 16, /* rows of blocks, see blocks.glsl; only some kernels read them */
    QN_VK_Q8_0,
    QN_VK_Q4_K,
    QN_VK_Q6_K
} qn_vk_type;

/* Specialisation constants, in the order of their numbers. The last two are for kernels whose workgroup is not QN_VK_LANES. */
typedef struct qn_vk_spec {
    uint32_t type_a, type_b, type_y, fn, rank, tiled;
    uint32_t lanes, tile[9];
} qn_vk_spec;

typedef struct qn_vk_shader {
    const char *name;
    const uint32_t *code;
    size_t bytes;
} qn_vk_shader;

/* Made in the build folder from glsl/: one entry per file, ended by a NULL name. */
extern const qn_vk_shader qn_vk_shaders[];

/* What an emitted kernel computes (vk_region.c); n is 0 for shaders that are as they were built. */
typedef struct qn_vk_key {
    int n;
    uint32_t words[QN_MAX_WORDS + 20];
} qn_vk_key;

/* A step translated. */
typedef struct qn_vk_dispatch {
    int shader;
    qn_vk_spec spec;
    qn_vk_key key;
    qn_vk_push push;
    uint32_t groups[3]; /* any 0: nothing to do */
    int waits;          /* for the dispatches of the same step before it */
} qn_vk_dispatch;

enum { QN_VK_DISPATCHES = 16 }; /* of one step at most */

/* What a packer works on. While only asking, every address is 0 and `block` NULL; what is used is counted all the same. */
typedef struct qn_vk_pack {
    const struct qn_vk_device *device;
    const qn_checked_step *step;
    int asks;          /* tensors have no data yet: which of them lie in one place is not known */
    uint64_t arena;    /* device address */
    char *block;       /* the parameter block, mapped */
    uint64_t block_at; /* its device address; the first word is the status word */
    uint64_t block_used;
    uint64_t scratch_at, scratch_used; /* memory for this step alone */
    uint32_t step_number;
    qn_vk_dispatch *list; /* QN_VK_DISPATCHES of them */
    int n, waits;         /* finished ones; whether the next one waits for them */
    qn_vk_dispatch *out;  /* the one being filled: list[n] */
    qn_error *error;
} qn_vk_pack;

typedef qn_status (*qn_vk_pack_fn)(qn_vk_pack *pack, uint32_t fn);

enum { QN_VK_BLOCK_ALIGN = 64, QN_VK_GROUP_LIMIT = 65535, QN_VK_LANES = 256 };

#define QN_VK_KERNEL(op, shader, fn, packer) qn_status qn_vk_pack_##packer(qn_vk_pack *pack, uint32_t fn_);
#include "vulkan/vk_kernels.def"
#undef QN_VK_KERNEL

/* Chooses the kernel of a step and appends its dispatches to the list, or says QN_UNSUPPORTED. */
qn_status qn_vk_translate(qn_vk_pack *pack);

/* ---- Objects */

typedef struct qn_vk_instance {
    void *library;
    PFN_vkGetInstanceProcAddr get;
    VkInstance handle;
    VkDebugUtilsMessengerEXT messenger;
    qn_vk_calls vk;
    int validating, n_messages;
    char first_message[512];
} qn_vk_instance;

/* Cooperative matrices of halves with f32 sums. All 0: there are none, or a feature they need is missing. */
typedef struct qn_vk_coop {
    uint32_t m, n, k;        /* the fragment of a subgroup */
    uint32_t fixed_subgroup; /* pipelines can be told how many lanes a subgroup has */
} qn_vk_coop;

/* What is known of a physical device before it is opened. */
typedef struct qn_vk_facts {
    VkPhysicalDevice handle;
    VkPhysicalDeviceProperties properties;
    VkPhysicalDeviceMemoryProperties memory;
    qn_device_info info;
    uint32_t queue_family, timestamp_bits;
    uint64_t max_allocation;
    qn_vk_coop coop;
    char lacks[160]; /* what every kernel needs and it has not; empty when it can be used */
} qn_vk_facts;

typedef struct qn_vk_memory {
    VkBuffer buffer;
    VkDeviceMemory memory;
    uint64_t bytes, address;
    void *mapped;
    int on_host;
} qn_vk_memory;

typedef struct qn_vk_pipeline {
    int shader;
    qn_vk_spec spec;
    int n_key; /* of an emitted one */
    uint32_t *key;
    VkPipeline handle;
} qn_vk_pipeline;

enum { QN_VK_SHADERS_MAX = 128 };

typedef struct qn_vk_device {
    qn_device base;
    qn_vk_instance *instance;
    qn_vk_calls vk;
    qn_vk_facts facts;
    qn_arena arena; /* the records that live as long as the device */
    VkDevice handle;
    PFN_vkGetCalibratedTimestampsEXT read_clocks; /* NULL: the device cannot */
    VkQueue queue;
    VkCommandPool pool;
    VkSemaphore timeline;
    uint64_t submitted;
    VkPipelineLayout layout;
    VkPipelineCache cache;
    char cache_path[1024];
    uint64_t cache_stored; /* bytes of it that are on disk already */
    VkShaderModule modules[QN_VK_SHADERS_MAX];
    QN_VEC(qn_vk_pipeline) pipelines;
    qn_vk_memory staging; /* for single uploads and downloads, grown on demand */
    uint64_t held[2];     /* bytes of all buffers there are: its own, the host's */
    qn_vulkan_fault fault;
    qn_vulkan_module_fn show;
    void *show_user;
    uint32_t distrusted; /* QN_VULKAN_* families that failed the self-test */
    uint32_t barred;     /* QN_VULKAN_* families of kernels that are not to be used */
    int forced_tile;     /* number of the tile that products shall use, -1: as the packer thinks */
    int lost;
} qn_vk_device;

typedef struct qn_vk_buffer {
    qn_device_buffer base;
    qn_vk_memory memory;
} qn_vk_buffer;

typedef struct qn_vk_program {
    qn_program base;
    qn_vk_memory arena;   /* empty when it is the caller's */
    qn_vk_memory block;   /* status word, then what kernels need beyond push constants */
    qn_vk_memory scratch; /* as much as the step that needs most; steps that use it do not overlap */
    qn_vk_memory staging; /* inputs one after the other, then outputs */
    qn_device_range *inputs, *outputs;
    uint64_t *input_at, *output_at; /* in staging */
    VkCommandBuffer *commands;      /* the steps, then one per input, then one per output */
    VkCommandBuffer *batch;         /* those of one run */
    int n_commands, n_barriers;
    VkQueryPool queries;
    uint64_t pending; /* timeline value of a run that was not seen to end, 0 for none */
    int has_times;
    qn_arena memory;
} qn_vk_program;

/* Forward a VkResult as a status and a sentence with the call's name. Device loss is remembered. */
qn_status qn_vk_fail(qn_vk_device *d, const char *call, VkResult result, qn_error *error);
const char *qn_vk_result_name(VkResult result);
#define QN_VK_TRY(d, call, error)                                                            \
    do {                                                                                     \
        VkResult vk_result_ = (d)->vk.call;                                                  \
        if (vk_result_ != VK_SUCCESS) return qn_vk_fail((d), "vk" #call, vk_result_, error); \
    } while (0)

/* vk_context.c */
qn_status qn_vk_instance_create(uint32_t flags, qn_vk_instance **instance, qn_error *error);
void qn_vk_instance_destroy(qn_vk_instance *instance);
/* Count of physical devices, or facts about one. */
int qn_vk_instance_count(qn_vk_instance *instance, qn_error *error);
qn_status qn_vk_instance_facts(qn_vk_instance *instance, int index, qn_vk_facts *facts, qn_error *error);
int qn_vk_facts_lists(qn_vk_instance *instance, const qn_vk_facts *facts, const char *extension);
qn_status qn_vk_device_make(qn_vk_device *d, qn_error *error);
void qn_vk_device_unmake(qn_vk_device *d);

/* vk_coop.c */
typedef struct qn_vk_extras { /* what create_device asks for beyond what every kernel needs */
    struct qn_vk_coop_features {
        VkStructureType type;
        void *next;
        VkBool32 on, robust;
    } coop;
    VkPhysicalDeviceSubgroupSizeControlFeatures subgroup;
    const char *names[4];
    uint32_t n_names;
    const char *clock; /* the call that reads both clocks, NULL: there is none */
    void *chain;
} qn_vk_extras;
void qn_vk_coop_find(qn_vk_instance *in, qn_vk_facts *f);
void qn_vk_coop_ask(const qn_vk_facts *f, qn_vk_extras *extras);

/* vk_clock.c: asks for the extension; finds how well the clocks can be compared, when it was given; when a run began. */
void qn_vk_clock_ask(qn_vk_instance *in, const qn_vk_facts *f, qn_vk_extras *extras);
void qn_vk_clock_open(qn_vk_device *d, const char *call);
int qn_vk_program_began(qn_program *program, uint64_t *when);
static inline uint64_t qn_vk_tick_mask(const qn_vk_device *d) {
    return d->facts.timestamp_bits >= 64 ? UINT64_MAX : ((uint64_t)1 << d->facts.timestamp_bits) - 1;
}

/* vk_memory.c */
typedef enum qn_vk_place { QN_VK_ON_DEVICE, QN_VK_ON_HOST, QN_VK_ON_BOTH } qn_vk_place;
qn_status qn_vk_memory_create(qn_vk_device *d, uint64_t bytes, qn_vk_place place, qn_vk_memory *memory, qn_error *error);
void qn_vk_memory_destroy(qn_vk_device *d, qn_vk_memory *memory);

/* vk_command.c */
qn_status qn_vk_submit(qn_vk_device *d, const VkCommandBuffer *commands, int n, uint64_t *value, qn_error *error);
qn_status qn_vk_wait(qn_vk_device *d, uint64_t value, uint64_t timeout_ns, qn_error *error);
qn_status qn_vk_begin(qn_vk_device *d, VkCommandBuffer c, int once, qn_error *error);
void qn_vk_barrier(qn_vk_device *d, VkCommandBuffer c, VkPipelineStageFlags from, VkAccessFlags wrote, VkPipelineStageFlags to,
                   VkAccessFlags reads);
qn_status qn_vk_copy(qn_vk_device *d, const qn_vk_memory *from, uint64_t from_at, const qn_vk_memory *to, uint64_t to_at,
                     uint64_t bytes, qn_error *error);

/* vk_pipeline.c */
qn_status qn_vk_pipelines_init(qn_vk_device *d, qn_error *error);
void qn_vk_pipelines_destroy(qn_vk_device *d);
qn_status qn_vk_pipeline_get(qn_vk_device *d, const qn_vk_dispatch *dispatch, VkPipeline *pipeline, qn_error *error);
int qn_vk_shader_find(const char *name);

/* vk_region.c: the module of a key, in words of the arena's; NULL for want of memory. */
const uint32_t *qn_vk_region_emit(qn_arena *arena, const qn_vk_key *key, size_t *n_words);

/* vk_cache.c */
qn_status qn_vk_cache_open(qn_vk_device *d, const char *folder, qn_error *error);
void qn_vk_cache_store(qn_vk_device *d);

/* vk_program.c */
qn_status qn_vk_program_measure(qn_device *device, const qn_program_options *o, const qn_checked_step *steps,
                                qn_program_need *need, qn_error *error);
qn_status qn_vk_program_create(qn_device *device, const qn_program_options *o, const qn_checked_step *steps, qn_program **program,
                               qn_error *error);
void qn_vk_program_destroy(qn_program *program);
qn_status qn_vk_program_run(qn_program *program, const void *const *inputs, void *const *outputs, uint64_t timeout_ns,
                            qn_error *error);
qn_status qn_vk_program_times(qn_program *program, double *ns, int n, qn_error *error);

/* vk_selftest.c: QN_OK, or QN_DEVICE and which kernel disagrees by how much. */
qn_status qn_vk_self_test(qn_device *device, qn_error *error);

#endif
