/* Hugging Face folders: config.json says what the model is, safetensors hold it. The tables are in convert_hf.def. */
#include <ctype.h>
#include <math.h>

#include "convert_parts.h"

enum { ROTATE = 1, NORM_ONE = 2, NO_OUTPUT = 4, NAME_ROOM = 256, PATH_ROOM = 4096 };

struct convert_hf {
    qn_file *config, *weights;
    const char *architecture;
    unsigned flags;
    int64_t heads, kv_heads, experts, head_dim;
    float **owned; /* vectors made here */
    size_t n_owned, room;
};

/* ---- The config */

char *convert_path(char path[4096], const char *folder, const char *name) {
    int n = snprintf(path, PATH_ROOM, "%s/%s", folder, name);
    return n > 0 && n < PATH_ROOM ? path : NULL;
}

int convert_config(const qn_file *config, const char *places, qn_file_value *v) {
    char one[NAME_ROOM];
    while (*places) {
        size_t n = strcspn(places, "|");
        snprintf(one, sizeof one, "%.*s", (int)n, places);
        places += n + (places[n] == '|');
        if (qn_file_key(config, qn_file_find(config, QN_FILE_KEYS, one), v) == QN_OK && v->type != QN_KEY_STRING &&
            v->type != QN_KEY_ARRAY)
            return 1;
    }
    return 0;
}

static double config_number(const qn_file *config, const char *places, double otherwise) {
    qn_file_value v;
    return convert_config(config, places, &v) ? v.number : otherwise;
}

/* Whether a word is in a list separated by spaces; an empty list has all. */
static int in_list(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at++)
        if ((at == list || at[-1] == ' ') && (at[n] == 0 || at[n] == ' ')) return 1;
    return *list == 0;
}

static const struct {
    const char *class_name, *architecture;
    unsigned flags;
} architectures[] = {
#define CONVERT_ARCH(class_name, architecture, flags) {class_name, architecture, flags},
#define CONVERT_NAME(list, from, to)
#define CONVERT_KEY(type, list, key, places)
#define CONVERT_ELSE(type, list, key, value)
#define CONVERT_PRE(steps, name)
#include "convert_hf.def"
#undef CONVERT_ARCH
#undef CONVERT_NAME
#undef CONVERT_KEY
#undef CONVERT_ELSE
#undef CONVERT_PRE
};

static const struct {
    const char *list, *from, *to;
} names[] = {
#define CONVERT_ARCH(class_name, architecture, flags)
#define CONVERT_NAME(list, from, to) {list, from, to},
#define CONVERT_KEY(type, list, key, places)
#define CONVERT_ELSE(type, list, key, value)
#define CONVERT_PRE(steps, name)
#include "convert_hf.def"
#undef CONVERT_ARCH
#undef CONVERT_NAME
#undef CONVERT_KEY
#undef CONVERT_ELSE
#undef CONVERT_PRE
};

typedef struct key_row {
    qn_key_type type;
    const char *list, *key, *places; /* places NULL: `otherwise`, where no row above had a value */
    double otherwise;
} key_row;

static const key_row keys[] = {
#define CONVERT_ARCH(class_name, architecture, flags)
#define CONVERT_NAME(list, from, to)
#define CONVERT_KEY(type, list, key, places) {QN_KEY_##type, list, key, places, 0},
#define CONVERT_ELSE(type, list, key, value) {QN_KEY_##type, list, key, NULL, value},
#define CONVERT_PRE(steps, name)
#include "convert_hf.def"
#undef CONVERT_ARCH
#undef CONVERT_NAME
#undef CONVERT_KEY
#undef CONVERT_ELSE
#undef CONVERT_PRE
};

static qn_status find_architecture(conversion *c, convert_hf *f) {
    qn_file_value v, item;
    char known[400] = "";
    if (qn_file_key(f->config, qn_file_find(f->config, QN_FILE_KEYS, "architectures"), &v) != QN_OK || v.type != QN_KEY_ARRAY ||
        qn_file_item(&v, 0, &item) != QN_OK || item.type != QN_KEY_STRING)
        return qn_error_set(&c->error, QN_FORMAT, "config.json names no architecture");
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        if (strlen(architectures[i].class_name) == item.bytes &&
            memcmp(architectures[i].class_name, item.text, item.bytes) == 0) {
            f->architecture = architectures[i].architecture;
            f->flags = architectures[i].flags;
            return QN_OK;
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", architectures[i].class_name);
    }
    return qn_error_set(&c->error, QN_UNSUPPORTED, "the architecture '%.*s' is unknown; known are %s",
                        (int)(item.bytes < 60 ? item.bytes : 60), item.text, known);
}

