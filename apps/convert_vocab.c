/* The vocabulary of a Hugging Face folder: tokenizer.model (sentencepiece) where there is one, else tokenizer.json. */
#include "convert_vocab.h"

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6, PATH_ROOM = 4096, MOST_TOKENS = 1 << 24 };

static int starts_with(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

/* ---- Tokens of tokenizer.json */

/* Numbers in between that nobody uses cost memory, here and in the output. A token has a row of the weights or a place in the
 * vocabulary's file, of a byte at least: more of them than the files have bytes would be a claim, not a vocabulary. */
static qn_status set_token(vocab *v, int64_t id, const char *text, uint64_t bytes, int32_t type) {
    if (id < 0 || id >= v->most)
        return qn_error_set(
            &v->c->error, QN_FORMAT,
            "tokenizer.json: token '%.*s' has the number %lld, and files of this size hold no more than %lld tokens",
            (int)(bytes < 60 ? bytes : 60), text, (long long)id, (long long)v->most);
    if (id >= v->n) {
        int64_t n = id + 1 > 2 * v->n ? id + 1 : 2 * v->n;
        token *more = realloc(v->tokens, (size_t)n * sizeof *more);
        if (!more) return qn_error_set(&v->c->error, QN_NO_MEMORY, "no memory for %lld tokens", (long long)n);
        memset(more + v->n, 0, (size_t)(n - v->n) * sizeof *more);
        v->tokens = more;
        v->n = n;
    }
    v->tokens[id] = (token){text, bytes, 0, type, 0};
    return QN_OK;
}

/* {"model": {"vocab": {"token": number}}}: the key is the token. */
static qn_status read_vocab(vocab *v) {
    static const char prefix[] = "model.vocab.";
    qn_file_value value;
    qn_status status = QN_OK;
    for (int64_t i = 0; status == QN_OK && qn_file_key(v->json, i, &value) == QN_OK; i++)
        if (starts_with(value.name, prefix) && value.type == QN_KEY_I64) {
            const char *text = value.name + sizeof prefix - 1;
            status = set_token(v, value.integer, text, strlen(text), NORMAL);
        }
    return status;
}

/* {"added_tokens": [{"id": 1, "content": "<s>", "special": true}]} */
static qn_status read_added(vocab *v) {
    char key[80];
    qn_file_value id, text, special;
    for (int64_t i = 0;; i++) {
        snprintf(key, sizeof key, "added_tokens.%lld.id", (long long)i);
        if (qn_file_key(v->json, qn_file_find(v->json, QN_FILE_KEYS, key), &id) != QN_OK) return QN_OK;
        snprintf(key, sizeof key, "added_tokens.%lld.content", (long long)i);
        if (!convert_find_text(v->json, key, &text)) continue;
        snprintf(key, sizeof key, "added_tokens.%lld.special", (long long)i);
        int is_special = qn_file_key(v->json, qn_file_find(v->json, QN_FILE_KEYS, key), &special) == QN_OK && special.integer;
        qn_status status = set_token(v, id.integer, text.text, text.bytes, is_special ? CONTROL : USER_DEFINED);
        if (status != QN_OK) return status;
    }
}

/* ---- Merges: "a b", or ["a", "b"] in newer files, where a space inside a part is written as byte-level BPE does */

static void append_part(convert_bytes *line, const qn_file_value *part) {
    for (uint64_t k = 0; k < part->bytes; k++)
        convert_append(line, part->text[k] == ' ' ? "\xc4\xa0" : part->text + k, part->text[k] == ' ' ? 2 : 1);
}

/* The number of merges; what each makes gets its place as a score when `v->tokens` is to have scores. */
static uint64_t read_merges(vocab *v, convert_bytes *merges) {
    qn_file_value all, pair, a, b;
    uint64_t n = 0;
    if (qn_file_key(v->json, qn_file_find(v->json, QN_FILE_KEYS, "model.merges"), &all) == QN_OK && all.type == QN_KEY_ARRAY &&
        all.item == QN_KEY_STRING) {
        for (; n < all.count && qn_file_item(&all, n, &a) == QN_OK; n++) convert_append_text(merges, a.text, a.bytes);
        return n;
    }
    for (;; n++) {
        char key[48];
        convert_bytes line = {0};
        snprintf(key, sizeof key, "model.merges.%llu", (unsigned long long)n);
        if (qn_file_key(v->json, qn_file_find(v->json, QN_FILE_KEYS, key), &pair) != QN_OK || pair.type != QN_KEY_ARRAY ||
            pair.count != 2 || qn_file_item(&pair, 0, &a) != QN_OK || qn_file_item(&pair, 1, &b) != QN_OK ||
            a.type != QN_KEY_STRING)
            return n;
        append_part(&line, &a);
        convert_append(&line, " ", 1);
        append_part(&line, &b);
        convert_append_text(merges, line.at, line.n);
        merges->failed |= line.failed;
        free(line.at);
    }
}

/* ---- Special tokens */

static int64_t id_of(const vocab *v, const char *text, uint64_t bytes) {
    for (int64_t i = v->n; i-- > 0;)
        if (v->tokens[i].type && v->tokens[i].bytes == bytes && memcmp(v->tokens[i].text, text, bytes) == 0) return i;
    return -1;
}

/* By its text in tokenizer_config.json, else by its number in config.json. -1 when neither says. */
static int64_t special_id(const vocab *v, const char *name) {
    char key[64];
    qn_file_value text, id;
    snprintf(key, sizeof key, "%s_token", name);
    if (!convert_find_text(v->settings, key, &text)) {
        snprintf(key, sizeof key, "%s_token.content", name);
        if (!convert_find_text(v->settings, key, &text)) text.bytes = 0;
    }
    if (text.bytes) {
        int64_t found = id_of(v, text.text, text.bytes);
        if (found >= 0) return found;
    }
    snprintf(key, sizeof key, "%s_token_id", name);
    if (qn_file_key(v->config, qn_file_find(v->config, QN_FILE_KEYS, key), &id) != QN_OK || id.type == QN_KEY_STRING) return -1;
    if (id.type == QN_KEY_ARRAY && qn_file_item(&id, 0, &id) != QN_OK) return -1;
    return id.integer;
}

/* Whether the post-processor of tokenizer.json begins (or ends) every text with a token; -1 when it says nothing. */
static int has_at(const vocab *v, int64_t id, int end) {
    static const char *const places[] = {"post_processor.", "post_processor.processors.0.", "post_processor.processors.1."};
    char key[128];
    qn_file_value text;
    for (size_t i = 0; i < 3 && v->json && id >= 0 && id < v->n; i++) {
        int n = 0, last = 0;
        snprintf(key, sizeof key, "%stype", places[i]);
        if (!convert_find_text(v->json, key, &text) || !convert_is_text(&text, "TemplateProcessing")) continue;
        for (int k = 0; k < 16 && end; k++) { /* of its parts, the text is one */
            snprintf(key, sizeof key, "%ssingle.%d.SpecialToken.id", places[i], k);
            if (convert_find_text(v->json, key, &text)) last = n = k;
            snprintf(key, sizeof key, "%ssingle.%d.Sequence.id", places[i], k);
            if (convert_find_text(v->json, key, &text)) n = k;
        }
        snprintf(key, sizeof key, "%ssingle.%d.SpecialToken.id", places[i], n);
        return last == n && convert_find_text(v->json, key, &text) && text.bytes == v->tokens[id].bytes &&
               memcmp(text.text, v->tokens[id].text, text.bytes) == 0;
    }
    return -1;
}

static void put_flag(const vocab *v, const char *setting, const char *key, int otherwise) {
    qn_file_value value;
    if (v->settings && qn_file_key(v->settings, qn_file_find(v->settings, QN_FILE_KEYS, setting), &value) == QN_OK &&
        value.type == QN_KEY_BOOL)
        otherwise = value.integer != 0;
    if (otherwise >= 0) convert_put_number(v->c, key, QN_KEY_BOOL, otherwise);
}

static void put_template(const vocab *v, const char *folder) {
    char path[PATH_ROOM];
    qn_file_value text;
    qn_error ignored;
    size_t bytes;
    if (convert_find_text(v->settings, "chat_template", &text)) {
        convert_put_text(v->c, "tokenizer.chat_template", text.text, text.bytes);
        return;
    }
    char *file = convert_path(path, folder, "chat_template.jinja") ? convert_read_file(path, &bytes, &ignored) : NULL;
    if (file) convert_put_text(v->c, "tokenizer.chat_template", file, bytes);
    free(file);
}

static void put_special(vocab *v, const char *folder, vocab_kind kind) {
    static const char *const kinds[][2] = {
        {"bos", "tokenizer.ggml.bos_token_id"},     {"eos", "tokenizer.ggml.eos_token_id"},
        {"unk", "tokenizer.ggml.unknown_token_id"}, {"sep", "tokenizer.ggml.seperator_token_id"},
        {"pad", "tokenizer.ggml.padding_token_id"}, {"cls", "tokenizer.ggml.cls_token_id"},
        {"mask", "tokenizer.ggml.mask_token_id"}};
    int scored = kind == VOCAB_UNIGRAM || (kind == VOCAB_SPM && v->spm.kind == CONVERT_SPM_UNIGRAM),
        bpe = kind == VOCAB_BPE || kind == VOCAB_BPE_OF_BYTES;
    int64_t first = special_id(v, "bos");
    if (kind == VOCAB_WORDS && first < 0 &&
        (first = special_id(v, "cls")) >= 0) /* what a text begins with, by the name of others */
        convert_put_number(v->c, "tokenizer.ggml.bos_token_id", QN_KEY_U32, (double)first);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int64_t id = special_id(v, kinds[i][0]);
        if (id >= 0 && id < MOST_TOKENS && !(scored && i == 2)) convert_put_number(v->c, kinds[i][1], QN_KEY_U32, (double)id);
    }
    int begins = has_at(v, first, 0), ends = scored || bpe ? has_at(v, special_id(v, "eos"), 1) : -1;
    put_flag(v, "add_bos_token", "tokenizer.ggml.add_bos_token", bpe && begins < 0 ? 0 : begins);
    put_flag(v, "add_eos_token", "tokenizer.ggml.add_eos_token", (scored || bpe) && ends < 0 ? 0 : ends);
    if (!scored) put_flag(v, "add_prefix_space", "tokenizer.ggml.add_space_prefix", v->prefix);
    put_template(v, folder);
}

