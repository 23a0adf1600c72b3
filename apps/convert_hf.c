/* Hugging Face folders: config.json says what the model is, safetensors hold it. The tables are in convert_hf.def. */
#include <ctype.h>
#include <math.h>
#include <unistd.h>

#include "convert_hf.h"

enum { PATH_ROOM = 4096, MOST_WIDTH = 1 << 20 }; /* wider models are not read either; products of three such fit in 64 bits */

/* ---- The config */

char *convert_path(char path[4096], const char *folder, const char *name) {
    int n = snprintf(path, PATH_ROOM, "%s/%s", folder, name);
    return n > 0 && n < PATH_ROOM ? path : NULL;
}

void convert_folder(const char *in, char folder[4096]) {
    const char *slash = strrchr(in, '/');
    if (strstr(slash ? slash : in, ".safetensors"))
        snprintf(folder, PATH_ROOM, "%.*s", slash ? (int)(slash - in) : 1, slash ? in : ".");
    else snprintf(folder, PATH_ROOM, "%s", in);
}

int convert_has_config(const char *in) {
    char folder[PATH_ROOM], path[PATH_ROOM];
    convert_folder(in, folder);
    return convert_path(path, folder, "config.json") && access(path, F_OK) == 0;
}

int convert_config(const qn_file *config, const char *places, qn_file_value *v) {
    char one[CONVERT_NAME_ROOM];
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

/* A product of names and numbers; 0 when one of the names is not there. */
static int product_of(const qn_file *config, char *text, double *product) {
    *product = 1;
    for (char *at = text, *next; at; at = next) {
        qn_file_value v;
        next = strchr(at, '*');
        if (next) *next++ = 0;
        if (isdigit((unsigned char)*at)) *product *= strtod(at, NULL);
        else if (convert_config(config, at, &v)) *product *= v.number;
        else return 0;
    }
    return 1;
}

/* The first of the places of a row of CONVERT_KEY that has a value. */
static int value_at(const qn_file *config, const char *places, double *value) {
    char one[CONVERT_NAME_ROOM];
    for (const char *next; *places; places = next) {
        size_t n = strcspn(places, "|");
        next = places + n + (places[n] == '|');
        snprintf(one, sizeof one, "%.*s", (int)n, places);
        int root = strncmp(one, "rsqrt ", 6) == 0, not_zero = n > 0 && one[n - 1] == '?';
        if (not_zero) one[n - 1] = 0;
        if (!product_of(config, one + (root ? 6 : 0), value) || ((not_zero || root) && *value == 0)) continue;
        if (root) *value = 1 / sqrt(*value);
        return 1;
    }
    return 0;
}

int convert_in_list(const char *list, const char *word) {
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
#include "convert_hf.def"
};

typedef struct key_row {
    qn_key_type type;
    const char *list, *key, *places; /* places NULL: `otherwise`, where no row above had a value */
    double otherwise;
} key_row;

static const key_row keys[] = {
#define CONVERT_KEY(type, list, key, places) {QN_KEY_##type, list, key, places, 0},
#define CONVERT_ELSE(type, list, key, value) {QN_KEY_##type, list, key, NULL, value},
#include "convert_hf.def"
};
enum { N_KEYS = sizeof keys / sizeof *keys };

static const struct {
    const char *list, *place, *known, *what; /* known NULL: a switch, which says `what` */
} refusals[] = {
#define CONVERT_REFUSE(list, place, what) {list, place, NULL, what},
#define CONVERT_WORD(list, place, known) {list, place, known, NULL},
#include "convert_hf.def"
};

enum { N_CLASSES = sizeof architectures / sizeof *architectures };

static const char *class_name(const void *user, int i) {
    (void)user;
    return i < N_CLASSES ? architectures[i].class_name : NULL;
}

void convert_hf_classes_print(FILE *to) {
    enum { WIDTH = 100 };
    size_t column = WIDTH;
    fputs("\nclasses of config.json:", to);
    for (int i = 0; i < N_CLASSES; i++) {
        const char *name = architectures[i].class_name;
        column += strlen(name) + 1;
        fprintf(to, "%s%s", column > WIDTH ? "\n  " : " ", name);
        if (column > WIDTH) column = strlen(name) + 2;
    }
    fputs("\n", to);
}

static qn_status unknown_class(conversion *c, const qn_file_value *item) {
    enum { MOST = 3 };
    char name[64], near[200] = "";
    int nearest[MOST];
    snprintf(name, sizeof name, "%.*s", item->bytes < sizeof name ? (int)item->bytes : (int)sizeof name - 1, item->text);
    for (int i = 0, at = 0, n = qn_nearest_names(name, class_name, NULL, nearest, MOST); i < n; i++)
        at += snprintf(near + at, sizeof near - (size_t)at, "%s%s",
                       i == 0      ? "; near it is "
                       : i + 1 < n ? ", "
                                   : " and ",
                       architectures[nearest[i]].class_name);
    return qn_error_set(&c->error, QN_UNSUPPORTED,
                        "the architecture '%s' is none of the %d that can be converted%s; 'quern convert --help' lists them all",
                        name, N_CLASSES, near);
}

static qn_status find_architecture(conversion *c, convert_hf *f) {
    qn_file_value v, item;
    if (qn_file_key(f->config, qn_file_find(f->config, QN_FILE_KEYS, "architectures"), &v) != QN_OK || v.type != QN_KEY_ARRAY ||
        qn_file_item(&v, 0, &item) != QN_OK || item.type != QN_KEY_STRING)
        return qn_error_set(&c->error, QN_FORMAT, "config.json names no architecture");
    for (int i = 0; i < N_CLASSES; i++) {
        const char *name = architectures[i].class_name;
        if (strlen(name) == item.bytes && memcmp(name, item.text, item.bytes) == 0) {
            f->architecture = architectures[i].architecture;
            f->flags = architectures[i].flags;
            return QN_OK;
        }
    }
    return unknown_class(c, &item);
}

/* The number of a key, by the first of its rows that has one. */
static const key_row *find_key(const convert_hf *f, const char *key, double *value) {
    for (int i = 0; i < N_KEYS; i++) {
        if (strcmp(keys[i].key, key) != 0 || !convert_in_list(keys[i].list, f->architecture)) continue;
        *value = keys[i].otherwise;
        if (!keys[i].places || value_at(f->config, keys[i].places, value)) return &keys[i];
    }
    return NULL;
}

static double key_number(const convert_hf *f, const char *key, double otherwise) {
    double v;
    return find_key(f, key, &v) ? v : otherwise;
}

/* Whole numbers are written as 32 bits, and sizes are computed from some: what does not fit says so, here and once for all. */
static qn_status check_keys(conversion *c, const convert_hf *f) {
    for (int i = 0; i < N_KEYS; i++) {
        double v;
        if (keys[i].type != QN_KEY_U32 || find_key(f, keys[i].key, &v) != &keys[i] || (v >= 0 && v <= UINT32_MAX)) continue;
        return qn_error_set(&c->error, QN_FORMAT, "config.json: %g cannot be %s", v, keys[i].key);
    }
    return QN_OK;
}

static void put_keys(conversion *c, convert_hf *f) {
    char name[CONVERT_NAME_ROOM];
    convert_put_text(c, "general.architecture", f->architecture, strlen(f->architecture));
    if (c->name) convert_put_text(c, "general.name", c->name, strlen(c->name));
    for (int i = 0; i < N_KEYS; i++) {
        double v;
        if (*keys[i].key == '.' || find_key(f, keys[i].key, &v) != &keys[i]) continue;
        snprintf(name, sizeof name, "%s.%s", f->architecture, keys[i].key);
        convert_put_number(c, name, keys[i].type, v);
    }
}

/* Settings under which the architecture computes something else. */
static qn_status refuse(conversion *c, const convert_hf *f) {
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        qn_file_value v;
        char word[64];
        if (!convert_in_list(refusals[i].list, f->architecture)) continue;
        if (qn_file_key(f->config, qn_file_find(f->config, QN_FILE_KEYS, refusals[i].place), &v) != QN_OK) continue;
        if (!refusals[i].known && v.type != QN_KEY_STRING && v.type != QN_KEY_ARRAY && v.number != 0)
            return qn_error_set(&c->error, QN_UNSUPPORTED, "config.json sets %s: %s in %s, which is not converted",
                                refusals[i].place, refusals[i].what, f->architecture);
        if (!refusals[i].known || v.type != QN_KEY_STRING) continue;
        snprintf(word, sizeof word, "%.*s", (int)(v.bytes < 63 ? v.bytes : 63), v.text);
        if (!convert_in_list(refusals[i].known, word))
            return qn_error_set(&c->error, QN_UNSUPPORTED, "config.json sets %s to '%s'; %s knows %s", refusals[i].place, word,
                                f->architecture, refusals[i].known);
    }
    return QN_OK;
}

