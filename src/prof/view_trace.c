/* The trace view (section 16): the file itself with counter events added, streamed through without being held.
 *
 * A scanner follows strings and nesting. It finds the list of events, may leave one event out, and repairs on the way what the
 * tolerant reader accepts but a browser does not: raw control characters in strings, broken escapes, bare N/A. A clean file
 * passes byte for byte, in pieces as large as the chunks it comes in. */
#include <string.h>

#include "prof/view_counters.h"
#include "prof/view_util.h"

static const char LIST_NAME[] = "traceEvents";
static const char NOT_AVAILABLE[] = "N/A";
enum { ESCAPE_BYTES = 6, NA_BYTES = 3 };

typedef struct filter {
    prof_json *json;
    const prof_trace *trace;
    qn_arena *arena;
    qn_status status;
    const char *pending; /* bytes of the present chunk that are to be copied begin here */

    int in_string, depth;
    char split[ESCAPE_BYTES]; /* an escape or a bare word that the end of a chunk cut in two */
    size_t split_length;
    char key[sizeof LIST_NAME]; /* beginning of the current string at depth 1 */
    size_t key_length;
    int armed; /* the last string at depth 1 was the list's name: a `[` that follows begins it */

    int in_events; /* inside the list, whose items lie at depth 2 */
    uint64_t item; /* number of the current one */
    int dropping;
    int in_tail; /* behind the list, where the text is held back: see end_events */
    QN_VEC(char) tail;
} filter;

static void out(filter *f, const char *text, size_t n) {
    if (f->dropping || n == 0) {
        return;
    }
    if (!f->in_tail) {
        qn_prof_json_raw(f->json, text, n);
        return;
    }
    if (!QN_VEC_ROOM(f->arena, &f->tail, n)) {
        f->status = QN_NO_MEMORY;
        return;
    }
    memcpy(f->tail.at + f->tail.n, text, n);
    f->tail.n += n;
    if (memchr(text, ']', n)) {
        f->in_tail = 0;
        qn_prof_json_raw(f->json, f->tail.at, f->tail.n);
        f->tail.n = 0;
    }
}

/* Copies what is pending before `p`, and lets copying go on `skip` bytes later. */
static void flush(filter *f, const char *p, size_t skip) {
    out(f, f->pending, (size_t)(p - f->pending));
    f->pending = p + skip;
}

/* ---- The list of events ------------------------------------------------------------------------------------------- */

/* Without counters the file stays as it is: a comma with nothing behind it would break it. */
static int adds(const filter *f) { return f->trace->has_kernel && qn_prof_view_has_counters(f->trace); }

static int adds_behind(const filter *f) { return f->trace->dialect != QN_PROFILE_UPSTREAM && adds(f); }

static void begin_events(filter *f, const char *behind) {
    flush(f, behind, 0);
    f->in_events = 1;
    f->item = 0;
    if (adds(f) && !adds_behind(f)) {
        qn_prof_view_put_counters(f->json, f->trace);
        out(f, ",", 1);
    }
    f->dropping = f->trace->window_end_event == 0;
}

/* The torch_mlu editions cut the file at its last `]`. What follows the list is therefore held back, and dropped at the end of
 * the file unless it holds another `]`: a cut there would break the file, so then everything is kept. */
static void end_events(filter *f, const char *bracket) {
    flush(f, bracket, 1);
    f->in_events = 0;
    f->dropping = 0;
    if (adds_behind(f)) {
        out(f, ", ", 2);
        qn_prof_view_put_counters(f->json, f->trace);
    }
    out(f, "]", 1);
    f->in_tail = adds_behind(f);
}

/* Of an item left out the comma before it goes too, or the one behind it when it is the first. */
static void next_item(filter *f, const char *comma) {
    uint64_t left_out = f->trace->window_end_event;
    f->item++;
    if (left_out == UINT64_MAX) {
        return;
    }
    flush(f, comma, 1);
    f->dropping = f->item == left_out || (left_out == 0 && f->item == 1);
    out(f, ",", 1);
    f->dropping = f->item == left_out;
}

/* ---- Escapes ------------------------------------------------------------------------------------------------------ */

static int is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/* Bytes of the escape that begins at `at`: 0 when it is none, `left` + 1 when more bytes are needed to tell. */
static size_t escape_length(const char *at, size_t left) {
    if (left < 2) {
        return left + 1;
    }
    if (at[1] != 'u') {
        return at[1] && strchr("\"\\/bfnrt", at[1]) ? 2 : 0;
    }
    for (size_t i = 2; i < ESCAPE_BYTES; i++) {
        if (i == left) {
            return left + 1;
        }
        if (!is_hex(at[i])) {
            return 0;
        }
    }
    return ESCAPE_BYTES;
}

/* A backslash at p[0]: returns the bytes to pass over. A broken one was meant as a backslash and is doubled. */
static size_t take_escape(filter *f, const char *p, size_t left) {
    size_t n = escape_length(p, left);
    if (n > left) {
        flush(f, p, left);
        memcpy(f->split, p, left);
        f->split_length = left;
        return left;
    }
    if (n == 0) {
        flush(f, p, 0);
        out(f, "\\", 1);
        return 1;
    }
    return n;
}

