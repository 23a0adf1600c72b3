/* Tensors of a Hugging Face folder: what each is called in GGUF and where its rows come from. The tables are in convert_hf.def. */
#include <ctype.h>

#include "convert_hf.h"

/* ---- Names */

static const struct {
    const char *list, *prefix;
} prefixes[] = {
#define CONVERT_PREFIX(list, prefix) {list, prefix},
#include "convert_hf.def"
};

typedef struct name_row {
    const char *list, *from, *to;
    unsigned how;
} name_row;

static const name_row names[] = {
#define CONVERT_NAME(list, from, to, how) {list, from, to, how},
#include "convert_hf.def"
};

/* Whether a name is a pattern's, and the numbers in the place of * and #. */
static int match(const char *pattern, const char *name, size_t n, long *layer, long *part) {
    const char *end = name + n;
    for (; *pattern; pattern++) {
        if (*pattern != '*' && *pattern != '#') {
            if (name == end || *name++ != *pattern) return 0;
            continue;
        }
        char digits[10];
        size_t k = 0;
        while (name < end && isdigit((unsigned char)*name) && k + 1 < sizeof digits) digits[k++] = *name++;
        digits[k] = 0;
        if (!k) return 0;
        *(*pattern == '*' ? layer : part) = strtol(digits, NULL, 10);
    }
    return name == end;
}

/* The GGUF name with its numbers and ending put in. */
static void fill_name(const char *pattern, long layer, const char *ending, char *to, size_t room) {
    const char *star = strchr(pattern, '*');
    if (star) snprintf(to, room, "%.*s%ld%s%s", (int)(star - pattern), pattern, layer, star + 1, ending);
    else snprintf(to, room, "%s%s", pattern, ending);
}

static int ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* ---- Rows */

static qn_status bad_shape(conversion *c, const qn_file_tensor *from, const char *wanted) {
    char shape[128] = "";
    for (int i = 0; i < from->tensor.rank; i++)
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%lld", i ? ", " : "", (long long)from->tensor.shape[i]);
    return qn_error_set(&c->error, QN_FORMAT, "tensor '%.100s' is [%s], not %s", from->name, shape, wanted);
}

/* Which of `rows` rows of the input the output takes, and in which order; t->rows_each becomes how many those are. */
static qn_status set_rows(conversion *c, const convert_hf *f, const qn_file_tensor *from, unsigned how, int64_t rows,
                          convert_tensor *t) {
    int64_t per = f->heads / f->kv_heads, every = per + 2, head = f->head_dim;
    const convert_pick parts[3] = {{f->heads * head, head, per, every, 0},
                                   {f->kv_heads * head, head, 1, every, per},
                                   {f->kv_heads * head, head, 1, every, per + 1}};
    t->rows_each = rows;
    t->n_picks = 0;
    if (how & (JOIN | Q | K | V)) {
        if (rows != f->kv_heads * every * head) return bad_shape(c, from, "the groups of heads that config.json tells of");
        for (int i = 0; i < 3; i++)
            if (how & (JOIN | (unsigned)Q << i)) t->picks[t->n_picks++] = parts[i];
    }
    if (how & (EVEN | ODD)) {
        if (rows % 2) return bad_shape(c, from, "pairs of rows");
        t->picks[t->n_picks++] = (convert_pick){rows / 2, 1, 1, 2, how & ODD ? 1 : 0};
    }
    if (how & (FIRST | LAST)) {
        if (rows % 2) return bad_shape(c, from, "halves of rows");
        t->picks[t->n_picks++] = (convert_pick){rows / 2, 1, rows / 2, rows, how & LAST ? rows / 2 : 0};
    }
    if (t->n_picks) t->rows_each = 0;
    for (int i = 0; i < t->n_picks; i++) t->rows_each += t->picks[i].rows;
    int64_t heads = strstr(t->name, ".attn_q.") ? f->heads : strstr(t->name, ".attn_k.") ? f->kv_heads : 0;
    if (!(f->flags & ROTATE) || !heads) return QN_OK;
    if (t->rows_each % (2 * heads))
        return qn_error_set(&c->error, QN_FORMAT, "tensor '%s': %lld rows are not %lld heads of pairs", from->name,
                            (long long)t->rows_each, (long long)heads);
    t->heads = heads;
    return QN_OK;
}

