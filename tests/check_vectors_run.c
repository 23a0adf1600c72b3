/* Runs one case through the public door, twice: as the file has it, dense and with all four axes; then with every plain source
 * and the result spread over padded buffers in the axis order the tensor had in ggml, and with leading axes of extent 1 left
 * out. The second run must give the same bits and leave the padding alone. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "check_vectors.h"

enum { GAP = 0xff }; /* what padding holds: NaN in every float format, -1 in integers */

typedef struct block {
    void *at;
    size_t bytes;
} block;

typedef struct run {
    const qn_vec_case *c;
    const qn_vec_row *row;
    int subop, spread;
    const void *source[QN_MAX_SRC]; /* dense bytes of ggml's sources */
    qn_vec_attr attr;
    qn_request request;
    qn_result result;
    qn_tensor src[QN_MAX_SRC], dst[QN_MAX_DST];
    block memory[QN_MAX_SRC + QN_MAX_DST + 1];
    int n_memory;
    char *text;
    size_t size;
} run;

/* ---- Memory. Every block is of its own, so that an overrun is seen by the sanitizers. */

static void *take_memory(run *r, uint64_t bytes, int fill) {
    if (bytes > SIZE_MAX - QN_WORKSPACE_ALIGN || r->n_memory >= (int)(sizeof r->memory / sizeof *r->memory)) return NULL;
    size_t room = ((size_t)bytes / QN_WORKSPACE_ALIGN + 1) * QN_WORKSPACE_ALIGN;
    void *at = aligned_alloc(QN_WORKSPACE_ALIGN, room);
    if (!at) {
        snprintf(r->text, r->size, "no memory for %llu bytes", (unsigned long long)bytes);
        return NULL;
    }
    memset(at, fill, room);
    r->memory[r->n_memory++] = (block){at, room};
    return at;
}

static void give_memory_back(run *r) {
    while (r->n_memory > 0) free(r->memory[--r->n_memory].at);
}

/* ---- Layouts */

/* Bytes of what is moved as one piece, and how many of them there are on the last axis. */
static size_t piece(const qn_tensor *t, int64_t *last) {
    const qn_dtype_info *info = qn_dtype_describe((qn_dtype)t->dtype);
    *last = t->shape[t->rank - 1] / info->block;
    return (size_t)info->bytes;
}

/* Between a tensor and dense bytes in logical order. */
static void move_all(const qn_tensor *t, char *dense, int into_tensor) {
    int64_t last, index[QN_MAX_RANK] = {0};
    size_t bytes = piece(t, &last);
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] == 0) return;
    for (;;) {
        char *at = (char *)t->data + t->offset;
        for (int i = 0; i < t->rank; i++) at += index[i] * t->stride[i];
        if (into_tensor) memcpy(at, dense, bytes);
        else memcpy(dense, at, bytes);
        dense += bytes;
        int axis = t->rank - 1;
        while (axis >= 0 && ++index[axis] >= (axis == t->rank - 1 ? last : t->shape[axis])) index[axis--] = 0;
        if (axis < 0) return;
    }
}

/* Strides of a padded layout: axes from innermost to outermost in the order of ggml's byte strides, each with one element more
 * than it needs, rows with two. *bytes is 0 when the product is too large. */
static void spread_strides(qn_tensor *t, const int64_t *nb, uint64_t *bytes) {
    int order[QN_MAX_RANK];
    for (int i = 0; i < t->rank; i++) { /* insertion sort; axes of extent 1 have no order of their own and stay where they are */
        int axis = t->rank - 1 - i, at = i;
        while (nb && at > 0 && t->shape[order[at - 1]] > 1 && t->shape[axis] > 1 &&
               nb[t->rank - 1 - axis] < nb[t->rank - 1 - order[at - 1]]) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = axis;
    }
    int64_t stride = qn_dtype_describe((qn_dtype)t->dtype)->bytes;
    *bytes = 0;
    for (int i = 0; i < t->rank; i++) {
        int64_t padded;
        t->stride[order[i]] = stride;
        if (__builtin_add_overflow(t->shape[order[i]], i == 0 ? 2 : 1, &padded)) return;
        if (__builtin_mul_overflow(stride, padded, &stride)) return;
    }
    t->offset = qn_dtype_describe((qn_dtype)t->dtype)->bytes; /* not at the start either */
    if (stride < INT64_MAX - t->offset) *bytes = (uint64_t)(stride + t->offset);
}

