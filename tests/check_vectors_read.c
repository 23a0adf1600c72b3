/* Reader of one index line. The file may be garbage or hostile: every length, depth, number and offset is bounded here, so that
 * the rest may trust a case. A parser of our own because the form is small and a library would not say which number is wrong. */
#include <stdlib.h>
#include <strings.h>

#include "check_vectors.h"

enum { DEPTH_MAX = 16, NUMBER_MAX = 48 };

typedef struct reader {
    const char *at, *end, *begin;
    qn_error *error;
} reader;

/* ---- JSON */

static qn_status bad(reader *r, const char *what) {
    return qn_error_set(r->error, QN_FORMAT, "column %zu: %s", (size_t)(r->at - r->begin) + 1, what);
}

static void blanks(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\r' || *r->at == '\n')) r->at++;
}

static int next_is(reader *r, char c) {
    blanks(r);
    return r->at < r->end && *r->at == c;
}

static int take(reader *r, char c) {
    if (!next_is(r, c)) return 0;
    r->at++;
    return 1;
}

static int take_word(reader *r, const char *word) {
    size_t n = strlen(word);
    blanks(r);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) return 0;
    r->at += n;
    return 1;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* What follows a backslash. Names are only shown and compared, so all that is not plain ASCII becomes a question mark. */
static qn_status read_escape(reader *r, char *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/?????";
    if (r->at >= r->end) return bad(r, "the string does not end");
    const char *which = memchr(from, *r->at, sizeof from - 1);
    if (which) {
        *out = to[which - from];
        r->at++;
        return QN_OK;
    }
    if (*r->at != 'u' || r->end - r->at < 5) return bad(r, "bad escape in a string");
    int code = 0;
    for (int i = 1; i <= 4; i++) {
        int digit = hex_digit(r->at[i]);
        if (digit < 0) return bad(r, "bad escape in a string");
        code = code * 16 + digit;
    }
    *out = code >= 0x20 && code < 0x7f ? (char)code : '?';
    r->at += 5;
    return QN_OK;
}

/* Into a buffer of `size` bytes; with size 0 the string is only passed over. */
static qn_status read_string(reader *r, char *out, size_t size) {
    if (!take(r, '"')) return bad(r, "a string was expected");
    size_t n = 0;
    while (r->at < r->end && *r->at != '"') {
        char c = *r->at++;
        if ((unsigned char)c < 0x20) return bad(r, "control character in a string");
        if (c == '\\') {
            qn_status status = read_escape(r, &c);
            if (status != QN_OK) return status;
        }
        if (size && n + 1 >= size) return bad(r, "the string is too long");
        if (size) out[n++] = (unsigned char)c < 0x7f ? c : '?';
    }
    if (r->at >= r->end) return bad(r, "the string does not end");
    r->at++;
    if (size) out[n] = 0;
    return QN_OK;
}

static size_t digits(reader *r) {
    const char *first = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
    return (size_t)(r->at - first);
}

/* The characters of a number, checked against JSON's grammar. *whole tells that it has neither fraction nor exponent. */
static qn_status read_number_text(reader *r, char text[NUMBER_MAX], int *whole) {
    blanks(r);
    const char *first = r->at;
    if (r->at < r->end && *r->at == '-') r->at++;
    const char *leading = r->at;
    size_t n = digits(r);
    if (n == 0) return bad(r, "a number was expected");
    if (n > 1 && *leading == '0') return bad(r, "a number begins with 0");
    *whole = 1;
    if (r->at < r->end && *r->at == '.') {
        r->at++;
        *whole = 0;
        if (digits(r) == 0) return bad(r, "a number ends in a point");
    }
    if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
        r->at++;
        *whole = 0;
        if (r->at < r->end && (*r->at == '+' || *r->at == '-')) r->at++;
        if (digits(r) == 0) return bad(r, "a number has an empty exponent");
    }
    size_t length = (size_t)(r->at - first);
    if (length >= NUMBER_MAX) return bad(r, "a number has too many digits");
    memcpy(text, first, length);
    text[length] = 0;
    return QN_OK;
}

static qn_status read_integer(reader *r, int64_t low, int64_t high, int64_t *out) {
    char text[NUMBER_MAX];
    int whole;
    qn_status status = read_number_text(r, text, &whole);
    if (status != QN_OK) return status;
    if (!whole) return bad(r, "an integer was expected");
    int64_t value = 0;
    int negative = text[0] == '-';
    for (const char *c = text + negative; *c; c++) /* negative all the way, since -2^63 has no positive twin */
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_sub_overflow(value, *c - '0', &value))
            return bad(r, "the integer does not fit in 64 bits");
    if (!negative && __builtin_sub_overflow((int64_t)0, value, &value)) return bad(r, "the integer does not fit in 64 bits");
    if (value < low || value > high) return bad(r, "the integer is out of range");
    *out = value;
    return QN_OK;
}

