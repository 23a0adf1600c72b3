/* Opening a model: the file, the row of its architecture, its numbers. Nothing large is allocated. */
#include <stdatomic.h>
#include <stdio.h>

#include "base/heap.h"
#include "model/model.h"

static qn_text text_key(const qn_model *m, const char *name) {
    qn_file_value v;
    if (!qn_model_key(m, name, &v) || v.type != QN_KEY_STRING) return (qn_text){"", 0};
    return (qn_text){v.text, (size_t)v.bytes};
}

static const char *arch_name(const void *user, int i) {
    (void)user;
    return qn_model_arch_name(i);
}

/* A list of all would not fit; those with nearly this name are what helps. */
static qn_status unknown_arch(qn_text given, qn_error *error) {
    enum { MOST = 4 };
    char name[48], near[200] = "";
    int nearest[MOST], all = 0;
    snprintf(name, sizeof name, "%.*s", given.length < sizeof name ? (int)given.length : (int)sizeof name - 1, given.at);
    while (qn_model_arch_name(all)) all++;
    int n = qn_nearest_names(name, arch_name, NULL, nearest, MOST);
    for (int i = 0, at = 0; i < n; i++)
        at += snprintf(near + at, sizeof near - (size_t)at, "%s'%s'",
                       i == 0      ? "; near it is "
                       : i + 1 < n ? ", "
                                   : " and ",
                       qn_model_arch_name(nearest[i]));
    return qn_error_set(error, QN_UNSUPPORTED,
                        "the architecture '%s' is none of the %d that are known%s; docs/models.md lists them all", name, all,
                        near);
}

static qn_status find_arch(qn_model *m, qn_error *error) {
    qn_text name = text_key(m, "general.architecture");
    if (!name.length) return qn_error_set(error, QN_FORMAT, "the file names no architecture (general.architecture)");
    m->arch = qn_model_arch_find(name);
    return m->arch ? QN_OK : unknown_arch(name, error);
}

static void count_weights(qn_model *m) {
    qn_file_tensor t;
    for (int64_t i = 0; qn_file_entry(m->file, i, &t) == QN_OK; i++) {
        m->n_params += (uint64_t)qn_tensor_count(&t.tensor);
        m->bytes += t.bytes;
    }
}

static qn_status fill(qn_model *m, const char *path, const qn_file_options *options, qn_error *error) {
    qn_file_options of_file = options ? *options : qn_file_options_default();
    int vocabulary = (of_file.flags & QN_MODEL_VOCABULARY) != 0;
    of_file.flags &= ~(uint32_t)QN_MODEL_VOCABULARY;
    QN_TRY(qn_file_open(path, &of_file, &m->file, error));
    qn_file_info info;
    info.size = sizeof info;
    qn_file_describe(m->file, &info);
    if (info.format == QN_FILE_SAFETENSORS)
        return qn_error_set(error, QN_UNSUPPORTED,
                            "%s: these are safetensors, not GGUF; 'quern convert' makes GGUF of a folder that has them with "
                            "config.json and the tokenizer",
                            path);
    if (info.format != QN_FILE_GGUF) return qn_error_set(error, QN_UNSUPPORTED, "%s: this is JSON, not a model in GGUF", path);
    if (!vocabulary) QN_TRY(find_arch(m, error));
    if (!vocabulary) QN_TRY(qn_model_read_hparams(m, error));
    m->name = text_key(m, "general.name");
    m->chat_template = text_key(m, "tokenizer.chat_template");
    count_weights(m);
    return QN_OK;
}

qn_status qn_model_open(const char *path, const qn_file_options *options, qn_model **model, qn_error *error) {
    if (!path || !model) return qn_error_set(error, QN_ARGUMENT, "a path and room for a model are needed");
    *model = NULL;
    qn_model *m = qn_heap_zeroed(1, sizeof *m);
    if (!m) return qn_error_set(error, QN_NO_MEMORY, "no memory for a model");
    qn_arena_init(&m->arena, 0);
    qn_status status = fill(m, path, options, error);
    if (status == QN_OK) *model = m;
    else qn_model_close(m);
    return status;
}

void qn_model_close(qn_model *m) {
    if (!m) return;
    qn_tokenizer_destroy(m->tokenizer);
    qn_file_close(m->file);
    qn_arena_destroy(&m->arena);
    qn_heap_free(m);
}

qn_status qn_model_describe(const qn_model *m, qn_model_info *info) {
    if (!m || !info || info->size < sizeof *info) return QN_ARGUMENT;
    const qn_hparams *h = &m->h;
    memset(info, 0, sizeof *info);
    info->size = sizeof *info;
    info->architecture = m->arch ? m->arch->name : "";
    info->is_encoder = m->arch && m->arch->has & QN_IS_ENCODER;
    info->name = m->name;
    info->chat_template = m->chat_template;
    info->n_layers = h->n_layers;
    info->n_embd = h->n_embd;
    info->n_vocab = h->n_vocab;
    info->n_heads = h->layers ? h->layers[0].heads : 0;
    info->n_heads_kv = h->layers ? h->layers[0].heads_kv : 0;
    info->n_ff = h->layers ? h->layers[0].ff : 0;
    info->n_experts = h->n_experts;
    info->n_experts_used = h->n_used;
    info->context = h->context;
    info->n_params = m->n_params;
    info->bytes = m->bytes;
    info->file = m->file;
    return QN_OK;
}

qn_status qn_model_tokenizer(qn_model *m, const qn_tokenizer **tokenizer, qn_error *error) {
    if (!m || !tokenizer) return qn_error_set(error, QN_ARGUMENT, "a model and room for a tokenizer are needed");
    qn_tokenizer *there = atomic_load(&m->tokenizer), *made;
    if (!there) {
        QN_TRY(qn_model_read_tokenizer(m, &made, error));
        if (atomic_compare_exchange_strong(&m->tokenizer, &there, made)) there = made;
        else qn_tokenizer_destroy(made); /* another session was quicker, and may use its own already */
    }
    *tokenizer = there;
    return QN_OK;
}
