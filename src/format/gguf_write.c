/* The GGUF writer. Keys and tensor infos gather in memory; the first byte of data fixes them and writes the header, and from there on
 * data goes straight to a file beside the wanted one, which takes its name when all of it is on the disk. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <quern/format.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file_limit.h"
#include "base/memory.h"
#include "format/file.h"

enum { VERSION = 3, DEFAULT_ALIGNMENT = 32, LARGEST_ALIGNMENT = 1 << 21, PATH_ROOM = 4096, TRIES = 1000, WRITE_PIECE = 1 << 30 };

typedef struct buffer {
    uint8_t *at;
    size_t n, cap;
} buffer;

typedef struct planned {
    const char *name;
    uint64_t bytes, offset;
} planned;

struct qn_writer {
    qn_arena arena;
    char path[PATH_ROOM], part[PATH_ROOM];
    int fd;
    qn_error error; /* the first, which sticks */
    buffer keys, infos;
    QN_VEC(const char *) key_names;
    QN_VEC(planned) tensors;
    uint32_t alignment;
    int writing;        /* the header is out */
    size_t current;     /* tensor whose bytes come next */
    uint64_t of_it;     /* bytes of it that came */
    uint64_t next_data; /* offset of the next tensor to be announced */
    uint64_t at;        /* bytes written */
};

static qn_status stuck(const qn_writer *w) { return w->error.status; }

/* ---- Gathering */

static qn_status no_memory(qn_writer *w) {
    return qn_error_set(&w->error, QN_NO_MEMORY, "%s: no memory for the header", w->path);
}

static qn_status append(qn_writer *w, buffer *b, const void *data, uint64_t bytes) {
    if (bytes > SIZE_MAX / 4) return no_memory(w);
    if (!QN_VEC_ROOM(&w->arena, b, (size_t)bytes)) return no_memory(w);
    if (bytes) memcpy(b->at + b->n, data, (size_t)bytes);
    b->n += (size_t)bytes;
    return QN_OK;
}

static qn_status append_number(qn_writer *w, buffer *b, uint64_t v, int bytes) {
    uint8_t packed[8];
    for (int i = 0; i < 8; i++) packed[i] = (uint8_t)(v >> 8 * i);
    return append(w, b, packed, (uint64_t)bytes);
}

static qn_status append_name(qn_writer *w, buffer *b, const char *name) {
    const char *fault = name ? qn_format_name_fault(name, strlen(name)) : "there is no name";
    char shown[QN_FORMAT_SHOWN];
    if (fault)
        return qn_error_set(&w->error, QN_ARGUMENT, "%s: '%s': %s", w->path,
                            qn_format_name_show(name ? name : "", name ? strlen(name) : 0, shown), fault);
    qn_status status = append_number(w, b, strlen(name), 8);
    return status == QN_OK ? append(w, b, name, strlen(name)) : status;
}

static qn_status append_value(qn_writer *w, const qn_file_value *v) {
    buffer *b = &w->keys;
    uint64_t fixed = qn_format_type_bytes(v->type);
    float narrow = (float)v->number;
    uint64_t bits = (uint64_t)v->integer;
    if (v->type == QN_KEY_F32) {
        uint32_t word;
        memcpy(&word, &narrow, sizeof word);
        bits = word;
    }
    if (v->type == QN_KEY_F64) memcpy(&bits, &v->number, sizeof bits);
    if (v->type == QN_KEY_BOOL) bits = v->integer != 0;
    if (fixed) return append_number(w, b, bits, (int)fixed);
    qn_status status = QN_OK;
    if (v->type == QN_KEY_ARRAY) status = append_number(w, b, v->item, 4);
    if (status == QN_OK) status = append_number(w, b, v->type == QN_KEY_ARRAY ? v->count : v->bytes, 8);
    return status == QN_OK ? append(w, b, v->text, v->bytes) : status;
}

