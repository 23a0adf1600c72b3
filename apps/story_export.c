/* The storyteller as a GGUF file, and the proof that the file tells what was trained. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "convert_parts.h"
#include "lm.h"
#include "stories.h"

static int fail(const char *path, const char *text) {
    fprintf(stderr, "quern train: %s: %s\n", path, text);
    return 0;
}

static void put_word(conversion *c, const char *name, const char *text) { convert_put_text(c, name, text, strlen(text)); }

static void put_keys(conversion *c, int words) {
    put_word(c, "general.architecture", "llama");
    put_word(c, "general.name", "Quern stories");
    put_word(c, "general.description", "Short tales in the words of a small grammar; trained by quern train --example stories");
    put_word(c, "general.license", "MIT");
    convert_put_number(c, "llama.block_count", QN_KEY_U32, STORY_LAYERS);
    convert_put_number(c, "llama.context_length", QN_KEY_U32, STORY_CONTEXT);
    convert_put_number(c, "llama.embedding_length", QN_KEY_U32, STORY_WIDE);
    convert_put_number(c, "llama.feed_forward_length", QN_KEY_U32, STORY_FF);
    convert_put_number(c, "llama.attention.head_count", QN_KEY_U32, STORY_HEADS);
    convert_put_number(c, "llama.attention.head_count_kv", QN_KEY_U32, STORY_HEADS_KV);
    convert_put_number(c, "llama.attention.layer_norm_rms_epsilon", QN_KEY_F32, STORY_EPSILON);
    convert_put_number(c, "llama.rope.dimension_count", QN_KEY_U32, STORY_HEAD);
    convert_put_number(c, "llama.rope.freq_base", QN_KEY_F32, STORY_ROPE_BASE);
    convert_put_number(c, "llama.vocab_size", QN_KEY_U32, words);
    convert_put_number(c, "general.file_type", QN_KEY_U32, 0);
}

static int put_vocab(conversion *c, const story_vocab *v) {
    convert_bytes tokens = {0}, types = {0}, merges = {0};
    for (int i = 0; i < v->n; i++) convert_append_text(&tokens, v->tokens[i].at, v->tokens[i].length);
    for (size_t i = 0; i < v->n_merges; i++) convert_append_text(&merges, v->merges[i].at, v->merges[i].length);
    convert_append(&types, v->types, (size_t)v->n * sizeof *v->types);
    put_word(c, "tokenizer.ggml.model", "gpt2");
    put_word(c, "tokenizer.ggml.pre", "llama-bpe");
    int good = !tokens.failed && !types.failed && !merges.failed;
    if (good) {
        convert_put_array(c, "tokenizer.ggml.tokens", QN_KEY_STRING, (uint64_t)v->n, &tokens);
        convert_put_array(c, "tokenizer.ggml.token_type", QN_KEY_I32, (uint64_t)v->n, &types);
        convert_put_array(c, "tokenizer.ggml.merges", QN_KEY_STRING, v->n_merges, &merges);
    }
    convert_put_number(c, "tokenizer.ggml.bos_token_id", QN_KEY_U32, STORY_BEGIN);
    convert_put_number(c, "tokenizer.ggml.eos_token_id", QN_KEY_U32, STORY_END);
    convert_put_number(c, "tokenizer.ggml.add_bos_token", QN_KEY_BOOL, 1);
    free(tokens.at);
    free(types.at);
    free(merges.at);
    return good;
}

static qn_status write_params(conversion *c, const net *n, const qn_plan *plan) {
    qn_tensor t;
    char name[80];
    qn_status status = QN_OK;
    for (int i = 0; i < n->n_params && status == QN_OK; i++) {
        qn_tensor_init(&t, QN_DTYPE_F32, n->params[i].rank, n->params[i].shape, NULL, 0);
        status = qn_writer_tensor(c->writer, n->params[i].name, &t);
    }
    for (int i = 0; i < n->n_params && status == QN_OK; i++) {
        snprintf(name, sizeof name, "%s'", n->params[i].name);
        status = qn_plan_output(plan, name, &t, &c->error);
        if (status == QN_OK)
            status = qn_writer_data(c->writer, (const char *)t.data + t.offset, (uint64_t)qn_tensor_count(&t) * sizeof(float));
    }
    return status;
}

int story_export(const char *path, const net *n, const qn_plan *plan, const story_vocab *v) {
    conversion c = {0};
    qn_error last;
    if (qn_writer_create(path, &c.writer, &c.error) != QN_OK) return fail(path, c.error.text);
    put_keys(&c, v->n);
    int good = put_vocab(&c, v) || fail(path, "no memory for the vocabulary");
    qn_status status = good ? write_params(&c, n, plan) : QN_NO_MEMORY;
    if (status != QN_OK && c.error.status != QN_OK) fail(path, c.error.text);
    if (qn_writer_finish(c.writer, status == QN_OK, &last) != QN_OK) return fail(path, last.text);
    return status == QN_OK;
}

/* ---- The file again */

static int session_loss(qn_session *session, int words, const int32_t *ids, int32_t sequences, double *loss, qn_error *error) {
    double sum = 0;
    for (int32_t s = 0; s < sequences; s++, ids += STORY_CONTEXT + 1) {
        qn_session_part part = {0, STORY_CONTEXT, ids, 1};
        if (qn_session_cut(session, 0, 0, error) != QN_OK || qn_session_run(session, &part, 1, error) != QN_OK) return 0;
        for (int32_t i = 0; i < STORY_CONTEXT; i++) sum += lm_surprise(qn_session_result(session, 0, i), words, ids[i + 1]);
    }
    *loss = sum / sequences / STORY_CONTEXT;
    return 1;
}

int story_file_loss(const char *path, qn_context *context, const int32_t *ids, int32_t sequences, double *loss) {
    qn_model *model = NULL;
    qn_session *session = NULL;
    qn_model_info info = {.size = sizeof info};
    qn_error error;
    qn_session_options options = {
        .size = sizeof options, .flags = QN_SESSION_F32_CACHE, .context = STORY_CONTEXT, .batch = STORY_CONTEXT, .run = context};
    int good = qn_model_open(path, NULL, &model, &error) == QN_OK && qn_model_describe(model, &info) == QN_OK &&
               qn_session_create(model, &options, &session, &error) == QN_OK &&
               session_loss(session, info.n_vocab, ids, sequences, loss, &error);
    qn_session_destroy(session);
    qn_model_close(model);
    return good || fail(path, error.text);
}