/* ---- Putting the lists */

/* The text of a token with spaces where it has the mark for them: those that users define are looked for before spaces become marks. */
static void append_spaced(convert_bytes *list, const token *t) {
    convert_bytes line = {0};
    for (uint64_t i = 0; i < t->bytes; i++) {
        int mark = t->bytes - i >= 3 && memcmp(t->text + i, CONVERT_MARK, 3) == 0;
        convert_append(&line, mark ? " " : t->text + i, 1);
        i += mark ? 2 : 0;
    }
    convert_append_text(list, line.at ? line.at : "", line.n);
    list->failed |= line.failed;
    free(line.at);
}

static qn_status put_lists(vocab *v, int with_scores) {
    convert_bytes lists[3] = {{0}};
    for (int64_t i = 0; i < v->n; i++) {
        token *t = &v->tokens[i];
        char pad[32];
        if (!t->type) { /* numbers nobody uses */
            snprintf(pad, sizeof pad, "[PAD%lld]", (long long)i);
            *t = (token){NULL, 0, with_scores ? -10000.0f : 0, UNUSED, 0};
            convert_append_text(&lists[0], pad, strlen(pad));
        } else if (with_scores && t->type == USER_DEFINED) {
            append_spaced(&lists[0], t);
        } else {
            uint64_t length = t->bytes + (t->marked ? 3 : 0);
            convert_append(&lists[0], &length, sizeof length);
            convert_append(&lists[0], CONVERT_MARK, t->marked ? 3 : 0);
            convert_append(&lists[0], t->text, t->bytes);
        }
        convert_append(&lists[1], &t->score, sizeof t->score);
        convert_append(&lists[2], &t->type, sizeof t->type);
    }
    int failed = lists[0].failed || lists[1].failed || lists[2].failed;
    if (!failed) {
        convert_put_array(v->c, "tokenizer.ggml.tokens", QN_KEY_STRING, (uint64_t)v->n, &lists[0]);
        if (with_scores) convert_put_array(v->c, "tokenizer.ggml.scores", QN_KEY_F32, (uint64_t)v->n, &lists[1]);
        convert_put_array(v->c, "tokenizer.ggml.token_type", QN_KEY_I32, (uint64_t)v->n, &lists[2]);
    }
    for (int i = 0; i < 3; i++) free(lists[i].at);
    return failed ? qn_error_set(&v->c->error, QN_NO_MEMORY, "no memory for the vocabulary") : QN_OK;
}

