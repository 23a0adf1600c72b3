/* How a trace is written must not change what is read: spacing, order of keys, unknown keys, where the window ends, how it is
 * packed. The reader learns the habits of a file's writer, so each file here breaks some habit. */
#include <string.h>
#include <zlib.h>

#include <quern/profile.h>

#include "folder_help.h"
#include "prof/crc32.h"

enum { EVENTS = 6000, ROOM = 8 << 20 }; /* several windows */

typedef struct text {
    char *at;
    size_t n;
} text;

static void add(text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->at + t->n, ROOM - t->n, format, args);
    va_end(args);
    assert_true(n >= 0 && t->n + (size_t)n < ROOM);
    t->n += (size_t)n;
}

/* ---- One trace in many hands -------------------------------------------------------------------------------------- */

enum { PLAIN, TIGHT, LOOSE, TURNED, STRANGE, WILD, STYLES };

static void gap(text *t, int style, int i) { /* between tokens */
    static const char *const WIDE[] = {" ", "\n      ", "\t", "", "                                                            "};
    if (style == PLAIN) {
        add(t, " ");
    } else if (style == LOOSE || style == WILD) {
        add(t, "%s", WIDE[(i * 7 + style) % 5]);
    }
}

static void member(text *t, int style, int i, int *first, const char *key, const char *value) {
    add(t, "%s", *first ? "" : ",");
    *first = 0;
    gap(t, style, i);
    if (style == STRANGE && i % 3 == 0) { /* keys nobody asks for, more of them than anything remembers */
        add(t, "\"unknown %d\": [{\"a\": [1, \"]\\\"\"]}, %d], ", i, i);
    }
    if (style == WILD && i % 5 == 0) {
        add(t, "\"\\u00%02x%s\"", key[0], key + 1); /* the same key, escaped */
    } else {
        add(t, "\"%s\"", key);
    }
    gap(t, style, i + 1);
    add(t, ":");
    gap(t, style, i + 2);
    add(t, "%s", value);
    gap(t, style, i + 3);
}

static void event(text *t, int style, int i) {
    char name[64], ts[32], dims[64], id[32], stack[256];
    snprintf(name, sizeof name, "\"aten::op_%d\"", i % 97);
    snprintf(ts, sizeof ts, "%d%s", 1000000 + i * 10, i % 2 ? "" : ".0");
    snprintf(dims, sizeof dims, "[[%d, 3], [], [%d]]", i % 11, i % 5);
    snprintf(id, sizeof id, "%d", i);
    snprintf(stack, sizeof stack, "\"a long way from home.py(%d): the same frames again;and again;main.py(%d): <module>\"",
             i % 13 / 4, i % 3);
    const char *pairs[][2] = {{"ph", "\"X\""}, {"cat", "\"cpu_op\""}, {"name", name}, {"pid", "1"}, {"tid", "\"7\""},
                              {"ts", ts},      {"dur", "8"}};
    enum { OWN = sizeof pairs / sizeof *pairs };
    int first = 1, args_first = 1;
    add(t, "{");
    for (int k = 0; k < OWN; k++) {
        int at = style == TURNED ? OWN - 1 - (k + i) % OWN : k;
        member(t, style, i, &first, pairs[at][0], pairs[at][1]);
    }
    add(t, ",\"args\":{");
    member(t, style, i, &args_first, "External id", id);
    member(t, style, i, &args_first, i % 2 ? "Input Dims" : "Input dims", dims);
    if (i % 4) {
        member(t, style, i, &args_first, "Call stack", stack);
    }
    add(t, "}}");
}

static void write_trace(text *t, int style) {
    t->n = 0;
    add(t, "{\"traceEvents\":[");
    for (int i = 0; i < EVENTS; i++) {
        add(t, i ? "," : "");
        event(t, style, i);
    }
    add(t, "]}");
}

/* ---- Reading it ---------------------------------------------------------------------------------------------------- */

static qn_status checksum(void *user, const char *bytes, size_t length) {
    *(uint32_t *)user = (uint32_t)crc32(*(uint32_t *)user, (const Bytef *)bytes, (uInt)length);
    return QN_OK;
}

/* One number for all the views that show what was read. */
static uint32_t views_of(const char *folder, const char *name) {
    static const char *const VIEWS[] = {"operation_table_by_shape", "operation_stack_by_shape", "tree", "overview"};
    char path[512];
    qn_profile *profile;
    qn_error error;
    uint32_t sum = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (qn_profile_open(path, NULL, &profile, &error) != QN_OK) {
        fail_msg("%s", error.text);
    }
    for (size_t i = 0; i < sizeof VIEWS / sizeof *VIEWS; i++) {
        if (qn_profile_view(profile, VIEWS[i], NULL, checksum, &sum, &error) != QN_OK) {
            fail_msg("%s", error.text);
        }
    }
    qn_profile_close(profile);
    return sum;
}

static void every_style_reads_the_same(void **state) {
    text t = {malloc(ROOM), 0};
    assert_non_null(t.at);
    uint32_t wanted = 0;
    for (int style = 0; style < STYLES; style++) {
        write_trace(&t, style);
        save(*state, "t.pt.trace.json", t.at, t.n);
        uint32_t got = views_of(*state, "t.pt.trace.json");
        wanted = style ? wanted : got;
        assert_int_equal(got, wanted);
    }
    free(t.at);
}

