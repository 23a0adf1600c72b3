/* What tokenizer.json does to a text before tokens are looked for: the forms in which GGUF can say it, and refusals. */
#include "convert_vocab.h"

int convert_find_text(const qn_file *file, const char *name, qn_file_value *v) {
    return file && qn_file_key(file, qn_file_find(file, QN_FILE_KEYS, name), v) == QN_OK && v->type == QN_KEY_STRING;
}

int convert_is_text(const qn_file_value *v, const char *text) {
    return v->type == QN_KEY_STRING && v->bytes == strlen(text) && memcmp(v->text, text, v->bytes) == 0;
}

int convert_flag_at(const vocab *v, const char *place, const char *name, int otherwise) {
    char key[160];
    qn_file_value value;
    snprintf(key, sizeof key, "%s%s", place, name);
    if (qn_file_key(v->json, qn_file_find(v->json, QN_FILE_KEYS, key), &value) != QN_OK || value.type != QN_KEY_BOOL)
        return otherwise;
    return value.integer != 0;
}

/* ---- How text is cut: the steps of the pre_tokenizer as one line, looked up in the table */

/* A step that has another form than the usual one of its name: is said behind it, and so is not found in the table. */
static const char *odd_form(const vocab *v, const char *prefix, const qn_file_value *type, int behind_split) {
    char key[160];
    qn_file_value behavior;
    if (convert_is_text(type, "ByteLevel")) {
        if (convert_flag_at(v, prefix, "add_prefix_space", 0)) return ":with a space in front";
        int cuts = convert_flag_at(v, prefix, "use_regex", 1);
        return cuts == !behind_split ? "" : cuts ? ":cuts again" : ":does not cut";
    }
    if (convert_is_text(type, "Digits")) return convert_flag_at(v, prefix, "individual_digits", 0) ? "" : ":together";
    snprintf(key, sizeof key, "%sbehavior", prefix);
    if (!convert_is_text(type, "Split") || !convert_find_text(v->json, key, &behavior)) return "";
    int inverted = convert_flag_at(v, prefix, "invert", 0); /* what is removed is then what lies between, which is nothing */
    return convert_is_text(&behavior, inverted ? "Removed" : "Isolated") ? "" : ":in another way";
}

static void append_step(const vocab *v, const char *prefix, convert_bytes *line) {
    static const char *const patterns[] = {"pattern.Regex", "pattern.String"};
    char key[160];
    qn_file_value text;
    snprintf(key, sizeof key, "%stype", prefix);
    if (!convert_find_text(v->json, key, &text)) return;
    const char *form = odd_form(v, prefix, &text, line->n >= 5 && memcmp(line->at, "Split", 5) == 0);
    if (line->n) convert_append(line, "+", 1);
    convert_append(line, text.text, text.bytes);
    for (int i = 0; i < 2; i++) {
        snprintf(key, sizeof key, "%s%s", prefix, patterns[i]);
        if (!convert_find_text(v->json, key, &text)) continue;
        convert_append(line, ":", 1);
        convert_append(line, text.text, text.bytes);
    }
    convert_append(line, form, strlen(form));
}

qn_status convert_pre(vocab *v) {
    static const char *const table[][2] = {
#define CONVERT_PRE(steps, name) {steps, name},
#include "convert_hf.def"
    };
    convert_bytes line = {0};
    qn_file_value type;
    const char *found = v->c->pre;
    if (convert_find_text(v->json, "pre_tokenizer.type", &type) && convert_is_text(&type, "Sequence"))
        for (int i = 0; i < 16; i++) {
            char prefix[64];
            snprintf(prefix, sizeof prefix, "pre_tokenizer.pretokenizers.%d.", i);
            append_step(v, prefix, &line);
        }
    else append_step(v, "pre_tokenizer.", &line);
    for (size_t i = 0; i < sizeof table / sizeof *table && !found; i++)
        if (line.n == strlen(table[i][0]) && memcmp(line.at, table[i][0], line.n) == 0) found = table[i][1];
    qn_status status = QN_OK;
    if (found) convert_put_text(v->c, "tokenizer.ggml.pre", found, strlen(found));
    else
        status = qn_error_set(&v->c->error, QN_UNSUPPORTED,
                              "tokenizer.json cuts text in a way that has no name here; give it one with --pre. Its steps: %.*s",
                              (int)(line.n < 300 ? line.n : 300), line.n ? line.at : "");
    free(line.at);
    return status;
}

/* ---- What stands before that: the normalizer */