/* What was appended from `from` on must read back; alignment is taken from it. */
static qn_status check_value(qn_writer *w, const qn_file_value *v, size_t from) {
    qn_format_fault fault;
    uint64_t bytes = qn_format_value_measure(v->type, w->keys.at + from, w->keys.n - from, &fault);
    if (bytes != w->keys.n - from)
        return qn_error_set(&w->error, QN_ARGUMENT, "%s: key '%s': %s", w->path, v->name,
                            bytes ? "bytes are left behind its last item" : fault.why);
    if (strcmp(v->name, "general.alignment") != 0) return QN_OK;
    if (v->type != QN_KEY_U32 || v->integer < QN_FORMAT_ALIGN || v->integer > LARGEST_ALIGNMENT || v->integer & (v->integer - 1))
        return qn_error_set(&w->error, QN_ARGUMENT, "%s: general.alignment must be a u32, a power of two from %d to %d", w->path,
                            QN_FORMAT_ALIGN, LARGEST_ALIGNMENT);
    if (w->tensors.n) return qn_error_set(&w->error, QN_ARGUMENT, "%s: general.alignment comes in front of the tensors", w->path);
    w->alignment = (uint32_t)v->integer;
    return QN_OK;
}

qn_status qn_writer_key(qn_writer *w, const qn_file_value *value) {
    if (!w || !value) return QN_ARGUMENT;
    if (stuck(w)) return stuck(w);
    if (w->writing) return qn_error_set(&w->error, QN_ARGUMENT, "%s: a key after the first data", w->path);
    if (value->bytes && !value->text)
        return qn_error_set(&w->error, QN_ARGUMENT, "%s: a key of bytes that are not there", w->path);
    if (!qn_format_type_bytes(value->type) && value->type != QN_KEY_STRING && value->type != QN_KEY_ARRAY)
        return qn_error_set(&w->error, QN_ARGUMENT, "%s: a key of unknown type %d", w->path, (int)value->type);
    qn_status status = append_name(w, &w->keys, value->name);
    if (status == QN_OK) status = append_number(w, &w->keys, value->type, 4);
    size_t from = w->keys.n;
    if (status == QN_OK) status = append_value(w, value);
    if (status == QN_OK) status = check_value(w, value, from);
    if (status != QN_OK) return status;
    if (!QN_VEC_ROOM(&w->arena, &w->key_names, 1)) return no_memory(w);
    char *copy = qn_arena_alloc(&w->arena, strlen(value->name) + 1, 1);
    if (!copy) return no_memory(w);
    w->key_names.at[w->key_names.n++] = strcpy(copy, value->name);
    return QN_OK;
}

static uint64_t padded(const qn_writer *w, uint64_t bytes) { return (bytes + w->alignment - 1) / w->alignment * w->alignment; }

qn_status qn_writer_tensor(qn_writer *w, const char *name, const qn_tensor *t) {
    planned p = {name, 0, 0};
    if (!w || !t) return QN_ARGUMENT;
    if (stuck(w)) return stuck(w);
    if (w->writing) return qn_error_set(&w->error, QN_ARGUMENT, "%s: a tensor after the first data", w->path);
    const qn_dtype_info *d = qn_dtype_describe((qn_dtype)t->dtype);
    if (!d || d->gguf < 0)
        return qn_error_set(&w->error, QN_UNSUPPORTED, "%s: tensor '%s': GGUF has no type for %s", w->path, name ? name : "",
                            d ? d->name : "its dtype");
    if (qn_tensor_bytes((qn_dtype)t->dtype, t->rank, t->shape, &p.bytes) != QN_OK || p.bytes > (uint64_t)INT64_MAX / 4 ||
        w->next_data > (uint64_t)INT64_MAX / 4)
        return qn_error_set(&w->error, QN_ARGUMENT,
                            "%s: tensor '%s': its size overflows, or a row is not a whole number of blocks", w->path,
                            name ? name : "");
    p.offset = w->next_data;
    buffer *b = &w->infos;
    qn_status status = append_name(w, b, name);
    if (status == QN_OK) status = append_number(w, b, (uint64_t)t->rank, 4);
    for (int i = t->rank - 1; i >= 0 && status == QN_OK; i--) status = append_number(w, b, (uint64_t)t->shape[i], 8);
    if (status == QN_OK) status = append_number(w, b, (uint64_t)d->gguf, 4);
    if (status == QN_OK) status = append_number(w, b, p.offset, 8);
    if (status != QN_OK) return status;
    char *copy = qn_arena_alloc(&w->arena, strlen(name) + 1, 1);
    if (!copy || !QN_VEC_ROOM(&w->arena, &w->tensors, 1)) return no_memory(w);
    p.name = strcpy(copy, name);
    w->tensors.at[w->tensors.n++] = p;
    w->next_data = padded(w, p.offset + p.bytes);
    return QN_OK;
}

/* ---- Writing */

