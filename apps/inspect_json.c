/* quern inspect --json: one object, numbers exact, lists and strings in full. */
#include <math.h>

#include "inspect.h"

static void print_value(qn_file_value *v) {
    qn_file_value item;
    switch (v->type) {
    case QN_KEY_STRING: model_print_json(v->text, v->bytes); break;
    case QN_KEY_BOOL: printf("%s", v->integer ? "true" : "false"); break;
    case QN_KEY_U64: printf("%llu", (unsigned long long)v->integer); break;
    case QN_KEY_F32:
    case QN_KEY_F64: /* JSON has neither infinity nor NaN */
        if (isfinite(v->number)) model_print_number(v->number, v->type == QN_KEY_F64);
        else printf("null");
        break;
    case QN_KEY_ARRAY:
        printf("[");
        for (uint64_t i = 0; i < v->count; i++) {
            if (i) printf(", ");
            if (qn_file_item(v, i, &item) == QN_OK) print_value(&item);
            else printf("null");
        }
        printf("]");
        break;
    default: printf("%lld", (long long)v->integer);
    }
}

static void print_keys(const inspection *in) {
    qn_file_value v;
    int n = 0;
    printf(",\n \"keys\": {");
    for (int64_t i = 0; qn_file_key(in->file, i, &v) == QN_OK; i++) {
        if (!inspect_wants_key(in, v.name)) continue;
        printf("%s\n  ", n++ ? "," : "");
        model_print_json(v.name, strlen(v.name));
        printf(": {\"type\": \"%s\"", model_type_name(v.type));
        if (v.type == QN_KEY_ARRAY) printf(", \"items\": \"%s\"", model_type_name(v.item));
        printf(", \"offset\": %llu, \"value\": ", (unsigned long long)v.offset);
        print_value(&v);
        printf("}");
    }
    printf("}");
}

static void print_tensors(inspection *in) {
    qn_file_tensor t;
    int n = 0;
    printf(",\n \"tensors\": [");
    for (int64_t i = 0; qn_file_entry(in->file, i, &t) == QN_OK; i++) {
        if (!inspect_wants_tensor(in, t.name)) continue;
        printf("%s\n  {\"name\": ", n++ ? "," : "");
        model_print_json(t.name, strlen(t.name));
        printf(", \"type\": \"%s\", \"shape\": [", qn_dtype_describe((qn_dtype)t.tensor.dtype)->name);
        for (int k = 0; k < t.tensor.rank; k++) printf("%s%lld", k ? ", " : "", (long long)t.tensor.shape[k]);
        printf("], \"bytes\": %llu, \"offset\": %llu, \"file\": %u", (unsigned long long)t.bytes, (unsigned long long)t.offset,
               t.shard);
        if (in->hash) printf(", \"xxh64\": \"%016llx\"", (unsigned long long)inspect_hash(in, &t));
        printf("}");
    }
    printf("]");
}

static void print_totals(const inspection *in) {
    inspect_sum sums[QN_DTYPE_COUNT];
    int n = 0;
    inspect_count(in, sums);
    printf(",\n \"totals\": {");
    for (int d = 1; d < QN_DTYPE_COUNT; d++)
        if (sums[d].tensors)
            printf("%s\"%s\": {\"tensors\": %llu, \"elements\": %llu, \"bytes\": %llu}", n++ ? ", " : "",
                   qn_dtype_describe((qn_dtype)d)->name, (unsigned long long)sums[d].tensors,
                   (unsigned long long)sums[d].elements, (unsigned long long)sums[d].bytes);
    printf("}");
    if (in->tensor_glob)
        printf(",\n \"listed\": {\"tensors\": %llu, \"of_tensors\": %llu, \"bytes\": %llu, \"of_bytes\": %llu}",
               (unsigned long long)sums[0].tensors, (unsigned long long)in->info.n_tensors, (unsigned long long)sums[0].bytes,
               (unsigned long long)in->info.tensor_bytes);
    if (in->hash) printf(",\n \"xxh64\": \"%016llx\"", (unsigned long long)model_hash_value(&in->total));
}

void inspect_print_json(inspection *in) {
    static const char *const formats[] = {"gguf", "safetensors", "json"};
    printf("{\"file\": ");
    model_print_json(in->path, strlen(in->path));
    printf(",\n \"format\": \"%s\", \"version\": %u, \"alignment\": %u, \"files\": %u, \"bytes\": %llu, \"tensor_bytes\": %llu",
           formats[in->info.format], in->info.version, in->info.alignment, in->info.shards, (unsigned long long)in->info.bytes,
           (unsigned long long)in->info.tensor_bytes);
    if (in->show_keys) print_keys(in);
    if (in->show_tensors) print_tensors(in);
    if (in->show_tensors) print_totals(in);
    printf("}\n");
}
