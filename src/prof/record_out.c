/* The file under the Kineto writer. */
#include "prof/record_out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_limit.h"
#include "prof/prof_num.h"

/* ---- The file ----------------------------------------------------------------------------------------------------- */

static void put(qn_record_out *out, const void *bytes, size_t n) {
    const char *at = bytes;
    qn_file_limit limit;
    qn_file_limit_hold(&limit);
    while (n && !out->failed) {
        ssize_t written = write(out->fd, at, n);
        if (written > 0) {
            at += written;
            n -= (size_t)written;
        } else if (written == 0 || errno != EINTR) {
            out->failed = written == 0 ? ENOSPC : errno;
        }
    }
    qn_file_limit_release(&limit);
}

static void deflate_some(qn_record_out *out, int finish) {
    out->stream.next_in = (Bytef *)out->buffer;
    out->stream.avail_in = (uInt)out->used;
    do {
        out->stream.next_out = out->packed;
        out->stream.avail_out = sizeof out->packed;
        if (deflate(&out->stream, finish ? Z_FINISH : Z_NO_FLUSH) == Z_STREAM_ERROR) out->failed = -1;
        put(out, out->packed, sizeof out->packed - out->stream.avail_out);
    } while (!out->failed && out->stream.avail_out == 0);
}

static void flush(qn_record_out *out, int finish) {
    if (!out->failed && out->gzip) deflate_some(out, finish);
    if (!out->failed && !out->gzip) put(out, out->buffer, out->used);
    out->used = 0;
}

qn_status qn_out_make_folder(const char *folder, qn_error *error) {
    char path[1024];
    size_t n = strlen(folder);
    if (n >= sizeof path) return qn_error_set(error, QN_ARGUMENT, "the folder's name is too long");
    memcpy(path, folder, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        char kept = path[i];
        path[i] = 0;
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return qn_error_set(error, QN_IO, "the folder %s could not be made: %s", path, strerror(errno));
        path[i] = kept;
    }
    return QN_OK;
}

qn_status qn_out_try_folder(const char *folder, qn_error *error) {
    char path[1024 + 16];
    qn_status status = qn_out_make_folder(folder, error);
    if (status != QN_OK) return status;
    snprintf(path, sizeof path, "%s/.quern-XXXXXX", folder);
    int fd = mkstemp(path);
    if (fd < 0) return qn_error_set(error, QN_IO, "no file can be made in the folder %s: %s", folder, strerror(errno));
    close(fd);
    unlink(path);
    return QN_OK;
}

qn_status qn_out_open(qn_record_out *out, const char *path, int gzip, qn_error *error) {
    memset(out, 0, offsetof(qn_record_out, buffer));
    out->path = path;
    out->gzip = gzip;
    snprintf(out->temporary, sizeof out->temporary, "%s.part", path);
    if (gzip && deflateInit2(&out->stream, 2, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return qn_error_set(error, QN_NO_MEMORY, "%s: the compressor could not be set up", path);
    out->fd = open(out->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (out->fd < 0) {
        int why = errno;
        if (gzip) deflateEnd(&out->stream);
        return qn_error_set(error, QN_IO, "%s could not be created: %s", out->temporary, strerror(why));
    }
    return QN_OK;
}

qn_status qn_out_close(qn_record_out *out, int keep, qn_error *error) {
    if (keep) flush(out, 1);
    if (out->gzip) deflateEnd(&out->stream);
    if (close(out->fd) != 0 && !out->failed) out->failed = errno;
    if (keep && !out->failed && rename(out->temporary, out->path) != 0) out->failed = errno;
    if (!keep || out->failed) unlink(out->temporary);
    if (!out->failed) return QN_OK;
    return qn_error_set(error, QN_IO, "%s could not be written: %s", out->path, strerror(out->failed));
}

/* ---- Text --------------------------------------------------------------------------------------------------------- */

void qn_out_bytes(qn_record_out *out, const char *bytes, size_t n) {
    while (n) {
        if (out->used == sizeof out->buffer) flush(out, 0);
        size_t room = sizeof out->buffer - out->used, now = n < room ? n : room;
        memcpy(out->buffer + out->used, bytes, now);
        out->used += now;
        bytes += now;
        n -= now;
    }
}

void qn_out_text(qn_record_out *out, const char *text) { qn_out_bytes(out, text, strlen(text)); }

static char *digits(uint64_t value, char *end) {
    do *--end = (char)('0' + value % 10);
    while (value /= 10);
    return end;
}

void qn_out_id(qn_record_out *out, uint64_t value) {
    char text[24], *end = text + sizeof text, *at = digits(value, end);
    qn_out_bytes(out, at, (size_t)(end - at));
}

void qn_out_int(qn_record_out *out, int64_t value) {
    if (value < 0) qn_out_bytes(out, "-", 1);
    qn_out_id(out, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void qn_out_number(qn_record_out *out, double value) {
    char text[PROF_NUM_TEXT];
    if (!isfinite(value)) {
        qn_out_text(out, "null");
    } else if (fabs(value) < 9e15 && value == floor(value)) {
        qn_out_int(out, (int64_t)value);
    } else {
        qn_out_bytes(out, text, (size_t)qn_prof_dbl_text(value, text));
    }
}

void qn_out_time(qn_record_out *out, int64_t ns, int whole) {
    if (whole) {
        qn_out_int(out, ns >= 0 ? ns / 1000 : -((999 - ns) / 1000));
        return;
    }
    uint64_t size = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    char text[32], *end = text + sizeof text, *at = end;
    for (int i = 0; i < 3; i++, size /= 10) *--at = (char)('0' + size % 10);
    *--at = '.';
    at = digits(size, at);
    if (ns < 0) *--at = '-';
    qn_out_bytes(out, at, (size_t)(end - at));
}

/* Length of the UTF-8 sequence at `at`, 0 when there is none. */
static size_t utf8_length(const unsigned char *at, size_t n) {
    size_t length = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : at[0] < 0xf5 ? 4 : 0;
    if (length > n) return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f)) return 0; /* overlong; surrogates */
    if ((at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f)) return 0; /* overlong; beyond Unicode */
    return length;
}

static void escape_control(qn_record_out *out, unsigned char c) {
    static const char hex[] = "0123456789abcdef";
    char text[7] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15], 0};
    const char *brief = c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : c == '\b' ? "\\b" : c == '\f' ? "\\f" : text;
    qn_out_text(out, brief);
}

void qn_out_escaped(qn_record_out *out, const char *bytes, size_t n) {
    const unsigned char *at = (const unsigned char *)bytes;
    while (n) {
        size_t length = utf8_length(at, n);
        if (length == 0) {
            qn_out_text(out, "\\ufffd");
            length = 1;
        } else if (*at == '"' || *at == '\\') {
            qn_out_bytes(out, *at == '"' ? "\\\"" : "\\\\", 2);
        } else if (*at < 0x20) {
            escape_control(out, *at);
        } else {
            qn_out_bytes(out, (const char *)at, length);
        }
        at += length;
        n -= length;
    }
}
