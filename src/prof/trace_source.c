/* Reading and unpacking. Text goes through one window. What is kept of it grows with its events, so gzip data that unpacks far better
 * than any trace is taken for a bomb and ends with an error; so does text beyond max_text. */
#include "prof/trace_source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cancel.h"
#include "prof/crc32.h"
#include "prof/inflate.h"
#include "prof/json_scan.h"

/* Events all alike but for their times and ids pack to a 55th of their size. */
enum { MOST_TIMES = 200, SMALL_TEXT = 256 * 1024 * 1024 };
enum { PACKED_BYTES = 128 * 1024, WINDOW_BYTES = 512 * 1024, LARGEST_WINDOW = 256 * 1024 * 1024 };

struct prof_source {
    qn_arena *arena;
    const char *path;
    qn_profile_options options;
    int fd, gz, in_member;
    uint64_t done, total, text; /* stored bytes read and expected; unpacked bytes given */
    unsigned char *packed;      /* stored bytes of a gzip file; those not used yet are z's input */
    prof_inflate z;
    uint64_t length; /* of the gzip member's text so far */
    uint32_t crc;
};

int qn_prof_is_gz(const char *path) {
    size_t length = strlen(path);
    return length >= 3 && strcmp(path + length - 3, ".gz") == 0;
}

static qn_status read_some(prof_source *source, void *into, size_t room, size_t *got, qn_error *error) {
    ssize_t n;
    do {
        n = read(source->fd, into, room);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return qn_error_set(error, QN_IO, "%s: cannot read: %s", source->path, strerror(errno));
    }
    *got = (size_t)n;
    source->done += (uint64_t)n;
    if (source->options.progress) {
        source->options.progress(source->options.progress_user, source->path, source->done, source->total);
    }
    return QN_OK;
}

static size_t unread(const prof_source *source) { return (size_t)(source->z.in_end - source->z.in); }

/* Reads more behind what is not used yet. */
static qn_status take_packed(prof_source *source, qn_error *error) {
    size_t kept = unread(source), got;
    memmove(source->packed, source->z.in, kept);
    qn_status status = read_some(source, source->packed + kept, PACKED_BYTES - kept, &got, error);
    source->z.in = source->packed;
    source->z.in_end = source->packed + kept + (status == QN_OK ? got : 0);
    source->z.last = status == QN_OK && got == 0;
    return status;
}

static qn_status gz_error(const prof_source *source, const char *why, qn_error *error) {
    return qn_error_set(error, QN_FORMAT, "%s: stored byte %llu: not valid gzip: %s", source->path,
                        (unsigned long long)(source->done - unread(source)), why);
}

static qn_status gz_ends(const prof_source *source, uint64_t unpacked, qn_error *error) {
    return qn_error_set(error, QN_FORMAT, "%s: stored byte %llu: the gzip data ends too early (unpacked byte %llu)", source->path,
                        (unsigned long long)source->done, (unsigned long long)unpacked);
}

/* The next n bytes of the frame; NULL passes over them. */
static qn_status take_bytes(prof_source *source, unsigned char *into, size_t n, qn_error *error) {
    for (size_t i = 0; i < n; i++) {
        if (unread(source) == 0) {
            qn_status status = take_packed(source, error);
            if (status != QN_OK || unread(source) == 0) {
                return status != QN_OK ? status : gz_ends(source, source->text, error);
            }
        }
        unsigned char c = *source->z.in++;
        if (into) {
            into[i] = c;
        }
    }
    return QN_OK;
}

static qn_status pass_text(prof_source *source, qn_error *error) { /* a file name or comment, with its 0 */
    unsigned char c;
    qn_status status;
    do {
        status = take_bytes(source, &c, 1, error);
    } while (status == QN_OK && c);
    return status;
}

