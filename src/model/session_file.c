/* A sequence on disk: its tokens and the cells of its cache, so that a long prompt is read once. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_limit.h"
#include "base/heap.h"
#include "model/session.h"
#include "run/plan_input.h"

/* What a file must agree with. */
typedef struct cache_head {
    char magic[8];
    uint32_t version, n_layers, n_embd, n_vocab, k, v, heads, heads_kv, key_length, value_length;
    uint64_t weights; /* what tells this model from others of its shape */
    int64_t length;
} cache_head;

/* Not one of base/hash.h, which are others in the next process. */
static uint64_t add_bytes(uint64_t h, const void *bytes, uint64_t n) {
    const unsigned char *at = bytes;
    for (h ^= n; n > 0; n--) h = (h ^ *at++) * UINT64_C(0x100000001B3);
    return h ^ h >> 29;
}

/* A few places of a tensor: who trains a model further changes numbers everywhere, and nobody wants to read them all. */
static uint64_t add_tensor(uint64_t h, const qn_file_tensor *t) {
    enum { PLACES = 4, PIECE = 64 };
    h = add_bytes(h, t->name, strlen(t->name));
    h = add_bytes(h, &t->tensor.dtype, sizeof t->tensor.dtype);
    h = add_bytes(h, t->tensor.shape, (uint64_t)t->tensor.rank * sizeof *t->tensor.shape);
    if (!t->bytes) return h;
    const char *data = (const char *)t->tensor.data + t->tensor.offset;
    uint64_t piece = t->bytes < PIECE ? t->bytes : PIECE, step = (t->bytes - piece) / (PLACES - 1);
    for (uint64_t i = 0; i < PLACES; i++) h = add_bytes(h, data + i * step, piece);
    return h;
}

/* The model's own keys and tensors, and which of two sets of rope factors its keys were turned by. */
static uint64_t weights_of(const qn_session *s) {
    qn_file_value v;
    qn_file_tensor t;
    const char *arch = s->m->arch->name;
    size_t n = strlen(arch);
    int is_long = s->m->arch->has & QN_HAS_ROPE_FACTORS && s->shape.context > s->m->h.rope_context;
    uint64_t h = add_bytes(0, arch, n) + (uint64_t)is_long;
    for (int64_t i = 0; qn_file_key(s->m->file, i, &v) == QN_OK; i++) {
        if (strncmp(v.name, arch, n) != 0 || v.name[n] != '.') continue;
        h = add_bytes(h, v.name, strlen(v.name));
        h = v.text ? add_bytes(h, v.text, v.bytes) : add_bytes(h, &v.number, sizeof v.number);
    }
    for (int64_t i = 0; qn_file_entry(s->m->file, i, &t) == QN_OK; i++) h = add_tensor(h, &t);
    return h;
}

static cache_head head_of(const qn_session *s, int64_t length) {
    const qn_hparams *h = &s->m->h;
    cache_head head;
    memset(&head, 0, sizeof head);
    memcpy(head.magic, "QNCACHE", 8);
    head.version = 2;
    head.n_layers = (uint32_t)h->n_layers;
    head.n_embd = (uint32_t)h->n_embd;
    head.n_vocab = (uint32_t)h->n_vocab;
    head.k = (uint32_t)s->shape.k;
    head.v = (uint32_t)s->shape.v;
    head.heads = (uint32_t)h->layers[0].heads;
    head.heads_kv = (uint32_t)h->layers[0].heads_kv;
    head.key_length = (uint32_t)h->key_length;
    head.value_length = (uint32_t)h->value_length;
    head.weights = weights_of(s);
    head.length = length;
    return head;
}

/* Bytes of a row of a layer's cache. */
static uint64_t row_bytes(const qn_session *s, int layer, int is_v) {
    uint64_t bytes = 0;
    int64_t width = s->m->h.layers[layer].heads_kv * (int64_t)(is_v ? s->m->h.value_length : s->m->h.key_length);
    qn_tensor_bytes(is_v ? s->shape.v : s->shape.k, 1, &width, &bytes);
    return bytes;
}

/* The cells of a sequence's tokens, one cache after the other, as they lie in a file. */
typedef struct cells {
    char name[64]; /* of the param */
    uint64_t offset, bytes;
} cells;

/* Cache by number: the keys of a layer, then its values. */
static cells cells_at(const qn_session *s, int32_t sequence, int64_t length, int number) {
    cells c;
    uint64_t row = row_bytes(s, number / 2, number % 2);
    snprintf(c.name, sizeof c.name, "cache.%s.%d", number % 2 ? "v" : "k", number / 2);
    c.offset = row * (uint64_t)(sequence * s->shape.context);
    c.bytes = row * (uint64_t)length;
    return c;
}

