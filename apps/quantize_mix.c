/* Which dtype each tensor gets; the tables are quantize_types.def and quantize_mix.def. */
#include "quantize.h"

#include <ctype.h>
#include <regex.h>

/* ---- Names */

typedef struct type_row {
    const char *name;
    int number;
    qn_dtype dtype;
    const char *summary;
} type_row;

static const type_row types[] = {
#define QUANTIZE_TYPE(name, number, dtype, summary) {#name, number, QN_DTYPE_##dtype, summary},
#define QUANTIZE_ALIAS(name, mixture)
#include "quantize_types.def"
#undef QUANTIZE_TYPE
#undef QUANTIZE_ALIAS
};

static const struct {
    const char *name;
    quantize_type type;
} aliases[] = {
#define QUANTIZE_TYPE(name, number, dtype, summary)
#define QUANTIZE_ALIAS(name, mixture) {#name, QUANTIZE_##mixture},
#include "quantize_types.def"
#undef QUANTIZE_TYPE
#undef QUANTIZE_ALIAS
};

static int same_word(const char *a, const char *b) {
    for (; *a && *b; a++, b++)
        if (toupper((unsigned char)*a) != toupper((unsigned char)*b)) return 0;
    return *a == *b;
}

quantize_type quantize_type_find(const char *name) {
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (same_word(name, aliases[i].name)) return aliases[i].type;
    int i = 0;
    while (i < QUANTIZE_TYPES && !same_word(name, types[i].name)) i++;
    return (quantize_type)i;
}

int quantize_type_number(quantize_type type) { return types[type].number; }

qn_dtype quantize_type_dtype(quantize_type type) { return types[type].dtype; }

const char *quantize_type_name(int item) { return item < QUANTIZE_TYPES ? types[item].name : NULL; }

void quantize_types_print(FILE *to) {
    for (int i = 0; i < QUANTIZE_TYPES; i++) fprintf(to, "  %-10s %s\n", types[i].name, types[i].summary);
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        fprintf(to, "  %-10s means %s\n", aliases[i].name, types[aliases[i].type].name);
}

qn_dtype quantize_dtype_find(const char *name) {
    for (int d = 1; d < QN_DTYPE_COUNT; d++)
        if (same_word(name, qn_dtype_describe((qn_dtype)d)->name)) return (qn_dtype)d;
    return QN_DTYPE_NONE;
}

/* ---- Facts */

static int64_t number_of(const qn_file *file, const char *architecture, const char *name, int64_t otherwise) {
    char key[160];
    qn_file_value v, item;
    snprintf(key, sizeof key, "%s.%s", architecture, name);
    if (qn_file_key(file, qn_file_find(file, QN_FILE_KEYS, key), &v) != QN_OK || v.type == QN_KEY_STRING) return otherwise;
    if (v.type != QN_KEY_ARRAY) return v.integer;
    int64_t most = otherwise; /* a number for each layer: the largest speaks for all */
    for (uint64_t i = 0; i < v.count && qn_file_item(&v, i, &item) == QN_OK; i++)
        most = item.integer > most ? item.integer : most;
    return most;
}

enum { MOST_LAYERS = 1 << 20 }; /* names and keys come from the file: what is computed from them must not overflow */

int64_t quantize_layer(const char *name) {
    const char *at = strstr(name, "blk.");
    if (!at || !isdigit((unsigned char)at[4])) return -1;
    char *end;
    long layer = strtol(at + 4, &end, 10); /* the largest number there is, where the name's is larger */
    return *end == '.' && layer < MOST_LAYERS ? layer : -1;
}

void quantize_model_read(quantize_model *m, const qn_file *file) {
    qn_file_value v;
    qn_file_tensor t;
    if (qn_file_key(file, qn_file_find(file, QN_FILE_KEYS, "general.architecture"), &v) == QN_OK && v.type == QN_KEY_STRING)
        snprintf(m->architecture, sizeof m->architecture, "%.*s", (int)(v.bytes < 63 ? v.bytes : 63), v.text);
    m->layers = number_of(file, m->architecture, "block_count", 0);
    if (m->layers < 0 || m->layers > MOST_LAYERS) m->layers = 0;
    m->experts = number_of(file, m->architecture, "expert_count", 0);
    int64_t heads = number_of(file, m->architecture, "attention.head_count", 1);
    int64_t keys = number_of(file, m->architecture, "attention.head_count_kv", heads);
    m->heads_per_key = keys > 0 ? heads / keys : 0;
    m->tied_output = qn_file_find(file, QN_FILE_TENSORS, "output.weight") < 0;
    m->values = 0;
    for (int64_t i = 0; qn_file_entry(file, i, &t) == QN_OK; i++) m->values += quantize_is_values(t.name);
}

/* ---- Rules */

typedef enum part {
    PART_ANY,
    PART_OUTPUT,
    PART_EMBEDDING,
    PART_VALUES,
    PART_KEYS,
    PART_QUERIES,
    PART_ATTENTION,
    PART_UP,
    PART_GATE,
    PART_DOWN
} part;