static qn_status put_bpe(vocab *v) {
    convert_bytes merges = {0};
    convert_put_text(v->c, "tokenizer.ggml.model", "gpt2", 4);
    qn_status status = convert_pre(v);
    if (status == QN_OK) status = put_lists(v, 0);
    uint64_t n = read_merges(v, &merges);
    if (status == QN_OK && merges.failed) status = qn_error_set(&v->c->error, QN_NO_MEMORY, "no memory for the merges");
    if (status == QN_OK && !n) status = qn_error_set(&v->c->error, QN_FORMAT, "tokenizer.json has no merges");
    if (status == QN_OK) convert_put_array(v->c, "tokenizer.ggml.merges", QN_KEY_STRING, n, &merges);
    free(merges.at);
    return status;
}

/* WordPiece: what begins a word has a mark in GGUF, what goes on inside one has none; tokenizer.json marks the second with ##. */
static qn_status put_wordpiece(vocab *v) {
    qn_file_value type;
    for (int64_t i = 0; i < v->n; i++) {
        token *t = &v->tokens[i];
        if (t->type != NORMAL && t->type != USER_DEFINED) continue;
        int inside = t->bytes > 2 && memcmp(t->text, "##", 2) == 0;
        t->marked = !inside && !(t->bytes > 2 && t->text[0] == '[' && t->text[t->bytes - 1] == ']'); /* [unused1] and its kin */
        t->text += inside ? 2 : 0;
        t->bytes -= inside ? 2 : 0;
    }
    convert_put_text(v->c, "tokenizer.ggml.model", "bert", 4);
    convert_put_text(v->c, "tokenizer.ggml.pre", v->c->pre ? v->c->pre : "default", v->c->pre ? strlen(v->c->pre) : 7);
    convert_put_number(v->c, "tokenizer.ggml.token_type_count", QN_KEY_U32, 2);
    int normalized = convert_find_text(v->json, "normalizer.type", &type);
    convert_put_number(v->c, "tokenizer.ggml.normalizer.lowercase", QN_KEY_BOOL,
                       convert_flag_at(v, "normalizer.", "lowercase", normalized));
    return put_lists(v, 0);
}

