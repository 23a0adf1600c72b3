/* Opening a model: the file, the row of its architecture, its numbers. Nothing large is allocated. */
#include "base/heap.h"
#include "model/model.h"

static qn_text text_key(const qn_model *m, const char *name) {
    qn_file_value v;
    if (!qn_model_key(m, name, &v) || v.type != QN_KEY_STRING) return (qn_text){"", 0};
    return (qn_text){v.text, (size_t)v.bytes};
}

/* "llama, qwen2, ..." */
static void known(char *list, size_t size) {
    size_t n = 0;
    const char *name;
    list[0] = 0;
    for (int i = 0; (name = qn_model_arch_name(i)) && n + strlen(name) + 3 < size; i++) {
        if (i) n += strlen(strcpy(list + n, ", "));
        n += strlen(strcpy(list + n, name));
    }
}

static qn_status find_arch(qn_model *m, qn_error *error) {
    char list[384];
    qn_text name = text_key(m, "general.architecture");
    if (!name.length) return qn_error_set(error, QN_FORMAT, "the file names no architecture (general.architecture)");
    m->arch = qn_model_arch_find(name);
    if (m->arch) return QN_OK;
    known(list, sizeof list);
    return qn_error_set(error, QN_UNSUPPORTED, "the architecture '%.*s' is not known; these are: %s",
                        name.length > 40 ? 40 : (int)name.length, name.at, list);
}

static void count_weights(qn_model *m) {
    qn_file_tensor t;
    for (int64_t i = 0; qn_file_entry(m->file, i, &t) == QN_OK; i++) {
        m->n_params += (uint64_t)qn_tensor_count(&t.tensor);
        m->bytes += t.bytes;
    }
}

static qn_status fill(qn_model *m, const char *path, const qn_file_options *options, qn_error *error) {
    QN_TRY(qn_file_open(path, options, &m->file, error));
    qn_file_info info;
    info.size = sizeof info;
    qn_file_describe(m->file, &info);
    if (info.format != QN_FILE_GGUF)
        return qn_error_set(error, QN_UNSUPPORTED, "%s is not a GGUF file; quern convert makes one of safetensors", path);
    QN_TRY(find_arch(m, error));
    QN_TRY(qn_model_read_hparams(m, error));
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
    *info = (qn_model_info){sizeof *info,
                            (m->arch->has & QN_IS_ENCODER) != 0,
                            m->arch->name,
                            m->name,
                            m->chat_template,
                            h->n_layers,
                            h->n_embd,
                            h->n_vocab,
                            h->layers[0].heads,
                            h->layers[0].heads_kv,
                            h->layers[0].ff,
                            h->n_experts,
                            h->n_used,
                            h->context,
                            m->n_params,
                            m->bytes,
                            m->file};
    return QN_OK;
}

qn_status qn_model_tokenizer(qn_model *m, const qn_tokenizer **tokenizer, qn_error *error) {
    if (!m || !tokenizer) return qn_error_set(error, QN_ARGUMENT, "a model and room for a tokenizer are needed");
    if (!m->tokenizer) QN_TRY(qn_model_read_tokenizer(m, &m->tokenizer, error));
    *tokenizer = m->tokenizer;
    return QN_OK;
}
