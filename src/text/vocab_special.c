/* The special tokens of a vocabulary: which ids they have, with which of them generation ends, which take the white space
 * beside them along, and the tree in which texts are searched for them. Files say only part of this; names and model kinds say
 * the rest. */
#include "text/tokenizer.h"

enum { NAME_EOT = 1, NAME_EOM = 2, NAME_ENDS = 4, NAME_SHOWN = 8 };

typedef struct known_name {
    const char *text;
    uint32_t roles;
} known_name;

static const known_name NAMES[] = {
#define QN_TOKEN_NAME(text, roles) {text, roles},
#include "text/token_names.def"
#undef QN_TOKEN_NAME
};
enum { N_NAMES = sizeof NAMES / sizeof *NAMES };

/* An id of the file if it names a token, else the model kind's if that names one. */
static int32_t choose_id(qn_tokenizer *t, int32_t given, int32_t standard) {
    if (given >= 0 && given < t->n_tokens) return given;
    if (given >= 0) t->ignored_ids++;
    /* A vocabulary of another make may have a word there. */
    return standard >= 0 && standard < t->n_tokens && t->token[standard].type != QN_TOKEN_NORMAL ? standard : -1;
}

static int32_t choose_flag(int32_t given, int32_t standard) { return given >= 0 ? given != 0 : standard; }

static void choose_ids(qn_tokenizer *t, const qn_vocab_source *s) {
    const token_model *m = t->model;
    uint32_t pre = t->pre ? t->pre->flags : 0;
    t->bos = choose_id(t, s->bos, pre & PRE_NO_BOS ? -1 : m->bos);
    t->eos = choose_id(t, s->eos, m->eos);
    t->eot = choose_id(t, s->eot, -1);
    t->eom = choose_id(t, s->eom, -1);
    t->unk = choose_id(t, s->unk, m->unk);
    t->sep = choose_id(t, s->sep, m->sep);
    t->pad = choose_id(t, s->pad, m->pad);
    t->mask = choose_id(t, s->mask, m->mask);
    t->add_bos = choose_flag(s->add_bos, m->add_bos || pre & PRE_BOS);
    t->add_eos = choose_flag(s->add_eos, m->add_eos);
    t->add_sep = choose_flag(s->add_sep, m->add_sep || pre & PRE_SEP);
    if (pre & PRE_NEWLINES) t->add_bos = 1; /* these files say no and mean yes */
    t->add_space_prefix = choose_flag(s->add_space_prefix, m->add_space_prefix);
    t->remove_extra_whitespaces = choose_flag(s->remove_extra_whitespaces, 0);
    t->lowercase = choose_flag(s->lowercase, 1);
    t->strip_accents = choose_flag(s->strip_accents, t->lowercase);
    t->clean_spaces = m->clean_spaces && !(pre & PRE_EXACT);
}

static int is_name(qn_text piece, const char *name) {
    size_t n = strlen(name);
    return piece.length == n && memcmp(piece.at, name, n) == 0;
}

/* The token of every name the vocabulary has, -1 for the others. */
static void find_names(const qn_tokenizer *t, int32_t ids[N_NAMES]) {
    for (int i = 0; i < N_NAMES; i++) ids[i] = -1;
    for (int32_t id = 0; id < t->n_tokens; id++) {
        qn_text piece = token_piece(t, id);
        if (piece.length < 3 || (*piece.at != '<' && *piece.at != '[' && *piece.at != '_')) continue; /* how all of them begin */
        for (int i = 0; i < N_NAMES; i++)
            if (ids[i] < 0 && is_name(piece, NAMES[i].text)) ids[i] = id;
    }
}

static int32_t named(const int32_t ids[N_NAMES], const char *name) {
    for (int i = 0; i < N_NAMES; i++)
        if (strcmp(NAMES[i].text, name) == 0) return ids[i];
    return -1;
}

static void mark_end(qn_tokenizer *t, int32_t id) {
    if (id >= 0) t->token[id].ends = 1;
}

