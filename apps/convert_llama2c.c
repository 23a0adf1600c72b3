/* The checkpoints of llama2.c: a header of seven numbers and the weights in a fixed order, in f32 (versions 0 and 1) or in 8 bits with
 * a scale for each group (version 2). The vocabulary is a file of its own. Rotary pairs are neighbours in both formats. */
#include <ctype.h>

#include "convert_parts.h"

enum { MAGIC = 0x616b3432, HEADER = 256, HEADER_0 = 28, MOST = 1 << 20 };

typedef struct shape_numbers {
    int64_t dim, hidden, layers, heads, kv_heads, vocab, context;
} shape_numbers;

struct convert_llama2c {
    char *data, *vocab;
    size_t bytes, at;
    shape_numbers s;
    int version, shared;
    int64_t group;
};

static int32_t get_i32(const char *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* ---- Header */

static qn_status check_numbers(conversion *c, const shape_numbers *s) {
    const int64_t all[] = {s->dim, s->hidden, s->layers, s->heads, s->kv_heads, s->vocab, s->context};
    for (size_t i = 0; i < 7; i++)
        if (all[i] < 1 || all[i] > MOST)
            return qn_error_set(&c->error, QN_FORMAT, "%s: number %zu of the header is %lld: this is no llama2.c checkpoint",
                                c->in, i, (long long)all[i]);
    if (s->dim % s->heads || s->heads % s->kv_heads || s->dim / s->heads % 2)
        return qn_error_set(&c->error, QN_FORMAT, "%s: %lld dims do not divide into %lld heads in %lld groups", c->in,
                            (long long)s->dim, (long long)s->heads, (long long)s->kv_heads);
    return QN_OK;
}

static qn_status read_header(conversion *c, convert_llama2c *f) {
    int64_t *const to[] = {&f->s.dim, &f->s.hidden, &f->s.layers, &f->s.heads, &f->s.kv_heads, &f->s.vocab, &f->s.context};
    if (f->bytes < HEADER_0)
        return qn_error_set(&c->error, QN_FORMAT, "%s: %zu bytes are no llama2.c checkpoint", c->in, f->bytes);
    const char *numbers = f->data;
    f->at = HEADER_0;
    if (get_i32(f->data) == MAGIC) {
        f->version = get_i32(f->data + 4);
        if (f->bytes < HEADER || f->version < 1 || f->version > 2)
            return qn_error_set(&c->error, QN_UNSUPPORTED, "%s: llama2.c version %d; 0 to 2 are known", c->in, f->version);
        numbers = f->data + 8;
        f->shared = f->data[36] != 0;
        f->group = f->version == 2 ? get_i32(f->data + 37) : 0;
        f->at = HEADER;
    }
    for (int i = 0; i < 7; i++) *to[i] = get_i32(numbers + 4 * i);
    if (f->version == 0) { /* a negative vocabulary says that the output has a matrix of its own */
        f->shared = f->s.vocab > 0;
        if (f->s.vocab < 0) f->s.vocab = -f->s.vocab;
    }
    if (f->version == 2 && (f->group < 1 || f->group > MOST || f->s.dim % f->group || f->s.hidden % f->group))
        return qn_error_set(&c->error, QN_FORMAT, "%s: groups of %lld do not divide its rows", c->in, (long long)f->group);
    return check_numbers(c, &f->s);
}

/* ---- Weights */

static const void *take(conversion *c, convert_llama2c *f, int64_t count, int64_t size) {
    uint64_t bytes = (uint64_t)count * (uint64_t)size; /* numbers are below 2^20, three of them at most: below 2^63 */
    if (bytes > f->bytes - f->at) {
        qn_error_set(&c->error, QN_FORMAT, "%s: the file ends at byte %zu; %llu bytes from byte %zu on were expected", c->in,
                     f->bytes, (unsigned long long)bytes, f->at);
        return NULL;
    }
    const void *at = f->data + f->at;
    f->at += (size_t)bytes;
    return at;
}

/* The next rows x columns weights as a tensor of the output; rows 0 for a vector. */
static qn_status add(conversion *c, convert_llama2c *f, const char *name, int64_t rows, int64_t columns) {
    convert_tensor *t = convert_add(c, name, 1);
    const int64_t shape[2] = {rows ? rows : columns, columns};
    int quantised = f->version == 2 && rows;
    if (!t) return c->error.status;
    t->from = QN_DTYPE_F32;
    t->rows_each = rows ? rows : 1;
    t->columns = columns;
    t->group = f->group;
    t->change = quantised ? CONVERT_GROUPS : CONVERT_AS_IS;
    t->sources[0] = take(c, f, t->rows_each * columns, quantised ? 1 : 4);
    if (t->sources[0] && quantised) t->scales[0] = take(c, f, t->rows_each * columns / f->group, 4);
    t->n_set = 1;
    if (!t->sources[0] || (quantised && !t->scales[0])) return c->error.status;
    return qn_tensor_init(&t->shape, QN_DTYPE_F32, rows ? 2 : 1, shape, NULL, 0);
}

static qn_status add_layers(conversion *c, convert_llama2c *f, const char *what, int64_t rows, int64_t columns) {
    char name[64];
    qn_status status = QN_OK;
    for (int64_t i = 0; i < f->s.layers && status == QN_OK; i++) {
        snprintf(name, sizeof name, "blk.%lld.%s.weight", (long long)i, what);
        status = add(c, f, name, rows, columns);
    }
    return status;
}

typedef struct layer_row {
    const char *name;
    int64_t rows, columns;
} layer_row;

static qn_status add_all(conversion *c, convert_llama2c *f) {
    const shape_numbers *s = &f->s;
    int64_t kv = s->dim / s->heads * s->kv_heads, half = s->dim / s->heads / 2;
    const layer_row matrices[] = {{"attn_q", s->dim, s->dim},      {"attn_k", kv, s->dim},
                                  {"attn_v", kv, s->dim},          {"attn_output", s->dim, s->dim},
                                  {"ffn_gate", s->hidden, s->dim}, {"ffn_down", s->dim, s->hidden},
                                  {"ffn_up", s->hidden, s->dim}};
    qn_status status = QN_OK;
    if (f->version > 0) { /* norms in front, then everything else */
        status = add_layers(c, f, "attn_norm", 0, s->dim);
        if (status == QN_OK) status = add_layers(c, f, "ffn_norm", 0, s->dim);
        if (status == QN_OK) status = add(c, f, "output_norm.weight", 0, s->dim);
    }
    if (status == QN_OK) status = add(c, f, "token_embd.weight", s->vocab, s->dim);
    if (status == QN_OK && f->version == 0) status = add_layers(c, f, "attn_norm", 0, s->dim);
    for (int i = 0; i < 7 && status == QN_OK; i++) {
        if (f->version == 0 && i == 4) status = add_layers(c, f, "ffn_norm", 0, s->dim);
        if (status == QN_OK) status = add_layers(c, f, matrices[i].name, matrices[i].rows, matrices[i].columns);
    }
    if (status == QN_OK && f->version == 0) status = add(c, f, "output_norm.weight", 0, s->dim);
    if (status == QN_OK && f->version == 0 && !take(c, f, 2 * s->context * half, 4))
        status = c->error.status; /* tables of angles */
    if (status == QN_OK && !f->shared) status = add(c, f, "output.weight", s->vocab, s->dim);
    if (status == QN_OK && f->at != f->bytes)
        return qn_error_set(&c->error, QN_FORMAT, "%s: %zu bytes are left behind the last weight", c->in, f->bytes - f->at);
    return status;
}

/* ---- Vocabulary: the longest token's length, then for each token a score, a length and its bytes */

/* How llama.cpp spells a token: control tokens bare, spaces visible. */
static int spell(const char *text, size_t n, int64_t id, convert_bytes *tokens) {
    convert_bytes one = {0};
    static const char *const fixed[] = {"<unk>", "<s>", "</s>"};
    int type = 1;
    if (id < 3) {
        convert_append(&one, fixed[id], strlen(fixed[id]));
        type = id == 0 ? 2 : 3;
    } else if (n == 6 && memcmp(text, "<0x", 3) == 0 && isxdigit((unsigned char)text[3]) && isxdigit((unsigned char)text[4]) &&
               text[5] == '>') {
        convert_append(&one, text, n);
        type = 6;
    } else {
        for (size_t i = 0; i < n; i++) convert_append(&one, text[i] == ' ' ? "\xe2\x96\x81" : text + i, text[i] == ' ' ? 3 : 1);
    }
    convert_append_text(tokens, one.at, one.n);
    tokens->failed |= one.failed;
    free(one.at);
    return type;
}

static qn_status read_tokens(conversion *c, convert_llama2c *f, const char *path, size_t bytes, convert_bytes arrays[3]) {
    size_t at = 4;
    for (int64_t i = 0; i < f->s.vocab; i++) {
        int32_t length = at + 8 <= bytes ? get_i32(f->vocab + at + 4) : -1;
        if (length < 0 || (size_t)length > bytes - at - 8)
            return qn_error_set(&c->error, QN_FORMAT, "%s: byte %zu: token %lld of %lld is not all there", path, at, (long long)i,
                                (long long)f->s.vocab);
        int32_t type = spell(f->vocab + at + 8, (size_t)length, i, &arrays[0]);
        convert_append(&arrays[1], f->vocab + at, 4);
        convert_append(&arrays[2], &type, sizeof type);
        at += 8 + (size_t)length;
    }
    if (at != bytes)
        return qn_error_set(&c->error, QN_FORMAT, "%s: %zu bytes are left behind token %lld: is this the model's vocabulary?",
                            path, bytes - at, (long long)f->s.vocab);
    return QN_OK;
}

static qn_status put_vocab(conversion *c, convert_llama2c *f) {
    char beside[4096];
    const char *path = c->tokenizer, *slash = strrchr(c->in, '/');
    convert_bytes arrays[3] = {{0}};
    size_t bytes;
    snprintf(beside, sizeof beside, "%.*stokenizer.bin", slash ? (int)(slash - c->in + 1) : 0, c->in);
    if (!path) path = beside;
    if (!(f->vocab = convert_read_file(path, &bytes, &c->error)))
        return qn_error_wrap(&c->error, "the vocabulary (another file can be named with --tokenizer)");
    qn_status status = read_tokens(c, f, path, bytes, arrays);
    if (status == QN_OK && (arrays[0].failed || arrays[1].failed || arrays[2].failed))
        status = qn_error_set(&c->error, QN_NO_MEMORY, "no memory for the vocabulary");
    if (status == QN_OK) {
        convert_put_text(c, "tokenizer.ggml.model", "llama", 5);
        convert_put_text(c, "tokenizer.ggml.pre", "default", 7);
        convert_put_array(c, "tokenizer.ggml.tokens", QN_KEY_STRING, (uint64_t)f->s.vocab, &arrays[0]);
        convert_put_array(c, "tokenizer.ggml.scores", QN_KEY_F32, (uint64_t)f->s.vocab, &arrays[1]);
        convert_put_array(c, "tokenizer.ggml.token_type", QN_KEY_I32, (uint64_t)f->s.vocab, &arrays[2]);
        convert_put_number(c, "tokenizer.ggml.bos_token_id", QN_KEY_U32, 1);
        convert_put_number(c, "tokenizer.ggml.eos_token_id", QN_KEY_U32, 2);
        convert_put_number(c, "tokenizer.ggml.unknown_token_id", QN_KEY_U32, 0);
        convert_put_number(c, "tokenizer.ggml.add_bos_token", QN_KEY_BOOL, 1);
        convert_put_number(c, "tokenizer.ggml.add_space_prefix", QN_KEY_BOOL, 1);
    }
    for (int i = 0; i < 3; i++) free(arrays[i].at);
    return status;
}

static void put_keys(conversion *c, const shape_numbers *s) {
    convert_put_text(c, "general.architecture", "llama", 5);
    if (c->name) convert_put_text(c, "general.name", c->name, strlen(c->name));
    convert_put_number(c, "llama.block_count", QN_KEY_U32, (double)s->layers);
    convert_put_number(c, "llama.context_length", QN_KEY_U32, (double)s->context);
    convert_put_number(c, "llama.embedding_length", QN_KEY_U32, (double)s->dim);
    convert_put_number(c, "llama.feed_forward_length", QN_KEY_U32, (double)s->hidden);
    convert_put_number(c, "llama.attention.head_count", QN_KEY_U32, (double)s->heads);
    convert_put_number(c, "llama.attention.head_count_kv", QN_KEY_U32, (double)s->kv_heads);
    convert_put_number(c, "llama.attention.layer_norm_rms_epsilon", QN_KEY_F32, 1e-5);
    convert_put_number(c, "llama.rope.dimension_count", QN_KEY_U32, (double)(s->dim / s->heads));
    convert_put_number(c, "llama.rope.freq_base", QN_KEY_F32, 10000);
    convert_put_number(c, "llama.vocab_size", QN_KEY_U32, (double)s->vocab);
    snprintf(c->how.architecture, sizeof c->how.architecture, "llama");
    c->how.layers = s->layers;
    c->how.heads_per_key = s->heads / s->kv_heads;
}

qn_status convert_llama2c_open(conversion *c, convert_llama2c **source) {
    convert_llama2c *f = *source = calloc(1, sizeof *f);
    if (!f) return qn_error_set(&c->error, QN_NO_MEMORY, "no memory");
    if (!(f->data = convert_read_file(c->in, &f->bytes, &c->error))) return c->error.status;
    qn_status status = read_header(c, f);
    if (status != QN_OK) return status;
    put_keys(c, &f->s);
    status = put_vocab(c, f);
    c->how.tied_output = f->shared;
    return status == QN_OK ? add_all(c, f) : status;
}

void convert_llama2c_close(convert_llama2c *f) {
    if (!f) return;
    free(f->data);
    free(f->vocab);
    free(f);
}
