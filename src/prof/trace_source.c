/* Reading and inflating. A gzip bomb costs time but no memory: text goes through one window, and max_text ends it. */
#include "prof/trace_source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "prof/json_scan.h"

enum { PACKED_BYTES = 128 * 1024, WINDOW_BYTES = 512 * 1024, LARGEST_WINDOW = 256 * 1024 * 1024 };

struct prof_source {
    qn_arena *arena;
    const char *path;
    qn_profile_options options;
    int fd, gz, inflating, member_done;
    uint64_t done, total, text; /* stored bytes read and expected; unpacked bytes given */
    z_stream z;
    unsigned char *packed;
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

static qn_status take_packed(prof_source *source, qn_error *error) {
    size_t got;
    qn_status status = read_some(source, source->packed, PACKED_BYTES, &got, error);
    source->z.next_in = source->packed;
    source->z.avail_in = (uInt)got;
    return status;
}

/* Between members: zero padding ends the file, another header begins the next member, anything else is not gzip. */
static qn_status next_member(prof_source *source, int *finished, qn_error *error) {
    while (source->z.avail_in && *source->z.next_in == 0) {
        source->z.next_in++;
        source->z.avail_in--;
    }
    *finished = 0;
    if (source->z.avail_in == 0) {
        qn_status status = take_packed(source, error);
        *finished = source->z.avail_in == 0;
        if (status != QN_OK || *finished || *source->z.next_in == 0) {
            return status;
        }
    }
    if (inflateReset(&source->z) != Z_OK) {
        return qn_error_set(error, QN_FORMAT, "%s: stored byte %llu: the gzip stream cannot be restarted", source->path,
                            (unsigned long long)(source->done - source->z.avail_in));
    }
    source->member_done = 0;
    return QN_OK;
}

static qn_status inflate_error(const prof_source *source, int code, qn_error *error) {
    unsigned long long at = (unsigned long long)(source->done - source->z.avail_in);
    if (code == Z_MEM_ERROR) {
        return qn_error_set(error, QN_NO_MEMORY, "%s: no memory to unpack", source->path);
    }
    const char *why = source->z.msg ? source->z.msg : "the data is damaged";
    return qn_error_set(error, QN_FORMAT, "%s: stored byte %llu: not valid gzip: %s", source->path, at, why);
}

static qn_status read_gz(prof_source *source, char *into, size_t room, size_t *got, qn_error *error) {
    source->z.next_out = (unsigned char *)into;
    source->z.avail_out = (uInt)room;
    while (source->z.avail_out) {
        qn_status status = QN_OK;
        if (source->member_done) {
            int finished;
            status = next_member(source, &finished, error);
            if (status != QN_OK || finished) {
                *got = room - source->z.avail_out;
                return status;
            }
            continue;
        }
        if (source->z.avail_in == 0) {
            status = take_packed(source, error);
            if (status != QN_OK) {
                return status;
            }
            if (source->z.avail_in == 0) {
                return qn_error_set(error, QN_FORMAT, "%s: stored byte %llu: the gzip data ends too early (unpacked byte %llu)",
                                    source->path, (unsigned long long)source->done,
                                    (unsigned long long)(source->text + room - source->z.avail_out));
            }
        }
        int code = inflate(&source->z, Z_NO_FLUSH);
        if (code == Z_STREAM_END) {
            source->member_done = 1;
        } else if (code != Z_OK) {
            return inflate_error(source, code, error);
        }
    }
    *got = room;
    return QN_OK;
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
    if (!source->gz) {
        return QN_OK;
    }
    source->packed = qn_arena_resize(source->arena, NULL, PACKED_BYTES, 1);
    if (!source->packed || inflateInit2(&source->z, 15 + 16) != Z_OK) {
        return qn_error_set(error, QN_NO_MEMORY, "%s: no memory to unpack", source->path);
    }
    source->inflating = 1;
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
        window->capacity = WINDOW_BYTES;
        window->at = qn_arena_resize(arena, NULL, window->capacity + PROF_SCAN_PAD + 1, 1);
        if (!window->at) {
            qn_error_set(error, QN_NO_MEMORY, "%s: no memory to read", path);
            status = QN_NO_MEMORY;
        }
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
    size_t kept = window->length - keep;
    if (keep && kept) {
        memmove(window->at, window->at + keep, kept);
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
    char *grown = qn_arena_resize(window->source->arena, window->at, window->capacity * 2 + PROF_SCAN_PAD + 1, 1);
    if (!grown) {
        return qn_error_set(error, QN_NO_MEMORY, "%s: no memory for an event of more than %zu bytes", window->source->path, kept);
    }
    window->at = grown;
    window->capacity *= 2;
    return QN_OK;
}

qn_status qn_prof_window_refill(prof_window *window, size_t keep, qn_error *error) {
    prof_source *source = window->source;
    if (source->options.cancel && *source->options.cancel) {
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
    uint64_t limit = source->options.max_text ? source->options.max_text : 1ull << 40;
    if (source->text > limit) {
        return qn_error_set(error, QN_FORMAT, "%s: more than %llu bytes of text after unpacking, which is the limit",
                            source->path, (unsigned long long)limit);
    }
    return QN_OK;
}

void qn_prof_window_close(prof_window *window) {
    prof_source *source = window->source;
    if (!source) {
        return;
    }
    if (source->inflating) {
        inflateEnd(&source->z);
    }
    if (source->fd >= 0) {
        close(source->fd);
    }
    qn_arena_release(source->arena, source->packed);
    qn_arena_release(source->arena, window->at);
    memset(window, 0, sizeof *window);
}