/* ---- Tensors */

/* One expert's matrix, or one head's norm, goes to its place in the stack. */
static qn_status add_part(conversion *c, convert_hf *f, const qn_file_tensor *from, const char *name, long part) {
    convert_tensor *t = convert_find(c, name);
    int rank = from->tensor.rank, of_heads = rank == 1;
    int64_t count = !of_heads ? f->experts : strstr(name, "attn_q") ? f->heads : f->kv_heads;
    if (count < 1 || count > CONVERT_MOST_SOURCES || part >= count || rank < 1 || rank > 2)
        return qn_error_set(&c->error, QN_FORMAT, "tensor '%s': it belongs to %s %ld of %lld", from->name,
                            of_heads ? "head" : "expert", part, (long long)count);
    const int64_t shape[3] = {count, from->tensor.shape[0], from->tensor.shape[rank - 1]};
    if (!t) { /* every part must come, so that more places than tensors are in vain */
        f->n_parts += (uint64_t)count;
        if (f->n_parts > f->most_parts)
            return qn_error_set(&c->error, QN_FORMAT, "tensor '%s': the files have too few tensors for the other %lld %s",
                                from->name, (long long)count - 1, of_heads ? "heads" : "experts");
        if (!(t = convert_add(c, name, (int32_t)count))) return c->error.status;
        t->from = (qn_dtype)from->tensor.dtype;
        t->rows_each = of_heads ? 1 : shape[1];
        t->columns = shape[2];
        qn_status status = qn_tensor_init(&t->shape, t->from, rank + 1, shape, NULL, 0);
        if (status != QN_OK) return qn_error_set(&c->error, status, "tensor '%s': its size overflows", name);
    }
    if (t->sources[part] || t->from != (qn_dtype)from->tensor.dtype || t->rows_each != (of_heads ? 1 : shape[1]) ||
        t->columns != shape[2])
        return qn_error_set(&c->error, QN_FORMAT, "tensor '%s' differs from those of the other %s", from->name,
                            of_heads ? "heads" : "experts");
    t->sources[part] = from->tensor.data;
    t->n_set++;
    return QN_OK;
}

/* A norm that is stored less one, or a vector whose elements change places as the rows of its matrix do. */
static qn_status add_vector(conversion *c, convert_hf *f, const qn_file_tensor *from, const char *name, unsigned how) {
    int64_t n = qn_tensor_count(&from->tensor), shape[QN_MAX_RANK];
    int rank = from->tensor.rank;
    convert_tensor order = {.name = (char *)(uintptr_t)name};
    if (rank < 1) return bad_shape(c, from, "a vector");
    qn_status status = set_rows(c, f, from, how, n, &order);
    if (status != QN_OK) return status;
    memcpy(shape, from->tensor.shape, sizeof shape);
    if (rank > 1 && (how & (JOIN | Q | K | V) || order.heads)) return bad_shape(c, from, "a vector");
    if (rank > 1 && how & (EVEN | ODD) && shape[rank - 1] % 2) return bad_shape(c, from, "pairs");
    if (n > 0) shape[rank - 1] = how & (EVEN | ODD) ? shape[rank - 1] / 2 : rank > 1 ? shape[rank - 1] : order.rows_each;
    float *to = convert_add_vector(c, f, name, rank, shape), *as_is = to ? convert_own(c, f, n) : NULL;
    if (!as_is) return c->error.status;
    if (qn_convert_rows(NULL, (qn_dtype)from->tensor.dtype, from->tensor.data, QN_DTYPE_F32, as_is, 1, n, NULL) != QN_OK)
        return qn_error_set(&c->error, QN_UNSUPPORTED, "tensor '%s' cannot become f32", from->name);
    float more = f->flags & NORM_ONE && ends_with(from->name, "norm.weight") ? 1.0f : 0.0f;
    for (int64_t i = 0; i < order.rows_each; i++) to[i] = as_is[convert_source_row(&order, i)] + more;
    return QN_OK;
}

