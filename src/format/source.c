/* The bytes of a file: mapped where the system can, read where it cannot or the caller does not want it. */
#include "format/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/memory.h"

/* Tables cost at most this many bytes per byte of file, and this much more for the first chunks: the smallest key takes 14 bytes
 * of GGUF or 6 of JSON, and its record with name and place in the order about 80. */
enum { TABLE_BYTES_PER_BYTE = 24, TABLE_BYTES_LEAST = 256 * 1024, READ_PIECE = 16 << 20, DATA_ALIGN = 64 };

static qn_status read_all(int fd, uint8_t *to, uint64_t bytes, const volatile int *cancel, qn_error *error) {
    for (uint64_t done = 0; done < bytes;) {
        if (qn_cancel_wanted(cancel))
            return qn_error_set(error, QN_CANCELLED, "reading was stopped after %" PRIu64 " bytes", done);
        size_t piece = bytes - done < READ_PIECE ? (size_t)(bytes - done) : READ_PIECE;
        ssize_t n = read(fd, to + done, piece);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return qn_error_set(error, QN_IO, "reading byte %" PRIu64 ": %s", done, strerror(errno));
        if (n == 0) return qn_error_set(error, QN_IO, "the file ended at byte %" PRIu64 " while it was read", done);
        done += (uint64_t)n;
    }
    return QN_OK;
}

static qn_status take(qn_file *file, int fd, qn_format_source *source, qn_error *error) {
    struct stat s;
    if (fstat(fd, &s) != 0) return qn_error_set(error, QN_IO, "%s", strerror(errno));
    if (!S_ISREG(s.st_mode)) return qn_error_set(error, QN_IO, "this is not a regular file");
    if (s.st_size <= 0) return qn_error_set(error, QN_FORMAT, "the file is empty");
    source->bytes = (uint64_t)s.st_size;
    if (source->bytes > SIZE_MAX / 4) return qn_error_set(error, QN_UNSUPPORTED, "the file is too large for this machine");
    if (!(file->options.flags & QN_FILE_NO_MAP)) {
        void *map = mmap(NULL, (size_t)source->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map != MAP_FAILED) {
            source->at = source->map = map;
            return QN_OK;
        }
    }
    file->mapped = 0;
    qn_allocator memory = qn_memory_default();
    source->heap = memory.allocate(memory.user, (size_t)source->bytes, DATA_ALIGN);
    if (!source->heap) return qn_error_set(error, QN_NO_MEMORY, "no memory for the %" PRIu64 " bytes of the file", source->bytes);
    source->at = source->heap;
    return read_all(fd, source->heap, source->bytes, file->options.cancel, error);
}

static void give_back(qn_format_source *source) {
    qn_allocator memory = qn_memory_default();
    if (source->map) munmap(source->map, (size_t)source->bytes);
    if (source->heap) memory.release(memory.user, source->heap, (size_t)source->bytes);
}

/* What tables of a file may cost; a limit of the caller's replaces it. */
static void raise_limit(qn_file *file, uint64_t bytes) {
    if (file->options.max_memory) return;
    uint64_t more = bytes > SIZE_MAX / 4 / TABLE_BYTES_PER_BYTE ? SIZE_MAX / 4 : bytes * TABLE_BYTES_PER_BYTE + TABLE_BYTES_LEAST;
    file->arena.limit = file->arena.limit > SIZE_MAX / 2 - more ? SIZE_MAX / 2 : file->arena.limit + (size_t)more;
}

qn_status qn_format_source_add(qn_file *file, const char *path, qn_error *error) {
    qn_format_source source = {0};
    qn_status status = QN_OK;
    if (file->options.data) {
        source.at = file->options.data;
        source.bytes = file->options.bytes;
        if (!source.bytes) return qn_error_set(error, QN_FORMAT, "the file is empty");
        file->mapped = 0;
    } else {
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* not blocking: a pipe is refused, not waited for */
        if (fd < 0) return qn_error_set(error, QN_IO, "%s", strerror(errno));
        status = take(file, fd, &source, error);
        close(fd);
    }
    raise_limit(file, source.bytes);
    if (status == QN_OK && !QN_VEC_ROOM(&file->arena, &file->sources, 1)) status = qn_format_no_memory(file, error);
    if (status == QN_OK) file->sources.at[file->sources.n++] = source;
    else give_back(&source);
    return status;
}

void qn_format_source_drop(qn_file *file) {
    for (size_t i = 0; i < file->sources.n; i++) give_back(&file->sources.at[i]);
    file->sources.n = 0;
}
