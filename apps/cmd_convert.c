/* quern convert: models of other formats as GGUF. */
#include <errno.h>
#include <search.h>
#include <sys/stat.h>

#include "convert_parts.h"
#include "lm.h"

/* ---- Bytes */

void convert_append(convert_bytes *b, const void *data, size_t bytes) {
    if (b->failed) return;
    if (bytes > b->room - b->n) {
        size_t room = b->room * 2 > b->n + bytes ? b->room * 2 : b->n + bytes + 256;
        char *more = realloc(b->at, room);
        if (!more) {
            b->failed = 1;
            return;
        }
        b->at = more;
        b->room = room;
    }
    if (bytes) memcpy(b->at + b->n, data, bytes);
    b->n += bytes;
}

void convert_append_text(convert_bytes *b, const char *text, size_t bytes) {
    uint64_t length = bytes; /* little-endian, as all machines this runs on */
    convert_append(b, &length, sizeof length);
    convert_append(b, text, bytes);
}

char *convert_read_file(const char *path, size_t *bytes, qn_error *error) {
    struct stat s;
    FILE *from = fopen(path, "rb");
    char *text = NULL;
    if (from && fstat(fileno(from), &s) == 0 && S_ISREG(s.st_mode)) {
        text = malloc((size_t)s.st_size + 1);
        *bytes = text ? fread(text, 1, (size_t)s.st_size, from) : 0;
        if (text) text[*bytes] = 0;
        if (text && *bytes != (size_t)s.st_size) {
            free(text);
            text = NULL;
        }
    }
    if (!text) qn_error_set(error, QN_IO, "%s: %s", path, errno ? strerror(errno) : "this is not a regular file");
    if (from) fclose(from);
    return text;
}

/* ---- Keys and tensors */

void convert_put_number(conversion *c, const char *name, qn_key_type type, double v) {
    qn_file_value value = {.name = name, .type = type, .integer = type == QN_KEY_F32 ? 0 : (int64_t)v, .number = v};
    qn_writer_key(c->writer, &value);
}

void convert_put_text(conversion *c, const char *name, const char *text, size_t bytes) {
    qn_file_value value = {.name = name, .type = QN_KEY_STRING, .text = text, .bytes = bytes};
    qn_writer_key(c->writer, &value);
}

void convert_put_array(conversion *c, const char *name, qn_key_type item, uint64_t count, const convert_bytes *items) {
    qn_file_value value = {
        .name = name, .type = QN_KEY_ARRAY, .item = item, .count = count, .text = items->at, .bytes = items->n};
    qn_writer_key(c->writer, &value);
}

/* A name, and in front of it which tensor has it: the list moves when it grows, this stays. The C library keeps the names in a
 * balanced tree, so that a file of a million tensors costs a million look-ups and not their square. */
typedef struct named {
    size_t number;
    char name[];
} named;

static named *named_of(char *name) { return (named *)(void *)(name - offsetof(named, name)); }

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

convert_tensor *convert_find(conversion *c, const char *name) {
    char *const *found = tfind(name, &c->names, by_name);
    return found ? &c->tensors[named_of(*found)->number] : NULL;
}

/* A copy of the name, in the tree; NULL without memory. No two tensors have one name: who adds has looked. */
static char *add_name(conversion *c, const char *name) {
    size_t bytes = strlen(name) + 1;
    named *made = malloc(sizeof *made + bytes);
    if (!made) return NULL;
    made->number = c->n_tensors;
    memcpy(made->name, name, bytes);
    if (tsearch(made->name, &c->names, by_name)) return made->name;
    free(made);
    return NULL;
}

convert_tensor *convert_add(conversion *c, const char *name, int32_t n_sources) {
    if (c->n_tensors == c->room) {
        size_t room = c->room * 2 + 64;
        convert_tensor *more = realloc(c->tensors, room * sizeof *more);
        if (!more) return qn_error_set(&c->error, QN_NO_MEMORY, "no memory for the list of tensors"), NULL;
        c->tensors = more;
        c->room = room;
    }
    convert_tensor *t = &c->tensors[c->n_tensors];
    memset(t, 0, sizeof *t);
    t->name = add_name(c, name);
    t->sources = calloc((size_t)n_sources, sizeof *t->sources);
    t->scales = calloc((size_t)n_sources, sizeof *t->scales);
    t->n_sources = n_sources;
    c->n_tensors++;
    if (!t->name || !t->sources || !t->scales)
        return qn_error_set(&c->error, QN_NO_MEMORY, "no memory for the list of tensors"), NULL;
    return t;
}