static void put_keys(conversion *c, convert_hf *f) {
    char name[NAME_ROOM];
    qn_file_value v;
    convert_put_text(c, "general.architecture", f->architecture, strlen(f->architecture));
    if (c->name) convert_put_text(c, "general.name", c->name, strlen(c->name));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int there = keys[i].places && convert_config(f->config, keys[i].places, &v);
        if (!in_list(keys[i].list, f->architecture)) continue;
        for (size_t k = 0; k < i && !keys[i].places; k++) /* said by an earlier row? */
            if (keys[k].places && strcmp(keys[k].key, keys[i].key) == 0 && in_list(keys[k].list, f->architecture))
                there |= convert_config(f->config, keys[k].places, &v);
        if ((keys[i].places != NULL) != there) continue;
        snprintf(name, sizeof name, "%s.%s", f->architecture, keys[i].key);
        convert_put_number(c, name, keys[i].type, keys[i].places ? v.number : keys[i].otherwise);
    }
}

/* ---- Positions */

static float *own(conversion *c, convert_hf *f, int64_t n) {
    if (f->n_owned == f->room) {
        size_t room = f->room * 2 + 64;
        float **more = realloc(f->owned, room * sizeof *more);
        if (!more) return qn_error_set(&c->error, QN_NO_MEMORY, "no memory"), NULL;
        f->owned = more;
        f->room = room;
    }
    float *made = calloc((size_t)n, sizeof *made);
    if (made) f->owned[f->n_owned++] = made;
    else qn_error_set(&c->error, QN_NO_MEMORY, "no memory for %lld numbers", (long long)n);
    return made;
}

/* A tensor of n numbers to be filled in; NULL with the error set. */
static float *add_vector(conversion *c, convert_hf *f, const char *name, int64_t n) {
    convert_tensor *t = convert_add(c, name, 1);
    float *to = t ? own(c, f, n) : NULL;
    if (!to) return NULL;
    t->from = QN_DTYPE_F32;
    t->sources[0] = to;
    t->n_set = 1;
    t->rows_each = 1;
    t->columns = n;
    if (qn_tensor_init(&t->shape, QN_DTYPE_F32, 1, &n, NULL, 0) == QN_OK) return to;
    qn_error_set(&c->error, QN_INVALID, "tensor '%s' cannot have %lld elements", name, (long long)n);
    return NULL;
}

/* Llama 3: slow frequencies are stretched by a factor, fast ones are not, those between in part. */
static qn_status add_llama3_factors(conversion *c, convert_hf *f, int64_t dims) {
    double base = config_number(f->config, "rope_theta|rope_parameters.rope_theta", 10000);
    double factor = config_number(f->config, "rope_scaling.factor|rope_parameters.factor", 8);
    double low = config_number(f->config, "rope_scaling.low_freq_factor|rope_parameters.low_freq_factor", 1);
    double high = config_number(f->config, "rope_scaling.high_freq_factor|rope_parameters.high_freq_factor", 4);
    double context = config_number(
        f->config, "rope_scaling.original_max_position_embeddings|rope_parameters.original_max_position_embeddings", 8192);
    float *to = add_vector(c, f, "rope_freqs.weight", dims / 2);
    for (int64_t i = 0; to && i < dims / 2; i++) {
        double length = 2 * 3.14159265358979323846 * pow(base, (double)(2 * i) / (double)dims), turns = context / length;
        if (turns > high) to[i] = 1;
        else if (turns < low) to[i] = (float)factor;
        else {
            double smooth = (turns - low) / (high - low);
            to[i] = (float)(1 / ((1 - smooth) / factor + smooth));
        }
    }
    return c->error.status;
}

static qn_status add_long_factors(conversion *c, convert_hf *f, const char *which, const char *name) {
    char key[NAME_ROOM];
    qn_file_value v, item;
    snprintf(key, sizeof key, "rope_scaling.%s", which);
    if (qn_file_key(f->config, qn_file_find(f->config, QN_FILE_KEYS, key), &v) != QN_OK) {
        snprintf(key, sizeof key, "rope_parameters.%s", which);
        if (qn_file_key(f->config, qn_file_find(f->config, QN_FILE_KEYS, key), &v) != QN_OK) v.type = QN_KEY_U8;
    }
    if (v.type != QN_KEY_ARRAY || v.count < 1) return qn_error_set(&c->error, QN_FORMAT, "config.json has no list '%s'", key);
    float *to = add_vector(c, f, name, (int64_t)v.count);
    for (uint64_t i = 0; to && i < v.count; i++) to[i] = qn_file_item(&v, i, &item) == QN_OK ? (float)item.number : 1.0f;
    return c->error.status;
}