enum {
    ALWAYS = 0,
    FALCON = 1,
    NOT_FALCON = 2,
    GQA4 = 4,
    MOE4 = 8,
    MOE8 = 16,
    BIG = 32,
    MATRIX = 64,
    NO_MATRIX = 128,
    EIGHT = 256,
    SIXTEEN = 512,
    INNER = 1024,
    MORE = 2048,
    TWO = 4096,
    FOUR = 8192,
    EXPERTS = 16384,
    UNEVEN = 32768
};

enum { QUANTIZE_ANY = QUANTIZE_TYPES };

static const struct {
    int type; /* quantize_type or QUANTIZE_ANY */
    part where;
    unsigned when;
    qn_dtype dtype;
} rules[] = {
#define QUANTIZE_RULE(mixture, where, when, dtype) {QUANTIZE_##mixture, PART_##where, when, QN_DTYPE_##dtype},
#define QUANTIZE_INSTEAD(dtype, next)
#define QUANTIZE_PART(where, text)
#define QUANTIZE_KEEP(text)
#include "quantize_mix.def"
#undef QUANTIZE_RULE
#undef QUANTIZE_INSTEAD
#undef QUANTIZE_PART
#undef QUANTIZE_KEEP
};

static const qn_dtype instead[QN_DTYPE_COUNT] = {
#define QUANTIZE_RULE(mixture, where, when, dtype)
#define QUANTIZE_INSTEAD(dtype, next) [QN_DTYPE_##dtype] = QN_DTYPE_##next,
#define QUANTIZE_PART(where, text)
#define QUANTIZE_KEEP(text)
#include "quantize_mix.def"
#undef QUANTIZE_RULE
#undef QUANTIZE_INSTEAD
#undef QUANTIZE_PART
#undef QUANTIZE_KEEP
};

static const struct {
    part where;
    const char *text;
} parts[] = {
#define QUANTIZE_RULE(mixture, where, when, dtype)
#define QUANTIZE_INSTEAD(dtype, next)
#define QUANTIZE_PART(where, text) {PART_##where, text},
#define QUANTIZE_KEEP(text)
#include "quantize_mix.def"
#undef QUANTIZE_RULE
#undef QUANTIZE_INSTEAD
#undef QUANTIZE_PART
#undef QUANTIZE_KEEP
};

static const char *const keep[] = {
#define QUANTIZE_RULE(mixture, where, when, dtype)
#define QUANTIZE_INSTEAD(dtype, next)
#define QUANTIZE_PART(where, text)
#define QUANTIZE_KEEP(text) text,
#include "quantize_mix.def"
#undef QUANTIZE_RULE
#undef QUANTIZE_INSTEAD
#undef QUANTIZE_PART
#undef QUANTIZE_KEEP
};

static part part_of(const quantize_model *m, const char *name) {
    int embedding = strcmp(name, "token_embd.weight") == 0 || strcmp(name, "per_layer_token_embd.weight") == 0;
    if (strcmp(name, "output.weight") == 0 || (embedding && m->tied_output)) return PART_OUTPUT;
    if (embedding) return PART_EMBEDDING;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i].text)) return parts[i].where;
    return PART_ANY;
}

int quantize_is_values(const char *name) {
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i].text)) return parts[i].where == PART_VALUES;
    return 0;
}

int quantize_may_change(const quantize_model *m, const char *name, const qn_tensor *t) {
    const qn_dtype_info *d = qn_dtype_describe((qn_dtype)t->dtype);
    size_t n = strlen(name);
    int dims = 0;
    for (int i = 0; i < t->rank; i++) dims += i + 1 == t->rank || dims || t->shape[i] != 1; /* leading ones do not count */
    if (d->kind != QN_KIND_FLOAT && d->kind != QN_KIND_BLOCK) return 0;
    if (dims < 2 || n < 6 || strcmp(name + n - 6, "weight") != 0) return 0;
    if (m->keep_output && strcmp(name, "output.weight") == 0) return 0;
    for (size_t i = 0; i < sizeof keep / sizeof *keep; i++)
        if (strstr(name, keep[i])) return 0;
    return 1;
}

static unsigned facts_of(const quantize_model *m, const qn_tensor *t, part where, int64_t layer, int64_t values_before) {
    unsigned facts = strcmp(m->architecture, "falcon") == 0 ? FALCON : NOT_FALCON;
    int64_t i = where == PART_VALUES ? values_before : layer, n = where == PART_VALUES ? m->values : m->layers;
    const qn_dtype_info *d = qn_dtype_describe(quantize_type_dtype(m->type));
    if (m->heads_per_key >= 4) facts |= GQA4;
    if (m->experts >= 4) facts |= MOE4;
    if (m->experts == 8) facts |= MOE8;
    if (m->layers == 80 && strcmp(m->architecture, "llama") == 0) facts |= BIG;
    facts |= m->has_matrix ? MATRIX : NO_MATRIX;
    if (i < n / 8) facts |= EIGHT;
    if (i < n / 16) facts |= SIXTEEN;
    if (i >= n / 8 && i < 7 * n / 8) facts |= INNER;
    if (i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2) facts |= MORE;
    if (i < 2) facts |= TWO;
    if (i < 4) facts |= FOUR;
    if (t->rank > 2 && t->shape[t->rank - 3] > 1) facts |= EXPERTS;
    if (t->shape[t->rank - 1] % d->block) facts |= UNEVEN;
    return facts;
}

