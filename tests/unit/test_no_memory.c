/* Memory that ends anywhere, in contexts, graphs, plans, files and texts: see failing.h. */
#include <stdio.h>

#include <quern/signal.h>

#include "failing.h"
#include "folder_help.h"
#include "libraries.h"
#include "small_vocab.h"

/* A file of the checkout, for ever; outside of any scene. */
static qn_text slurp(const char *path) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = __real_malloc(1 << 16);
    assert_non_null(text);
    size_t n = fread(text, 1, 1 << 16, file);
    assert_true(n < 1 << 16);
    fclose(file);
    return (qn_text){text, n};
}

/* ---- Contexts and pools */

static qn_status contexts(const void *user, qn_error *error) {
    (void)user;
    qn_context *c = NULL;
    qn_pool *pool = NULL;
    qn_status status = qn_pool_create(2, &pool);
    if (status == QN_OK) {
        qn_context_options o = {.size = sizeof o, .pool = pool};
        status = qn_context_create(&o, &c);
    }
    qn_context_destroy(c);
    qn_pool_destroy(pool);
    return status == QN_OK ? status : qn_error_set(error, status, "%s", qn_status_name(status));
}

/* ---- Graphs and plans */

static qn_status pass_over(void *user, const char *text, size_t n) {
    *(size_t *)user += text ? n : 0;
    return QN_OK;
}

static qn_status run_plan(const qn_graph *g, qn_error *error) {
    qn_plan *p = NULL;
    qn_plan_options o = {.size = sizeof o};
    qn_status status = qn_plan_create(g, &o, &p, error);
    for (int32_t v = 0; status == QN_OK && v < qn_graph_value_count(g); v++) {
        qn_value_info info = {.size = sizeof info};
        qn_tensor t;
        int64_t shape[QN_MAX_RANK];
        assert_int_equal(qn_graph_value(g, v, &info), QN_OK);
        if (info.kind != QN_VALUE_INPUT && info.kind != QN_VALUE_PARAM) continue;
        for (int k = 0; k < info.rank; k++) shape[k] = qn_graph_dim_value(g, info.shape[k], NULL);
        assert_int_equal(qn_tensor_init(&t, info.dtype, info.rank, shape, NULL, 0), QN_OK);
        status = qn_plan_set(p, info.name, &t, error);
    }
    if (status == QN_OK) status = qn_plan_run(p, NULL, error);
    if (status == QN_OK) status = qn_plan_run(p, NULL, error);
    for (int32_t i = 0; status == QN_OK && i < qn_graph_output_count(g); i++) {
        const char *name;
        qn_tensor t;
        qn_graph_output_value(g, i, &name);
        status = qn_plan_output(p, name, &t, error);
    }
    qn_plan_destroy(p);
    return status;
}

static qn_status graphs(const void *user, qn_error *error) {
    const qn_text *text = user;
    qn_graph *g = NULL, *better = NULL, *bound = NULL;
    size_t bytes = 0;
    qn_status status = qn_graph_parse(text->at, text->length, 0, &g, error);
    if (status == QN_OK) status = qn_graph_print(g, pass_over, &bytes, error);
    if (status == QN_OK && (status = qn_graph_verify(g, NULL, NULL)) != QN_OK) qn_error_set(error, status, "verify");
    if (status == QN_OK) status = qn_graph_optimise(g, NULL, &better, error);
    if (status == QN_OK && qn_graph_symbol_count(g) == 0) status = qn_graph_bind(g, NULL, &bound, error);
    if (status == QN_OK) status = run_plan(g, error);
    qn_graph_destroy(bound);
    qn_graph_destroy(better);
    qn_graph_destroy(g);
    return status;
}

