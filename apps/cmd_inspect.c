/* quern inspect: what is in a model file. */
#include <fnmatch.h>

#include "inspect.h"

enum { SHORT_TEXT = 100, SHORT_LIST = 8, NAME_LEAST = 8, NAME_MOST = 60 };

int inspect_wants_key(const inspection *in, const char *name) {
    return in->show_keys && (!in->key_glob || fnmatch(in->key_glob, name, 0) == 0);
}

int inspect_wants_tensor(const inspection *in, const char *name) {
    return in->show_tensors && (!in->tensor_glob || fnmatch(in->tensor_glob, name, 0) == 0);
}

/* ---- Keys */

static void print_number(const qn_file_value *v) {
    if (v->type == QN_KEY_BOOL) printf("%s", v->integer ? "true" : "false");
    else if (v->type == QN_KEY_U64) printf("%llu", (unsigned long long)v->integer);
    else if (v->type == QN_KEY_F32 || v->type == QN_KEY_F64) model_print_number(v->number, v->type == QN_KEY_F64);
    else printf("%lld", (long long)v->integer);
}

static void print_value(const inspection *in, qn_file_value *v, int depth) {
    qn_file_value item;
    if (v->type == QN_KEY_STRING) {
        model_print_text(v->text, v->bytes, in->all ? UINT64_MAX : SHORT_TEXT);
    } else if (v->type != QN_KEY_ARRAY) {
        print_number(v);
    } else {
        uint64_t most = in->all ? v->count : depth ? 2 : SHORT_LIST;
        printf("[");
        for (uint64_t i = 0; i < v->count; i++) {
            if (i) printf(", ");
            if (i == most) {
                printf("...");
                break;
            }
            if (qn_file_item(v, i, &item) == QN_OK) print_value(in, &item, depth + 1);
        }
        printf("]");
    }
}

static void print_type(const qn_file_value *v) {
    char text[64];
    if (v->type == QN_KEY_ARRAY) snprintf(text, sizeof text, "%s[%llu]", model_type_name(v->item), (unsigned long long)v->count);
    else snprintf(text, sizeof text, "%s", model_type_name(v->type));
    printf("  %-15s ", text);
}

static void pad(int columns, int width) { printf("%*s", columns < width ? width - columns : 0, ""); }

static int name_width(const inspection *in, int keys) {
    size_t width = NAME_LEAST;
    qn_file_value v;
    qn_file_tensor t;
    if (keys)
        for (int64_t i = 0; qn_file_key(in->file, i, &v) == QN_OK; i++)
            width = inspect_wants_key(in, v.name) && strlen(v.name) > width ? strlen(v.name) : width;
    else
        for (int64_t i = 0; qn_file_entry(in->file, i, &t) == QN_OK; i++)
            width = inspect_wants_tensor(in, t.name) && strlen(t.name) > width ? strlen(t.name) : width;
    return width < NAME_MOST ? (int)width : NAME_MOST;
}

static void print_keys(const inspection *in) {
    qn_file_value v;
    int width = name_width(in, 1);
    for (int64_t i = 0; qn_file_key(in->file, i, &v) == QN_OK; i++) {
        if (!inspect_wants_key(in, v.name)) continue;
        pad(model_print_text(v.name, strlen(v.name), UINT64_MAX), width);
        print_type(&v);
        print_value(in, &v, 0);
        printf("\n");
    }
}

/* ---- Tensors */

static void print_tensors(inspection *in) {
    qn_file_tensor t;
    int width = name_width(in, 0);
    printf("%-*s  %-8s %-24s %14s %14s%s%s\n", width, "tensor", "type", "shape", "bytes", "at byte",
           in->info.shards > 1 ? "  file" : "", in->hash ? "  xxh64" : "");
    for (int64_t i = 0; qn_file_entry(in->file, i, &t) == QN_OK; i++) {
        char shape[200] = "";
        if (!inspect_wants_tensor(in, t.name)) continue;
        for (int k = 0; k < t.tensor.rank; k++)
            snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%lld", k ? " x " : "", (long long)t.tensor.shape[k]);
        pad(model_print_text(t.name, strlen(t.name), UINT64_MAX), width);
        printf("  %-8s %-24s %14llu %14llu", qn_dtype_describe((qn_dtype)t.tensor.dtype)->name, shape,
               (unsigned long long)t.bytes, (unsigned long long)t.offset);
        if (in->info.shards > 1) printf("  %4u", t.shard + 1);
        if (in->hash) printf("  %016llx", (unsigned long long)inspect_hash(in, &t));
        printf("\n");
    }
}

uint64_t inspect_hash(inspection *in, const qn_file_tensor *t) {
    model_hash one;
    model_hash_begin(&one);
    model_progress(t->name, in->hashed, in->info.tensor_bytes);
    model_hash_add(&one, t->tensor.data, t->bytes);
    model_hash_add(&in->total, t->tensor.data, t->bytes);
    in->hashed += t->bytes;
    model_progress_end();
    return model_hash_value(&one);
}