/* ---- Packed files ------------------------------------------------------------------------------------------------- */

/* One gzip member; flags as in its header. Returns its length. */
static size_t pack(unsigned char *out, size_t room, const char *bytes, size_t length, int flags) {
    z_stream z;
    memset(&z, 0, sizeof z);
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
    const unsigned char head[10] = {0x1f, 0x8b, 8, (unsigned char)flags};
    size_t n = sizeof head;
    memcpy(out, head, n);
    if (flags & 4) {
        memcpy(out + n, "\3\0abc", 5);
        n += 5;
    }
    if (flags & 8) {
        memcpy(out + n, "name", 5);
        n += 5;
    }
    if (flags & 16) {
        memcpy(out + n, "comment", 8);
        n += 8;
    }
    if (flags & 2) {
        memcpy(out + n, "\1\2", 2);
        n += 2;
    }
    z.next_in = (Bytef *)bytes;
    z.avail_in = (uInt)length;
    z.next_out = out + n;
    z.avail_out = (uInt)(room - n - 8);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    n += z.total_out;
    deflateEnd(&z);
    uint32_t tail[2] = {(uint32_t)crc32(0, (const Bytef *)bytes, (uInt)length), (uint32_t)length};
    for (int i = 0; i < 8; i++) {
        out[n++] = (unsigned char)(tail[i / 4] >> 8 * (i % 4));
    }
    return n;
}

static void members_and_headers_of_gzip_are_read(void **state) {
    text t = {malloc(ROOM), 0};
    unsigned char *packed = malloc(ROOM);
    assert_true(t.at && packed);
    write_trace(&t, PLAIN);
    save(*state, "t.pt.trace.json", t.at, t.n);
    uint32_t wanted = views_of(*state, "t.pt.trace.json");
    size_t half = t.n / 2, n = 0;
    for (int flags = 0; flags < 32; flags += 2) {
        n = pack(packed, ROOM, t.at, half, flags);
        n += pack(packed + n, ROOM - n, t.at + half, t.n - half, 30 - flags);
        memset(packed + n, 0, 1000); /* padding, as tapes have it */
        save(*state, "t.pt.trace.json.gz", packed, n + 1000);
        assert_int_equal(views_of(*state, "t.pt.trace.json.gz"), wanted);
    }
    free(t.at);
    free(packed);
}

static void assert_refused(const char *folder, const unsigned char *bytes, size_t n, const char *why) {
    char path[512];
    qn_profile *profile;
    qn_error error;
    save(folder, "t.pt.trace.json.gz", bytes, n);
    snprintf(path, sizeof path, "%s/t.pt.trace.json.gz", folder);
    assert_int_equal(qn_profile_open(path, NULL, &profile, &error), QN_OK);
    assert_int_equal(qn_profile_load(profile, 0, 0, 0, &error), QN_FORMAT);
    qn_profile_close(profile);
    assert_non_null(strstr(error.text, why));
    assert_non_null(strstr(error.text, "stored byte"));
    const char *name = strstr(error.text, "t.pt.trace.json.gz"); /* once and no more */
    assert_non_null(name);
    assert_null(strstr(name + 1, "t.pt.trace.json.gz"));
}

static void every_damage_to_gzip_is_named(void **state) {
    static const char JSON[] = "{\"traceEvents\": []}";
    unsigned char good[256], bad[300];
    size_t n = pack(good, sizeof good, JSON, sizeof JSON - 1, 8);
    for (size_t cut = 0; cut < n; cut++) {
        assert_refused(*state, good, cut, "ends too early");
    }
    for (size_t i = n - 8; i < n; i++) { /* the checksum and the length */
        memcpy(bad, good, n);
        bad[i] ^= 1;
        assert_refused(*state, bad, n, "checksum");
    }
    for (size_t i = 0; i < 4; i++) { /* the magic, the method and the reserved flags */
        memcpy(bad, good, n);
        bad[i] ^= 0xe0;
        assert_refused(*state, bad, n, "no gzip header");
    }
    memcpy(bad, good, n);
    memcpy(bad + n, "not gzip, but long enough", 20);
    assert_refused(*state, bad, n + 20, "what follows the gzip data is not gzip");
    assert_refused(*state, bad, n + 3, "what follows the gzip data is not gzip");
}

static void checksums_are_those_of_zlib(void **state) {
    (void)state;
    static unsigned char bytes[5000];
    uint32_t seed = 7;
    for (size_t i = 0; i < sizeof bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(seed >> 24);
    }
    for (size_t n = 0; n < 1200; n++) {
        size_t from = n % 33;
        uint32_t begin = (uint32_t)n * 2654435761u, wanted = (uint32_t)crc32(begin, bytes + from, (uInt)n);
        assert_int_equal(qn_prof_crc32(begin, bytes + from, n), wanted);
        assert_int_equal(qn_prof_crc32(qn_prof_crc32(begin, bytes + from, n / 3), bytes + from + n / 3, n - n / 3), wanted);
    }
    assert_int_equal(qn_prof_crc32(0, bytes, sizeof bytes), crc32(0, bytes, sizeof bytes));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(every_style_reads_the_same),
        IN_FOLDER(members_and_headers_of_gzip_are_read),
        IN_FOLDER(every_damage_to_gzip_is_named),
        cmocka_unit_test(checksums_are_those_of_zlib),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