static qn_status gradients(const void *user, qn_error *error) {
    qn_graph *g, *many = NULL;
    const int64_t shape[2] = {3, 4};
    qn_status status = qn_graph_create(0, &g);
    (void)user;
    if (status != QN_OK) return qn_error_set(error, status, "no graph");
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 2, shape), w = qn_graph_param(g, "w", QN_DTYPE_F32, 2, shape), grads[2];
    qn_val y = x;
    for (int i = 0; i < 6; i++) {
        qn_graph_label_push(g, i % 2 ? "odd" : "even");
        y = qn_graph_op(g, QN_OP_mul, 0, 2, (qn_val[]){y, w}, NULL);
        y = qn_graph_op(g, QN_OP_unary, QN_UNARY_tanh, 1, &y, NULL);
        qn_graph_label_pop(g);
    }
    qn_val loss = qn_graph_op(g, QN_OP_sum, 0, 1, &y, NULL);
    qn_grad_options how = {.size = sizeof how, .checkpoint = QN_CHECKPOINT_EVERY};
    qn_graph_grad_with(g, loss, 2, (qn_val[]){x, w}, &how, grads);
    qn_graph_output(g, grads[0], "dx");
    qn_graph_output(g, grads[1], "dw");
    qn_val tangent;
    qn_graph_jvp(g, 1, &x, &w, 1, &y, &tangent);
    qn_graph_output(g, tangent, "t");
    status = qn_graph_error(g, error);
    if (status == QN_OK) status = qn_graph_vmap(g, 2, 1, &x, &many, NULL, error);
    if (status == QN_OK) status = run_plan(many, error);
    qn_graph_destroy(many);
    qn_graph_destroy(g);
    return status;
}

static void graphs_end_well(void **state) {
    static const char *const FILES[] = {"batch_slices", "fuse_adam", "share_qkv", "split_qkv", "rewrite_swiglu"};
    (void)state;
    play("contexts", contexts, NULL, QN_OK);
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        char path[200];
        snprintf(path, sizeof path, "tests/ir/%s.qir", FILES[i]);
        qn_text text = slurp(path);
        print_message("%s: %ld\n", FILES[i], play(FILES[i], graphs, &text, QN_OK));
        __real_free((void *)(uintptr_t)text.at);
    }
    print_message("gradients: %ld\n", play("gradients", gradients, NULL, QN_OK));
}

/* ---- Files */

static qn_status files(const void *user, qn_error *error) {
    qn_file *file = NULL;
    qn_status status = qn_file_open(user, NULL, &file, error);
    assert_true((status == QN_OK) == (file != NULL));
    qn_file_value v, item;
    qn_file_tensor t;
    for (int64_t i = 0; file && qn_file_key(file, i, &v) == QN_OK; i++)
        for (uint64_t k = 0; v.type == QN_KEY_ARRAY && qn_file_item(&v, k, &item) == QN_OK; k++) continue;
    for (int64_t i = 0; file && qn_file_entry(file, i, &t) == QN_OK; i++)
        assert_int_equal(qn_file_find(file, QN_FILE_TENSORS, t.name), i);
    qn_file_close(file);
    return status;
}

static qn_status written(const void *user, qn_error *error) {
    qn_writer *w = NULL;
    qn_tensor t;
    const int64_t shape[1] = {8};
    const float data[8] = {0};
    qn_status status = qn_writer_create(user, &w, error);
    if (status != QN_OK) return status;
    qn_file_value key = {.name = "a.key", .type = QN_KEY_STRING, .text = "text", .bytes = 4};
    qn_writer_key(w, &key);
    qn_tensor_init(&t, QN_DTYPE_F32, 1, shape, NULL, 0);
    qn_writer_tensor(w, "a", &t);
    qn_writer_tensor(w, "b", &t);
    qn_writer_data(w, data, sizeof data);
    qn_writer_data(w, data, sizeof data);
    return qn_writer_finish(w, 1, error);
}

static void files_end_well(void **state) {
    static const struct {
        const char *path;
        qn_status usual;
    } FILES[] = {{"gguf/tensors", QN_OK},       {"gguf/nested", QN_OK},       {"gguf/version2", QN_OK},
                 {"gguf/scalars", QN_OK},       {"safetensors/one", QN_OK},   {"safetensors/escapes", QN_OK},
                 {"safetensors/config", QN_OK}, {"safetensors/merges", QN_OK}};
    char path[300];
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        snprintf(path, sizeof path, "fuzz/corpus/%s", FILES[i].path);
        play(path, files, path, FILES[i].usual);
    }
    snprintf(path, sizeof path, "%s/w.gguf", (const char *)*state);
    print_message("written: %ld\n", play("written", written, path, QN_OK));
}