void inspect_count(const inspection *in, inspect_sum sums[QN_DTYPE_COUNT]) {
    qn_file_tensor t;
    memset(sums, 0, sizeof *sums * QN_DTYPE_COUNT);
    for (int64_t i = 0; qn_file_entry(in->file, i, &t) == QN_OK; i++) {
        if (!inspect_wants_tensor(in, t.name)) continue;
        inspect_sum *each[] = {&sums[t.tensor.dtype], &sums[0]};
        for (int k = 0; k < 2; k++) {
            each[k]->tensors++;
            each[k]->elements += (uint64_t)qn_tensor_count(&t.tensor);
            each[k]->bytes += t.bytes;
        }
    }
}

static void print_totals(const inspection *in) {
    inspect_sum sums[QN_DTYPE_COUNT];
    inspect_count(in, sums);
    for (int d = 1; d < QN_DTYPE_COUNT; d++) {
        if (!sums[d].tensors) continue;
        printf("%-8s %6llu tensors %16llu elements %16llu bytes\n", qn_dtype_describe((qn_dtype)d)->name,
               (unsigned long long)sums[d].tensors, (unsigned long long)sums[d].elements, (unsigned long long)sums[d].bytes);
    }
    printf("%-8s %6llu tensors %16llu elements %16llu bytes", "all", (unsigned long long)sums[0].tensors,
           (unsigned long long)sums[0].elements, (unsigned long long)sums[0].bytes);
    if (sums[0].elements) printf(", %.2f bits an element", 8.0 * (double)sums[0].bytes / (double)sums[0].elements);
    printf("\n");
    if (in->tensor_glob)
        printf("listed are %llu of %llu tensors, %llu of %llu bytes\n", (unsigned long long)sums[0].tensors,
               (unsigned long long)in->info.n_tensors, (unsigned long long)sums[0].bytes,
               (unsigned long long)in->info.tensor_bytes);
    if (in->hash) printf("xxh64 of the listed tensors %016llx\n", (unsigned long long)model_hash_value(&in->total));
}

/* ---- The whole */

static void print_text(inspection *in) {
    static const char *const formats[] = {"GGUF", "safetensors", "JSON"};
    printf("%s: %s", in->path, formats[in->info.format]);
    if (in->info.version) printf(" version %u, alignment %u", in->info.version, in->info.alignment);
    printf(", %u file%s, %llu bytes, %llu key%s, %llu tensor%s\n", in->info.shards, app_s(in->info.shards),
           (unsigned long long)in->info.bytes, (unsigned long long)in->info.n_keys, app_s((int64_t)in->info.n_keys),
           (unsigned long long)in->info.n_tensors, app_s((int64_t)in->info.n_tensors));
    if (in->show_keys && in->info.n_keys) {
        printf("\n");
        print_keys(in);
    }
    if (in->show_tensors && in->info.n_tensors) {
        printf("\n");
        print_tensors(in);
        printf("\n");
        print_totals(in);
    }
}

typedef struct inspect_words {
    const char *file;
    option_maybe keys, tensors;
    int all, hash, json, no_map;
} inspect_words;

static const option_row rows[] = {
    OPTION(inspect_words, file, "FILE", NULL, NULL, .files = "*"),
    OPTION(inspect_words, keys, "--keys", "GLOB", "metadata only; of those, the keys that match"),
    OPTION(inspect_words, tensors, "--tensors", "GLOB", "tensors only; of those, the names that match"),
    OPTION(inspect_words, all, "--all", NULL, "print strings and lists in full"),
    OPTION(inspect_words, hash, "--hash", NULL, "print the XXH64 of each tensor's bytes, and of all bytes in the order listed"),
    OPTION(inspect_words, json, "--json", NULL, "print the same for machines; strings and lists are then always in full"),
    OPTION(inspect_words, no_map, "--no-mmap", NULL, "read the file into memory instead of mapping it"),
    {0}};
static const option_group groups[] = {{NULL, rows, 0}, {0}};

static int run(const quern_verb *self, int argc, char **argv) {
    inspection in = {.info.size = sizeof in.info};
    inspect_words w = {0};
    qn_error error;
    int rc = options_read(self, argc, argv, &w);
    if (rc != APP_OK) return rc;
    if (!w.file) {
        fprintf(stderr, "quern inspect: which file?\n");
        return APP_USAGE;
    }
    if (app_is_empty("quern inspect", "the file", w.file)) return APP_USAGE;
    in.path = w.file;
    in.key_glob = w.keys.argument;
    in.tensor_glob = w.tensors.argument;
    in.all = w.all;
    in.hash = w.hash;
    in.show_keys = w.keys.given || !w.tensors.given;
    in.show_tensors = w.tensors.given || !w.keys.given;
    if (model_open_file(in.path, w.no_map, &in.file, &error) != QN_OK) return model_fail("inspect", error.text);
    qn_file_describe(in.file, &in.info);
    model_hash_begin(&in.total);
    if (w.json) inspect_print_json(&in);
    else print_text(&in);
    qn_file_close(in.file);
    return APP_OK;
}

const quern_verb verb_inspect = {
    .name = "inspect",
    .brief = "list the metadata and tensors of a model file",
    .run = run,
    .usage = "FILE [options]",
    .about = "Lists the metadata and the tensors of a GGUF file, of safetensors (a file, an index or a folder), or of a "
             "JSON document. A model in several files is listed whole.",
    .groups = groups};