static qn_status take_header(prof_source *source, qn_error *error) {
    enum { DEFLATED = 8, HAS_CRC = 2, HAS_EXTRA = 4, HAS_NAME = 8, HAS_COMMENT = 16, RESERVED = 0xe0 };
    unsigned char head[10], size[2] = {0};
    uint64_t at = source->done - unread(source);
    qn_status status = take_bytes(source, head, sizeof head, error);
    int found = status == QN_OK && head[0] == 0x1f && head[1] == 0x8b;
    if (at > 0 && !found && (status == QN_OK || status == QN_FORMAT)) {
        return qn_error_set(error, QN_FORMAT, "%s: stored byte %llu: what follows the gzip data is not gzip", source->path,
                            (unsigned long long)at);
    }
    if (status != QN_OK) {
        return status;
    }
    if (!found || head[2] != DEFLATED || (head[3] & RESERVED)) {
        return qn_error_set(error, QN_FORMAT, "%s: stored byte %llu: the file's name ends in .gz, but this is no gzip header",
                            source->path, (unsigned long long)at);
    }
    if (head[3] & HAS_EXTRA) {
        status = take_bytes(source, size, 2, error);
        status = status == QN_OK ? take_bytes(source, NULL, size[0] + 256u * size[1], error) : status;
    }
    if (status == QN_OK && (head[3] & HAS_NAME)) {
        status = pass_text(source, error);
    }
    if (status == QN_OK && (head[3] & HAS_COMMENT)) {
        status = pass_text(source, error);
    }
    if (status == QN_OK && (head[3] & HAS_CRC)) {
        status = take_bytes(source, NULL, 2, error);
    }
    qn_prof_inflate_begin(&source->z);
    source->crc = 0;
    source->length = 0;
    source->in_member = 1;
    return status;
}