/* ---- Text */

static qn_status encoded(qn_tokenizer *t, qn_error *error) {
    static const char TEXT[] = "the cats\n\xC3\xA9 12345 <think>";
    int32_t ids[200];
    char back[400];
    size_t n = 0, length;
    qn_status status = qn_tokenizer_encode(t, TEXT, sizeof TEXT - 1, QN_ENCODE_MODEL | QN_ENCODE_SPECIAL, ids, 200, &n, error);
    return status == QN_OK ? qn_tokenizer_decode(t, ids, n, 0, NULL, back, sizeof back, &length, error) : status;
}

static qn_status tokenizers(const void *user, qn_error *error) {
    qn_tokenizer *t = NULL;
    qn_status status = qn_tokenizer_create(user, &t, error);
    assert_true((status == QN_OK) == (t != NULL));
    if (status == QN_OK) status = encoded(t, error);
    qn_tokenizer_destroy(t);
    return status;
}

static void tokenizers_end_well(void **state) {
    static const char *const MODELS[] = {"llama", "gpt2", "bert", "t5"};
    static char letters[256][8];
    static qn_text tokens[600], merges[2] = {{"t h", 3}, {"th e", 4}};
    static int32_t types[600];
    static float scores[600];
    (void)state;
    const int have[] = {1, HAVE_PCRE2, HAVE_UTF8PROC, 1};
    for (size_t m = 0; m < 4; m++) {
        qn_vocab_source s = qn_vocab_source_default();
        int n = 0;
        static const char *const WORDS[] = {"<unk>", "</s>", "the", "th",    "\xE2\x96\x81the", "cat",  "s",
                                            "t",     "h",    "e",   "[UNK]", "[CLS]",           "[SEP]"};
        for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++) tokens[n++] = (qn_text){WORDS[i], strlen(WORDS[i])};
        for (int b = 0; b < 256 && m == 0; b++) {
            snprintf(letters[b], sizeof letters[b], "<0x%02X>", b);
            tokens[n++] = (qn_text){letters[b], 6};
        }
        for (int i = 0; i < n; i++) {
            types[i] = i == 0 ? QN_TOKEN_UNKNOWN : i == 1 ? QN_TOKEN_CONTROL : i >= 13 ? QN_TOKEN_BYTE : QN_TOKEN_NORMAL;
            scores[i] = -(float)i;
        }
        s.model = MODELS[m];
        s.pre = "gpt-2";
        s.n_tokens = n;
        s.tokens = tokens;
        s.types = types;
        s.scores = scores;
        s.merges = merges;
        s.n_merges = m == 1 ? 2 : 0;
        s.unk = 0;
        s.eos = 1;
        s.bos = s.sep = m == 2 ? 11 : 1;
        print_message("%s: %ld\n", MODELS[m], play(MODELS[m], tokenizers, &s, have[m] ? QN_OK : QN_UNSUPPORTED));
    }
}

typedef struct wish {
    qn_grammar_kind kind;
    qn_text grammar;
    const char *order;
} wish;