/* Points the sources of a tensor at the matrices of one that is stacked already. */
static void point(convert_tensor *t, const void **at, const void *data, uint64_t bytes) {
    for (int32_t i = 0; i < t->n_sources; i++) at[i] = (const char *)data + (uint64_t)i * (bytes / (uint64_t)t->n_sources);
}

static uint64_t bytes_of(const qn_tensor *t) {
    uint64_t bytes = 0;
    qn_tensor_bytes((qn_dtype)t->dtype, t->rank, t->shape, &bytes);
    return bytes;
}

static qn_status finish_matrix(conversion *c, convert_tensor *t, int stacked) {
    const int64_t shape[3] = {t->n_sources, t->rows_each, t->columns};
    t->n_set = t->n_sources;
    qn_status status = qn_tensor_init(&t->shape, t->from, stacked ? 3 : 2, shape + !stacked, NULL, 0);
    return status == QN_OK ? status : qn_error_set(&c->error, status, "tensor '%s': its size overflows", t->name);
}

/* A matrix, or a stack of them, that is turned or whose rows change places. */
static qn_status add_matrix(conversion *c, convert_hf *f, const qn_file_tensor *from, const char *name, unsigned how) {
    int rank = from->tensor.rank;
    const int64_t *shape = from->tensor.shape;
    if (rank < 2 || rank > 3 || (rank == 3 && shape[0] > CONVERT_MOST_SOURCES) || qn_tensor_count(&from->tensor) < 1)
        return bad_shape(c, from, "a matrix or a stack of at most 1024, with something in it");
    convert_tensor *t = convert_add(c, name, rank == 3 ? (int32_t)shape[0] : 1);
    if (!t) return c->error.status;
    t->from = (qn_dtype)from->tensor.dtype;
    t->width = shape[rank - 1];
    t->columns = shape[how & TURN ? rank - 2 : rank - 1];
    if (how & TURN) t->change = CONVERT_TURNED;
    if (how & TURN && qn_dtype_describe(t->from)->block != 1) return bad_shape(c, from, "of plain numbers");
    qn_status status = set_rows(c, f, from, how, shape[how & TURN ? rank - 1 : rank - 2], t);
    if (status != QN_OK) return status;
    point(t, t->sources, from->tensor.data, bytes_of(&from->tensor));
    return finish_matrix(c, t, rank == 3);
}

/* [experts, rows, blocks, 16] bytes, and [experts, rows, blocks] of scales in a tensor beside it. */
static qn_status add_blocks(conversion *c, convert_hf *f, const qn_file_tensor *from, const char *name, unsigned how) {
    char beside[CONVERT_NAME_ROOM];
    qn_file_tensor scales;
    const int64_t *shape = from->tensor.shape;
    snprintf(beside, sizeof beside, "%.*sscales", (int)(strlen(from->name) - strlen("blocks")), from->name);
    if (qn_file_entry(f->weights, qn_file_find(f->weights, QN_FILE_TENSORS, beside), &scales) != QN_OK)
        return qn_error_set(&c->error, QN_FORMAT, "tensor '%.100s' has no scales: '%.100s' is missing", from->name, beside);
    if (from->tensor.rank != 4 || from->tensor.dtype != QN_DTYPE_U8 || shape[3] != 16 || shape[0] > CONVERT_MOST_SOURCES ||
        qn_tensor_count(&from->tensor) < 1)
        return bad_shape(c, from, "blocks of 16 bytes");
    if (scales.tensor.rank != 3 || scales.tensor.dtype != QN_DTYPE_U8 ||
        memcmp(scales.tensor.shape, shape, 3 * sizeof *shape) != 0)
        return bad_shape(c, &scales, "a scale of 8 bits for each block");
    convert_tensor *t = convert_add(c, name, (int32_t)shape[0]);
    if (!t) return c->error.status;
    t->from = QN_DTYPE_MXFP4;
    t->change = CONVERT_BLOCKS;
    t->columns = shape[2] * 32;
    qn_status status = set_rows(c, f, from, how, shape[1], t);
    if (status != QN_OK) return status;
    point(t, t->sources, from->tensor.data, bytes_of(&from->tensor));
    point(t, t->scales, scales.tensor.data, bytes_of(&scales.tensor));
    return finish_matrix(c, t, 1);
}

