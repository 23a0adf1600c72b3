/* Chat templates from anybody: the template, a zero byte, and the context as JSON. It is rendered, twice the same, or refused with a
 * sentence, within its limits. */
#include <stdio.h>
#include <stdlib.h>

#include <quern/text.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PROMISE(condition)                              \
    do {                                                \
        if (!(condition)) broken(#condition, __LINE__); \
    } while (0)

static void broken(const char *promise, int line) {
    fprintf(stderr, "fuzz_template.c:%d: broken promise: %s\n", line, promise);
    abort();
}

static const char
    CONTEXT[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"Be kind.\"}, {\"role\": \"user\", \"content\": \"Hi\"}], "
                "\"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"tools\": [{\"type\": \"function\", \"function\": "
                "{\"name\": \"f\", \"parameters\": {\"a\": [1, 2.5, null]}}}]}";

typedef struct output {
    char *text;
    size_t n;
    int calls;
} output;

static qn_status keep(void *user, const char *text, size_t length) {
    output *o = user;
    o->text = malloc(length + 1);
    PROMISE(o->text);
    memcpy(o->text, text, length);
    o->n = length;
    o->calls++;
    return QN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *zero = memchr(data, 0, size);
    size_t n = zero ? (size_t)(zero - data) : size, rest = zero ? size - n - 1 : 0;
    char *source = malloc(n + 1), *json = malloc(rest + 1); /* of their exact sizes, so that a step beyond them is seen */
    PROMISE(source && json);
    source = realloc(source, n ? n : 1);
    json = realloc(json, rest ? rest : 1);
    PROMISE(source && json);
    memcpy(source, data, n);
    if (rest) memcpy(json, zero + 1, rest);
    qn_text context = rest ? (qn_text){json, rest} : (qn_text){CONTEXT, sizeof CONTEXT - 1};
    qn_chat_limits limits = {.size = sizeof limits, .steps = 200000, .memory = 16 << 20, .output = 1 << 20, .now = 1700000000};
    output first = {0}, second = {0};
    qn_error error = {QN_OK, ""};
    qn_status status = qn_chat_render((qn_text){source, n}, context, &limits, keep, &first, &error);
    if (status != QN_OK) {
        PROMISE(first.calls == 0 && error.text[0] && error.status == status);
    } else {
        PROMISE(first.calls == 1 && first.n <= limits.output);
        PROMISE(qn_chat_render((qn_text){source, n}, context, &limits, keep, &second, &error) == QN_OK);
        PROMISE(first.n == second.n && memcmp(first.text, second.text, first.n) == 0);
    }
    free(first.text);
    free(second.text);
    free(source);
    free(json);
    return 0;
}
