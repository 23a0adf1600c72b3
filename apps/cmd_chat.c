/* quern chat: a conversation, through the model's own chat template. */
#include <time.h>
#include <unistd.h>

#include "lm_sample.h"

typedef struct chat_words {
    const char *system, *template_text, *template_file, *n;
    lm_words lm;
    sample_words sample;
} chat_words;

typedef struct chat {
    lm *l;
    sample s;
    qn_text template_text;
    char *messages; /* "{...},{...}": JSON, grows by each turn */
    size_t n_messages, cap;
    size_t start, line_at; /* what /clear leaves; where the last line of the user's begins */
    char *answer;
    size_t n_answer, answer_cap;
    int64_t most, began; /* began: seconds since 1970 as the clocks on the wall show them */
    const char *bos, *eos;
} chat;

/* ---- JSON of the conversation */

static int append(char **text, size_t *n, size_t *cap, const char *more, size_t length) {
    if (*cap - *n <= length) {
        size_t room = (*n + length) * 2 + 256;
        char *at = realloc(*text, room);
        if (!at) return 0;
        *text = at;
        *cap = room;
    }
    memcpy(*text + *n, more, length);
    *n += length;
    (*text)[*n] = 0;
    return 1;
}

static int add(chat *c, const char *text) { return append(&c->messages, &c->n_messages, &c->cap, text, strlen(text)); }

/* A model may say any byte, and so may a terminal: one that belongs to no character must not end the conversation. */
static int add_json_text(chat *c, const char *text, size_t length) {
    char code[8];
    int ok = add(c, "\"");
    for (size_t i = 0, n; ok && i < length; i += n ? n : 1) {
        unsigned char b = (unsigned char)text[i];
        n = (size_t)model_character(text + i, length - i);
        if (b == '"' || b == '\\') snprintf(code, sizeof code, "\\%c", b);
        else if (b < 0x20) snprintf(code, sizeof code, "\\u%04x", b);
        else snprintf(code, sizeof code, "%.*s", n ? (int)n : 6, n ? text + i : "\\ufffd");
        ok = add(c, code);
    }
    return ok && add(c, "\"");
}

static int add_message(chat *c, const char *role, const char *text, size_t length) {
    return add(c, c->n_messages ? ",{\"role\":\"" : "{\"role\":\"") && add(c, role) && add(c, "\",\"content\":") &&
           add_json_text(c, text, length) && add(c, "}");
}

/* ---- A turn */

/* Templates that tell the date mean that of the person who asks. It is that of the conversation's beginning, so that what the model
 * has read of it stays true to the letter. */
static int64_t local_time(void) {
    time_t now = time(NULL);
    struct tm here, utc;
    tzset();
    if (!localtime_r(&now, &here) || !gmtime_r(&now, &utc)) return now;
    int days = here.tm_year == utc.tm_year ? here.tm_yday - utc.tm_yday : here.tm_year - utc.tm_year;
    int minutes = (days * 24 + here.tm_hour - utc.tm_hour) * 60 + here.tm_min - utc.tm_min;
    return (int64_t)now + minutes * 60 + here.tm_sec - utc.tm_sec;
}

static qn_status keep_text(void *user, const char *text, size_t length) {
    chat *c = user;
    return append(&c->answer, &c->n_answer, &c->answer_cap, text, length) ? QN_OK : QN_NO_MEMORY;
}

/* The whole conversation as the model wants to read it, into c->answer. */
static int render(chat *c) {
    qn_error error;
    size_t size = c->n_messages + strlen(c->bos) * 2 + strlen(c->eos) * 2 + 256;
    char *context = malloc(size);
    if (!context) return model_fail("chat", "no memory for the conversation");
    int n = snprintf(context, size,
                     "{\"messages\":[%s],\"add_generation_prompt\":true,\"bos_token\":\"%s\",\"eos_token\":\"%s\"}", c->messages,
                     c->bos, c->eos);
    c->n_answer = 0;
    qn_chat_limits limits = {.size = sizeof limits, .now = c->began};
    qn_status status = qn_chat_render(c->template_text, (qn_text){context, (size_t)n}, &limits, keep_text, c, &error);
    free(context);
    return status == QN_OK ? APP_OK : lm_fail(c->l, &error);
}