int quantize_next_ask(const char **list, char regex[QUANTIZE_ASK], const char **type) {
    if (!*list || !**list) return 0;
    size_t n = strcspn(*list, ",");
    snprintf(regex, QUANTIZE_ASK, "%.*s", (int)(n < QUANTIZE_ASK ? n : QUANTIZE_ASK - 1), *list);
    *list += n + ((*list)[n] == ',');
    char *equals = strrchr(regex, '=');
    *type = equals ? equals + 1 : NULL;
    if (equals) *equals = 0;
    return 1;
}

int quantize_matches(const char *regex, const char *name, char why[128]) {
    regex_t pattern;
    int fault = regcomp(&pattern, regex, REG_EXTENDED | REG_NOSUB);
    if (fault) {
        if (why) regerror(fault, &pattern, why, 128);
        return -1;
    }
    int found = regexec(&pattern, name, 0, NULL, 0) == 0;
    regfree(&pattern);
    return found;
}

/* The type a "REGEX=TYPE,..." list names for a tensor, NONE when it names none. */
static qn_dtype asked_for(const char *list, const char *name) {
    char regex[QUANTIZE_ASK];
    const char *type;
    while (quantize_next_ask(&list, regex, &type))
        if (type && quantize_matches(regex, name, NULL) == 1) return quantize_dtype_find(type);
    return QN_DTYPE_NONE;
}

static qn_dtype by_mixture(const quantize_model *m, part where, unsigned facts) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if ((rules[i].type == (int)m->type || rules[i].type == QUANTIZE_ANY) &&
            (rules[i].where == where || rules[i].where == PART_ANY) && (rules[i].when & facts) == rules[i].when)
            return rules[i].dtype;
    return quantize_type_dtype(m->type);
}

/* One that misses the type that was named says more than one that misses a type of its mixture. */
static void miss(quantize_misses *m, const qn_tensor *t, qn_dtype named, qn_dtype wanted, qn_dtype got) {
    m->got[got]++;
    if (m->all++ && (wanted != named || m->wanted == named)) return;
    m->columns = t->shape[t->rank - 1];
    m->wanted = wanted;
}

void quantize_misses_print(const char *verb, const quantize_misses *m) {
    const qn_dtype_info *wanted = qn_dtype_describe(m->wanted);
    if (!m->all) return;
    fprintf(stderr, "quern %s: %lld tensor%s could not get the type meant for %s (now ", verb, (long long)m->all, app_s(m->all),
            m->all == 1 ? "it" : "them");
    for (int d = 1, n = 0; d < QN_DTYPE_COUNT; d++)
        if (m->got[d]) fprintf(stderr, "%s%lld %s", n++ ? ", " : "", (long long)m->got[d], qn_dtype_describe((qn_dtype)d)->name);
    fprintf(stderr, "): rows of %lld are not whole blocks of %s, which take %d\n", (long long)m->columns, wanted->name,
            (int)wanted->block);
}

qn_dtype quantize_choose(const quantize_model *m, const char *name, const qn_tensor *t, int64_t values_before,
                         quantize_misses *misses) {
    qn_dtype base = quantize_type_dtype(m->type), chosen = base, wanted;
    int mixed = 0;
    part where = part_of(m, name);
    int embedding = strstr(name, "token_embd.weight") != NULL;
    if (!quantize_may_change(m, name, t)) return (qn_dtype)t->dtype;
    qn_dtype asked = asked_for(m->tensor_types, name);
    if (embedding && m->embed != QN_DTYPE_NONE) chosen = m->embed;
    else if (where == PART_OUTPUT && m->output != QN_DTYPE_NONE) chosen = m->output;
    else if (asked != QN_DTYPE_NONE) chosen = asked;
    else mixed = qn_dtype_describe(base)->kind == QN_KIND_BLOCK && !m->pure;
    wanted = chosen;
    if (mixed) {
        unsigned facts = facts_of(m, t, where, quantize_layer(name), values_before);
        wanted = by_mixture(m, where, facts & ~(unsigned)UNEVEN);
        chosen = by_mixture(m, where, facts);
    }
    while (t->shape[t->rank - 1] % qn_dtype_describe(chosen)->block) /* to smaller blocks, and in the end to none */
        chosen = instead[chosen] != QN_DTYPE_NONE ? instead[chosen] : QN_DTYPE_F16;
    if (chosen != wanted) miss(misses, t, base, wanted, chosen);
    return chosen;
}
