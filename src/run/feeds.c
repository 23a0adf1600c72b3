/* Outputs that are the next run's inputs. An output may lie in an input, which is updated in place, and which is fed as well: each is
 * copied before something else is written over it. */
#include "run/plan_impl.h"

static const qn_tensor *source_of(const qn_plan *p, const qn_plan_feed_pair *f) {
    return &p->current->schedule->tensors[qn_plan_output_find(p, f->output)];
}

/* The leaf that an output lies in; -1: it has memory of its own. */
static int32_t leaf_under(const qn_plan *p, const qn_plan_feed_pair *f) {
    return p->current->leaf_of[p->current->schedule->slots[qn_plan_output_find(p, f->output)].root];
}

static qn_status check_shape(const qn_plan *p, const qn_plan_feed_pair *f, qn_error *error) {
    const qn_plan_leaf *to = &p->leaves.at[f->leaf];
    const qn_tensor *a = source_of(p, f);
    const qn_shape *b = &p->graph->values.at[to->value].shape;
    int same = a->dtype == b->dtype && a->rank == b->rank;
    for (int k = 0; same && k < a->rank; k++) {
        int64_t extent;
        same = qn_ir_dim_value(p->graph, b->d[k], p->current->symbols, &extent) && extent == a->shape[k];
    }
    if (same) return QN_OK;
    return qn_error_set(error, QN_INVALID, "output '%s' and input '%s' have not the same dense shape and dtype", f->output,
                        to->name);
}

/* A feed among those from `first` on whose input no other of them reads; the number of feeds when there is none. */
static size_t find_free(const qn_plan *p, size_t first) {
    for (size_t i = first; i < p->feeds.n; i++) {
        size_t k = first;
        while (k < p->feeds.n && (k == i || leaf_under(p, &p->feeds.at[k]) != p->feeds.at[i].leaf)) k++;
        if (k == p->feeds.n) return i;
    }
    return p->feeds.n;
}

static qn_status put_in_order(qn_plan *p, qn_error *error) {
    for (size_t done = 0; done < p->feeds.n; done++) {
        size_t next = find_free(p, done);
        if (next == p->feeds.n)
            return qn_error_set(
                error, QN_INVALID,
                "output '%s' lies in an input that is fed, and inputs that are updated in place cannot be fed to each other in "
                "a circle",
                p->feeds.at[done].output);
        if (next == done) continue;
        qn_plan_feed_pair moved = p->feeds.at[next];
        memmove(&p->feeds.at[done + 1], &p->feeds.at[done], (next - done) * sizeof moved);
        p->feeds.at[done] = moved;
        qn_segments_forget(p); /* programs of a device copy in the order that was */
    }
    return QN_OK;
}

qn_status qn_plan_feeds_check(qn_plan *p, qn_error *error) {
    for (size_t i = 0; i < p->feeds.n; i++) QN_TRY(check_shape(p, &p->feeds.at[i], error));
    return put_in_order(p, error);
}

/* What a device keeps for itself has been fed there. */
void qn_plan_feed_inputs(qn_plan *p) {
    for (size_t i = 0; i < p->feeds.n; i++) {
        qn_feed_sides sides = p->device ? p->current->feeds.at[i] : (qn_feed_sides){0, 1};
        qn_plan_leaf *to = &p->leaves.at[p->feeds.at[i].leaf];
        to->newest = (sides.on_device ? QN_ON_DEVICE : 0) | (sides.on_host ? QN_ON_HOST : 0);
        if (!sides.on_host) continue;
        const qn_tensor *from = source_of(p, &p->feeds.at[i]);
        uint64_t bytes = 0;
        qn_tensor_bytes((qn_dtype)from->dtype, from->rank, from->shape, &bytes);
        const char *at = (const char *)from->data + from->offset;
        if (at != to->memory && bytes <= to->capacity) memmove(to->memory, at, bytes);
    }
}

/* The feed of an input that has one already takes its place. */
static size_t place_of(const qn_plan *p, int32_t leaf) {
    size_t i = 0;
    while (i < p->feeds.n && p->feeds.at[i].leaf != leaf) i++;
    return i;
}

qn_status qn_plan_feed(qn_plan *p, const char *output, const char *input, qn_error *error) {
    if (!p) return qn_error_set(error, QN_ARGUMENT, "a plan is needed");
    if (qn_plan_output_find(p, output) == QN_VAL_NONE)
        return qn_error_set(error, QN_INVALID, "the graph has no output '%s'", output ? output : "");
    const qn_plan_leaf *to = qn_plan_leaf_find(p, input);
    if (!to || to->kind != QN_VALUE_INPUT)
        return qn_error_set(error, QN_INVALID, "the graph has no input '%s'", input ? input : "");
    if (!QN_VEC_ROOM(&p->arena, &p->feeds, 1)) return qn_error_set(error, QN_NO_MEMORY, "no memory for a feed");
    int32_t leaf = (int32_t)(to - p->leaves.at);
    size_t n = p->feeds.n, at = place_of(p, leaf);
    qn_plan_feed_pair made = {qn_ir_string(p->graph, qn_ir_name_find(p->graph, output)->text), leaf}, before = p->feeds.at[at];
    p->feeds.at[at] = made;
    if (at == n) p->feeds.n++;
    qn_status status = qn_plan_feeds_check(p, error);
    if (status != QN_OK) { /* what was there was in some order that works, and will be again */
        at = place_of(p, leaf);
        if (p->feeds.n == n) p->feeds.at[at] = before;
        else memmove(&p->feeds.at[at], &p->feeds.at[at + 1], (--p->feeds.n - at) * sizeof made);
        (void)qn_plan_feeds_check(p, NULL);
        return status;
    }
    qn_segments_forget(p);
    (void)qn_segments_measure(p, p->current, NULL); /* for whoever asks what it takes now; a run looks again */
    p->memory_ready = 0;
    return QN_OK;
}