static uint32_t little_endian(const unsigned char *at) {
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static qn_status take_trailer(prof_source *source, qn_error *error) {
    unsigned char tail[8];
    source->in_member = 0;
    qn_status status = take_bytes(source, tail, sizeof tail, error);
    if (status == QN_OK && (little_endian(tail) != source->crc || little_endian(tail + 4) != (uint32_t)source->length)) {
        return gz_error(source, "the checksum does not match, the data is damaged", error);
    }
    return status;
}

/* At the start and between members: zero padding ends the file, a header begins the next member, anything else is not gzip. */
static qn_status next_member(prof_source *source, int *finished, qn_error *error) {
    int first = source->done == 0;
    *finished = 0;
    for (;;) {
        while (!first && unread(source) && *source->z.in == 0) {
            source->z.in++;
        }
        if (first || unread(source)) {
            return take_header(source, error);
        }
        qn_status status = take_packed(source, error);
        *finished = unread(source) == 0;
        if (status != QN_OK || *finished) {
            return status;
        }
    }
}

/* Unpacks what there is into what room there is. */
static qn_status inflate_some(prof_source *source, char **out, char *end, uint64_t text, qn_error *error) {
    char *from = *out;
    size_t history = source->length < PROF_INFLATE_HISTORY ? (size_t)source->length : PROF_INFLATE_HISTORY;
    prof_inflate_result result = qn_prof_inflate(&source->z, from - history, out, end);
    size_t made = (size_t)(*out - from);
    source->crc = qn_prof_crc32(source->crc, from, made);
    source->length += made;
    switch (result) {
    case PROF_INFLATE_MORE: return take_packed(source, error);
    case PROF_INFLATE_END: return take_trailer(source, error);
    case PROF_INFLATE_CUT: return gz_ends(source, text + made, error);
    case PROF_INFLATE_BAD: return gz_error(source, source->z.why, error);
    default: return QN_OK;
    }
}

static qn_status read_gz(prof_source *source, char *into, size_t room, size_t *got, qn_error *error) {
    qn_status status = QN_OK;
    int finished = 0;
    char *out = into, *end = into + room;
    while (status == QN_OK && out < end && !finished) {
        status = source->in_member ? inflate_some(source, &out, end, source->text + (uint64_t)(out - into), error)
                                   : next_member(source, &finished, error);
    }
    *got = (size_t)(out - into);
    return status;
}

static qn_status read_plain(prof_source *source, char *into, size_t room, size_t *got, qn_error *error) {
    *got = 0;
    while (*got < room) {
        size_t n;
        qn_status status = read_some(source, into + *got, room - *got, &n, error);
        if (status != QN_OK) {
            return status;
        }
        if (n == 0) {
            break;
        }
        *got += n;
    }
    return QN_OK;
}

static qn_status open_file(prof_source *source, qn_error *error) {
    struct stat info;
    memset(&info, 0, sizeof info);
    source->fd = open(source->path, O_RDONLY | O_CLOEXEC);
    if (source->fd < 0) {
        return qn_error_set(error, QN_IO, "%s: cannot open: %s", source->path, strerror(errno));
    }
    if (fstat(source->fd, &info) == 0 && S_ISDIR(info.st_mode)) {
        return qn_error_set(error, QN_IO, "%s: is a directory, not a trace file", source->path);
    }
    source->total = info.st_size > 0 ? (uint64_t)info.st_size : 0;
    if (source->gz) {
        source->packed = qn_arena_resize(source->arena, NULL, PACKED_BYTES, 1);
        source->z.in = source->z.in_end = source->packed;
    }
    return source->packed || !source->gz ? QN_OK : qn_error_set(error, QN_NO_MEMORY, "%s: no memory to unpack", source->path);
}

/* What the window keeps in front of its text: a packed file may refer back to it. */
static size_t front_of(const prof_source *source) { return source->gz ? PROF_INFLATE_HISTORY : 0; }

static qn_status set_capacity(prof_window *window, size_t capacity, qn_error *error) {
    size_t front = front_of(window->source);
    char *base = qn_arena_resize(window->source->arena, window->base, front + capacity + PROF_SCAN_PAD + 1, 1);
    if (!base) {
        return qn_error_set(error, QN_NO_MEMORY, "%s: no memory for %zu bytes of text at once", window->source->path, capacity);
    }
    window->base = base;
    window->at = base + front;
    window->capacity = capacity;
    return QN_OK;
}

qn_status qn_prof_window_open(prof_window *window, qn_arena *arena, const char *path, const qn_profile_options *options,
                              qn_error *error) {
    memset(window, 0, sizeof *window);
    prof_source *source = qn_arena_alloc(arena, 1, sizeof *source);
    if (!source) {
        return qn_error_set(error, QN_NO_MEMORY, "%s: no memory to read", path);
    }
    source->arena = arena;
    source->path = path;
    source->options = *options;
    source->gz = qn_prof_is_gz(path);
    source->fd = -1;
    window->source = source;
    qn_status status = open_file(source, error);
    if (status == QN_OK) {
        status = set_capacity(window, WINDOW_BYTES, error);
    }
    if (status == QN_OK) {
        status = qn_prof_window_refill(window, 0, error);
    }
    if (status != QN_OK) {
        qn_prof_window_close(window);
    }
    return status;
}

static qn_status make_room(prof_window *window, size_t keep, qn_error *error) {
    size_t kept = window->length - keep, before = front_of(window->source);
    before = before > kept ? before - kept : 0; /* of the text before what is kept, that a packed file may still refer to */
    if (keep) {
        memmove(window->at - before, window->at + keep - before, before + kept);
    }
    window->length = kept;
    window->offset += keep;
    if (kept <= window->capacity / 2) {
        return QN_OK;
    }
    if (window->capacity >= LARGEST_WINDOW) {
        return qn_error_set(error, QN_FORMAT, "%s: byte %llu: one value is larger than 256 MiB", window->source->path,
                            (unsigned long long)window->offset);
    }
    return set_capacity(window, window->capacity * 2, error);
}

static qn_status check_size(const prof_source *source, qn_error *error) {
    uint64_t limit = source->options.max_text ? source->options.max_text : 1ull << 40;
    if (source->text > limit) {
        return qn_error_set(error, QN_FORMAT, "%s: more than %llu bytes of text after unpacking, which is the limit",
                            source->path, (unsigned long long)limit);
    }
    if (source->gz && !source->options.max_text && source->text > SMALL_TEXT && source->text / MOST_TIMES > source->done) {
        return qn_error_set(error, QN_FORMAT,
                            "%s: stored byte %llu: the gzip data unpacks to more than %d times its size, which no trace does; if "
                            "this one is sound, unpack it first",
                            source->path, (unsigned long long)source->done, MOST_TIMES);
    }
    return QN_OK;
}

qn_status qn_prof_window_refill(prof_window *window, size_t keep, qn_error *error) {
    prof_source *source = window->source;
    if (qn_cancel_wanted(source->options.cancel)) {
        return qn_error_set(error, QN_CANCELLED, "%s: reading was stopped", source->path);
    }
    qn_status status = make_room(window, keep, error);
    if (status != QN_OK) {
        return status;
    }
    size_t room = window->capacity - window->length, got = 0;
    char *into = window->at + window->length;
    status = source->gz ? read_gz(source, into, room, &got, error) : read_plain(source, into, room, &got, error);
    if (status != QN_OK) {
        return status;
    }
    source->text += got;
    window->length += got;
    window->last = got < room;
    memset(window->at + window->length, 0, PROF_SCAN_PAD + 1);
    return check_size(source, error);
}

double qn_prof_window_share(const prof_window *window, const char *p) {
    const prof_source *source = window->source;
    double taken = (double)(source->done - unread(source)), position = (double)window->offset + (double)(p - window->at);
    if (source->total < source->done || source->text == 0) {
        return 0; /* a pipe, or a file that is still growing */
    }
    return taken / (double)source->total * position / (double)source->text;
}

void qn_prof_window_close(prof_window *window) {
    prof_source *source = window->source;
    if (!source) {
        return;
    }
    if (source->fd >= 0) {
        close(source->fd);
    }
    qn_arena_release(source->arena, source->packed);
    qn_arena_release(source->arena, window->base);
    memset(window, 0, sizeof *window);
}