static void put_scaling(conversion *c, const convert_hf *f, const char *what, qn_key_type type, double v) {
    char name[NAME_ROOM];
    snprintf(name, sizeof name, "%s.rope.scaling.%s", f->architecture, what);
    convert_put_number(c, name, type, v);
}

static void put_scaling_type(conversion *c, const convert_hf *f, const char *type, double factor) {
    char name[NAME_ROOM];
    snprintf(name, sizeof name, "%s.rope.scaling.type", f->architecture);
    convert_put_text(c, name, type, strlen(type));
    if (factor > 0) put_scaling(c, f, "factor", QN_KEY_F32, factor);
}

static qn_status put_rope(conversion *c, convert_hf *f) {
    static const char *const places[] = {"rope_scaling.rope_type", "rope_scaling.type", "rope_parameters.rope_type"};
    char name[NAME_ROOM], type[32] = "default";
    qn_file_value v;
    double part = config_number(f->config, "partial_rotary_factor|rope_parameters.partial_rotary_factor", 1);
    double factor = config_number(f->config, "rope_scaling.factor|rope_parameters.factor", 0);
    double context = config_number(f->config, "max_position_embeddings", 0);
    double before = config_number(
        f->config,
        "rope_scaling.original_max_position_embeddings|rope_parameters.original_max_position_embeddings|"
        "original_max_position_embeddings",
        0);
    int64_t dims = (int64_t)(part * (double)f->head_dim);
    snprintf(name, sizeof name, "%s.rope.dimension_count", f->architecture);
    convert_put_number(c, name, QN_KEY_U32, (double)dims);
    for (int i = 2; i >= 0; i--)
        if (qn_file_key(f->config, qn_file_find(f->config, QN_FILE_KEYS, places[i]), &v) == QN_OK && v.type == QN_KEY_STRING)
            snprintf(type, sizeof type, "%.*s", (int)(v.bytes < 31 ? v.bytes : 31), v.text);
    if (strcmp(type, "default") == 0) return QN_OK;
    if (strcmp(type, "llama3") == 0) return add_llama3_factors(c, f, dims);
    if (strcmp(type, "linear") == 0 || strcmp(type, "yarn") == 0) put_scaling_type(c, f, type, factor);
    if (before > 0) put_scaling(c, f, "original_context_length", QN_KEY_U32, before);
    if (strcmp(type, "linear") == 0 || strcmp(type, "yarn") == 0) return QN_OK;
    if (strcmp(type, "longrope") != 0 && strcmp(type, "su") != 0)
        return qn_error_set(&c->error, QN_UNSUPPORTED, "positions are scaled in the unknown way '%s'", type);
    put_scaling_type(c, f, "longrope", 0);
    double scale = before > 0 ? context / before : 1;
    put_scaling(c, f, "attn_factor", QN_KEY_F32, scale > 1 ? sqrt(1 + log(scale) / log(before)) : 1);
    qn_status status = add_long_factors(c, f, "long_factor", "rope_factors_long.weight");
    return status == QN_OK ? add_long_factors(c, f, "short_factor", "rope_factors_short.weight") : status;
}

/* ---- Names */

/* Whether a name is a pattern's, and the numbers in the place of * and #. */
static int match(const char *pattern, const char *name, size_t n, long *layer, long *expert) {
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
        *(*pattern == '*' ? layer : expert) = strtol(digits, NULL, 10);
    }
    return name == end;
}

/* The GGUF name with its numbers and ending put in. */
static void fill_name(const char *pattern, long layer, const char *ending, char *to, size_t room) {
    const char *star = strchr(pattern, '*');
    if (star) snprintf(to, room, "%.*s%ld%s%s", (int)(star - pattern), pattern, layer, star + 1, ending);
    else snprintf(to, room, "%s%s", pattern, ending);
}

/* What a tensor becomes: 0 unknown, 1 found, 2 left out. */
static int translate(const convert_hf *f, const char *name, char *to, size_t room, long *expert) {
    static const char *const endings[] = {".weight", ".bias", ""};
    size_t length = strlen(name), n = length;
    const char *ending = "";
    for (int i = 0; i < 2 && !*ending; i++)
        if (length > strlen(endings[i]) && strcmp(name + length - strlen(endings[i]), endings[i]) == 0) {
            ending = endings[i];
            n = length - strlen(ending);
        }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        long layer = 0;
        *expert = -1;
        if (!in_list(names[i].list, f->architecture) || !match(names[i].from, name, n, &layer, expert)) continue;
        if (!*names[i].to || (f->flags & NO_OUTPUT && strcmp(names[i].to, "output") == 0)) return 2;
        fill_name(names[i].to, layer, ending, to, room);
        return 1;
    }
    return 0;
}