typedef struct spelling {
    const char *text;
    uint64_t bytes;
    int64_t id;
} spelling;

static int by_spelling(const void *a, const void *b) {
    const spelling *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->bytes < y->bytes ? x->bytes : y->bytes);
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Merges in order of preference, as scores: the piece that the n-th merge makes gets -n, unless an earlier one made it. */
static qn_status score_by_merges(vocab *v) {
    convert_bytes merges = {0};
    uint64_t n = read_merges(v, &merges), at = 0;
    spelling *sorted = malloc((size_t)v->n * sizeof *sorted);
    size_t count = 0;
    for (int64_t i = 0; sorted && i < v->n; i++)
        if (v->tokens[i].type == NORMAL) sorted[count++] = (spelling){v->tokens[i].text, v->tokens[i].bytes, i};
    if (sorted) qsort(sorted, count, sizeof *sorted, by_spelling);
    for (uint64_t i = 0; sorted && !merges.failed && i < n; i++) {
        uint64_t bytes, k = 0;
        memcpy(&bytes, merges.at + at, sizeof bytes);
        char *text = merges.at + at + 8;
        at += 8 + bytes;
        while (k < bytes && text[k] != ' ') k++;
        if (k == bytes) continue;
        memmove(text + k, text + k + 1, bytes - k - 1); /* both parts together */
        spelling made = {text, bytes - 1, 0}, *found = bsearch(&made, sorted, count, sizeof *sorted, by_spelling);
        if (found && v->tokens[found->id].score == 0) v->tokens[found->id].score = -(float)(i + 1);
    }
    int failed = !sorted || merges.failed;
    free(sorted);
    free(merges.at);
    return failed ? qn_error_set(&v->c->error, QN_NO_MEMORY, "no memory for the merges") : QN_OK;
}