static qn_status cannot_write(const char *path, qn_error *error) {
    return qn_error_set(error, QN_IO, "%s cannot be written: %s", path, strerror(errno));
}

static qn_status write_cells(qn_session *s, int32_t sequence, int64_t length, FILE *file, const char *path, qn_error *error) {
    qn_status status = QN_OK;
    for (int i = 0; i < 2 * s->m->h.n_layers && status == QN_OK; i++) {
        cells c = cells_at(s, sequence, length, i);
        void *buffer = qn_heap_alloc((size_t)c.bytes);
        if (!buffer) return qn_error_set(error, QN_NO_MEMORY, "no memory for %llu bytes of cache", (unsigned long long)c.bytes);
        status = qn_plan_param_read(s->plan, c.name, c.offset, buffer, c.bytes, error);
        if (status == QN_OK && fwrite(buffer, 1, (size_t)c.bytes, file) != c.bytes) status = cannot_write(path, error);
        qn_heap_free(buffer);
    }
    return status;
}

/* What can fail comes first; what changes the cache cannot: it changes as a whole or not at all. */
static qn_status put_cells(qn_session *s, int32_t sequence, int64_t length, const char *from, qn_error *error) {
    void *at;
    for (int i = 0; i < 2 * s->m->h.n_layers; i++)
        QN_TRY(qn_plan_param_room(s->plan, cells_at(s, sequence, length, i).name, &at, error));
    for (int i = 0; i < 2 * s->m->h.n_layers; i++) {
        cells c = cells_at(s, sequence, length, i);
        QN_TRY(qn_plan_param_room(s->plan, c.name, &at, error)); /* it is here by now */
        memcpy((char *)at + c.offset, from, (size_t)c.bytes);
        qn_plan_param_written(s->plan, c.name);
        from += c.bytes;
    }
    return QN_OK;
}

static qn_status read_cells(qn_session *s, int32_t sequence, int64_t length, uint64_t bytes, FILE *file, qn_error *error) {
    char *buffer = qn_heap_alloc((size_t)bytes + 1);
    if (!buffer) return qn_error_set(error, QN_NO_MEMORY, "no memory for %llu bytes of cache", (unsigned long long)bytes);
    qn_status status = fread(buffer, 1, (size_t)bytes, file) == bytes
                           ? put_cells(s, sequence, length, buffer, error)
                           : qn_error_set(error, QN_FORMAT, "the cache file ends too early");
    qn_heap_free(buffer);
    return status;
}

/* Whether a file is there, not empty, and no cache: a wrong name must not cost somebody his model or his notes. */
static int holds_something_else(const char *path) {
    char magic[8] = "";
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    size_t n = fread(magic, 1, sizeof magic, file);
    fclose(file);
    return n > 0 && memcmp(magic, "QNCACHE", n) != 0;
}

/* Into a new file, which is closed; path is the name it will have. */
static qn_status write_sequence(qn_session *s, int32_t sequence, int fd, const char *path, qn_error *error) {
    const qn_sequence *q = &s->sequences[sequence];
    cache_head head = head_of(s, q->length);
    qn_file_limit limit;
    FILE *file = fdopen(fd, "wb");
    if (!file) {
        cannot_write(path, error);
        close(fd);
        return QN_IO;
    }
    qn_file_limit_hold(&limit);
    qn_status status = QN_OK;
    if (fwrite(&head, sizeof head, 1, file) != 1 || fwrite(q->ids, sizeof *q->ids, (size_t)q->length, file) != (size_t)q->length)
        status = cannot_write(path, error);
    if (status == QN_OK && q->length) status = write_cells(s, sequence, q->length, file, path, error);
    if (status == QN_OK && (fflush(file) != 0 || fsync(fd) != 0)) status = cannot_write(path, error);
    if (fclose(file) != 0 && status == QN_OK) status = cannot_write(path, error);
    qn_file_limit_release(&limit);
    return status;
}