/* ---- Tensors */

static int ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static convert_tensor *find_tensor(conversion *c, const char *name) {
    for (size_t i = c->n_tensors; i-- > 0;) /* parts of one lie near each other */
        if (strcmp(c->tensors[i].name, name) == 0) return &c->tensors[i];
    return NULL;
}

/* A matrix of one expert goes to its place in the stack. */
static qn_status add_expert(conversion *c, convert_hf *f, const qn_file_tensor *from, const char *name, long expert) {
    convert_tensor *t = find_tensor(c, name);
    if (f->experts < 1 || f->experts > CONVERT_MOST_SOURCES || expert >= f->experts || from->tensor.rank != 2)
        return qn_error_set(&c->error, QN_FORMAT, "tensor '%s': it belongs to expert %ld of %lld", from->name, expert,
                            (long long)f->experts);
    if (!t) {
        const int64_t shape[3] = {f->experts, from->tensor.shape[0], from->tensor.shape[1]};
        if (!(t = convert_add(c, name, (int32_t)f->experts))) return c->error.status;
        t->from = (qn_dtype)from->tensor.dtype;
        t->rows_each = shape[1];
        t->columns = shape[2];
        qn_status status = qn_tensor_init(&t->shape, t->from, 3, shape, NULL, 0);
        if (status != QN_OK) return qn_error_set(&c->error, status, "tensor '%s': its size overflows", name);
    }
    if (t->sources[expert] || t->from != (qn_dtype)from->tensor.dtype || t->rows_each != from->tensor.shape[0] ||
        t->columns != from->tensor.shape[1])
        return qn_error_set(&c->error, QN_FORMAT, "tensor '%s' differs from those of the other experts", from->name);
    t->sources[expert] = from->tensor.data;
    t->n_set++;
    return QN_OK;
}

/* Norms that are stored less one. */
static qn_status add_norm(conversion *c, convert_hf *f, const qn_file_tensor *from, const char *name) {
    int64_t n = qn_tensor_count(&from->tensor);
    float *to = add_vector(c, f, name, n);
    if (!to) return c->error.status;
    qn_status status = qn_convert_rows(NULL, (qn_dtype)from->tensor.dtype, from->tensor.data, QN_DTYPE_F32, to, 1, n, NULL);
    if (status != QN_OK) return qn_error_set(&c->error, status, "tensor '%s' cannot become f32", from->name);
    for (int64_t i = 0; i < n; i++) to[i] += 1.0f;
    return QN_OK;
}

/* A bias turns as its matrix does. */
static qn_status add_turned_bias(conversion *c, convert_hf *f, const qn_file_tensor *from, const char *name, int64_t heads) {
    int64_t n = qn_tensor_count(&from->tensor), head = n / heads;
    if (n % (2 * heads))
        return qn_error_set(&c->error, QN_FORMAT, "tensor '%s': %lld numbers are not %lld heads of pairs", from->name,
                            (long long)n, (long long)heads);
    float *to = add_vector(c, f, name, n), *as_is = to ? own(c, f, n) : NULL;
    if (!as_is) return c->error.status;
    if (qn_convert_rows(NULL, (qn_dtype)from->tensor.dtype, from->tensor.data, QN_DTYPE_F32, as_is, 1, n, NULL) != QN_OK)
        return qn_error_set(&c->error, QN_UNSUPPORTED, "tensor '%s' cannot become f32", from->name);
    for (int64_t i = 0; i < n; i++) to[i] = as_is[i / head * head + i % head % 2 * (head / 2) + i % head / 2];
    return QN_OK;
}