void convert_free(conversion *c) {
    for (size_t i = 0; i < c->n_tensors; i++) {
        if (c->tensors[i].name) {
            tdelete(c->tensors[i].name, &c->names, by_name);
            free(named_of(c->tensors[i].name));
        }
        free(c->tensors[i].sources);
        free(c->tensors[i].scales);
    }
    free(c->tensors);
}

/* ---- Rows of the output from rows of the input */

int64_t convert_source_row(const convert_tensor *t, int64_t row) {
    if (t->heads) { /* rotary halves to pairs: row 2 i + k of a head comes from row k * half + i */
        int64_t head = t->rows_each / t->heads, at = row % head;
        row = row / head * head + at % 2 * (head / 2) + at / 2;
    }
    for (int i = 0; i < t->n_picks; i++) {
        const convert_pick *p = &t->picks[i];
        int64_t head = row / p->head;
        if (row < p->rows) return (head / p->per * p->every + p->first + head % p->per) * p->head + row % p->head;
        row -= p->rows;
    }
    return row;
}

static void fetch_grouped(const convert_tensor *t, int64_t which, int64_t row, char *to) {
    const int8_t *q = (const int8_t *)t->sources[which] + row * t->columns;
    for (int64_t k = 0; k < t->columns; k++) {
        float scale, v;
        memcpy(&scale, (const float *)t->scales[which] + (row * t->columns + k) / t->group, sizeof scale);
        v = scale * (float)q[k];
        memcpy(to + 4 * k, &v, sizeof v);
    }
}

/* There, a byte holds neighbours; in GGUF's blocks, which begin with the scale, an element and the one 16 behind it. */
static void fetch_blocks(const convert_tensor *t, int64_t which, int64_t row, uint8_t *to) {
    enum { BLOCK = 32, HALF = BLOCK / 2 };
    int64_t blocks = t->columns / BLOCK;
    const uint8_t *from = (const uint8_t *)t->sources[which] + row * blocks * HALF;
    const uint8_t *scale = (const uint8_t *)t->scales[which] + row * blocks;
    for (int64_t b = 0; b < blocks; b++, from += HALF, to += 1 + HALF) {
        uint8_t one[BLOCK];
        for (int i = 0; i < HALF; i++) {
            one[2 * i] = from[i] & 15;
            one[2 * i + 1] = from[i] >> 4;
        }
        to[0] = scale[b];
        for (int i = 0; i < HALF; i++) to[1 + i] = (uint8_t)(one[i] | one[i + HALF] << 4);
    }
}

static void fetch_rows(void *user, int64_t first, int64_t rows, void *out) {
    const convert_tensor *t = user;
    const qn_dtype_info *d = qn_dtype_describe(t->from);
    size_t each = (size_t)d->bytes, bytes = (size_t)(t->columns / d->block) * each;
    for (int64_t r = first; r < first + rows; r++) {
        int64_t which = r / t->rows_each, row = convert_source_row(t, r % t->rows_each);
        char *to = (char *)out + (size_t)(r - first) * bytes;
        const char *from = t->sources[which];
        if (t->change == CONVERT_GROUPS) fetch_grouped(t, which, row, to);
        else if (t->change == CONVERT_BLOCKS) fetch_blocks(t, which, row, (uint8_t *)to);
        else if (t->change == CONVERT_AS_IS) memcpy(to, from + (size_t)row * bytes, bytes);
        else
            for (int64_t k = 0; k < t->columns; k++)
                memcpy(to + k * (int64_t)each, from + (k * t->width + row) * (int64_t)each, each);
    }
}

/* ---- The whole */