/* A tensor of a shape and dtype with memory of its own; `nb` may be NULL. Block types stay dense. */
static int make_tensor(run *r, qn_tensor *t, qn_dtype dtype, int rank, const int64_t *shape, const int64_t *nb) {
    uint64_t bytes = 0;
    if (qn_tensor_bytes(dtype, rank, shape, &bytes) != QN_OK || qn_tensor_init(t, dtype, rank, shape, NULL, 0) != QN_OK) {
        snprintf(r->text, r->size, "a tensor of the case cannot be described");
        return 0;
    }
    if (r->spread && qn_dtype_describe(dtype)->kind != QN_KIND_BLOCK) spread_strides(t, nb, &bytes);
    t->data = take_memory(r, bytes, GAP);
    t->size = bytes;
    return t->data != NULL;
}

/* ---- Requests */

static int make_source(run *r, int slot, const qn_vec_tensor *from, const void *dense) {
    int64_t shape[QN_VEC_AXES];
    int rank = qn_vec_shape(from, r->spread ? r->row->rank : QN_VEC_AXES, shape);
    if (!make_tensor(r, &r->src[slot], from->dtype, rank, shape, from->nb)) return 0;
    if (dense) move_all(&r->src[slot], (char *)dense, 1);
    r->request.src[slot] = &r->src[slot];
    return 1;
}

static int make_sources(run *r) {
    const char *order = r->row->sources;
    int n = order[0] ? (int)strlen(order) : r->c->n_src;
    for (int slot = 0; slot < n; slot++) {
        if (order[0] && order[slot] == 'd') {
            if (!make_source(r, slot, &r->c->dst, NULL)) return 0;
        } else {
            int number = order[0] ? order[slot] - '0' : slot;
            if (number >= r->c->n_src || !r->c->src[number].present) continue;
            if (!make_source(r, slot, &r->c->src[number], r->source[number])) return 0;
        }
        r->request.n_src = (uint16_t)(slot + 1);
    }
    if (r->row->op == QN_OP_opt_step_adamw || r->row->op == QN_OP_opt_step_sgd) r->src[0].flags = QN_TENSOR_PARAM;
    return 1;
}

static void say_rejection(run *r) { qn_result_format(&r->result, r->text, r->size); }

/* What the op gives must be what the case has, leading ones aside. */
static int same_as_golden(run *r, const qn_tensor *out) {
    const qn_vec_tensor *want = &r->c->dst;
    int fits = out->dtype == (uint32_t)want->dtype;
    for (int i = 0; i < QN_MAX_RANK; i++) {
        int64_t ours = i < out->rank ? out->shape[out->rank - 1 - i] : 1, theirs = i < QN_VEC_AXES ? want->ne[i] : 1;
        if (ours != theirs) fits = 0;
    }
    if (fits) return 1;
    int n = snprintf(r->text, r->size, "the op gives %s [", qn_dtype_describe((qn_dtype)out->dtype)->name);
    for (int i = 0; i < out->rank && n > 0 && (size_t)n < r->size; i++)
        n += snprintf(r->text + n, r->size - (size_t)n, i ? ",%lld" : "%lld", (long long)out->shape[i]);
    if (n > 0 && (size_t)n < r->size)
        snprintf(r->text + n, r->size - (size_t)n, "], the case has %s [%lld,%lld,%lld,%lld]", want->type, (long long)want->ne[3],
                 (long long)want->ne[2], (long long)want->ne[1], (long long)want->ne[0]);
    return 0;
}