static qn_status refuse_step(vocab *v, const char *place, const qn_file_value *type, const char *kind) {
    return qn_error_set(&v->c->error, QN_UNSUPPORTED, "tokenizer.json: %s '%.*s' is more than %s of GGUF can say", place,
                        (int)(type->bytes < 60 ? type->bytes : 60), type->text, kind);
}

static int becomes_mark(const vocab *v, const char *place) {
    char key[128];
    qn_file_value x;
    snprintf(key, sizeof key, "%scontent", place);
    return convert_find_text(v->json, key, &x) && convert_is_text(&x, CONVERT_MARK);
}

/* Six bits of base64, -1 for what is none. */
static int sixbit(int c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* The map of characters that the normalizer applies first, if it has one. */
static qn_status put_charsmap(vocab *v, const char *prefix) {
    char key[128];
    qn_file_value text;
    convert_bytes map = {0};
    uint32_t bits = 0;
    int n = 0;
    snprintf(key, sizeof key, "%sprecompiled_charsmap", prefix);
    if (!convert_find_text(v->json, key, &text) || !text.bytes) return QN_OK;
    for (uint64_t i = 0; i < text.bytes && text.text[i] != '='; i++) {
        int six = sixbit(text.text[i]);
        if (six < 0) {
            free(map.at);
            return qn_error_set(&v->c->error, QN_FORMAT, "tokenizer.json: byte %llu of precompiled_charsmap is not base64",
                                (unsigned long long)i);
        }
        bits = bits << 6 | (uint32_t)six;
        if ((n += 6) < 8) continue;
        n -= 8;
        uint8_t byte = (uint8_t)(bits >> n);
        convert_append(&map, &byte, 1);
    }
    if (!map.failed) convert_put_array(v->c, "tokenizer.ggml.precompiled_charsmap", QN_KEY_U8, map.n, &map);
    free(map.at);
    return map.failed ? qn_error_set(&v->c->error, QN_NO_MEMORY, "no memory for the map of characters") : QN_OK;
}

typedef struct spaces {
    int single, prefix, strip; /* runs of them are one; one stands before the first word; none at the ends */
} spaces;

/* One step of the normalizer or the pre_tokenizer; one that the tokenizer has no form of is refused. */
static qn_status take_step(vocab *v, const char *place, spaces *s) {
    char key[128];
    qn_file_value type, x;
    snprintf(key, sizeof key, "%stype", place);
    if (!convert_find_text(v->json, key, &type) || convert_is_text(&type, "Sequence")) return QN_OK;
    if (convert_is_text(&type, "Strip")) return s->strip = 1, QN_OK;
    if (convert_is_text(&type, "Precompiled")) return put_charsmap(v, place);
    if (convert_is_text(&type, "WhitespaceSplit")) return s->single = 1, QN_OK;
    if (convert_is_text(&type, "Prepend")) return s->prefix = 1, QN_OK;
    snprintf(key, sizeof key, "%sreplacement", place);
    int marks = !convert_find_text(v->json, key, &x) || convert_is_text(&x, CONVERT_MARK);
    if (marks && convert_is_text(&type, "Metaspace")) {
        snprintf(key, sizeof key, "%sprepend_scheme", place);
        s->prefix |= !convert_find_text(v->json, key, &x) || !convert_is_text(&x, "never");
        snprintf(key, sizeof key, "%sadd_prefix_space", place);
        if (qn_file_key(v->json, qn_file_find(v->json, QN_FILE_KEYS, key), &x) == QN_OK && x.type == QN_KEY_BOOL)
            s->prefix = x.integer != 0;
        return QN_OK;
    }
    snprintf(key, sizeof key, "%spattern.Regex", place);
    if (convert_is_text(&type, "Replace") && convert_find_text(v->json, key, &x) && convert_is_text(&x, " {2,}"))
        return s->single = 1, QN_OK;
    snprintf(key, sizeof key, "%spattern.String", place);
    if (convert_is_text(&type, "Replace") && convert_find_text(v->json, key, &x) && convert_is_text(&x, " ") &&
        becomes_mark(v, place))
        return QN_OK;
    return refuse_step(v, place, &type, "a unigram vocabulary");
}

qn_status convert_unigram_steps(vocab *v) {
    static const char *const places[][2] = {{"normalizer.", "normalizer.normalizers"},
                                            {"pre_tokenizer.", "pre_tokenizer.pretokenizers"}};
    spaces s = {0, 0, 0};
    qn_status status = QN_OK;
    for (int i = 0; i < 2 && status == QN_OK; i++) {
        status = take_step(v, places[i][0], &s);
        for (int k = 0; k < 16 && status == QN_OK; k++) {
            char place[64];
            snprintf(place, sizeof place, "%s.%d.", places[i][1], k);
            status = take_step(v, place, &s);
        }
    }
    if (status == QN_OK && s.strip && !s.single) /* which strips as well */
        status = qn_error_set(&v->c->error, QN_UNSUPPORTED,
                              "tokenizer.json: 'Strip' without steps that make one space of several is not known");
    convert_put_number(v->c, "tokenizer.ggml.add_space_prefix", QN_KEY_BOOL, s.prefix);
    convert_put_number(v->c, "tokenizer.ggml.remove_extra_whitespaces", QN_KEY_BOOL, s.single);
    return status;
}

/* ---- Steps of the other kinds. NFC is passed over: GGUF has no place for it, and nearly all texts are so already. */

static qn_status check_step(vocab *v, vocab_kind kind, const char *place) {
    char key[128];
    qn_file_value type, x;
    snprintf(key, sizeof key, "%stype", place);
    if (!convert_find_text(v->json, key, &type) || convert_is_text(&type, "Sequence") || convert_is_text(&type, "NFC"))
        return QN_OK;
    if (kind != VOCAB_BPE_OF_BYTES) return refuse_step(v, place, &type, "a byte-level BPE vocabulary");
    snprintf(key, sizeof key, "%spattern.String", place);
    if (convert_is_text(&type, "Replace") && convert_find_text(v->json, key, &x) && convert_is_text(&x, " ") &&
        becomes_mark(v, place))
        return QN_OK;
    snprintf(key, sizeof key, "%sprepend", place);
    if (convert_is_text(&type, "Prepend") && convert_find_text(v->json, key, &x) && convert_is_text(&x, CONVERT_MARK))
        return v->prefix = 1, QN_OK;
    return refuse_step(v, place, &type, "a sentencepiece vocabulary");
}

/* WordPiece: GGUF knows the whole of BERT's normalizer or, with capitals, the same without taking accents off. */
static qn_status check_words(vocab *v) {
    qn_file_value type;
    if (convert_find_text(v->json, "normalizer.type", &type) && !convert_is_text(&type, "BertNormalizer"))
        return refuse_step(v, "normalizer.", &type, "a WordPiece vocabulary");
    if (convert_find_text(v->json, "pre_tokenizer.type", &type) && !convert_is_text(&type, "BertPreTokenizer"))
        return refuse_step(v, "pre_tokenizer.", &type, "a WordPiece vocabulary");
    int lower = convert_flag_at(v, "normalizer.", "lowercase", 1);
    if (convert_flag_at(v, "normalizer.", "strip_accents", lower) != lower ||
        !convert_flag_at(v, "normalizer.", "clean_text", 1) || !convert_flag_at(v, "normalizer.", "handle_chinese_chars", 1))
        return qn_error_set(
            &v->c->error, QN_UNSUPPORTED,
            "tokenizer.json: its normalizer differs from BERT's in strip_accents, clean_text or handle_chinese_chars, "
            "which a WordPiece vocabulary of GGUF cannot say");
    return QN_OK;
}

qn_status convert_check_steps(vocab *v, vocab_kind kind) {
    static const char *const parts[] = {"model.end_of_word_suffix", "model.continuing_subword_prefix"};
    qn_file_value x;
    if (kind == VOCAB_WORDS) return check_words(v);
    qn_status status = check_step(v, kind, "normalizer.");
    for (int i = 0; i < 16 && status == QN_OK; i++) {
        char place[64];
        snprintf(place, sizeof place, "normalizer.normalizers.%d.", i);
        status = check_step(v, kind, place);
    }
    for (int i = 0; i < 2 && status == QN_OK; i++)
        if (convert_find_text(v->json, parts[i], &x) && x.bytes)
            status = qn_error_set(&v->c->error, QN_UNSUPPORTED, "tokenizer.json: %s is something that BPE of GGUF does not have",
                                  parts[i]);
    if (status == QN_OK && convert_find_text(v->json, "post_processor.type", &x) &&
        (convert_is_text(&x, "RobertaProcessing") || convert_is_text(&x, "BertProcessing")))
        status = refuse_step(v, "post_processor.", &x, "a BPE vocabulary");
    if (kind == VOCAB_BPE || status != QN_OK) return status;
    if (convert_find_text(v->json, "pre_tokenizer.type", &x) && convert_is_text(&x, "Metaspace") &&
        (!convert_find_text(v->json, "pre_tokenizer.prepend_scheme", &x) || !convert_is_text(&x, "never")))
        v->prefix = 1;
    if (v->prefix < 0) v->prefix = 0;
    return QN_OK;
}
