/* The report: the page with every view of every trace inside, as blocks of data that no browser runs. Small blocks are plain
 * JSON; larger ones are gzip in base64, which the page unpacks when a tab asks for them. */
#include <string.h>
#include <zlib.h>

#include "base/arena.h"
#include "serve/api_prof.h"

enum { PLAIN_BYTES = 32 * 1024, PACKED_BYTES = 48 * 1024, ALL_PAIRS = 4 };

/* Views a report carries for each trace. */
static const char *const TRACE_VIEWS[] = {"info",
                                          "overview",
                                          "operation",
                                          "operation_by_shape",
                                          "operation_table",
                                          "operation_table_by_shape",
                                          "operation_stack",
                                          "operation_stack_by_shape",
                                          "kernel",
                                          "kernel_table",
                                          "kernel_table_by_op",
                                          "kernel_tc_pie",
                                          "trace_counters",
                                          "memory",
                                          "memory_curve",
                                          "memory_events",
                                          "module",
                                          "distributed_overlap",
                                          "distributed_waittime",
                                          "distributed_commops",
                                          "distributed_deviceinfo",
                                          "roofline",
                                          "parts",
                                          "timeline",
                                          "timeline_args"};
/* Of a trace that is only compared with. */
static const char *const AGAINST_VIEWS[] = {"info", "kernel_table"};

typedef struct report {
    page_source source;
    qn_profile_write_fn write;
    void *user;
    qn_arena arena;
    z_stream z;
    qn_status out; /* of the first write that failed */
    int packing;   /* the block at hand has outgrown plain text */
    const page_query *query;
    size_t used, rest_used;
    unsigned char rest[3]; /* bytes of a base64 group that has begun */
    char *plain;           /* PLAIN_BYTES */
    unsigned char *packed; /* PACKED_BYTES */
} report;

static qn_status put(report *r, const char *text, size_t length) {
    if (r->out == QN_OK && length) {
        r->out = r->write(r->user, text, length);
    }
    return r->out;
}

static qn_status put_text(report *r, const char *text) { return put(r, text, strlen(text)); }

/* ---- One block ---------------------------------------------------------------------------------------------------- */