/* A sentencepiece vocabulary that only tokenizer.json has: its bytes are spelled <0x0A>, its merges give the scores. */
static qn_status put_spm_from_json(vocab *v) {
    qn_status status = score_by_merges(v);
    for (int64_t i = 0; i < v->n; i++) {
        token *t = &v->tokens[i];
        if (t->type == NORMAL && t->bytes == 6 && starts_with(t->text, "<0x") && t->text[5] == '>') t->type = BYTE;
        if (t->type && t->bytes == 5 && memcmp(t->text, "<unk>", 5) == 0) t->type = UNKNOWN;
    }
    convert_put_text(v->c, "tokenizer.ggml.model", "llama", 5);
    convert_put_text(v->c, "tokenizer.ggml.pre", "default", 7);
    return status == QN_OK ? put_lists(v, 1) : status;
}

/* ---- Unigram: {"model": {"vocab": [["token", score], ..]}}, a list in the order of the numbers */

static qn_status read_unigram(vocab *v) {
    char key[64];
    qn_file_value text, score;
    qn_status status = QN_OK;
    for (int64_t i = 0; status == QN_OK; i++) {
        snprintf(key, sizeof key, "model.vocab.%lld.0", (long long)i);
        if (!convert_find_text(v->json, key, &text)) break;
        snprintf(key, sizeof key, "model.vocab.%lld.1", (long long)i);
        if (qn_file_key(v->json, qn_file_find(v->json, QN_FILE_KEYS, key), &score) != QN_OK || score.type == QN_KEY_STRING ||
            score.type == QN_KEY_ARRAY)
            return qn_error_set(&v->c->error, QN_FORMAT, "tokenizer.json: token %lld has no score", (long long)i);
        status = set_token(v, i, text.text, text.bytes, NORMAL);
        if (status == QN_OK) v->tokens[i].score = (float)score.number;
    }
    return status == QN_OK && !v->n ? qn_error_set(&v->c->error, QN_FORMAT, "tokenizer.json has no vocabulary") : status;
}

static qn_status put_unigram(vocab *v, int bytes) {
    qn_file_value unknown;
    int64_t id = -1;
    if (qn_file_key(v->json, qn_file_find(v->json, QN_FILE_KEYS, "model.unk_id"), &unknown) == QN_OK &&
        unknown.type == QN_KEY_I64)
        id = unknown.integer;
    if (id < 0 || id >= v->n)
        return qn_error_set(&v->c->error, QN_FORMAT, "tokenizer.json names no unknown token (model.unk_id)");
    for (int64_t i = 0; i < v->n && bytes; i++) {
        token *t = &v->tokens[i];
        if (t->type == NORMAL && t->bytes == 6 && starts_with(t->text, "<0x") && t->text[5] == '>') t->type = BYTE;
    }
    v->tokens[id].type = UNKNOWN;
    convert_put_text(v->c, "tokenizer.ggml.model", "t5", 2);
    convert_put_text(v->c, "tokenizer.ggml.pre", "default", 7);
    convert_put_number(v->c, "tokenizer.ggml.unknown_token_id", QN_KEY_U32, (double)id);
    qn_status status = convert_unigram_steps(v);
    return status == QN_OK ? put_lists(v, 1) : status;
}