static qn_status add_tensor(conversion *c, convert_hf *f, const qn_file_tensor *from) {
    char name[NAME_ROOM];
    long expert;
    int known = translate(f, from->name, name, sizeof name, &expert);
    if (known == 2) return QN_OK;
    if (!known)
        return qn_error_set(&c->error, QN_UNSUPPORTED, "tensor '%.100s' has no name in GGUF's %s", from->name, f->architecture);
    if (expert >= 0) return add_expert(c, f, from, name, expert);
    if (f->flags & NORM_ONE && ends_with(from->name, "norm.weight")) return add_norm(c, f, from, name);
    int64_t heads = strstr(name, ".attn_q.") ? f->heads : strstr(name, ".attn_k.") ? f->kv_heads : 0;
    int rank = from->tensor.rank, turns = f->flags & ROTATE && heads;
    if (turns && rank == 1) return add_turned_bias(c, f, from, name, heads);
    convert_tensor *t = convert_add(c, name, 1);
    if (!t) return c->error.status;
    const int64_t *shape = from->tensor.shape;
    for (; rank > 1 && *shape == 1; shape++) rank--; /* leading ones say nothing */
    t->from = (qn_dtype)from->tensor.dtype;
    t->columns = shape[rank - 1];
    t->rows_each = t->columns ? qn_tensor_count(&from->tensor) / t->columns : 0;
    t->sources[0] = from->tensor.data;
    t->n_set = 1;
    if (turns) {
        if (t->rows_each % (2 * heads))
            return qn_error_set(&c->error, QN_FORMAT, "tensor '%s': %lld rows are not %lld heads of pairs", from->name,
                                (long long)t->rows_each, (long long)heads);
        t->change = CONVERT_ROTATE;
        t->heads = heads;
    }
    return qn_tensor_init(&t->shape, t->from, rank, shape, NULL, 0);
}

/* ---- The whole */

static qn_status read_numbers(conversion *c, convert_hf *f) {
    int64_t hidden = (int64_t)config_number(f->config, "hidden_size|n_embd", 0);
    f->heads = (int64_t)config_number(f->config, "num_attention_heads|n_head", 0);
    f->kv_heads = (int64_t)config_number(f->config, "num_key_value_heads|n_head_kv", (double)f->heads);
    f->experts = (int64_t)config_number(f->config, "num_local_experts|num_experts", 0);
    if (hidden < 1 || f->heads < 1 || f->kv_heads < 1 || f->heads > hidden)
        return qn_error_set(&c->error, QN_FORMAT, "config.json: a width of %lld in %lld heads, %lld of keys, cannot be",
                            (long long)hidden, (long long)f->heads, (long long)f->kv_heads);
    f->head_dim = (int64_t)config_number(f->config, "head_dim", (double)(hidden / f->heads));
    snprintf(c->how.architecture, sizeof c->how.architecture, "%s", f->architecture);
    c->how.layers = (int64_t)config_number(f->config, "num_hidden_layers|n_layer", 0);
    c->how.experts = f->experts;
    c->how.heads_per_key = f->heads / f->kv_heads;
    return QN_OK;
}

qn_status convert_hf_open(conversion *c, convert_hf **source) {
    char folder[PATH_ROOM], path[PATH_ROOM];
    convert_hf *f = *source = calloc(1, sizeof *f);
    const char *slash = strrchr(c->in, '/');
    if (!f) return qn_error_set(&c->error, QN_NO_MEMORY, "no memory");
    if (qn_file_open(c->in, NULL, &f->weights, &c->error) != QN_OK) return c->error.status;
    qn_file_info info = {.size = sizeof info};
    qn_file_describe(f->weights, &info);
    if (info.format != QN_FILE_SAFETENSORS)
        return qn_error_set(&c->error, QN_UNSUPPORTED, "%s: this is neither safetensors nor a .bin of llama2.c", c->in);
    snprintf(folder, sizeof folder, "%s", c->in); /* of a file, the folder it is in */
    if (strstr(slash ? slash : c->in, ".safetensors"))
        snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - c->in) : 1, slash ? c->in : ".");
    if (!convert_path(path, folder, "config.json")) return qn_error_set(&c->error, QN_IO, "%s: the path is too long", c->in);
    if (qn_file_open(path, NULL, &f->config, &c->error) != QN_OK) return c->error.status;
    qn_status status = find_architecture(c, f);
    if (status == QN_OK) status = read_numbers(c, f);
    if (status != QN_OK) return status;
    put_keys(c, f);
    status = put_rope(c, f);
    if (status == QN_OK) status = convert_vocab(c, folder, f->config, (int64_t)config_number(f->config, "vocab_size", 0));
    qn_file_tensor t;
    for (int64_t i = 0; status == QN_OK && qn_file_entry(f->weights, i, &t) == QN_OK; i++) status = add_tensor(c, f, &t);
    c->how.tied_output = find_tensor(c, "output.weight") == NULL;
    return status;
}

void convert_hf_close(convert_hf *f) {
    if (!f) return;
    for (size_t i = 0; i < f->n_owned; i++) free(f->owned[i]);
    free(f->owned);
    qn_file_close(f->config);
    qn_file_close(f->weights);
    free(f);
}