static qn_status put_number(report *r, const char *name, int value) {
    char text[16];
    size_t at = sizeof text;
    unsigned rest = (unsigned)value;
    text[--at] = '"';
    do {
        text[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    qn_status status = put_text(r, name);
    return status == QN_OK ? put(r, text + at, sizeof text - at) : status;
}

static qn_status open_block(report *r, const char *kind, const char *extra) {
    const page_query *query = r->query;
    const char *const texts[] = {"<script type=\"", kind, "\" data-view=\"", query->view, "\""};
    qn_status status = QN_OK;
    for (size_t i = 0; i < sizeof texts / sizeof *texts && status == QN_OK; i++) {
        status = put_text(r, texts[i]);
    }
    if (status == QN_OK && query->trace >= 0) {
        status = put_number(r, " data-trace=\"", query->trace);
    }
    if (status == QN_OK && query->other >= 0) {
        status = put_number(r, " data-other=\"", query->other);
    }
    status = status == QN_OK ? put_text(r, extra) : status;
    return status == QN_OK ? put_text(r, ">") : status;
}

static qn_status close_block(report *r) { return put_text(r, "</script>\n"); }

/* JSON may write `<` as an escape; without it no text of a trace can end the block or begin a tag. */
static qn_status put_plain(report *r, const char *text, size_t length) {
    qn_status status = QN_OK;
    while (length && status == QN_OK) {
        const char *angle = memchr(text, '<', length);
        size_t run = angle ? (size_t)(angle - text) : length;
        status = put(r, text, run);
        if (angle && status == QN_OK) {
            status = put_text(r, "\\u003c");
            run++;
        }
        text += run;
        length -= run;
    }
    return status;
}

static void group64(const unsigned char *in, size_t n, char *out) {
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned bits = (unsigned)in[0] << 16 | (n > 1 ? (unsigned)in[1] << 8 : 0) | (n > 2 ? in[2] : 0);
    out[0] = DIGITS[bits >> 18 & 63];
    out[1] = DIGITS[bits >> 12 & 63];
    out[2] = n > 1 ? DIGITS[bits >> 6 & 63] : '=';
    out[3] = n > 2 ? DIGITS[bits & 63] : '=';
}

static qn_status put_base64(report *r, const unsigned char *bytes, size_t n, int last) {
    char out[4096];
    size_t used = 0;
    qn_status status = QN_OK;
    for (size_t i = 0; i < n && status == QN_OK; i++) {
        r->rest[r->rest_used++] = bytes[i];
        if (r->rest_used == 3) {
            group64(r->rest, 3, out + used);
            r->rest_used = 0;
            used += 4;
        }
        if (used == sizeof out) {
            status = put(r, out, used);
            used = 0;
        }
    }
    if (last && r->rest_used && status == QN_OK) {
        group64(r->rest, r->rest_used, out + used);
        r->rest_used = 0;
        used += 4;
    }
    return status == QN_OK ? put(r, out, used) : status;
}

static qn_status pack(report *r, const char *text, size_t length, int last) {
    r->z.next_in = (Bytef *)(uintptr_t)text; /* zlib only reads */
    while (length || last) {
        uInt piece = length > 1u << 30 ? 1u << 30 : (uInt)length;
        r->z.avail_in = piece;
        length -= piece;
        int code;
        do {
            r->z.next_out = r->packed;
            r->z.avail_out = PACKED_BYTES;
            code = deflate(&r->z, last && !length ? Z_FINISH : Z_NO_FLUSH);
            qn_status status = put_base64(r, r->packed, PACKED_BYTES - r->z.avail_out, code == Z_STREAM_END);
            if (status != QN_OK) {
                return status;
            }
        } while (r->z.avail_out == 0);
        if (code == Z_STREAM_END) {
            break;
        }
    }
    return QN_OK;
}

static qn_status begin_packing(report *r) {
    r->packing = 1;
    r->rest_used = 0;
    qn_status status = open_block(r, "text/plain", " data-gz");
    if (deflateReset(&r->z) != Z_OK) {
        return QN_NO_MEMORY;
    }
    return status == QN_OK ? pack(r, r->plain, r->used, 0) : status;
}

static qn_status take(void *user, const char *text, size_t length) {
    report *r = user;
    if (!r->packing && length <= PLAIN_BYTES - r->used) {
        memcpy(r->plain + r->used, text, length);
        r->used += length;
        return QN_OK;
    }
    qn_status status = r->packing ? QN_OK : begin_packing(r);
    return status == QN_OK ? pack(r, text, length, 0) : status;
}

static qn_status end_view(report *r) {
    qn_status status;
    if (r->packing) {
        status = pack(r, NULL, 0, 1);
    } else {
        status = open_block(r, "application/json", "");
        status = status == QN_OK ? put_plain(r, r->plain, r->used) : status;
    }
    return status == QN_OK ? close_block(r) : status;
}

/* Why there is no such view, as a JSON string. The text is a sentence of ours with names in it. */
static qn_status put_reason(report *r, const char *text) {
    qn_status status = open_block(r, "application/json", " data-error");
    status = status == QN_OK ? put_text(r, "\"") : status;
    for (; *text && status == QN_OK; text++) {
        char hex[7] = "\\u0000";
        unsigned char c = (unsigned char)*text;
        if (c >= ' ' && c != '"' && c != '\\' && c != '<' && c != 0x7f) {
            status = put(r, text, 1);
            continue;
        }
        hex[4] = "0123456789abcdef"[c >> 4];
        hex[5] = "0123456789abcdef"[c & 15];
        status = put_text(r, hex);
    }
    status = status == QN_OK ? put_text(r, "\"") : status;
    return status == QN_OK ? close_block(r) : status;
}

/* ---- All blocks --------------------------------------------------------------------------------------------------- */

static qn_status put_view(report *r, const page_query *query, qn_error *error) {
    qn_error why = {QN_OK, ""};
    r->query = query;
    r->packing = 0;
    r->used = 0;
    qn_status status = qn_page_view(&r->source, query, take, r, &why);
    if (status == QN_OK) {
        return end_view(r);
    }
    if (r->packing || r->out != QN_OK || status == QN_CANCELLED || status == QN_NO_MEMORY) { /* the report cannot go on */
        return why.status != QN_OK ? qn_error_set(error, status, "%s", why.text) : status;
    }
    return put_reason(r, why.text);
}

static qn_status put_trace(report *r, int id, const page_trace *trace, int *loaded, qn_error *error) {
    const char *const *views = trace->is_against ? AGAINST_VIEWS : TRACE_VIEWS;
    size_t n = trace->is_against ? sizeof AGAINST_VIEWS / sizeof *views : sizeof TRACE_VIEWS / sizeof *views;
    *loaded |= qn_profile_load(trace->profile, trace->run, trace->worker, trace->span, error) == QN_OK;
    qn_status status = QN_OK;
    for (size_t v = 0; v < n && status == QN_OK; v++) {
        page_query query = {views[v], NULL, NULL, NULL, id, -1};
        status = put_view(r, &query, error);
    }
    return status;
}

/* Few traces are compared each with each; of many, the first with each, and all with those that were given to compare with. */
static int is_compared(const page_source *source, int left, int right, int traces) {
    page_trace a, b;
    if (left == right || !qn_page_trace(source, left, &a) || !qn_page_trace(source, right, &b) || a.is_against) {
        return 0;
    }
    return b.is_against || traces <= ALL_PAIRS || left == 0;
}

static qn_status put_data(report *r, qn_error *error) {
    page_trace trace;
    int traces = 0, loaded = 0;
    qn_status status = QN_OK;
    for (; status == QN_OK && qn_page_trace(&r->source, traces, &trace); traces++) {
        status = put_trace(r, traces, &trace, &loaded, error);
    }
    if (status == QN_OK && !loaded) {
        return error ? error->status : QN_FORMAT; /* set by the last trace that failed */
    }
    for (int left = 0; left < traces; left++) {
        for (int right = 0; right < traces && status == QN_OK; right++) {
            page_query query = {"diff", NULL, NULL, NULL, left, right};
            if (is_compared(&r->source, left, right, traces)) {
                status = put_view(r, &query, error);
            }
        }
    }
    if (status != QN_OK) {
        return status;
    }
    page_query index = {"index", NULL, NULL, NULL, -1, -1};
    r->query = &index;
    r->packing = 0;
    r->used = 0;
    status = qn_page_index(&r->source, take, r);
    return status == QN_OK ? end_view(r) : status;
}

qn_status qn_page_write(qn_profile *profile, const qn_page_options *options, qn_profile_write_fn write, void *user,
                        qn_error *error) {
    report r;
    size_t length, data_at;
    memset(&r, 0, sizeof r);
    r.write = write;
    r.user = user;
    if (!write) {
        return qn_error_set(error, QN_ARGUMENT, "qn_page_write needs a function that takes the text");
    }
    qn_status status = qn_page_source(profile, options, &r.source, error);
    if (status != QN_OK) {
        return status;
    }
    const char *page = qn_page_asset(&length, &data_at);
    qn_arena_init(&r.arena, 0);
    r.plain = qn_arena_alloc(&r.arena, PLAIN_BYTES, 1);
    r.packed = qn_arena_alloc(&r.arena, PACKED_BYTES, 1);
    if (!r.plain || !r.packed || deflateInit2(&r.z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        qn_arena_destroy(&r.arena);
        return qn_error_set(error, QN_NO_MEMORY, "no memory for the report");
    }
    status = put(&r, page, data_at);
    status = status == QN_OK ? put_data(&r, error) : status;
    status = status == QN_OK ? put(&r, page + data_at, length - data_at) : status;
    deflateEnd(&r.z);
    qn_arena_destroy(&r.arena);
    return status;
}