static qn_status put(qn_writer *w, const void *data, uint64_t bytes) {
    for (uint64_t done = 0; done < bytes;) {
        size_t piece = bytes - done < WRITE_PIECE ? (size_t)(bytes - done) : WRITE_PIECE;
        qn_file_limit limit;
        qn_file_limit_hold(&limit);
        ssize_t n = write(w->fd, (const char *)data + done, piece);
        qn_file_limit_release(&limit);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return qn_error_set(&w->error, QN_IO, "%s: writing byte %" PRIu64 ": %s", w->path, w->at + done,
                                n < 0 ? strerror(errno) : "the disk took nothing");
        done += (uint64_t)n;
    }
    w->at += bytes;
    return QN_OK;
}

static qn_status put_zeros(qn_writer *w, uint64_t bytes) {
    static const char zeros[4096];
    qn_status status = QN_OK;
    while (bytes && status == QN_OK) {
        uint64_t piece = bytes < sizeof zeros ? bytes : sizeof zeros;
        status = put(w, zeros, piece);
        bytes -= piece;
    }
    return status;
}

/* A disk that is too full is found out before hours of work, not after them. Systems that cannot reserve are let be. */
static qn_status reserve(qn_writer *w, uint64_t bytes) {
    qn_file_limit limit;
    qn_file_limit_hold(&limit);
    int failed = posix_fallocate(w->fd, 0, (off_t)bytes);
    qn_file_limit_release(&limit);
    if (failed != ENOSPC && failed != EFBIG && failed != EDQUOT) return QN_OK;
    return qn_error_set(&w->error, QN_IO, "%s: no room for its %" PRIu64 " bytes: %s", w->path, bytes, strerror(failed));
}

