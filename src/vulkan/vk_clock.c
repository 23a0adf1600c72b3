/* The device's clock on the host's, where the driver can read both at once. A pair of readings is taken right after each run that
 * asks, so that clocks which drift apart by some millionths do so only for as long as the run took. */
#include "vulkan/vk.h"

enum { CLOCKS_MAX = 16, OPENING_PAIRS = 16, TRIES = 8 };

/* The newer name of the extension has the same functions under another ending. */
static const struct {
    const char *extension, *domains, *read;
} names[] = {{"VK_KHR_calibrated_timestamps", "vkGetPhysicalDeviceCalibrateableTimeDomainsKHR", "vkGetCalibratedTimestampsKHR"},
             {"VK_EXT_calibrated_timestamps", "vkGetPhysicalDeviceCalibrateableTimeDomainsEXT", "vkGetCalibratedTimestampsEXT"}};
enum { NAMES = sizeof names / sizeof names[0] };

static int has_clocks(qn_vk_instance *in, const qn_vk_facts *f, const char *call) {
    PFN_vkGetPhysicalDeviceCalibrateableTimeDomainsEXT ask = (PFN_vkGetPhysicalDeviceCalibrateableTimeDomainsEXT)in->get(
        in->handle, call);
    VkTimeDomainEXT list[CLOCKS_MAX];
    uint32_t n = CLOCKS_MAX, found = 0;
    if (!ask || ask(f->handle, &n, list) < VK_SUCCESS) return 0;
    for (uint32_t i = 0; i < n; i++)
        found |= list[i] == VK_TIME_DOMAIN_DEVICE_EXT ? 1u : list[i] == VK_TIME_DOMAIN_CLOCK_MONOTONIC_EXT ? 2u : 0u;
    return found == 3;
}

void qn_vk_clock_ask(qn_vk_instance *in, const qn_vk_facts *f, qn_vk_extras *extras) {
    for (int i = 0; i < NAMES && f->timestamp_bits; i++) {
        if (!qn_vk_facts_lists(in, f, names[i].extension) || !has_clocks(in, f, names[i].domains)) continue;
        extras->names[extras->n_names++] = names[i].extension;
        extras->clock = names[i].read;
        return;
    }
}

/* Both clocks at once; how far apart the readings may be, in nanoseconds, 0: the driver failed. */
static uint64_t read_pair(qn_vk_device *d, uint64_t *ticks, uint64_t *host) {
    VkCalibratedTimestampInfoEXT which[2] = {
        {VK_STRUCTURE_TYPE_CALIBRATED_TIMESTAMP_INFO_EXT, NULL, VK_TIME_DOMAIN_DEVICE_EXT},
        {VK_STRUCTURE_TYPE_CALIBRATED_TIMESTAMP_INFO_EXT, NULL, VK_TIME_DOMAIN_CLOCK_MONOTONIC_EXT}};
    uint64_t at[2] = {0, 0}, apart = 0;
    if (d->read_clocks(d->handle, 2, which, at, &apart) != VK_SUCCESS) return 0;
    *ticks = at[0];
    *host = at[1];
    return apart + 1 + (uint64_t)d->facts.properties.limits.timestampPeriod; /* and one tick of each */
}

/* The bound that is told is the largest of some first readings; what a busy machine makes worse later is not used. */
void qn_vk_clock_open(qn_vk_device *d, const char *call) {
    uint64_t ticks, host, bound = 0;
    if (!call) return;
    d->read_clocks = (PFN_vkGetCalibratedTimestampsEXT)d->instance->vk.GetDeviceProcAddr(d->handle, call);
    for (int i = 0; i < OPENING_PAIRS && d->read_clocks; i++) {
        uint64_t apart = read_pair(d, &ticks, &host);
        if (apart > bound) bound = apart;
    }
    d->facts.info.clock_bound = bound;
}

int qn_vk_program_began(qn_program *program, uint64_t *when) {
    qn_vk_program *p = (qn_vk_program *)program;
    qn_vk_device *d = (qn_vk_device *)program->device;
    uint64_t first, ticks, host, apart = 0;
    if (!d->facts.info.clock_bound || !p->queries || !p->has_times || p->pending) return 0;
    if (d->vk.GetQueryPoolResults(d->handle, p->queries, 0, 1, sizeof first, &first, sizeof first, VK_QUERY_RESULT_64_BIT) !=
        VK_SUCCESS)
        return 0;
    for (int i = 0; i < TRIES && (!apart || apart > d->facts.info.clock_bound); i++) apart = read_pair(d, &ticks, &host);
    if (!apart || apart > d->facts.info.clock_bound) return 0;
    double since = (double)((ticks - first) & qn_vk_tick_mask(d)) * (double)d->facts.properties.limits.timestampPeriod;
    if (since >= (double)host) return 0;
    *when = host - (uint64_t)since;
    return 1;
}