/* Its dtype in the output, and its place among the announced. */
static qn_status plan_tensor(conversion *c, convert_tensor *t) {
    const qn_dtype_info *d = qn_dtype_describe(t->from);
    if (t->n_set != t->n_sources)
        return qn_error_set(&c->error, QN_FORMAT, "tensor '%s': %d of its %d parts are there", t->name, t->n_set, t->n_sources);
    if (d->kind != QN_KIND_FLOAT && t->from != QN_DTYPE_MXFP4)
        return qn_error_set(&c->error, QN_UNSUPPORTED, "tensor '%s' is %s; weights must be floats", t->name, d->name);
    t->shape.dtype = t->from;
    qn_dtype to = quantize_choose(&c->how, t->name, &t->shape, quantize_layer(t->name), &c->misses);
    if (c->auto_type && quantize_may_change(&c->how, t->name, &t->shape)) to = t->from == QN_DTYPE_F64 ? QN_DTYPE_F32 : t->from;
    if (!quantize_may_change(&c->how, t->name, &t->shape)) to = QN_DTYPE_F32; /* small ones are kept exact */
    t->shape.dtype = to;
    uint64_t bytes;
    qn_tensor_bytes(to, t->shape.rank, t->shape.shape, &bytes);
    c->bytes += bytes;
    return qn_writer_tensor(c->writer, t->name, &t->shape);
}

static qn_status write_all(conversion *c) {
    qn_status status = QN_OK;
    uint64_t done = 0;
    for (size_t i = 0; i < c->n_tensors && status == QN_OK; i++) status = plan_tensor(c, &c->tensors[i]);
    for (size_t i = 0; i < c->n_tensors && status == QN_OK; i++) {
        convert_tensor *t = &c->tensors[i];
        int plain = t->n_sources == 1 && t->change == CONVERT_AS_IS && !t->heads && !t->n_picks;
        model_item item = {.name = t->name, .shape = t->shape, .from = t->from, .rows = fetch_rows, .user = t};
        if (plain && (uintptr_t)t->sources[0] % (size_t)qn_dtype_describe(t->from)->bytes == 0) item.data = t->sources[0];
        status = model_write(c->writer, c->pool, &item, &done, c->bytes, &c->error);
    }
    model_progress_end();
    return status;
}

static void count_values(conversion *c) {
    for (size_t i = 0; i < c->n_tensors; i++) c->how.values += quantize_is_values(c->tensors[i].name);
}

/* The number general.file_type has for weights kept as they are: that of the first matrix. */
static void choose_type(conversion *c) {
    if (!c->auto_type) return;
    c->how.type = QUANTIZE_F32;
    for (size_t i = c->n_tensors; i-- > 0;) {
        const convert_tensor *t = &c->tensors[i];
        if (t->shape.rank < 2) continue;
        c->how.type = t->from == QN_DTYPE_F16 ? QUANTIZE_F16 : t->from == QN_DTYPE_BF16 ? QUANTIZE_BF16 : QUANTIZE_F32;
    }
}

static int run(conversion *c) {
    struct stat s;
    convert_hf *hf = NULL;
    convert_llama2c *llama2c = NULL;
    size_t n = strlen(c->in);
    int folder = stat(c->in, &s) == 0 && S_ISDIR(s.st_mode);
    if (qn_writer_create(c->out, &c->writer, &c->error) != QN_OK) return APP_FAILED;
    qn_status status;
    if (!folder && n > 4 && strcmp(c->in + n - 4, ".bin") == 0) status = convert_llama2c_open(c, &llama2c);
    else status = convert_hf_open(c, &hf);
    if (status == QN_OK) {
        choose_type(c);
        count_values(c);
        convert_put_number(c, "general.file_type", QN_KEY_U32, quantize_type_number(c->how.type));
        convert_put_number(c, "general.quantization_version", QN_KEY_U32, 2);
        status = write_all(c);
    }
    qn_error last;
    qn_status end = qn_writer_finish(c->writer, status == QN_OK, &last);
    if (c->error.status == QN_OK && last.status != QN_OK) c->error = last;
    convert_hf_close(hf);
    convert_llama2c_close(llama2c);
    if (status == QN_CANCELLED) return MODEL_INTERRUPTED;
    return status == QN_OK && end == QN_OK ? APP_OK : APP_FAILED;
}