static qn_status read_double(reader *r, double *out) {
    char text[NUMBER_MAX];
    int whole;
    qn_status status = read_number_text(r, text, &whole);
    if (status != QN_OK) return status;
    *out = strtod(text, NULL);
    return isfinite(*out) ? QN_OK : bad(r, "the number is too large");
}

static qn_status skip_value(reader *r, int depth) {
    if (depth > DEPTH_MAX) return bad(r, "nested too deep");
    blanks(r);
    if (next_is(r, '"')) return read_string(r, NULL, 0);
    if (take_word(r, "null") || take_word(r, "true") || take_word(r, "false")) return QN_OK;
    int object = next_is(r, '{');
    if (!object && !next_is(r, '[')) {
        char text[NUMBER_MAX];
        int whole;
        return read_number_text(r, text, &whole);
    }
    char close = object ? '}' : ']';
    r->at++;
    if (take(r, close)) return QN_OK;
    do {
        qn_status status = object ? read_string(r, NULL, 0) : QN_OK;
        if (status == QN_OK && object && !take(r, ':')) status = bad(r, "':' was expected");
        if (status == QN_OK) status = skip_value(r, depth + 1);
        if (status != QN_OK) return status;
    } while (take(r, ','));
    return take(r, close) ? QN_OK : bad(r, "the list or object does not end");
}

/* ---- Objects with known keys: each at most once, some required, others passed over */

typedef qn_status (*field_fn)(reader *r, void *into);
typedef struct field {
    const char *key;
    int required;
    field_fn read;
} field;

static qn_status read_object(reader *r, const field *fields, int n, void *into) {
    unsigned seen = 0;
    if (!take(r, '{')) return bad(r, "an object was expected");
    if (!next_is(r, '}')) do {
            char key[32];
            blanks(r);
            reader before = *r;
            int known = -1;
            if (read_string(r, key, sizeof key) == QN_OK) {
                for (int i = 0; i < n; i++)
                    if (strcmp(fields[i].key, key) == 0) known = i;
            } else {
                *r = before; /* too long for any key we know, or no string at all: the second reading tells */
                qn_status status = read_string(r, NULL, 0);
                if (status != QN_OK) return status;
            }
            if (!take(r, ':')) return bad(r, "':' was expected");
            if (known >= 0 && (seen >> known & 1)) return bad(r, "a key is given twice");
            if (known >= 0) seen |= 1u << known;
            qn_status status = known < 0 ? skip_value(r, 1) : fields[known].read(r, into);
            if (status != QN_OK) return known < 0 ? status : qn_error_wrap(r->error, "\"%s\"", fields[known].key);
        } while (take(r, ','));
    if (!take(r, '}')) return bad(r, "the object does not end");
    for (int i = 0; i < n; i++)
        if (fields[i].required && !(seen >> i & 1))
            return qn_error_set(r->error, QN_FORMAT, "the key \"%s\" is missing", fields[i].key);
    return QN_OK;
}

/* A list of at most `most` integers; *n is how many there were. */
static qn_status read_integers(reader *r, int most, int64_t low, int64_t high, int64_t *out, int *n) {
    *n = 0;
    if (!take(r, '[')) return bad(r, "a list was expected");
    if (take(r, ']')) return QN_OK;
    do {
        if (*n >= most) return bad(r, "the list is too long");
        qn_status status = read_integer(r, low, high, &out[(*n)++]);
        if (status != QN_OK) return status;
    } while (take(r, ','));
    return take(r, ']') ? QN_OK : bad(r, "the list does not end");
}

/* ---- Tensors */

static qn_status tensor_type(reader *r, void *into) {
    qn_vec_tensor *t = into;
    qn_status status = read_string(r, t->type, sizeof t->type);
    if (status != QN_OK) return status;
    for (int d = 1; d < QN_DTYPE_COUNT; d++) /* ggml writes q4_K, other tools Q4_K */
        if (strcasecmp(qn_dtype_describe((qn_dtype)d)->name, t->type) == 0) t->dtype = (qn_dtype)d;
    return QN_OK;
}

static qn_status tensor_ne(reader *r, void *into) {
    qn_vec_tensor *t = into;
    int n;
    for (int i = 0; i < QN_VEC_AXES; i++) t->ne[i] = 1;
    qn_status status = read_integers(r, QN_VEC_AXES, 0, INT64_MAX, t->ne, &n);
    return status != QN_OK || n > 0 ? status : bad(r, "there are no extents");
}

static qn_status tensor_nb(reader *r, void *into) {
    int n;
    return read_integers(r, QN_VEC_AXES, 0, INT64_MAX, ((qn_vec_tensor *)into)->nb, &n);
}

static qn_status tensor_off(reader *r, void *into) {
    int64_t v = 0;
    qn_status status = read_integer(r, 0, INT64_MAX, &v);
    ((qn_vec_tensor *)into)->off = (uint64_t)v;
    return status;
}

