/* A JSON file that appears whole or not at all: bytes go, compressed or not, into a temporary file beside it, which takes the
 * final name when everything is on it. The first failure is remembered and makes all later calls do nothing. */
#ifndef QN_PROF_RECORD_OUT_H
#define QN_PROF_RECORD_OUT_H

#include <quern/quern.h>
#include <zlib.h>

#include "base/arena.h"

enum { QN_OUT_BUFFER = 65536 };

typedef struct qn_record_out {
    const char *path;
    char temporary[2048];
    int fd;
    int gzip;
    int failed; /* errno of the first failure; -1 when the compressor failed */
    size_t used;
    z_stream stream;
    char buffer[QN_OUT_BUFFER];
    unsigned char packed[QN_OUT_BUFFER];
} qn_record_out;

/* `path` must stay valid until the end. */
qn_status qn_out_open(qn_record_out *out, const char *path, int gzip, qn_error *error);
/* Gives the file its name, or removes what was written when `keep` is 0 or anything failed. */
qn_status qn_out_close(qn_record_out *out, int keep, qn_error *error);
/* Makes a folder and those above it. */
qn_status qn_out_make_folder(const char *folder, qn_error *error);
/* The same, and whether a file can be made in it: one is, and is taken away again. */
qn_status qn_out_try_folder(const char *folder, qn_error *error);

void qn_out_bytes(qn_record_out *out, const char *bytes, size_t n);
void qn_out_text(qn_record_out *out, const char *text);
void qn_out_int(qn_record_out *out, int64_t value);
void qn_out_id(qn_record_out *out, uint64_t value);
/* As an integer where it is one; not-a-number and infinities as null. */
void qn_out_number(qn_record_out *out, double value);
/* Nanoseconds as microseconds with three places, or whole ones rounded down. */
void qn_out_time(qn_record_out *out, int64_t nanoseconds, int whole);
/* Characters of a JSON string, escaped; broken UTF-8 becomes U+FFFD. */
void qn_out_escaped(qn_record_out *out, const char *bytes, size_t n);

#endif