static qn_status samplers(const void *user, qn_error *error) {
    static const char *const WORDS[] = {"true", "null", "{\"", "\":", "12", "[[", ", ", "ab"};
    const wish *want = user;
    qn_tokenizer *t = small_vocab(WORDS, 8);
    if (!t) return qn_error_set(error, QN_NO_MEMORY, "no vocabulary");
    qn_sampler *s = NULL;
    qn_sampler_options o = qn_sampler_options_default();
    qn_tokenizer_info info = {.size = sizeof info};
    float logits[SMALL_WORDS + SMALL_MOST];
    const qn_logit_bias bias = {SMALL_WORDS, 1};
    qn_tokenizer_describe(t, &info);
    o.tokenizer = t;
    o.grammar_kind = want->kind;
    o.grammar = want->kind ? &want->grammar : NULL;
    o.bias = &bias;
    o.n_bias = 1;
    o.dry_multiplier = 0.8f;
    o.repeat_penalty = 1.1f;
    o.typical_p = 0.9f;
    o.top_k = 20;
    o.order = want->order;
    qn_status status = qn_sampler_create(&o, &s, error);
    assert_true((status == QN_OK) == (s != NULL));
    for (int i = 0; i < 12 && status == QN_OK; i++) {
        int32_t id;
        for (int k = 0; k < info.n_tokens; k++) logits[k] = (float)((k * 31 + i * 17) % 64) * 0.1f;
        status = qn_sampler_pick(s, logits, (size_t)info.n_tokens, &id, error);
        if (status == QN_OK) status = qn_sampler_accept(s, id, 0, error);
        if (status == QN_OK && id == SMALL_END) break;
    }
    if (status == QN_OK) status = qn_sampler_reset(s, error);
    qn_sampler_destroy(s);
    qn_tokenizer_destroy(t);
    return status;
}

static void samplers_end_well(void **state) {
    static const char GRAMMAR[] = "root ::= thing (\",\" thing)*\nthing ::= [a-f]+ | \"(\" thing \")\" | [0-9]{1,3}\n";
    static const char
        SCHEMA[] = "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\", \"minimum\": 3}, \"b\": {\"enum\": "
                   "[\"x\", \"y\"]}, \"c\": {\"type\": \"array\", \"items\": {\"type\": \"string\", \"pattern\": "
                   "\"^[a-z]{2,4}$\"}}}, \"required\": [\"a\"]}";
    (void)state;
    const wish wishes[] = {{QN_GRAMMAR_NONE, {NULL, 0}, NULL},
                           {QN_GRAMMAR_GBNF, {GRAMMAR, sizeof GRAMMAR - 1}, NULL},
                           {QN_GRAMMAR_JSON_SCHEMA, {SCHEMA, sizeof SCHEMA - 1}, NULL}};
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
        char what[32];
        snprintf(what, sizeof what, "sampler %zu", i);
        print_message("%s: %ld\n", what, play(what, samplers, &wishes[i], QN_OK));
    }
}

static qn_status templates(const void *user, qn_error *error) {
    static const char CONTEXT
        [] = "{\"messages\": [{\"role\": \"user\", \"content\": \"hi  \"}, {\"role\": \"assistant\", \"content\": \"yes\"}], "
             "\"tools\": [{\"name\": \"f\", \"n\": 1.5}], \"add_generation_prompt\": true, \"bos_token\": \"<s>\"}";
    const char *text = user;
    size_t n = 0;
    return qn_chat_render((qn_text){text, strlen(text)}, (qn_text){CONTEXT, sizeof CONTEXT - 1}, NULL, pass_over, &n, error);
}

static void templates_end_well(void **state) {
    static const char *const TEMPLATES[] = {
        "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m['content'] | trim }}\n{% endfor %}{% if "
        "add_generation_prompt %}<|a|>{% endif %}",
        "{% macro f(x, y=2) %}{{ x }}-{{ y }}{% endmacro %}{% set ns = namespace(a=1) %}{% for m in messages | reverse %}{% set "
        "ns.a = ns.a + 1 "
        "%}{{ f(m.content.upper(), y=ns.a) }}{% endfor %}{{ tools | tojson }}{{ messages[::-1][0].role.split('s') | join('+') }}",
        "{{ ['b', 'a', 'c'] | sort | list }}{{ messages | map(attribute='role') | unique | list }}{{ '%s' | format('x') }}"
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ {'k': 1}.items() | list }}{{ "
        "'abc'.replace('b', 'dd') }}"};
    (void)state;
    for (size_t i = 0; i < sizeof TEMPLATES / sizeof *TEMPLATES; i++)
        print_message("template: %ld\n", play("template", templates, TEMPLATES[i], QN_OK));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(graphs_end_well), IN_FOLDER(files_end_well),
                                       cmocka_unit_test(tokenizers_end_well), cmocka_unit_test(samplers_end_well),
                                       cmocka_unit_test(templates_end_well)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