typedef struct convert_words {
    const char *in, *out, *type, *tokenizer, *pre, *name, *threads;
    int no_map;
} convert_words;

static const char *type_name(int item) { return item == 0 ? "auto" : quantize_type_name(item - 1); }

static const option_row rows[] = {
    OPTION(convert_words, in, "IN", NULL, NULL, .files = "*"),
    OPTION(convert_words, out, "OUT.gguf", NULL, NULL, .files = "gguf"),
    OPTION(convert_words, type, "--type, --outtype", "TYPE",
           "type of the weights, as 'quern quantize' has them, or auto (the default): as they are", .choices = type_name),
    OPTION(convert_words, tokenizer, "--tokenizer", "FILE", "the vocabulary of a .bin, when it is not tokenizer.bin beside it",
           .files = "*"),
    OPTION(convert_words, pre, "--pre", "NAME",
           "how the tokenizer cuts text (tokenizer.ggml.pre), when tokenizer.json does it in an unknown way"),
    OPTION(convert_words, name, "--name", "NAME", "of the model (general.name)"),
    OPTION(convert_words, threads, "-t, --threads", "N", "threads (default: all processors)"),
    OPTION(convert_words, no_map, "--no-mmap", NULL, "read the weights into memory instead of mapping their files"),
    {0}};
static const option_group groups[] = {{NULL, rows, 0}, {0}};

/* The conversion of the words; APP_OK or APP_USAGE. */
static int understand(const convert_words *w, conversion *c) {
    if (!w->out) {
        fprintf(stderr, "quern convert: it takes a model and a file to write; 'quern convert --help' says more\n");
        return APP_USAGE;
    }
    c->in = w->in;
    c->out = w->out;
    c->tokenizer = w->tokenizer;
    c->pre = w->pre;
    c->name = w->name;
    c->no_map = w->no_map;
    if (app_is_empty("quern convert", "the model", c->in) || app_is_empty("quern convert", "the file to write", c->out))
        return APP_USAGE;
    if (model_is_same("convert", c->in, c->out)) return APP_USAGE;
    if (!w->type || strcmp(w->type, "auto") == 0) return APP_OK;
    c->auto_type = 0;
    c->how.type = quantize_type_find(w->type);
    if (c->how.type != QUANTIZE_TYPES) return APP_OK;
    fprintf(stderr, "quern convert: there is no type '%s'; known are auto and:\n", w->type);
    quantize_types_print(stderr);
    return APP_USAGE;
}

static int run_words(const quern_verb *self, int argc, char **argv) {
    conversion c = {.auto_type = 1};
    convert_words w = {0};
    int64_t n_threads = 0;
    int rc = options_read(self, argc, argv, &w);
    if (rc == APP_OK) rc = understand(&w, &c);
    if (rc == APP_OK && w.threads) rc = lm_number("convert", "--threads", w.threads, 1, QN_POOL_MAX, &n_threads);
    if (rc != APP_OK) return rc;
    if (qn_pool_create((int)n_threads, &c.pool) != QN_OK) return model_fail("convert", "no pool of so many threads");
    model_catch_stop_writing();
    rc = run(&c);
    if (rc != APP_OK) fprintf(stderr, "quern convert: %s\n", c.error.text);
    else
        printf("%s: %zu tensor%s, %llu bytes of weights\n", c.out, c.n_tensors, app_s((int64_t)c.n_tensors),
               (unsigned long long)c.bytes);
    if (rc == APP_OK && !c.auto_type) quantize_misses_print("convert", &c.misses);
    convert_free(&c);
    qn_pool_destroy(c.pool);
    return rc;
}

const quern_verb verb_convert = {
    .name = "convert",
    .brief = "write a GGUF file from safetensors or a llama2.c checkpoint",
    .run = run_words,
    .usage = "IN OUT.gguf [options]",
    .about = "IN is a folder from Hugging Face with config.json, safetensors and tokenizer.json or tokenizer.model; or a "
             ".bin checkpoint of llama2.c, with tokenizer.bin beside it.",
    .groups = groups,
    .more = convert_hf_classes_print};
