/* Cutting texts before merges: the stages of token_pre.def, run by PCRE2. Text that is no UTF-8 is cut as if every stray byte
 * were U+FFFD, so any bytes may come in and all of them come out. */
#include <stdlib.h>

#include "text/tokenizer.h"
#include "base/heap.h"
#include "text/utf8.h"

static const pre_kind KINDS[] = {
#define STAGE(regex) \
    { regex, 0 }
#define THREES(regex) \
    { regex, 1 }
#define QN_PRE(name, flags, ...) {name, flags, {__VA_ARGS__}},
#include "text/token_pre.def"
#undef QN_PRE
#undef THREES
#undef STAGE
};

const pre_kind *qn_text_pre_find(const char *name) {
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (strcmp(KINDS[i].name, name) == 0) return &KINDS[i];
    return NULL;
}

#ifdef QN_HAVE_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { MATCH_LIMIT = 50 * 1000 * 1000, JIT_STACK_FIRST = 32 * 1024, JIT_STACK_MOST = 4 * 1024 * 1024, PATTERN_ROOM = 4096 };

/* PCRE2's \s differs from White_Space in one character, U+180E. */
static size_t spell_spaces(const char *regex, char *out) {
    size_t n = 0;
    for (const char *p = regex; *p && n + 16 < PATTERN_ROOM; p++) {
        if (p[0] == '\\' && (p[1] == 's' || p[1] == 'S')) {
            memcpy(out + n, p[1] == 's' ? "\\p{wspace}" : "\\P{wspace}", 10);
            n += 10;
            p++;
        } else if (p[0] == '\\' && p[1]) {
            out[n++] = *p++;
            out[n++] = *p;
        } else {
            out[n++] = *p;
        }
    }
    return n;
}

qn_status qn_text_pre_compile(qn_tokenizer *t, qn_error *error) {
    t->regex = qn_arena_alloc(&t->arena, PRE_MOST_STAGES, sizeof *t->regex);
    if (!t->regex) return qn_error_set(error, QN_NO_MEMORY, "no memory for the pre-tokenizer");
    for (int i = 0; i < PRE_MOST_STAGES && t->pre->stage[i].regex; i++) {
        char pattern[PATTERN_ROOM];
        size_t n = spell_spaces(t->pre->stage[i].regex, pattern), at = 0;
        int code = 0;
        pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, n, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
        if (!re) {
            PCRE2_UCHAR why[128] = "";
            pcre2_get_error_message(code, why, sizeof why);
            return qn_error_set(error, QN_UNSUPPORTED, "pre-tokenizer '%s', expression %d: PCRE2 says: %s at byte %zu",
                                t->pre->name, i + 1, (const char *)why, at);
        }
        t->regex[i] = re;
        pcre2_jit_compile(re, PCRE2_JIT_COMPLETE); /* where there is no JIT the interpreter does the same work, slower */
    }
    return QN_OK;
}

void qn_text_pre_release(qn_tokenizer *t) {
    for (int i = 0; t->regex && i < PRE_MOST_STAGES; i++)
        if (t->regex[i]) pcre2_code_free(t->regex[i]);
}

typedef struct splitter {
    const qn_tokenizer *t;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    pcre2_jit_stack *stack;
    const char *from; /* text as it came, and where the next piece of it starts */
    const char *text; /* text as PCRE2 sees it */
    size_t *stray;    /* places in `text` of the U+FFFD that stand for one byte each */
    size_t n_stray, passed;
    pre_piece_fn piece;
    void *user;
    qn_error *error;
} splitter;

/* Pieces come in order, so the strays behind a piece are counted as they go by. */
static qn_status give(splitter *s, size_t at, size_t end) {
    size_t n = end - at;
    while (s->passed < s->n_stray && s->stray[s->passed] < end) {
        s->passed++;
        n -= 2;
    }
    const char *piece = s->from;
    s->from += n;
    return s->piece(s->user, piece, n);
}

static qn_status split(splitter *s, int stage, size_t at, size_t end);

/* Groups of three characters from the end. */
static qn_status split_threes(splitter *s, int stage, size_t at, size_t end) {
    size_t characters = 0;
    for (size_t i = at; i < end; i++) characters += ((unsigned char)s->text[i] & 0xC0) != 0x80;
    while (at < end) {
        size_t next = at, take = characters % 3 ? characters % 3 : 3;
        characters -= take;
        while (take--) next += qn_text_utf8_announced(s->text[next]);
        qn_status status = split(s, stage + 1, at, next);
        if (status != QN_OK) return status;
        at = next;
    }
    return QN_OK;
}