static qn_status tensor_bytes(reader *r, void *into) {
    int64_t v = 0;
    qn_status status = read_integer(r, 0, INT64_MAX, &v);
    ((qn_vec_tensor *)into)->bytes = (uint64_t)v;
    return status;
}

static qn_status read_tensor(reader *r, qn_vec_tensor *t) {
    static const field fields[] = {
        {"type", 1, tensor_type}, {"ne", 1, tensor_ne}, {"nb", 0, tensor_nb}, {"off", 1, tensor_off}, {"bytes", 1, tensor_bytes}};
    t->present = 1;
    return read_object(r, fields, (int)(sizeof fields / sizeof *fields), t);
}

/* The tensor lies inside data.bin and has the bytes its type and extents need. */
static qn_status check_tensor(const qn_vec_tensor *t, uint64_t data_size, qn_error *error) {
    if (t->off > data_size || t->bytes > data_size - t->off)
        return qn_error_set(error, QN_FORMAT, "bytes %llu at offset %llu lie outside data.bin, which has %llu",
                            (unsigned long long)t->bytes, (unsigned long long)t->off, (unsigned long long)data_size);
    int64_t shape[QN_VEC_AXES];
    uint64_t bytes = 0;
    if (t->dtype == QN_DTYPE_NONE) return QN_OK; /* told as a difference of its case */
    if (qn_tensor_bytes(t->dtype, qn_vec_shape(t, QN_VEC_AXES, shape), shape, &bytes) != QN_OK)
        return qn_error_set(error, QN_FORMAT, "extents too large, or a row of %lld is no whole number of %s blocks",
                            (long long)t->ne[0], t->type);
    if (bytes != t->bytes)
        return qn_error_set(error, QN_FORMAT, "\"bytes\" is %llu, type and extents need %llu", (unsigned long long)t->bytes,
                            (unsigned long long)bytes);
    return QN_OK;
}

/* ---- Cases */

static qn_status case_op(reader *r, void *into) {
    qn_vec_case *c = into;
    return read_string(r, c->op, sizeof c->op);
}

static qn_status case_name(reader *r, void *into) {
    qn_vec_case *c = into;
    return read_string(r, c->name, sizeof c->name);
}

static qn_status case_max_nmse(reader *r, void *into) {
    qn_vec_case *c = into;
    qn_status status = read_double(r, &c->max_nmse);
    return status != QN_OK || c->max_nmse >= 0 ? status : bad(r, "the bound is negative");
}

/* Floats are bit patterns, so a writer that prints unsigned words means the same. */
static qn_status case_params(reader *r, void *into) {
    qn_vec_case *c = into;
    int64_t words[QN_VEC_PARAMS];
    int n;
    qn_status status = read_integers(r, QN_VEC_PARAMS, INT32_MIN, UINT32_MAX, words, &n);
    if (status != QN_OK) return status;
    if (n != QN_VEC_PARAMS) return bad(r, "16 words were expected");
    for (int i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)words[i];
        memcpy(&c->params[i], &bits, sizeof bits);
    }
    return QN_OK;
}

static qn_status case_src(reader *r, void *into) {
    qn_vec_case *c = into;
    if (!take(r, '[')) return bad(r, "a list was expected");
    if (take(r, ']')) return QN_OK;
    do {
        if (c->n_src >= QN_VEC_SOURCES) return bad(r, "there are more than 10 sources");
        int number = c->n_src++;
        if (take_word(r, "null")) continue;
        if (read_tensor(r, &c->src[number]) != QN_OK) return qn_error_wrap(r->error, "number %d", number);
    } while (take(r, ','));
    return take(r, ']') ? QN_OK : bad(r, "the list does not end");
}

static qn_status case_dst(reader *r, void *into) { return read_tensor(r, &((qn_vec_case *)into)->dst); }

qn_status qn_vec_parse(const char *text, size_t n, uint64_t data_size, qn_vec_case *out, qn_error *error) {
    static const field fields[] = {{"op", 1, case_op},         {"case", 1, case_name}, {"max_nmse", 1, case_max_nmse},
                                   {"params", 1, case_params}, {"src", 1, case_src},   {"dst", 1, case_dst}};
    qn_error ignored;
    reader r = {text, text + n, text, error ? error : &ignored};
    memset(out, 0, sizeof *out);
    qn_status status = read_object(&r, fields, (int)(sizeof fields / sizeof *fields), out);
    if (status != QN_OK) return status;
    blanks(&r);
    if (r.at != r.end) return bad(&r, "something follows the object");
    for (int i = 0; i < out->n_src; i++)
        if (out->src[i].present && check_tensor(&out->src[i], data_size, r.error) != QN_OK)
            return qn_error_wrap(r.error, "\"src\" number %d", i);
    if (check_tensor(&out->dst, data_size, r.error) != QN_OK) return qn_error_wrap(r.error, "\"dst\"");
    return QN_OK;
}