/* Written beside and moved into place, so that a full disk leaves what was there; which must be a file, not a device or a pipe. */
qn_status qn_session_save(qn_session *s, int32_t sequence, const char *path, qn_error *error) {
    if (!s || !path || sequence < 0 || sequence >= s->shape.sequences)
        return qn_error_set(error, QN_ARGUMENT, "a session, a sequence of it and a path are needed");
    struct stat there;
    char behind[PATH_MAX]; /* a link, which stays */
    int exists = stat(path, &there) == 0;
    if (exists && !S_ISREG(there.st_mode))
        return qn_error_set(error, QN_IO, "%s cannot be written: it is not a regular file", path);
    if (exists && realpath(path, behind)) path = behind;
    if (holds_something_else(path)) return qn_error_set(error, QN_IO, "%s is left as it is: it is no cache file", path);
    size_t size = strlen(path) + 8;
    char *beside = qn_heap_alloc(size);
    if (!beside) return qn_error_set(error, QN_NO_MEMORY, "no memory for a path");
    snprintf(beside, size, "%s.XXXXXX", path);
    qn_status status = QN_OK;
    int fd = mkstemp(beside);
    if (fd < 0) status = cannot_write(path, error);
    else {
        status = write_sequence(s, sequence, fd, path, error);
        if (status == QN_OK && rename(beside, path) != 0) status = cannot_write(path, error);
        if (status != QN_OK) unlink(beside);
    }
    qn_heap_free(beside);
    return status;
}

static qn_status check_head(const qn_session *s, const cache_head *head, const char *path, qn_error *error) {
    cache_head want = head_of(s, head->length);
    if (memcmp(head->magic, want.magic, sizeof want.magic) != 0)
        return qn_error_set(error, QN_FORMAT, "%s is no cache file", path);
    if (memcmp(head, &want, sizeof want) != 0)
        return qn_error_set(error, QN_INVALID, "%s belongs to another model or another kind of cache", path);
    if (head->length < 1 || head->length > s->context)
        return qn_error_set(error, QN_INVALID, "%s holds %lld tokens, the context has room for %lld", path,
                            (long long)head->length, (long long)s->context);
    return QN_OK;
}

static qn_status load(qn_session *s, int32_t sequence, FILE *file, const char *path, const int32_t *ids, int64_t n,
                      qn_error *error) {
    cache_head head;
    if (fread(&head, sizeof head, 1, file) != 1) return qn_error_set(error, QN_FORMAT, "%s is no cache file", path);
    QN_TRY(check_head(s, &head, path, error));
    uint64_t all = 0;
    for (int i = 0; i < 2 * s->m->h.n_layers; i++) all += cells_at(s, sequence, head.length, i).bytes;
    long at = ftell(file);
    if (fseek(file, 0, SEEK_END) != 0 || at < 0 || (uint64_t)ftell(file) != (uint64_t)at + all + 4 * (uint64_t)head.length ||
        fseek(file, at, SEEK_SET) != 0)
        return qn_error_set(error, QN_FORMAT, "%s is cut short or has bytes behind its end", path);
    int32_t *have = qn_heap_zeroed((size_t)head.length, sizeof *have);
    if (!have) return qn_error_set(error, QN_NO_MEMORY, "no memory for %lld tokens", (long long)head.length);
    qn_status status = fread(have, sizeof *have, (size_t)head.length, file) == (size_t)head.length
                           ? QN_OK
                           : qn_error_set(error, QN_FORMAT, "%s ends too early", path);
    for (int64_t i = 0; ids && i < head.length && status == QN_OK; i++)
        if (i >= n || ids[i] != have[i])
            status = qn_error_set(error, QN_INVALID, "%s holds another text: token %lld differs", path, (long long)i);
    for (int64_t i = 0; i < head.length && status == QN_OK; i++)
        if (have[i] < 0 || have[i] >= s->m->h.n_vocab)
            status = qn_error_set(error, QN_FORMAT, "%s: token %lld is none", path, (long long)i);
    if (status == QN_OK) status = qn_session_need_cache(s, error);
    if (status == QN_OK) status = read_cells(s, sequence, head.length, all, file, error);
    if (status == QN_OK) {
        memcpy(s->sequences[sequence].ids, have, (size_t)head.length * sizeof *have);
        s->sequences[sequence].length = head.length;
    }
    qn_heap_free(have);
    return status;
}

qn_status qn_session_load(qn_session *s, int32_t sequence, const char *path, const int32_t *ids, int64_t n, qn_error *error) {
    if (!s || !path || sequence < 0 || sequence >= s->shape.sequences)
        return qn_error_set(error, QN_ARGUMENT, "a session, a sequence of it and a path are needed");
    FILE *file = fopen(path, "rb");
    if (!file) return qn_error_set(error, QN_IO, "%s: %s", path, strerror(errno));
    qn_status status = load(s, sequence, file, path, ids, n, error);
    fclose(file);
    return status;
}