/* The stages are at most six, so the depth is too. */
static qn_status split(splitter *s, int stage, size_t at, size_t end) {
    if (at == end) return QN_OK;
    if (stage == PRE_MOST_STAGES || !s->t->regex[stage]) return give(s, at, end);
    const char *text = s->text + at;
    size_t n = end - at, gap = 0, look = 0;
    while (look < n) {
        int found = pcre2_match(s->t->regex[stage], (PCRE2_SPTR)text, n, look, PCRE2_NO_UTF_CHECK, s->match, s->limits);
        if (found == PCRE2_ERROR_NOMATCH) break;
        if (found < 0) {
            PCRE2_UCHAR why[128] = "";
            pcre2_get_error_message(found, why, sizeof why);
            return qn_error_set(s->error, QN_INVALID, "pre-tokenizer '%s', expression %d, gave up on %zu bytes: %s",
                                s->t->pre->name, stage + 1, n, (const char *)why);
        }
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(s->match);
        size_t from = range[0], to = range[1];
        if (to == from) { /* no expression of the table matches nothing; if one did, it must not stand still */
            look = to + qn_text_utf8_announced(text[to]);
            continue;
        }
        qn_status status = split(s, stage + 1, at + gap, at + from);
        if (status == QN_OK)
            status = s->t->pre->stage[stage].threes ? split_threes(s, stage, at + from, at + to)
                                                    : split(s, stage + 1, at + from, at + to);
        if (status != QN_OK) return status;
        gap = look = to;
    }
    return split(s, stage + 1, at + gap, end);
}

/* A copy of the text in which U+FFFD stands for each byte that is no part of a character; 0: no memory. */
static int replace_strays(splitter *s, qn_text text, size_t first, char **copy, size_t *length) {
    char *out = text.length < SIZE_MAX / 8 ? qn_heap_alloc(text.length * 3) : NULL;
    s->stray = text.length < SIZE_MAX / 8 ? qn_heap_alloc(text.length * sizeof *s->stray) : NULL;
    *copy = out;
    if (!out || !s->stray) return 0;
    memcpy(out, text.at, first);
    size_t n = first;
    for (size_t i = first; i < text.length;) {
        uint32_t code;
        size_t size = qn_text_utf8_read(text.at + i, text.length - i, &code);
        if (size) {
            memcpy(out + n, text.at + i, size);
        } else {
            s->stray[s->n_stray++] = n;
            memcpy(out + n, "\xEF\xBF\xBD", 3);
        }
        n += size ? size : 3;
        i += size ? size : 1;
    }
    s->text = out;
    *length = n;
    return 1;
}

static size_t valid_prefix(qn_text text) {
    size_t i = 0;
    while (i < text.length) {
        uint32_t code;
        size_t size = qn_text_utf8_read(text.at + i, text.length - i, &code);
        if (!size) break;
        i += size;
    }
    return i;
}

qn_status qn_text_pre_split(const qn_tokenizer *t, qn_text text, pre_piece_fn piece, void *user, qn_error *error) {
    if (text.length == 0) return QN_OK;
    splitter s = {.t = t, .from = text.at, .text = text.at, .piece = piece, .user = user, .error = error};
    char *copy = NULL;
    size_t valid = valid_prefix(text), length = text.length;
    qn_status status = QN_OK;
    s.match = pcre2_match_data_create(1, NULL);
    s.limits = pcre2_match_context_create(NULL);
    s.stack = pcre2_jit_stack_create(JIT_STACK_FIRST, JIT_STACK_MOST, NULL);
    if (!s.match || !s.limits || (valid < length && !replace_strays(&s, text, valid, &copy, &length))) {
        status = qn_error_set(error, QN_NO_MEMORY, "no memory to cut a text of %zu bytes", text.length);
    } else {
        pcre2_set_match_limit(s.limits, MATCH_LIMIT);
        if (s.stack) pcre2_jit_stack_assign(s.limits, NULL, s.stack);
        status = split(&s, 0, 0, length);
    }
    if (s.stack) pcre2_jit_stack_free(s.stack);
    pcre2_match_context_free(s.limits);
    pcre2_match_data_free(s.match);
    qn_heap_free(s.stray);
    qn_heap_free(copy);
    return status;
}

#else

qn_status qn_text_pre_compile(qn_tokenizer *t, qn_error *error) {
    return qn_error_set(error, QN_UNSUPPORTED, "pre-tokenizer '%s' needs PCRE2, which this build was made without", t->pre->name);
}

void qn_text_pre_release(qn_tokenizer *t) { (void)t; }

qn_status qn_text_pre_split(const qn_tokenizer *t, qn_text text, pre_piece_fn piece, void *user, qn_error *error) {
    (void)text;
    (void)piece;
    (void)user;
    return qn_error_set(error, QN_UNSUPPORTED, "pre-tokenizer '%s' needs PCRE2, which this build was made without", t->pre->name);
}

#endif