/* Tensors without bytes end as soon as it is their turn. */
static void pass_empty(qn_writer *w) {
    while (w->current < w->tensors.n && w->tensors.at[w->current].bytes == 0) w->current++;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Names that are there twice make a file that no reader takes. */
static qn_status check_names(qn_writer *w, const char *kind, const char **names, size_t n) {
    if (n) qsort(names, n, sizeof *names, by_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return qn_error_set(&w->error, QN_ARGUMENT, "%s: %s '%s' is there twice", w->path, kind, names[i]);
    return QN_OK;
}

static qn_status check_all_names(qn_writer *w) {
    const char **names = qn_arena_resize(&w->arena, NULL, w->tensors.n + 1, sizeof *names);
    if (!names) return no_memory(w);
    for (size_t i = 0; i < w->tensors.n; i++) names[i] = w->tensors.at[i].name;
    qn_status status = check_names(w, "tensor", names, w->tensors.n);
    return status == QN_OK ? check_names(w, "key", w->key_names.at, w->key_names.n) : status;
}

static qn_status begin_data(qn_writer *w) {
    buffer head = {0};
    qn_status status = check_all_names(w);
    if (status == QN_OK) status = append(w, &head, "GGUF", 4);
    if (status == QN_OK) status = append_number(w, &head, VERSION, 4);
    if (status == QN_OK) status = append_number(w, &head, w->tensors.n, 8);
    if (status == QN_OK) status = append_number(w, &head, w->key_names.n, 8);
    w->writing = 1;
    uint64_t header = (uint64_t)head.n + w->keys.n + w->infos.n, data = padded(w, header);
    if (status == QN_OK) status = reserve(w, data + w->next_data);
    if (status == QN_OK) status = put(w, head.at, head.n);
    if (status == QN_OK) status = put(w, w->keys.at, w->keys.n);
    if (status == QN_OK) status = put(w, w->infos.at, w->infos.n);
    if (status == QN_OK) status = put_zeros(w, data - header);
    pass_empty(w);
    return status;
}

qn_status qn_writer_data(qn_writer *w, const void *data, uint64_t bytes) {
    if (!w || (bytes && !data)) return QN_ARGUMENT;
    qn_status status = stuck(w);
    if (!status && !w->writing) status = begin_data(w);
    const char *from = data;
    while (bytes && status == QN_OK) {
        if (w->current == w->tensors.n)
            return qn_error_set(&w->error, QN_ARGUMENT, "%s: %" PRIu64 " bytes of data behind the last tensor", w->path, bytes);
        const planned *p = &w->tensors.at[w->current];
        uint64_t piece = p->bytes - w->of_it < bytes ? p->bytes - w->of_it : bytes;
        status = put(w, from, piece);
        from += piece;
        bytes -= piece;
        w->of_it += piece;
        if (status != QN_OK || w->of_it < p->bytes) continue;
        status = put_zeros(w, padded(w, p->bytes) - p->bytes);
        w->of_it = 0;
        w->current++;
        pass_empty(w);
    }
    return status;
}

/* ---- Beginning and end */

/* A link stays, and the file behind it is what is replaced: /dev/stdout is a link as well. */
static qn_status follow_links(qn_writer *w) {
    _Static_assert(PATH_ROOM >= PATH_MAX, "realpath writes up to PATH_MAX bytes");
    if (!realpath(w->path, w->part)) return qn_error_set(&w->error, QN_IO, "%s: %s", w->path, strerror(errno));
    strcpy(w->path, w->part);
    return QN_OK;
}

/* Opens a file beside the wanted one that nobody else has. */
static qn_status open_part(qn_writer *w) {
    struct stat s;
    int there = stat(w->path, &s) == 0;
    if (there && !S_ISREG(s.st_mode))
        return qn_error_set(&w->error, QN_IO, "%s: this is not a regular file, and will not be replaced", w->path);
    if (there && follow_links(w) != QN_OK) return stuck(w);
    for (int i = 0; i < TRIES; i++) {
        if (snprintf(w->part, sizeof w->part, "%s.part-%ld-%d", w->path, (long)getpid(), i) >= (int)sizeof w->part)
            return qn_error_set(&w->error, QN_ARGUMENT, "%.100s...: the path is too long", w->path);
        w->fd = open(w->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->fd >= 0) return QN_OK;
        if (errno != EEXIST) break;
    }
    return qn_error_set(&w->error, QN_IO, "%s: cannot be created: %s", w->path, strerror(errno));
}

static void destroy(qn_writer *w) {
    qn_allocator memory = qn_memory_default();
    qn_arena_destroy(&w->arena);
    memory.release(memory.user, w, sizeof *w);
}

qn_status qn_writer_create(const char *path, qn_writer **out, qn_error *error) {
    qn_allocator memory = qn_memory_default();
    if (error) *error = (qn_error){0};
    if (!path || !*path || !out)
        return qn_error_set(error, QN_ARGUMENT, "qn_writer_create needs a path and a place for the writer");
    *out = NULL;
    if (strlen(path) >= PATH_ROOM) return qn_error_set(error, QN_ARGUMENT, "%.100s...: the path is too long", path);
    qn_writer *w = memory.allocate(memory.user, sizeof *w, _Alignof(qn_writer));
    if (!w) return qn_error_set(error, QN_NO_MEMORY, "%s: no memory", path);
    memset(w, 0, sizeof *w);
    qn_arena_init(&w->arena, 0);
    w->alignment = DEFAULT_ALIGNMENT;
    strcpy(w->path, path);
    qn_status status = open_part(w);
    if (status == QN_OK) {
        *out = w;
        return QN_OK;
    }
    if (error) *error = w->error;
    destroy(w);
    return status;
}

/* The file takes its name; and the folder knows it even if the power fails now. */
static qn_status put_in_place(qn_writer *w) {
    if (fsync(w->fd) != 0) return qn_error_set(&w->error, QN_IO, "%s: %s", w->path, strerror(errno));
    int failed = close(w->fd);
    w->fd = -1;
    if (failed || rename(w->part, w->path) != 0) return qn_error_set(&w->error, QN_IO, "%s: %s", w->path, strerror(errno));
    char *slash = strrchr(w->part, '/');
    if (slash) slash[slash == w->part] = 0;
    int folder = open(slash ? w->part : ".", O_RDONLY | O_CLOEXEC);
    w->part[0] = 0;
    if (folder < 0) return QN_OK; /* it may be written but not read: the file is there all the same */
    fsync(folder);
    close(folder);
    return QN_OK;
}

qn_status qn_writer_finish(qn_writer *w, int keep, qn_error *error) {
    if (error) *error = (qn_error){0};
    if (!w) return QN_OK;
    qn_status status = keep ? qn_writer_data(w, NULL, 0) : QN_OK;
    if (keep && status == QN_OK && w->current < w->tensors.n) {
        const planned *p = &w->tensors.at[w->current];
        status = qn_error_set(&w->error, QN_ARGUMENT, "%s: tensor '%s' lacks %" PRIu64 " of its %" PRIu64 " bytes", w->path,
                              p->name, p->bytes - w->of_it, p->bytes);
    }
    if (keep && status == QN_OK) status = put_in_place(w);
    if (w->fd >= 0) close(w->fd);
    if (w->part[0] && (!keep || status != QN_OK)) unlink(w->part);
    if (error) *error = w->error;
    destroy(w);
    return status;
}
