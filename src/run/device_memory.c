/* A plan's memory on its device: one buffer for all specialisations. Leaves lie at its front, sized once as they are on the host, so
 * that what one specialisation left there is what the next one finds; behind them is room for whichever runs. */
#include "run/plan_impl.h"

qn_status qn_device_memory_home(qn_plan *p, qn_plan_leaf *l, qn_error *error) {
    uint64_t bytes = 0;
    if (l->newest & QN_ON_HOST) return QN_OK;
    qn_tensor_bytes((qn_dtype)l->shape.dtype, l->shape.rank, l->shape.d, &bytes);
    QN_TRY(qn_device_download(p->device_buffer, l->device_at, l->memory, bytes, error));
    l->newest |= QN_ON_HOST;
    return QN_OK;
}

/* Programs know where the buffer lies, so another buffer is a new beginning; what only the old one has comes to the host first. */
static qn_status give_up(qn_plan *p, qn_error *error) {
    if (!p->device_buffer) return QN_OK;
    for (size_t i = 0; i < p->leaves.n; i++) QN_TRY(qn_device_memory_home(p, &p->leaves.at[i], error));
    for (size_t i = 0; i < p->leaves.n; i++) p->leaves.at[i].newest = QN_ON_HOST;
    for (int i = 0; i < QN_PLAN_SPECIALS; i++)
        if (p->specials[i]) qn_segments_destroy(p->specials[i]);
    qn_device_buffer_destroy(p->device_buffer);
    p->device_buffer = NULL;
    p->device_has = NULL;
    return QN_OK;
}

/* As much as the largest specialisation so far takes, so that it is mostly made once; where that is too much, what this one takes. */
uint64_t qn_device_memory_buffer(const qn_plan *p, const qn_special *x) {
    if (!x->device.bytes || x->device.bytes > p->device_most) return x->device.bytes;
    return p->memory_cap && qn_plan_sum(p->device_most, x->device.need.device) > p->memory_cap ? x->device.bytes : p->device_most;
}

static qn_status need_buffer(qn_plan *p, const qn_special *x, qn_error *error) {
    uint64_t bytes = qn_device_memory_buffer(p, x);
    if (p->device_buffer && x->device.bytes <= p->device_buffer->bytes && p->device_buffer->bytes <= bytes) return QN_OK;
    QN_TRY(give_up(p, error));
    qn_status status = qn_device_buffer_create(p->device, bytes, &p->device_buffer, error);
    if (status == QN_OK || bytes <= x->device.bytes) return status;
    return qn_device_buffer_create(p->device, x->device.bytes, &p->device_buffer, error);
}

qn_status qn_device_memory_need(qn_plan *p, qn_special *x, qn_error *error) {
    if (!x->device.bytes) return QN_OK;
    QN_TRY(need_buffer(p, x, error));
    if (p->device_has == x) return QN_OK;
    p->device_has = x;
    for (size_t i = 0; i < x->segments.n; i++) /* another one's values lie where its constants were */
        for (size_t k = 0; k < x->segments.at[i].in.n; k++) x->segments.at[i].in.at[k].sent = 0;
    return QN_OK;
}

/* Of programs alone; idle: of those that the current specialisation does not use. */
static qn_program_need programs(const qn_plan *p, int idle) {
    qn_program_need sum = {0, 0};
    for (int i = 0; i < QN_PLAN_SPECIALS; i++) {
        if (!p->specials[i] || (idle && p->specials[i] == p->current)) continue;
        qn_program_need one = qn_segments_held(p->specials[i]);
        sum.device += one.device;
        sum.host += one.host;
    }
    return sum;
}

qn_program_need qn_device_memory_held(const qn_plan *p) {
    qn_program_need held = programs(p, 0);
    if (p->device_buffer) held.device += p->device_buffer->bytes;
    if (p->device) held.host += p->device->copy_held < p->device_copies ? p->device->copy_held : p->device_copies;
    return held;
}

uint64_t qn_device_memory_make_way(qn_plan *p, uint64_t spare) {
    uint64_t needs = qn_plan_device_bytes(p, p->current);
    uint64_t device_spare = needs < p->memory_cap ? p->memory_cap - needs : 0;
    for (;;) {
        qn_program_need idle = programs(p, 1);
        qn_special *oldest = NULL;
        if (idle.host <= spare && idle.device <= device_spare) return idle.host;
        for (int i = 0; i < QN_PLAN_SPECIALS; i++) {
            qn_special *x = p->specials[i];
            qn_program_need held = {0, 0};
            if (x && x != p->current) held = qn_segments_held(x);
            if ((held.device || held.host) && (!oldest || x->used < oldest->used)) oldest = x;
        }
        qn_segments_destroy(oldest); /* there is one: what is idle is somebody's */
    }
}

qn_status qn_device_memory_fetch(qn_plan *p, const qn_special *x, qn_error *error) {
    for (size_t i = 0; i < x->host_leaves.n; i++) QN_TRY(qn_device_memory_home(p, &p->leaves.at[x->host_leaves.at[i]], error));
    return QN_OK;
}

int qn_device_memory_holds(const qn_plan *p, qn_val value) {
    const qn_special *x = p->current;
    const qn_schedule *s = x->schedule;
    qn_val root = s->slots[value].root;
    int on_device = 0;
    if (x->leaf_of[root] >= 0) return !(p->leaves.at[x->leaf_of[root]].newest & QN_ON_HOST);
    for (size_t i = 0; i < x->segments.n && p->device_has == x; i++)
        for (int32_t k = x->segments.at[i].first; k < x->segments.at[i].end; k++)
            for (int d = 0; d < s->steps.at[k].call.n_dst; d++)
                if (s->slots[s->steps.at[k].dst[d] - s->tensors].root == root) on_device = x->segments.at[i].on_device;
    return on_device;
}