/* Another byte behind an escape that was cut; 0 when it does not belong to it and is to be looked at again. */
static int continue_escape(filter *f, char c) {
    size_t length = f->split_length + 1; /* less than a whole escape was there */
    f->split[length - 1] = c;
    size_t n = escape_length(f->split, length);
    if (n == 0) {
        out(f, "\\", 1);
        out(f, f->split, length - 1);
        f->split_length = 0;
        return 0;
    }
    f->split_length = length;
    if (n <= length) {
        out(f, f->split, length);
        f->split_length = 0;
    }
    return 1;
}

/* ---- Strings ------------------------------------------------------------------------------------------------------ */

static void put_control(filter *f, const char *p) {
    static const char HEX[] = "0123456789abcdef";
    char text[ESCAPE_BYTES] = {'\\', 'u', '0', '0', HEX[*p >> 4 & 15], HEX[*p & 15]};
    flush(f, p, 1);
    out(f, text, sizeof text);
}

static void end_string(filter *f) {
    f->in_string = 0;
    f->armed = f->depth == 1 && f->key_length == sizeof LIST_NAME - 1 && memcmp(f->key, LIST_NAME, sizeof LIST_NAME - 1) == 0;
}

static void note_key(filter *f, const char *text, size_t n) {
    for (size_t i = 0; i < n && f->key_length < sizeof f->key; i++) {
        f->key[f->key_length++] = text[i];
    }
}

/* Follows the inside of a string up to and behind its quote, or to the end of the chunk. */
static const char *follow_string(filter *f, const char *p, const char *end) {
    while (p < end && f->split_length) {
        int taken = continue_escape(f, *p);
        p += taken;
        f->pending = p;
    }
    while (p < end) {
        const char *from = p;
        while (p < end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20) {
            p++;
        }
        if (f->depth == 1) {
            note_key(f, from, (size_t)(p - from));
        }
        if (p == end) {
            break;
        }
        if (*p == '"') {
            end_string(f);
            return p + 1;
        }
        if (*p == '\\') {
            p += take_escape(f, p, (size_t)(end - p));
        } else {
            put_control(f, p++);
        }
    }
    return p;
}

/* ---- Outside strings ---------------------------------------------------------------------------------------------- */

/* An N at p[0]: bare N/A becomes a string. Returns the bytes to pass over. */
static size_t take_word(filter *f, const char *p, size_t left) {
    size_t seen = left < NA_BYTES ? left : NA_BYTES;
    if (memcmp(p, NOT_AVAILABLE, seen) != 0) {
        return 1;
    }
    flush(f, p, seen);
    if (seen == NA_BYTES) {
        out(f, "\"N/A\"", 5);
    } else {
        memcpy(f->split, p, seen);
        f->split_length = seen;
    }
    return seen;
}

static int continue_word(filter *f, char c) {
    if (c != NOT_AVAILABLE[f->split_length]) {
        out(f, f->split, f->split_length);
        f->split_length = 0;
        return 0;
    }
    f->split[f->split_length++] = c;
    if (f->split_length == NA_BYTES) {
        out(f, "\"N/A\"", 5);
        f->split_length = 0;
    }
    return 1;
}

/* A byte that means something outside strings. Returns the bytes to pass over. */
static size_t take_structure(filter *f, const char *p, size_t left) {
    switch (*p) {
    case '"':
        f->in_string = 1;
        f->key_length = 0;
        return 1;
    case 'N': return take_word(f, p, left);
    case '{':
    case '[':
        f->depth++;
        if (*p == '[' && f->armed && f->depth == 2) {
            begin_events(f, p + 1);
        }
        break;
    case '}':
    case ']':
        if (*p == ']' && f->in_events && f->depth == 2) {
            end_events(f, p);
        }
        f->depth -= f->depth > 0;
        break;
    default: /* comma */
        if (f->in_events && f->depth == 2) {
            next_item(f, p);
        }
    }
    f->armed = 0;
    return 1;
}

static int is_structure(char c) { return c == '"' || c == ',' || c == '{' || c == '}' || c == '[' || c == ']' || c == 'N'; }

static qn_status take_chunk(void *user, const char *text, size_t n) {
    filter *f = user;
    const char *p = text, *end = text + n;
    f->pending = text;
    while (p < end) {
        if (f->in_string) {
            p = follow_string(f, p, end);
        } else if (f->split_length) {
            p += continue_word(f, *p);
            f->pending = p;
        } else if (is_structure(*p)) {
            p += take_structure(f, p, (size_t)(end - p));
        } else {
            p++;
        }
    }
    flush(f, end, 0);
    return f->status != QN_OK ? f->status : f->json->status;
}

qn_status qn_prof_view_trace_view(const prof_view_context *context, prof_json *json, qn_error *error) {
    filter f;
    memset(&f, 0, sizeof f);
    f.json = json;
    f.trace = context->trace;
    f.arena = context->arena;
    qn_status status = context->copy_text(context->trace, take_chunk, &f, error);
    if (status == QN_OK && f.in_tail) {
        qn_prof_json_raw(json, "}", 1);
    }
    return status;
}