/* Destinations as the op infers them: views and states over the sources, others in memory of their own. */
static int make_destinations(run *r) {
    const qn_op_info *info = qn_op_describe(r->row->op);
    qn_tensor out[QN_MAX_DST];
    int n = 0;
    if (qn_infer(&r->request, out, &n, &r->result) != QN_OK) {
        say_rejection(r);
        return 0;
    }
    if (!same_as_golden(r, &out[0])) return 0;
    for (int i = 0; i < n; i++) {
        if (info->is_view) r->dst[i] = out[i];
        else if (i < info->n_src && (info->src[i].flags & QN_SLOT_STATE)) r->dst[i] = r->src[i];
        else if (!make_tensor(r, &r->dst[i], (qn_dtype)out[i].dtype, out[i].rank, out[i].shape, i == 0 ? r->c->dst.nb : NULL))
            return 0;
        r->request.dst[i] = &r->dst[i];
    }
    r->request.n_dst = (uint16_t)n;
    return 1;
}

static int make_workspace(run *r) {
    size_t bytes = 0;
    if (qn_workspace_bytes(&r->request, &bytes, &r->result) != QN_OK) {
        say_rejection(r);
        return 0;
    }
    if (!bytes) return 1;
    r->request.workspace = take_memory(r, bytes, GAP);
    r->request.workspace_size = bytes;
    return r->request.workspace != NULL;
}

/* Nothing but the tensor's own elements may have changed in its memory. */
static int padding_untouched(const qn_tensor *t) {
    size_t room = ((size_t)t->size / QN_WORKSPACE_ALIGN + 1) * QN_WORKSPACE_ALIGN, bytes;
    char *copy = malloc(room);
    int64_t last;
    if (!copy) return 1;
    memcpy(copy, t->data, room);
    qn_tensor shadow = *t;
    shadow.data = copy;
    bytes = piece(t, &last);
    for (int i = 0; i < t->rank; i++) last *= i < t->rank - 1 ? t->shape[i] : 1;
    char *gaps = malloc((size_t)last * bytes + 1);
    if (gaps) {
        memset(gaps, GAP, (size_t)last * bytes);
        move_all(&shadow, gaps, 1);
        for (size_t i = 0; i < room; i++)
            if ((unsigned char)copy[i] != GAP) bytes = 0;
    }
    free(gaps);
    free(copy);
    return bytes != 0;
}

/* One run; *got receives the result as dense bytes, malloc'ed. 0 with r->text set when there is none. */
static int execute(run *r, qn_context *context, char **got) {
    const qn_op_info *info = qn_op_describe(r->row->op);
    memset(&r->request, 0, sizeof r->request);
    r->request.size = sizeof r->request;
    r->request.version = QN_REQUEST_VERSION;
    r->request.op = (uint16_t)r->row->op;
    r->request.subop = (uint16_t)r->subop;
    r->request.attr = &r->attr;
    memset(&r->result, 0, sizeof r->result);
    if (!make_sources(r) || !make_destinations(r) || !make_workspace(r)) return 0;
    if (qn_dispatch(context, &r->request, &r->result) != QN_OK) {
        say_rejection(r);
        return 0;
    }
    if (!info->is_view && !(info->n_src > 0 && info->src[0].flags & QN_SLOT_STATE) && !padding_untouched(&r->dst[0])) {
        snprintf(r->text, r->size, "bytes between the elements of the result were written");
        return 0;
    }
    *got = malloc((size_t)r->c->dst.bytes + 1);
    if (*got) move_all(&r->dst[0], *got, 0);
    else snprintf(r->text, r->size, "no memory for the result");
    return *got != NULL;
}

/* A layout that a rule may refuse: some ops want contiguous or untransposed operands. */
static int refused_layout(const qn_result *result) {
    return result->status == QN_UNSUPPORTED || result->reason == QN_REASON_NOT_CONTIGUOUS ||
           result->reason == QN_REASON_TRANSPOSED;
}

