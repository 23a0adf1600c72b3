/* Random damage to a good request. Everything may be damaged but the truth about memory: `data` points to `size` bytes that
 * exist, callbacks are real or absent, and an attribute record has the bytes its op's record has. */
#include <string.h>

#include "check_fuzz.h"

static int64_t number(qc_rng *rng) {
    static const int64_t edges[] = {0,
                                    1,
                                    -1,
                                    2,
                                    -2,
                                    3,
                                    4,
                                    7,
                                    8,
                                    9,
                                    63,
                                    64,
                                    255,
                                    256,
                                    INT32_MAX,
                                    INT32_MIN,
                                    (int64_t)INT32_MAX + 1,
                                    INT64_MAX,
                                    INT64_MIN,
                                    INT64_MAX - 1,
                                    INT64_MAX / 2,
                                    INT64_MAX / 4,
                                    -INT64_MAX,
                                    (int64_t)1 << 62,
                                    (int64_t)1 << 40};
    switch (qc_below(rng, 4)) {
    case 0: return edges[qc_below(rng, (int64_t)(sizeof edges / sizeof edges[0]))];
    case 1: return qc_below(rng, 40) - 8;
    case 2: return (int64_t)(((uint64_t)1 << qc_below(rng, 64)) - (uint64_t)qc_below(rng, 2));
    default: return (int64_t)qc_next(rng);
    }
}

static qn_tensor *any_tensor(qc_built *b, qc_rng *rng) {
    int n = b->c->n_src + 1, k = (int)qc_below(rng, n);
    if (k == b->c->n_src)
        return &b->dst[b->request.n_dst ? qc_below(rng, b->request.n_dst < QN_MAX_DST ? b->request.n_dst : QN_MAX_DST) : 0];
    return &b->src[k];
}

static void spoil_tensor(qc_built *b, qc_rng *rng) {
    qn_tensor *t = any_tensor(b, rng);
    int axis = (int)qc_below(rng, t->rank > 0 && t->rank <= QN_MAX_RANK ? t->rank : QN_MAX_RANK);
    int64_t step = qc_below(rng, 2) ? 1 : -1;
    switch (qc_below(rng, 11)) {
    case 0: t->shape[axis] = number(rng); break;
    case 1: t->shape[axis] = (int64_t)((uint64_t)t->shape[axis] + (uint64_t)step); break;
    case 2: t->stride[axis] = number(rng); break;
    case 3: t->stride[axis] = qc_below(rng, 2) ? 0 : (int64_t)(0 - (uint64_t)t->stride[axis]); break;
    case 4: t->stride[axis] = (int64_t)((uint64_t)t->stride[axis] + (uint64_t)(step * 4)); break;
    case 5: t->offset = number(rng); break;
    case 6: t->rank = (int32_t)(qc_below(rng, 2) ? number(rng) : t->rank + step); break;
    case 7: t->dtype = (uint32_t)(qc_below(rng, 2) ? number(rng) : qc_below(rng, QN_DTYPE_COUNT + 1)); break;
    case 8: t->flags = qc_below(rng, 2) ? (uint32_t)number(rng) : 1u << qc_below(rng, 4); break;
    case 9: t->size = t->size ? (uint64_t)qc_below(rng, (int64_t)t->size) : 0; break;
    default: t->reserved = (int32_t)number(rng); break;
    }
}

/* Other places for the same views: overlaps whole, partial and crossed. */
static void spoil_place(qc_built *b, qc_rng *rng) {
    qn_tensor *t = any_tensor(b, rng), *u = any_tensor(b, rng);
    switch (qc_below(rng, 4)) {
    case 0: t->data = u->data, t->size = u->size; break;
    case 1: *t = *u; break;
    case 2: t->data = u->data, t->size = u->size, t->offset = qc_below(rng, 64); break;
    default: {
        qn_tensor swap = *t;
        *t = *u;
        *u = swap;
    }
    }
}

static void spoil_request(qc_built *b, qc_rng *rng) {
    qn_request *q = &b->request;
    switch (qc_below(rng, 12)) {
    case 0: q->size = (uint32_t)number(rng); break;
    case 1: q->version = (uint16_t)number(rng); break;
    case 2: q->reserved = (uint16_t)number(rng); break;
    case 3: q->subop = (uint16_t)(qc_below(rng, 2) ? qc_below(rng, 30) : number(rng)); break;
    case 4: q->n_src = (uint16_t)(qc_below(rng, 2) ? qc_below(rng, QN_MAX_SRC + 2) : number(rng)); break;
    case 5: q->n_dst = (uint16_t)(qc_below(rng, 2) ? qc_below(rng, QN_MAX_DST + 2) : number(rng)); break;
    case 6: q->src[qc_below(rng, QN_MAX_SRC)] = NULL; break;
    case 7: q->dst[qc_below(rng, QN_MAX_DST)] = NULL; break;
    case 8: q->src[qc_below(rng, QN_MAX_SRC)] = any_tensor(b, rng); break;
    case 9: q->dst[qc_below(rng, QN_MAX_DST)] = any_tensor(b, rng); break;
    case 10: q->attr = NULL; break;
    default: /* another op: its attributes have another record, so it gets none */
        q->op = (uint16_t)(qc_below(rng, 2) ? qc_below(rng, QN_OP_COUNT + 1) : number(rng));
        q->attr = NULL;
        break;
    }
}