/* As it lies. */
static qn_status add_plain(conversion *c, const qn_file_tensor *from, const char *name) {
    int rank = from->tensor.rank;
    const int64_t *shape = from->tensor.shape;
    convert_tensor *t = convert_add(c, name, 1);
    if (!t) return c->error.status;
    for (; rank > 1 && *shape == 1; shape++) rank--; /* leading ones say nothing */
    t->from = (qn_dtype)from->tensor.dtype;
    t->columns = rank ? shape[rank - 1] : 0;
    t->rows_each = t->columns ? qn_tensor_count(&from->tensor) / t->columns : 0;
    t->sources[0] = from->tensor.data;
    t->n_set = 1;
    if (t->rows_each < 1) return bad_shape(c, from, "a tensor with something in it");
    return qn_tensor_init(&t->shape, t->from, rank, shape, NULL, 0);
}

static qn_status add_tensor(conversion *c, convert_hf *f, const qn_file_tensor *from, const char *name, long part, unsigned how) {
    if (part >= 0) return add_part(c, f, from, name, part);
    if (convert_find(c, name))
        return qn_error_set(&c->error, QN_FORMAT, "two tensors would be '%s': one is '%.100s'", name, from->name);
    if (how & BLOCKS) return add_blocks(c, f, from, name, how);
    int rotates = f->flags & ROTATE && (strstr(name, ".attn_q.") || strstr(name, ".attn_k."));
    int is_norm = f->flags & NORM_ONE && ends_with(from->name, "norm.weight"), is_bias = ends_with(name, ".bias");
    if (is_norm || (is_bias && (how & ~(unsigned)TURN || rotates))) return add_vector(c, f, from, name, how & ~(unsigned)TURN);
    return !is_bias && (how || rotates) ? add_matrix(c, f, from, name, how) : add_plain(c, from, name);
}

/* The part of a name that tables know: without the prefix, and without the ending, which is handed over. */
static size_t known_part(const convert_hf *f, const char **name, const char **ending) {
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (convert_in_list(prefixes[i].list, f->architecture) &&
            strncmp(*name, prefixes[i].prefix, strlen(prefixes[i].prefix)) == 0)
            *name += strlen(prefixes[i].prefix);
    *ending = ends_with(*name, ".weight") ? ".weight" : ends_with(*name, ".bias") ? ".bias" : "";
    return strlen(*name) - strlen(*ending);
}

qn_status convert_hf_tensor(conversion *c, convert_hf *f, const qn_file_tensor *from) {
    char name[CONVERT_NAME_ROOM];
    const char *known = from->name, *ending;
    size_t n = known_part(f, &known, &ending);
    int found = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        long layer = 0, part = -1;
        if (!convert_in_list(names[i].list, f->architecture) || !match(names[i].from, known, n, &layer, &part)) continue;
        if (!*names[i].to || (f->flags & NO_OUTPUT && strcmp(names[i].to, "output") == 0)) return QN_OK;
        fill_name(names[i].to, layer, ending, name, sizeof name);
        qn_status status = add_tensor(c, f, from, name, part, names[i].how);
        if (status != QN_OK || !(names[i].how & PARTS)) return status;
        found = 1;
    }
    if (found) return QN_OK;
    return qn_error_set(&c->error, QN_UNSUPPORTED, "tensor '%.100s' has no name in GGUF's %s", from->name, f->architecture);
}