static qn_vec_verdict run_both(run *r, qn_context *context, const void *want) {
    char *dense = NULL, *spread = NULL;
    int verdict = 0;
    if (execute(r, context, &dense)) {
        verdict = qn_vec_agrees(r->c, r->row->compare, dense, want, r->source[0], r->text, r->size);
        if (verdict < 0) snprintf(r->text, r->size, "the result could not be decoded");
    }
    give_memory_back(r);
    r->spread = 1;
    if (verdict == 1 && r->row->op != QN_OP_view) { /* whose attributes count bytes of the dense layout */
        if (execute(r, context, &spread)) {
            verdict = memcmp(dense, spread, (size_t)r->c->dst.bytes) == 0;
            if (!verdict) snprintf(r->text, r->size, "strided operands give another result than dense ones");
        } else if (!refused_layout(&r->result)) {
            verdict = 0;
            size_t n = strlen(r->text);
            if (n < r->size) snprintf(r->text + n, r->size - n, " (with strided operands)");
        }
    }
    give_memory_back(r);
    free(dense);
    free(spread);
    if (verdict == 1) return QN_VEC_AGREE;
    return r->result.status == QN_INVALID ? QN_VEC_REJECTED : QN_VEC_VALUES;
}

/* ---- Data */

static void *read_dense(int fd, const qn_vec_tensor *t) {
    char *out = malloc((size_t)t->bytes + 1);
    uint64_t done = 0;
    while (out && done < t->bytes) {
        ssize_t n = pread(fd, out + done, (size_t)(t->bytes - done), (off_t)(t->off + done));
        if (n <= 0) {
            free(out);
            return NULL;
        }
        done += (uint64_t)n;
    }
    return out;
}

/* NULL, or the name of a type we do not know. */
static const char *unknown_type(const qn_vec_case *c) {
    for (int i = 0; i < c->n_src; i++)
        if (c->src[i].present && c->src[i].dtype == QN_DTYPE_NONE) return c->src[i].type;
    return c->dst.dtype == QN_DTYPE_NONE ? c->dst.type : NULL;
}

/* A view's offset and strides count bytes of the memory its source lay in, so the source must have been dense there too. */
static int view_of_dense(const qn_vec_tensor *t) {
    const qn_dtype_info *info = qn_dtype_describe(t->dtype);
    int64_t step = info->bytes;
    for (int axis = 0; axis < QN_VEC_AXES; axis++) {
        if (t->ne[axis] > 1 && t->nb[axis] != step) return 0;
        step *= axis == 0 ? t->ne[0] / info->block : t->ne[axis];
    }
    return 1;
}

qn_vec_verdict qn_vec_run(qn_context *context, const qn_vec_case *c, int data_fd, char *text, size_t size) {
    run r = {.c = c, .text = text, .size = size};
    const char *type = unknown_type(c);
    r.row = qn_vec_find(c, &r.subop);
    if (!r.row) {
        snprintf(text, size, "there is no op of this name");
        return QN_VEC_VALUES;
    }
    if (type) {
        snprintf(text, size, "there is no dtype %s", type);
        return QN_VEC_VALUES;
    }
    if (r.row->op == QN_OP_view && (c->n_src < 1 || !c->src[0].present || !view_of_dense(&c->src[0]))) {
        snprintf(text, size, "a view of strided memory, which the file does not keep");
        return QN_VEC_VALUES;
    }
    void *want = read_dense(data_fd, &c->dst), *source[QN_MAX_SRC] = {0};
    int read = want != NULL;
    for (int i = 0; i < c->n_src && read; i++) {
        if (!c->src[i].present) continue;
        r.source[i] = source[i] = read_dense(data_fd, &c->src[i]);
        read = source[i] != NULL;
    }
    qn_vec_verdict verdict = QN_VEC_BROKEN;
    if (read) {
        r.row->attributes(c, r.subop, &r.attr);
        verdict = run_both(&r, context, want);
    } else {
        snprintf(text, size, "data.bin cannot be read, or memory is short");
    }
    free(want);
    for (int i = 0; i < QN_MAX_SRC; i++) free(source[i]);
    return verdict;
}