/* ---- Positions */

float *convert_own(conversion *c, convert_hf *f, int64_t n) {
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

float *convert_add_vector(conversion *c, convert_hf *f, const char *name, int rank, const int64_t *shape) {
    convert_tensor *t = convert_add(c, name, 1);
    int64_t n = rank ? shape[rank - 1] : 0, rows = 1;
    if (!t) return NULL;
    if (qn_tensor_init(&t->shape, QN_DTYPE_F32, rank, shape, NULL, 0) != QN_OK || n < 1) {
        qn_error_set(&c->error, QN_INVALID, "tensor '%s' cannot have %lld elements", name, (long long)n);
        return NULL;
    }
    for (int i = 0; i + 1 < rank; i++) rows *= shape[i];
    float *to = convert_own(c, f, rows * n);
    t->from = QN_DTYPE_F32;
    t->sources[0] = to;
    t->n_set = 1;
    t->rows_each = rows;
    t->columns = n;
    return to;
}

/* Llama 3: slow frequencies are stretched by a factor, fast ones are not, those between in part. */
static qn_status add_llama3_factors(conversion *c, convert_hf *f, int64_t dims) {
    double base = config_number(f->config, "rope_theta|rope_parameters.rope_theta", 10000);
    double factor = config_number(f->config, "rope_scaling.factor|rope_parameters.factor", 8);
    double low = config_number(f->config, "rope_scaling.low_freq_factor|rope_parameters.low_freq_factor", 1);
    double high = config_number(f->config, "rope_scaling.high_freq_factor|rope_parameters.high_freq_factor", 4);
    double context = config_number(
        f->config, "rope_scaling.original_max_position_embeddings|rope_parameters.original_max_position_embeddings", 8192);
    int64_t pairs = dims / 2;
    float *to = convert_add_vector(c, f, "rope_freqs.weight", 1, &pairs);
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
    char key[CONVERT_NAME_ROOM];
    qn_file_value v, item;
    snprintf(key, sizeof key, "rope_scaling.%s", which);
    if (qn_file_key(f->config, qn_file_find(f->config, QN_FILE_KEYS, key), &v) != QN_OK) {
        snprintf(key, sizeof key, "rope_parameters.%s", which);
        if (qn_file_key(f->config, qn_file_find(f->config, QN_FILE_KEYS, key), &v) != QN_OK) v.type = QN_KEY_U8;
    }
    if (v.type != QN_KEY_ARRAY || v.count < 1) return qn_error_set(&c->error, QN_FORMAT, "config.json has no list '%s'", key);
    int64_t n = (int64_t)v.count;
    float *to = convert_add_vector(c, f, name, 1, &n);
    for (uint64_t i = 0; to && i < v.count; i++) to[i] = qn_file_item(&v, i, &item) == QN_OK ? (float)item.number : 1.0f;
    return c->error.status;
}

static void put_scaling(conversion *c, const convert_hf *f, const char *what, qn_key_type type, double v) {
    char name[CONVERT_NAME_ROOM];
    snprintf(name, sizeof name, "%s.rope.scaling.%s", f->architecture, what);
    convert_put_number(c, name, type, v);
}

static void put_scaling_type(conversion *c, const convert_hf *f, const char *type, double factor) {
    char name[CONVERT_NAME_ROOM];
    snprintf(name, sizeof name, "%s.rope.scaling.type", f->architecture);
    convert_put_text(c, name, type, strlen(type));
    if (factor > 0) put_scaling(c, f, "factor", QN_KEY_F32, factor);
}

static qn_status put_rope(conversion *c, convert_hf *f) {
    static const char *const places[] = {"rope_scaling.rope_type", "rope_scaling.type", "rope_parameters.rope_type",
                                         "rope_parameters.full_attention.rope_type"};
    char name[CONVERT_NAME_ROOM], type[32] = "default";
    qn_file_value v;
    double part = key_number(f, ".rotary", 1);
    double factor = config_number(f->config, "rope_scaling.factor|rope_parameters.factor|rope_parameters.full_attention.factor",
                                  0);
    double context = key_number(f, "context_length", 0);
    double before = config_number(
        f->config,
        "rope_scaling.original_max_position_embeddings|rope_parameters.original_max_position_embeddings|"
        "original_max_position_embeddings",
        0);
    if (!(part >= 0 && part <= 1) || !(before >= 0 && before <= UINT32_MAX))
        return qn_error_set(&c->error, QN_FORMAT,
                            "config.json: a part of %g of each head that turns, first for %g tokens, cannot be", part, before);
    int64_t dims = (int64_t)(part * (double)f->head_dim);
    snprintf(name, sizeof name, "%s.rope.dimension_count", f->architecture);
    convert_put_number(c, name, QN_KEY_U32, (double)dims);
    for (int i = 3; i >= 0; i--)
        if (qn_file_key(f->config, qn_file_find(f->config, QN_FILE_KEYS, places[i]), &v) == QN_OK && v.type == QN_KEY_STRING)
            snprintf(type, sizeof type, "%.*s", (int)(v.bytes < 31 ? v.bytes : 31), v.text);
    if (strcmp(type, "default") == 0 || strcmp(type, "dynamic") == 0) return QN_OK; /* dynamic: as it is, within the context */
    if (strcmp(type, "llama3") == 0) return add_llama3_factors(c, f, dims);
    if (strcmp(type, "linear") == 0 || strcmp(type, "yarn") == 0) put_scaling_type(c, f, type, factor);
    if (before > 0) put_scaling(c, f, "original_context_length", QN_KEY_U32, before);
    if (strcmp(type, "yarn") == 0) {
        double fast = config_number(f->config, "rope_scaling.beta_fast|rope_parameters.beta_fast", 0);
        double slow = config_number(f->config, "rope_scaling.beta_slow|rope_parameters.beta_slow", 0);
        if (fast > 0) put_scaling(c, f, "yarn_beta_fast", QN_KEY_F32, fast);
        if (slow > 0) put_scaling(c, f, "yarn_beta_slow", QN_KEY_F32, slow);
    }
    if (strcmp(type, "linear") == 0 || strcmp(type, "yarn") == 0) return QN_OK;
    if (strcmp(type, "longrope") != 0 && strcmp(type, "su") != 0)
        return qn_error_set(&c->error, QN_UNSUPPORTED, "positions are scaled in the unknown way '%s'", type);
    put_scaling_type(c, f, "longrope", 0);
    double scale = before > 0 ? context / before : 1;
    put_scaling(c, f, "attn_factor", QN_KEY_F32, scale > 1 ? sqrt(1 + log(scale) / log(before)) : 1);
    qn_status status = add_long_factors(c, f, "long_factor", "rope_factors_long.weight");
    return status == QN_OK ? add_long_factors(c, f, "short_factor", "rope_factors_short.weight") : status;
}

/* ---- The whole */

static qn_status read_numbers(conversion *c, convert_hf *f) {
    int64_t hidden = (int64_t)key_number(f, "embedding_length", 0);
    f->heads = (int64_t)key_number(f, "attention.head_count", 0);
    f->kv_heads = (int64_t)key_number(f, "attention.head_count_kv", (double)f->heads);
    f->experts = (int64_t)key_number(f, "expert_count", 0);
    if (hidden < 1 || hidden > MOST_WIDTH || f->heads < 1 || f->kv_heads < 1 || f->heads > hidden || f->heads % f->kv_heads)
        return qn_error_set(&c->error, QN_FORMAT, "config.json: a width of %lld in %lld heads, %lld of keys, cannot be",
                            (long long)hidden, (long long)f->heads, (long long)f->kv_heads);
    f->head_dim = (int64_t)key_number(f, "attention.key_length", (double)(hidden / f->heads));
    if (f->head_dim < 1 || f->head_dim > 65536)
        return qn_error_set(&c->error, QN_FORMAT, "config.json: heads of %lld numbers cannot be", (long long)f->head_dim);
    snprintf(c->how.architecture, sizeof c->how.architecture, "%s", f->architecture);
    c->how.layers = (int64_t)key_number(f, "block_count", 0);
    c->how.experts = f->experts;
    c->how.heads_per_key = f->heads / f->kv_heads;
    return QN_OK;
}

qn_status convert_hf_open(conversion *c, convert_hf **source) {
    char folder[PATH_ROOM], path[PATH_ROOM];
    convert_hf *f = *source = calloc(1, sizeof *f);
    if (!f) return qn_error_set(&c->error, QN_NO_MEMORY, "no memory");
    if (model_open_file(c->in, c->no_map, &f->weights, &c->error) != QN_OK) return c->error.status;
    qn_file_info info = {.size = sizeof info};
    qn_file_describe(f->weights, &info);
    if (info.format != QN_FILE_SAFETENSORS)
        return qn_error_set(&c->error, QN_UNSUPPORTED, "%s: %s", c->in,
                            info.format == QN_FILE_GGUF ? "this is GGUF already; 'quern quantize' changes the type of its weights"
                                                        : "this is JSON; name the folder it is in, or the safetensors");
    f->most_parts = 3 * info.n_tensors; /* one holds queries, keys and values at most */
    convert_folder(c->in, folder);
    if (!convert_path(path, folder, "config.json")) return qn_error_set(&c->error, QN_IO, "%s: the path is too long", c->in);
    if (!convert_has_config(c->in))
        return qn_error_set(&c->error, QN_IO,
                            "%s is missing, which says what model these tensors are: no GGUF can be made of them, but "
                            "'quern inspect' lists them and qn_file_open reads them",
                            path);
    if (model_open_file(path, c->no_map, &f->config, &c->error) != QN_OK) return c->error.status;
    qn_status status = find_architecture(c, f);
    if (status == QN_OK) status = refuse(c, f);
    if (status == QN_OK) status = check_keys(c, f);
    if (status == QN_OK) status = read_numbers(c, f);
    if (status != QN_OK) return status;
    put_keys(c, f);
    status = put_rope(c, f);
    if (status == QN_OK)
        status = convert_vocab(c, folder, f->config, info.tensor_bytes, (int64_t)config_number(f->config, "vocab_size", 0));
    qn_file_tensor t;
    for (int64_t i = 0; status == QN_OK && qn_file_entry(f->weights, i, &t) == QN_OK; i++) status = convert_hf_tensor(c, f, &t);
    c->how.tied_output = convert_find(c, "output.weight") == NULL;
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