static qn_status speak(void *user, const char *text, size_t length, int32_t id) {
    (void)id;
    if (*model_stopped()) return QN_CANCELLED;
    fwrite(text, 1, length, stdout);
    fflush(stdout);
    return keep_text(user, text, length);
}

/* Whether the prompt has more tokens than the context, which is no reason to end a conversation; all has been said then. */
static int is_too_long(const chat *c, qn_text prompt) {
    const qn_tokenizer *t;
    size_t n = 0;
    int64_t room = lm_context(c->l);
    int32_t *ids = lm_tokenizer(c->l, &t) == APP_OK
                       ? lm_encode(c->l, t, prompt.at, prompt.length, QN_ENCODE_MODEL | QN_ENCODE_SPECIAL, &n)
                       : NULL;
    free(ids);
    if (!ids || n <= (uint64_t)room) return 0;
    if (c->line_at == c->start)
        fprintf(stderr, "quern chat: this line%s %zu tokens and the context holds %lld: it is left out; -c makes more room\n",
                c->start ? " and the system prompt make" : " makes", n, (long long)room);
    else
        fprintf(stderr,
                "quern chat: with this line there are %zu tokens and the context holds %lld: the line is left out; /clear begins "
                "anew, -c makes more room\n",
                n, (long long)room);
    return 1;
}

static void cut_messages(chat *c, size_t n) {
    c->n_messages = n;
    if (c->messages) c->messages[n] = 0;
}

static int answer(chat *c) {
    qn_error error;
    qn_generate_result r = {.size = sizeof r};
    if (qn_sampler_reset(c->s.sampler, &error) != QN_OK) return lm_fail(c->l, &error);
    int rc = render(c);
    if (rc != APP_OK) return rc;
    char *prompt = c->answer;
    qn_generate_options o = qn_generate_options_default();
    size_t bos = strlen(c->bos);
    o.prompt = (qn_text){prompt, c->n_answer};
    if (bos && c->n_answer >= bos && memcmp(prompt, c->bos, bos) == 0) { /* the template wrote what the tokenizer adds */
        o.prompt.at += bos;
        o.prompt.length -= bos;
    }
    o.most = (int32_t)c->most;
    o.sampler = c->s.sampler;
    o.flags = QN_GENERATE_SPECIAL | QN_GENERATE_WHOLE;
    c->answer = NULL;
    c->n_answer = c->answer_cap = 0;
    int long_line = 0;
    if (qn_generate(c->l->session, &o, speak, c, &r, &error) != QN_OK) {
        long_line = error.status == QN_INVALID && is_too_long(c, o.prompt);
        if (!long_line) rc = lm_fail(c->l, &error);
    }
    free(prompt);
    if (long_line) return cut_messages(c, c->line_at), APP_OK;
    putchar('\n');
    if (rc == APP_OK && r.end == QN_END_CONTEXT)
        fprintf(stderr, "quern chat: the context of %lld tokens is full; /clear begins anew, -c makes more room\n",
                (long long)lm_context(c->l));
    if (rc == APP_OK && !add_message(c, "assistant", c->answer ? c->answer : "", c->n_answer))
        rc = model_fail("chat", "no memory for the conversation");
    return rc;
}

/* ---- The conversation */

static int take_template(lm *l, chat *c, const char *text, const char *file, char **kept) {
    size_t length = text ? strlen(text) : 0;
    if (file) {
        *kept = lm_read_file(l, file, &length);
        if (!*kept) return APP_FAILED;
        text = *kept;
    }
    c->template_text = text ? (qn_text){text, length} : l->info.chat_template;
    if (c->template_text.length) return APP_OK;
    return model_fail("chat", "the model has no chat template; --chat-template gives it one, and quern run needs none");
}

/* The text of a special token, for templates; they hold no quotes in practice, and are left out if they do. */
static const char *token_text(lm *l, int32_t id, char room[64]) {
    const qn_tokenizer *t;
    qn_token_info info = {.size = sizeof info};
    room[0] = 0;
    if (id < 0 || lm_tokenizer(l, &t) != APP_OK || qn_tokenizer_token(t, id, &info) != QN_OK || info.piece.length >= 64)
        return room;
    for (size_t i = 0; i < info.piece.length; i++)
        if (info.piece.at[i] == '"' || info.piece.at[i] == '\\' || (unsigned char)info.piece.at[i] < 0x20) return room;
    memcpy(room, info.piece.at, info.piece.length);
    room[info.piece.length] = 0;
    return room;
}