static void apply_names(qn_tokenizer *t) {
    int32_t ids[N_NAMES];
    find_names(t, ids);
    for (int i = 0; i < N_NAMES; i++) {
        if (ids[i] < 0) continue;
        token_data *d = &t->token[ids[i]];
        if (NAMES[i].roles & NAME_EOT && t->eot < 0) t->eot = ids[i];
        if (NAMES[i].roles & NAME_EOM && t->eom < 0) t->eom = ids[i];
        if (NAMES[i].roles & NAME_ENDS) d->ends = 1, d->type = QN_TOKEN_CONTROL;
        if (NAMES[i].roles & NAME_SHOWN) d->type = QN_TOKEN_USER_DEFINED;
    }
    mark_end(t, t->eos);
    mark_end(t, t->eot);
    mark_end(t, t->eom);
    /* Where turns end in other ways, <|end|> ends only a part of one, and </s> is a tag like others. */
    int calls = named(ids, "<|call|>") >= 0 || named(ids, "<|calls|>") >= 0;
    int32_t end = named(ids, "<|end|>"), tag = named(ids, "</s>");
    if (end >= 0 && calls && (named(ids, "<|return|>") >= 0 || named(ids, "<|flush|>") >= 0)) {
        t->token[end].ends = 0;
        t->token[end].type = QN_TOKEN_USER_DEFINED;
    }
    if (tag >= 0 && named(ids, "<|tool_response>") >= 0) {
        t->token[tag].ends = 0;
        t->token[tag].type = QN_TOKEN_NORMAL;
    }
}

static int is_special(const token_data *d) {
    return d->type == QN_TOKEN_CONTROL || d->type == QN_TOKEN_USER_DEFINED || d->type == QN_TOKEN_UNKNOWN;
}

static int contains(const char *text, const char *part) { /* in whatever case */
    size_t n = strlen(part);
    for (; *text; text++) {
        size_t i = 0;
        while (i < n && text[i] && (text[i] | 0x20) == (part[i] | 0x20)) i++;
        if (i == n) return 1;
    }
    return 0;
}

/* Attributes that the models' own tokenizers have and GGUF has no place for. */
static void choose_strips(qn_tokenizer *t, const qn_vocab_source *s) {
    int phi3 = s->name && (contains(s->name, "phi-3") || contains(s->name, "phi3"));
    const char *pre = t->pre ? t->pre->name : "";
    const char *mask = NULL;
    if (strncmp(pre, "jina-v2-", 8) == 0 || strcmp(t->model->name, "t5") == 0) mask = "<mask>";
    if (strcmp(pre, "modern-bert") == 0) mask = "[MASK]";
    for (int32_t id = 0; (phi3 || mask) && id < t->n_tokens; id++) {
        token_data *d = &t->token[id];
        qn_text piece = token_piece(t, id);
        if (!is_special(d)) continue;
        if (mask && is_name(piece, mask)) d->strip_left = 1;
        if (phi3 && !is_name(piece, "<unk>") && !is_name(piece, "<s>") && !is_name(piece, "<|endoftext|>")) d->strip_right = 1;
    }
}

/* Of tokens with the same text the first is found, or the first that is found unasked. A vocabulary may hold the same text a million
 * times: the others are left out, or a search would walk past them at each place of a text. */
static void prune_tree(qn_tokenizer *t) {
    for (size_t i = 0; i < t->special.nodes; i++) {
        trie_node *node = &t->special.node[i];
        int32_t *ids = t->special.id + node->ids;
        uint32_t k = 0;
        while (k < node->same && t->token[ids[k]].type != QN_TOKEN_USER_DEFINED) k++;
        if (node->same > 1 && k > 0 && k < node->same) ids[1] = ids[k];
        if (node->same > 1) node->same = k > 0 && k < node->same ? 2 : 1;
    }
}

static qn_status plant_tree(qn_tokenizer *t, qn_error *error) {
    token_span *span = qn_arena_resize(&t->arena, NULL, (size_t)t->n_tokens, sizeof *span);
    int32_t *ids = qn_arena_resize(&t->arena, NULL, (size_t)t->n_tokens, sizeof *ids);
    size_t n = 0;
    for (int32_t id = 0; span && ids && id < t->n_tokens; id++) {
        span[id] = t->token[id].piece;
        if (!is_special(&t->token[id]) || span[id].n == 0) continue;
        unsigned char first = (unsigned char)t->texts.pool.at[span[id].at];
        t->starts_special[first] |= t->token[id].type == QN_TOKEN_USER_DEFINED ? 1 : 2;
        ids[n++] = id;
    }
    int ok = span && ids && qn_text_trie_build(&t->special, &t->arena, t->texts.pool.at, span, ids, n);
    if (ok) prune_tree(t);
    qn_arena_release(&t->arena, span);
    qn_arena_release(&t->arena, ids);
    return ok ? QN_OK : qn_error_set(error, QN_NO_MEMORY, "no memory for the special tokens");
}

qn_status qn_text_vocab_special(qn_tokenizer *t, const qn_vocab_source *source, qn_error *error) {
    choose_ids(t, source);
    apply_names(t);
    choose_strips(t, source);
    return plant_tree(t, error);
}
