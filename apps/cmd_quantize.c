/* quern quantize: a model in smaller numbers. */
#include "convert_parts.h"
#include "lm.h"

typedef struct job {
    const char *in, *out, *type, *matrix_path;
    quantize_model model;
    quantize_matrix *matrix;
    qn_file *file;
    qn_writer *writer;
    qn_pool *pool;
    char *types; /* model.tensor_types, of all --tensor-type there were */
    int verbose, no_map;
    uint64_t n, bytes_in, bytes_out, total, weights;
    int64_t not_weighed;
    qn_dtype *chosen;
    quantize_misses misses;
    qn_error error;
} job;

/* ---- Keys */

static int starts_with(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

static void put_number(qn_writer *w, const char *name, qn_key_type type, int64_t v) {
    qn_file_value value = {.name = name, .type = type, .integer = v, .number = (double)v};
    qn_writer_key(w, &value);
}

static void put_text(qn_writer *w, const char *name, const char *text) {
    qn_file_value value = {.name = name, .type = QN_KEY_STRING, .text = text, .bytes = strlen(text)};
    qn_writer_key(w, &value);
}

/* Those of the input, but for what this makes untrue. The writer remembers an error. */
static void write_keys(job *j) {
    qn_file_value v;
    for (int64_t i = 0; qn_file_key(j->file, i, &v) == QN_OK; i++)
        if (!starts_with(v.name, "split.") && !starts_with(v.name, "quantize.imatrix.") &&
            strcmp(v.name, "general.file_type") != 0 && strcmp(v.name, "general.quantization_version") != 0)
            qn_writer_key(j->writer, &v);
    put_number(j->writer, "general.quantization_version", QN_KEY_U32, 2);
    put_number(j->writer, "general.file_type", QN_KEY_U32, quantize_type_number(j->model.type));
    if (!j->matrix) return;
    put_text(j->writer, "quantize.imatrix.file", j->matrix_path);
    put_number(j->writer, "quantize.imatrix.entries_count", QN_KEY_U32, quantize_matrix_count(j->matrix));
    put_number(j->writer, "quantize.imatrix.chunks_count", QN_KEY_U32, quantize_matrix_chunks(j->matrix));
}

/* ---- Tensors */

enum { LAYERS_COUNTED = 4096 };

static int64_t layer_slot(const char *name) {
    int64_t layer = quantize_layer(name) + 1;
    return layer < LAYERS_COUNTED ? layer : LAYERS_COUNTED - 1;
}

/* How many tensors of values lie in layers below each layer. */
static void count_values(const qn_file *file, int64_t before[LAYERS_COUNTED]) {
    qn_file_tensor t;
    int64_t sum = 0;
    memset(before, 0, LAYERS_COUNTED * sizeof *before);
    for (int64_t i = 0; qn_file_entry(file, i, &t) == QN_OK; i++) before[layer_slot(t.name)] += quantize_is_values(t.name);
    for (int i = 0; i < LAYERS_COUNTED; i++) {
        int64_t here = before[i];
        before[i] = sum;
        sum += here;
    }
}

static qn_status announce(job *j) {
    qn_file_tensor t;
    int64_t before[LAYERS_COUNTED];
    count_values(j->file, before);
    for (uint64_t i = 0; i < j->n; i++) {
        qn_file_entry(j->file, (int64_t)i, &t);
        j->chosen[i] = quantize_choose(&j->model, t.name, &t.tensor, before[layer_slot(t.name)], &j->misses);
        qn_tensor shape;
        qn_status status = qn_tensor_init(&shape, j->chosen[i], t.tensor.rank, t.tensor.shape, NULL, 0);
        if (status != QN_OK)
            return qn_error_set(&j->error, status, "tensor '%s' cannot be %s: its rows are not whole blocks", t.name,
                                qn_dtype_describe(j->chosen[i])->name);
        uint64_t bytes;
        qn_tensor_bytes(j->chosen[i], t.tensor.rank, t.tensor.shape, &bytes);
        j->total += bytes;
        j->bytes_in += t.bytes;
        j->weights += (uint64_t)qn_tensor_count(&t.tensor);
        status = qn_writer_tensor(j->writer, t.name, &shape);
        if (status != QN_OK) return status;
    }
    return QN_OK;
}

/* A pattern that no tensor's name has is a slip more often than not. */
static void warn_of_idle_patterns(const job *j) {
    char regex[QUANTIZE_ASK];
    const char *list = j->model.tensor_types, *type;
    while (quantize_next_ask(&list, regex, &type)) {
        qn_file_tensor t;
        int used = 0;
        for (int64_t i = 0; !used && qn_file_entry(j->file, i, &t) == QN_OK; i++)
            used = quantize_may_change(&j->model, t.name, &t.tensor) && quantize_matches(regex, t.name, NULL) == 1;
        if (!used) fprintf(stderr, "quern quantize: --tensor-type: '%s' matches no tensor whose type may change\n", regex);
    }
}

static void print_tensor(const job *j, const qn_file_tensor *t, uint64_t i, int weighed) {
    enum { NAME = 40 };
    int columns = model_print_text(t->name, strlen(t->name), UINT64_MAX);
    printf("%*s %-8s -> %s%s\n", columns < NAME ? NAME - columns : 0, "", qn_dtype_describe((qn_dtype)t->tensor.dtype)->name,
           qn_dtype_describe(j->chosen[i])->name, weighed ? ", weighed" : "");
}

static qn_status write_tensor(job *j, uint64_t i) {
    qn_file_tensor t;
    qn_file_entry(j->file, (int64_t)i, &t);
    model_item item = {.name = t.name, .shape = t.tensor, .from = (qn_dtype)t.tensor.dtype, .data = t.tensor.data};
    item.shape.dtype = j->chosen[i];
    if (j->matrix && j->chosen[i] != (qn_dtype)t.tensor.dtype && qn_dtype_describe(j->chosen[i])->kind == QN_KIND_BLOCK) {
        item.importance = quantize_matrix_find(j->matrix, t.name, &t.tensor, &item.experts, &j->error);
        if (!item.importance && j->error.status) return j->error.status;
        j->not_weighed += !item.importance;
    }
    if (j->verbose) print_tensor(j, &t, i, item.importance != NULL);
    return model_write(j->writer, j->pool, &item, &j->bytes_out, j->total, &j->error);
}

/* What else makes a GGUF of this type from what was named. */
static int refuse(job *j, qn_file_format format) {
    if (format != QN_FILE_SAFETENSORS) qn_error_set(&j->error, QN_UNSUPPORTED, "%s: this is JSON, not GGUF", j->in);
    else if (convert_has_config(j->in))
        qn_error_set(&j->error, QN_UNSUPPORTED, "%s: these are safetensors, not GGUF; 'quern convert %s %s --type %s' takes them",
                     j->in, j->in, j->out, j->type);
    else
        qn_error_set(&j->error, QN_UNSUPPORTED,
                     "%s: these are safetensors without config.json, of which no GGUF can be made; 'quern inspect' lists them",
                     j->in);
    return APP_FAILED;
}

static int run(job *j) {
    qn_file_info info = {.size = sizeof info};
    qn_file_describe(j->file, &info);
    if (info.format != QN_FILE_GGUF) return refuse(j, info.format);
    j->n = info.n_tensors;
    j->chosen = calloc(j->n ? j->n : 1, sizeof *j->chosen);
    if (!j->chosen) return qn_error_set(&j->error, QN_NO_MEMORY, "no memory"), APP_FAILED;
    quantize_model_read(&j->model, j->file);
    warn_of_idle_patterns(j);
    if (qn_writer_create(j->out, &j->writer, &j->error) != QN_OK) return APP_FAILED;
    write_keys(j);
    qn_status status = announce(j);
    for (uint64_t i = 0; i < j->n && status == QN_OK; i++) status = write_tensor(j, i);
    model_progress_end();
    qn_error last;
    qn_status end = qn_writer_finish(j->writer, status == QN_OK, &last);
    if (j->error.status == QN_OK && last.status != QN_OK) j->error = last;
    if (status == QN_CANCELLED) return MODEL_INTERRUPTED;
    return status == QN_OK && end == QN_OK ? APP_OK : APP_FAILED;
}

static int open_and_run(job *j, int threads) {
    int rc = APP_FAILED;
    qn_status status = model_open_file(j->in, j->no_map, &j->file, &j->error);
    if (status != QN_OK) return status == QN_CANCELLED ? MODEL_INTERRUPTED : rc;
    if (j->matrix_path && !(j->matrix = quantize_matrix_open(j->matrix_path, j->no_map, &j->error))) goto done;
    j->model.has_matrix = j->matrix != NULL;
    if (qn_pool_create(threads, &j->pool) != QN_OK) {
        qn_error_set(&j->error, QN_ARGUMENT, "there is no pool of %d threads", threads);
        goto done;
    }
    rc = run(j);
done:
    qn_pool_destroy(j->pool);
    quantize_matrix_close(j->matrix);
    qn_file_close(j->file);
    free(j->chosen);
    free(j->types);
    return rc;
}

/* A dtype named on the command line; APP_OK or APP_USAGE. */
static int take_dtype(const char *flag, const char *name, qn_dtype *dtype) {
    if (!name) return APP_OK;
    *dtype = quantize_dtype_find(name);
    const qn_dtype_info *d = qn_dtype_describe(*dtype);
    if (d && d->gguf >= 0 && (d->kind == QN_KIND_FLOAT || d->kind == QN_KIND_BLOCK)) return APP_OK;
    fprintf(stderr, "quern quantize: %s: '%s' is no type a weight can have\n", flag, name);
    return APP_USAGE;
}

static int check_tensor_types(const char *list) {
    char regex[QUANTIZE_ASK], why[128];
    const char *type;
    while (quantize_next_ask(&list, regex, &type)) {
        qn_dtype dtype;
        if (!type) {
            fprintf(stderr, "quern quantize: --tensor-type: '%s' is not REGEX=TYPE\n", regex);
            return APP_USAGE;
        }
        if (take_dtype("--tensor-type", type, &dtype) != APP_OK) return APP_USAGE;
        if (quantize_matches(regex, "", why) >= 0) continue;
        fprintf(stderr, "quern quantize: --tensor-type: '%s' is no regular expression: %s\n", regex, why);
        return APP_USAGE;
    }
    return APP_OK;
}

/* The lists of several --tensor-type as one. */
static int join_types(job *j, const option_many *lists) {
    size_t room = 1, n = 0;
    for (int i = 0; i < lists->n; i++) {
        if (check_tensor_types(lists->at[i]) != APP_OK) return APP_USAGE;
        room += strlen(lists->at[i]) + 1;
    }
    if (!lists->n) return APP_OK;
    j->model.tensor_types = j->types = malloc(room);
    if (!j->types) return model_fail("quantize", "no memory for the types of tensors");
    for (int i = 0; i < lists->n; i++) n += (size_t)snprintf(j->types + n, room - n, "%s%s", i ? "," : "", lists->at[i]);
    return APP_OK;
}

typedef struct quantize_words {
    const char *in, *out, *type, *matrix, *output, *embed, *threads;
    option_many tensor_types;
    int pure, keep_output, verbose, no_map;
} quantize_words;

static const option_row rows[] = {
    OPTION(quantize_words, in, "IN.gguf", NULL, NULL, .files = "gguf"),
    OPTION(quantize_words, out, "OUT.gguf", NULL, NULL, .files = "gguf"),
    OPTION(quantize_words, type, "TYPE", NULL, NULL, .choices = quantize_type_name),
    OPTION(quantize_words, pure, "--pure", NULL, "the type itself for every weight, no mixture"),
    OPTION(quantize_words, matrix, "--imatrix", "FILE", "an importance matrix (GGUF): columns that matter more get less error",
           .files = "gguf"),
    OPTION(quantize_words, output, "--output-tensor-type", "TYPE", "the type of output.weight"),
    OPTION(quantize_words, embed, "--token-embedding-type", "TYPE", "the type of token_embd.weight"),
    OPTION(quantize_words, tensor_types, "--tensor-type", "REGEX=TYPE,...",
           "the type of the tensors whose names match; may be given more than once"),
    OPTION(quantize_words, keep_output, "--leave-output-tensor", NULL, "output.weight stays as it is"),
    OPTION(quantize_words, threads, "-t, --threads", "N", "threads (default: all processors)"),
    OPTION(quantize_words, no_map, "--no-mmap", NULL, "read the files into memory instead of mapping them"),
    OPTION(quantize_words, verbose, "-v, --verbose", NULL, "print a line for each tensor"),
    {0}};
static const option_group groups[] = {{NULL, rows, 0}, {0}};

/* The job of the words; APP_OK or APP_USAGE. */
static int understand(const quern_verb *self, const quantize_words *w, job *j) {
    if (!w->type) {
        fprintf(stderr, "quern quantize: it takes a model, a file to write and a type; 'quern %s --help' says more\n",
                self->name);
        return APP_USAGE;
    }
    j->in = w->in;
    j->out = w->out;
    j->type = w->type;
    j->matrix_path = w->matrix;
    j->verbose = w->verbose;
    j->no_map = w->no_map;
    j->model.pure = w->pure;
    j->model.keep_output = w->keep_output;
    if (app_is_empty("quern quantize", "the model", j->in) || app_is_empty("quern quantize", "the file to write", j->out))
        return APP_USAGE;
    if (app_is_empty("quern quantize", "the importance matrix", j->matrix_path)) return APP_USAGE;
    if (model_is_same("quantize", j->in, j->out) || model_is_same("quantize", j->matrix_path, j->out)) return APP_USAGE;
    j->model.type = quantize_type_find(w->type);
    if (j->model.type == QUANTIZE_TYPES) {
        fprintf(stderr, "quern quantize: there is no type '%s'; known are:\n", w->type);
        quantize_types_print(stderr);
        return APP_USAGE;
    }
    if (take_dtype("--output-tensor-type", w->output, &j->model.output) != APP_OK) return APP_USAGE;
    if (take_dtype("--token-embedding-type", w->embed, &j->model.embed) != APP_OK) return APP_USAGE;
    return APP_OK;
}

static int run_words(const quern_verb *self, int argc, char **argv) {
    job j = {0};
    quantize_words w = {0};
    int64_t n_threads = 0;
    int rc = options_read(self, argc, argv, &w);
    if (rc == APP_OK) rc = understand(self, &w, &j);
    if (rc == APP_OK && w.threads) rc = lm_number("quantize", "--threads", w.threads, 1, QN_POOL_MAX, &n_threads);
    if (rc == APP_OK) rc = join_types(&j, &w.tensor_types);
    if (rc != APP_OK) return rc;
    model_catch_stop_writing();
    rc = open_and_run(&j, (int)n_threads);
    if (rc != APP_OK) fprintf(stderr, "quern quantize: %s\n", j.error.text);
    else
        printf("%s: %llu tensor%s, %llu -> %llu bytes, %.2f bits a weight\n", j.out, (unsigned long long)j.n, app_s((int64_t)j.n),
               (unsigned long long)j.bytes_in, (unsigned long long)j.bytes_out,
               j.weights ? 8.0 * (double)j.bytes_out / (double)j.weights : 0.0);
    if (rc == APP_OK) quantize_misses_print("quantize", &j.misses);
    if (rc == APP_OK && j.not_weighed)
        fprintf(stderr, "quern quantize: %lld tensor%s not in the importance matrix and quantised without\n",
                (long long)j.not_weighed, j.not_weighed == 1 ? " is" : "s are");
    return rc;
}

static void print_types(FILE *to) {
    fputs("types, most bits first:\n", to);
    quantize_types_print(to);
}

const quern_verb verb_quantize = {
    .name = "quantize",
    .brief = "write a model with its weights in another type",
    .run = run_words,
    .usage = "IN.gguf OUT.gguf TYPE [options]",
    .about = "Writes the model with its weights in another type. Norms, biases and other small tensors stay as they "
             "are; mixtures give a few tensors a wider type. Any type becomes any other; from a quantised model the "
             "loss adds up.",
    .groups = groups,
    .more = print_types};