/* Steps that GGUF has no place for in the kind of vocabulary it is. */
static qn_status check_spm(vocab *v) {
    const convert_spm *m = &v->spm;
    const char *what = m->kind == CONVERT_SPM_WORDS                      ? "is made of whole words"
                       : m->at_end                                       ? "has the spaces at the ends of words"
                       : m->kind != CONVERT_SPM_UNIGRAM && m->charsmap.n ? "replaces characters before it merges them"
                       : m->kind != CONVERT_SPM_UNIGRAM && m->single     ? "makes one space of several before it merges"
                                                                         : NULL;
    if (!what) return QN_OK;
    return qn_error_set(&v->c->error, QN_UNSUPPORTED, "tokenizer.model %s, which GGUF cannot say", what);
}

/* What is known beside the lists: merged by scores, or the best sum of scores. */
static void put_spm_kind(vocab *v) {
    convert_spm *m = &v->spm;
    int unigram = m->kind == CONVERT_SPM_UNIGRAM;
    convert_put_text(v->c, "tokenizer.ggml.model", unigram ? "t5" : "llama", unigram ? 2 : 5);
    convert_put_text(v->c, "tokenizer.ggml.pre", "default", 7);
    v->prefix = m->prefix != 0;
    if (!unigram) return;
    for (int64_t i = v->n; i-- > 0;)
        if (v->tokens[i].type == UNKNOWN) convert_put_number(v->c, "tokenizer.ggml.unknown_token_id", QN_KEY_U32, (double)i);
    convert_put_number(v->c, "tokenizer.ggml.add_space_prefix", QN_KEY_BOOL, v->prefix);
    convert_put_number(v->c, "tokenizer.ggml.remove_extra_whitespaces", QN_KEY_BOOL, m->single != 0);
    if (m->charsmap.n) convert_put_array(v->c, "tokenizer.ggml.precompiled_charsmap", QN_KEY_U8, m->charsmap.n, &m->charsmap);
}

/* tokenizer.model, and over it the added tokens of tokenizer.json. */
static qn_status put_spm(vocab *v, const char *path) {
    convert_spm *m = &v->spm;
    qn_status status = convert_read_spm(path, m, &v->c->error);
    const char *at = m->tokens.at;
    v->most += m->count;
    for (int64_t i = 0; i < m->count && status == QN_OK; i++) {
        uint64_t bytes;
        memcpy(&bytes, at, sizeof bytes);
        int32_t type;
        memcpy(&type, m->types.at + 4 * i, sizeof type);
        status = set_token(v, i, at + 8, bytes, type);
        if (status == QN_OK) memcpy(&v->tokens[i].score, m->scores.at + 4 * i, sizeof v->tokens[i].score);
        at += 8 + bytes;
    }
    int64_t before = m->count; /* those that only tokenizer.json has */
    if (status == QN_OK && v->json) status = read_added(v);
    for (int64_t i = 0; i < v->n && status == QN_OK; i++)
        if (i >= before || v->tokens[i].type == USER_DEFINED) v->tokens[i].score = -1000.0f;
    if (status == QN_OK) status = check_spm(v);
    if (status == QN_OK) put_spm_kind(v);
    return status;
}

/* ---- The whole */