static int converse(chat *c, const char *system) {
    char *line = NULL;
    size_t cap = 0;
    int rc = APP_OK, terminal = isatty(STDIN_FILENO);
    if (system && !add_message(c, "system", system, strlen(system))) rc = APP_FAILED;
    c->start = c->n_messages;
    c->began = local_time();
    while (rc == APP_OK && !*model_stopped()) {
        if (terminal) fputs("> ", stderr);
        ssize_t n = getline(&line, &cap, stdin);
        if (n < 0) break;
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = 0;
        if (strcmp(line, "/exit") == 0) break;
        if (strcmp(line, "/clear") == 0) {
            cut_messages(c, c->start);
            c->began = local_time();
            continue;
        }
        if (!n) continue;
        c->line_at = c->n_messages;
        if (!add_message(c, "user", line, (size_t)n)) rc = model_fail("chat", "no memory for the conversation");
        if (rc == APP_OK) rc = answer(c);
    }
    free(line);
    return *model_stopped() && rc == APP_OK ? MODEL_INTERRUPTED : rc;
}

static int talk(lm *l, const chat_words *w) {
    chat c;
    char bos[64], eos[64], *kept = NULL;
    const qn_tokenizer *t;
    qn_tokenizer_info info = {.size = sizeof info};
    memset(&c, 0, sizeof c);
    c.l = l;
    c.most = -1;
    int rc = w->n ? lm_number("chat", "--predict", w->n, -1, INT32_MAX, &c.most) : APP_OK;
    if (rc == APP_OK) rc = lm_tokenizer(l, &t);
    if (rc == APP_OK) rc = take_template(l, &c, w->template_text, w->template_file, &kept);
    if (rc == APP_OK) rc = lm_session(l);
    if (rc == APP_OK) rc = sample_create(l, &w->sample, &c.s);
    if (rc == APP_OK) {
        qn_tokenizer_describe(t, &info);
        c.bos = info.add_bos > 0 ? token_text(l, info.bos, bos) : "";
        c.eos = token_text(l, info.eos, eos);
        rc = converse(&c, w->system);
    }
    sample_free(&c.s);
    free(c.messages);
    free(c.answer);
    free(kept);
    return rc;
}

static const option_row rows[] = {
    OPTION(chat_words, system, "-sys, --system-prompt", "TEXT", "said to the model before everything else"),
    OPTION(chat_words, n, "-n, --predict, --n-predict", "N", "most tokens in an answer; -1 (the default): until the model ends"),
    OPTION(chat_words, template_text, "--chat-template", "TEXT", "a Jinja template instead of the model's own"),
    OPTION(chat_words, template_file, "--chat-template-file", "FILE", "the same from a file", .files = "*"),
    {0}};
static const option_group groups[] = {{NULL, rows, 0},
                                      {"The model and how it runs", lm_rows, offsetof(chat_words, lm)},
                                      {"How tokens are picked", sample_rows, offsetof(chat_words, sample)},
                                      {0}};

static int run(const quern_verb *self, int argc, char **argv) {
    chat_words w = {0};
    lm l;
    int rc = lm_read(self, argc, argv, &w, &w.lm);
    if (rc != APP_OK) return rc;
    if (w.template_text && w.template_file) return app_apart("quern chat", "--chat-template", "--chat-template-file");
    model_catch_stop_reading();
    rc = lm_open(&l, "chat", &w.lm);
    if (rc == APP_OK) rc = lm_prepare(&l, &w.lm);
    if (rc == APP_OK) rc = talk(&l, &w);
    return lm_close(&l, rc);
}

const quern_verb verb_chat = {
    .name = "chat",
    .brief = "talk with a language model",
    .run = run,
    .usage = "-m MODEL.gguf [-sys TEXT] [options]",
    .about = "A conversation: a line of yours, then the model's. '/clear' begins anew, '/exit' or the end of input ends it. "
             "A line that does not fit the context is left out, which is said, and the conversation goes on.",
    .groups = groups,
    .needs = "models"};