static void spoil_workspace(qc_built *b, qc_rng *rng) {
    qn_request *q = &b->request;
    const qn_tensor *t = any_tensor(b, rng);
    switch (qc_below(rng, 3)) {
    case 0: q->workspace_size = q->workspace ? (size_t)qc_below(rng, (int64_t)q->workspace_size) : 0; break;
    case 1:
        if (q->workspace_size < 8) break;
        q->workspace = (char *)q->workspace + 8;
        q->workspace_size -= 8;
        break;
    default: q->workspace = t->data, q->workspace_size = t->size; break;
    }
}

static void spoil_list(qn_dims *d, qc_rng *rng) {
    if (qc_below(rng, 4) == 0) d->rank = (int32_t)(qc_below(rng, 2) ? qc_below(rng, QN_MAX_RANK + 2) : number(rng));
    else d->d[qc_below(rng, QN_MAX_RANK)] = number(rng);
    if (qc_below(rng, 16) == 0) d->reserved = 1;
}

static void spoil_words(qn_code *w, qc_rng *rng) {
    uint32_t *word = &w->w[qc_below(rng, w->count > 0 && w->count <= QN_MAX_WORDS ? w->count : 1)];
    switch (qc_below(rng, 8)) {
    case 0: w->count = (int32_t)(qc_below(rng, 2) ? qc_below(rng, QN_MAX_WORDS + 2) : number(rng)); break;
    case 1: w->reserved = 1; break;
    case 2: w->w[QN_MAX_WORDS - 1] = 1; break;
    case 3: *word = (uint32_t)number(rng); break;
    default: *word ^= 1u << qc_below(rng, 32); break; /* mostly sound still: another kind, operand, dtype */
    }
}

static float any_float(qc_rng *rng) {
    static const float edges[] = {0.0f, -0.0f, 1.0f, -1.0f, 1e-38f, 3e38f, -3e38f, 1e-45f, INFINITY, -INFINITY, NAN, 0.5f};
    return edges[qc_below(rng, (int64_t)(sizeof edges / sizeof edges[0]))];
}

static void spoil_attribute(qc_built *b, qc_rng *rng) {
    const qn_op_info *info = qn_op_describe(b->c->op);
    if (b->request.op != b->c->op) return;
    b->request.attr = b->attr;
    if (info->n_attr == 0 || qc_below(rng, 12) == 0) {
        uint32_t word = (uint32_t)number(rng);
        memcpy((char *)b->attr + 4 * qc_below(rng, 2), &word, sizeof word);
        return;
    }
    const qn_attr_info *a = &info->attr[qc_below(rng, info->n_attr)];
    char *field = (char *)b->attr + a->offset;
    int64_t wide = number(rng);
    int32_t word = (int32_t)(qc_below(rng, 2) ? wide : qc_below(rng, 12));
    float f = any_float(rng);
    switch (a->kind) {
    case QN_ATTR_KIND_f32: memcpy(field, &f, sizeof f); break;
    case QN_ATTR_KIND_i64: memcpy(field, &wide, sizeof wide); break;
    case QN_ATTR_KIND_dims: spoil_list((qn_dims *)(void *)field, rng); break;
    case QN_ATTR_KIND_words: spoil_words((qn_code *)(void *)field, rng); break;
    case QN_ATTR_KIND_fn: memset(field, 0, a->bytes); break;
    default: memcpy(field, &word, sizeof word); break;
    }
}

/* Any bytes at all as the contents of a source: NaN, infinities, scales and indices of every kind. */
static void spoil_data(qc_built *b, qc_rng *rng) {
    qn_tensor *t = any_tensor(b, rng);
    if (!t->data || !qc_arena_contains(t->data) || t->size > 1 << 16) return;
    unsigned char *p = t->data;
    uint64_t from = t->size && qc_below(rng, 2) ? (uint64_t)qc_below(rng, (int64_t)t->size) : 0;
    uint64_t n = qc_below(rng, 2) ? t->size : from + 8 < t->size ? from + 8 : t->size;
    for (uint64_t i = from; i < n; i++) p[i] = (unsigned char)(qc_below(rng, 4) ? qc_next(rng) : 0xff);
}

void qc_spoil(qc_built *b, qc_rng *rng) {
    switch (qc_below(rng, 10)) {
    case 0:
    case 1:
    case 2: spoil_tensor(b, rng); break;
    case 3: spoil_place(b, rng); break;
    case 4:
    case 5: spoil_request(b, rng); break;
    case 6: spoil_workspace(b, rng); break;
    case 7:
    case 8: spoil_attribute(b, rng); break;
    default: spoil_data(b, rng); break;
    }
}

/* Two thousand million calls of a callback are lawful, and too many. */
static void fewer_tasks(qc_built *b) {
    const qn_op_info *info = qn_op_describe(b->c->op);
    for (int i = 0; i < info->n_attr; i++) {
        int32_t n;
        if (strcmp(info->attr[i].name, "n_tasks") != 0) continue;
        memcpy(&n, (char *)b->attr + info->attr[i].offset, sizeof n);
        if (n > 64) n = 64;
        memcpy((char *)b->attr + info->attr[i].offset, &n, sizeof n);
    }
}

void qc_defuse(qc_built *b) {
    enum { MOST = 1 << 14 };
    fewer_tasks(b);
    qn_tensor *all[QN_MAX_SRC + QN_MAX_DST];
    int n = 0;
    for (int i = 0; i < QN_MAX_SRC; i++) all[n++] = &b->src[i];
    for (int i = 0; i < QN_MAX_DST; i++) all[n++] = &b->dst[i];
    for (int i = 0; i < n; i++) {
        qn_tensor *t = all[i];
        if (t->rank < 1 || t->rank > QN_MAX_RANK) continue;
        int64_t count = qc_count(t->rank, t->shape);
        if (count > MOST) t->shape[0] = INT64_MAX; /* too much to run, so too much to be a size */
    }
}