static qn_status put_all(vocab *v, const char *folder, int64_t wanted) {
    char path[PATH_ROOM];
    qn_file_value type = {.type = QN_KEY_U8}, fallback;
    int words = 0, scored = 0;
    FILE *there = convert_path(path, folder, "tokenizer.model") ? fopen(path, "rb") : NULL;
    if (there) fclose(there);
    if (!there && !v->json)
        return qn_error_set(&v->c->error, QN_IO, "%s holds neither tokenizer.model nor tokenizer.json", folder);
    qn_status status = QN_OK;
    if (there) {
        status = put_spm(v, path);
    } else {
        words = convert_find_text(v->json, "model.type", &type) && convert_is_text(&type, "WordPiece");
        scored = type.type == QN_KEY_STRING && convert_is_text(&type, "Unigram");
        if (!words && !scored && (type.type != QN_KEY_STRING || !convert_is_text(&type, "BPE")))
            return qn_error_set(&v->c->error, QN_UNSUPPORTED,
                                "tokenizer.json is of a kind other than BPE, Unigram and WordPiece, which is not converted");
        status = scored ? read_unigram(v) : read_vocab(v);
        if (status == QN_OK) status = read_added(v);
    }
    while (v->n > 0 && !v->tokens[v->n - 1].type) v->n--; /* room that was not needed */
    if (status == QN_OK && wanted > v->most)
        return qn_error_set(&v->c->error, QN_FORMAT,
                            "config.json: vocab_size is %lld, and files of this size hold no more than %lld tokens",
                            (long long)wanted, (long long)v->most);
    if (status == QN_OK && wanted > v->n) { /* a model may have more rows than tokens */
        int64_t n = v->n;
        status = set_token(v, wanted - 1, "", 0, 0);
        v->n = wanted > n ? wanted : n;
    }
    if (status != QN_OK) return status;
    int bytes = !there && qn_file_key(v->json, qn_file_find(v->json, QN_FILE_KEYS, "model.byte_fallback"), &fallback) == QN_OK &&
                fallback.integer;
    vocab_kind kind = there ? VOCAB_SPM : words ? VOCAB_WORDS : scored ? VOCAB_UNIGRAM : bytes ? VOCAB_BPE_OF_BYTES : VOCAB_BPE;
    if (kind != VOCAB_SPM && kind != VOCAB_UNIGRAM) status = convert_check_steps(v, kind);
    if (status != QN_OK) return status;
    status = there    ? put_lists(v, 1)
             : words  ? put_wordpiece(v)
             : scored ? put_unigram(v, bytes)
             : bytes  ? put_spm_from_json(v)
                      : put_bpe(v);
    if (status == QN_OK) put_special(v, folder, kind);
    return status;
}

/* A JSON document that need not be there. */
static qn_status open_optional(conversion *c, const char *folder, const char *name, qn_file **file) {
    char path[PATH_ROOM];
    qn_error error;
    if (!convert_path(path, folder, name)) return qn_error_set(&c->error, QN_IO, "%s: the path is too long", folder);
    qn_status status = model_open_file(path, c->no_map, file, &error);
    if (status == QN_OK || status == QN_IO) return QN_OK;
    c->error = error;
    return status;
}

qn_status convert_vocab(conversion *c, const char *folder, const qn_file *config, uint64_t weight_bytes, int64_t wanted) {
    vocab v = {.c = c, .config = config, .prefix = -1};
    qn_file_info info = {.size = sizeof info};
    qn_status status = open_optional(c, folder, "tokenizer.json", &v.json);
    if (status == QN_OK) status = open_optional(c, folder, "tokenizer_config.json", &v.settings);
    if (v.json) qn_file_describe(v.json, &info);
    v.most = weight_bytes + info.bytes < MOST_TOKENS ? (int64_t)(weight_bytes + info.bytes) : MOST_TOKENS;
    if (status == QN_OK) status = put_all(&v, folder, wanted);
    convert_bytes *lists[] = {&v.spm.tokens, &v.spm.scores, &v.spm.types, &v.spm.charsmap};
    for (int i = 0; i < 4; i++) free(lists[i]->at);
    free(v.tokens);
    qn_file_close(v.json);
    qn_file_close(v.settings);
    return status;
}
