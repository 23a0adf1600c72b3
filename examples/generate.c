/* Tells a story: loads a model, reads a prompt, prints text as it comes, stops at a full stop after 60 words. */
#include <quern/quern.h>
#include <stdio.h>

typedef struct teller {
    qn_session *session;
    int words;
} teller;

static qn_status print(void *user, const char *text, size_t length, int32_t id) {
    teller *t = user;
    (void)id;
    fwrite(text, 1, length, stdout);
    t->words += length && text[0] == ' ';
    return t->words > 60 && text[length - 1] == '.' ? QN_CANCELLED : QN_OK; /* anything but QN_OK ends it */
}

int main(int argc, char **argv) {
    qn_error error;
    qn_model *model = NULL;
    qn_pool *pool = NULL;
    qn_context *context = NULL;
    teller t = {NULL, 0};
    qn_context_options threads = {.size = sizeof threads};
    qn_sampler *sampler = NULL;
    qn_generate_options want = qn_generate_options_default();
    qn_sampler_options taste = qn_sampler_options_default();
    taste.seed = 7;
    want.prompt = (qn_text){"Once upon a time", 16};
    if (qn_model_open(argc > 1 ? argv[1] : "models/stories.gguf", NULL, &model, &error) != QN_OK) goto failed;
    if (qn_pool_create(2, &pool) == QN_OK) threads.pool = pool; /* else one thread will do */
    if (qn_context_create(&threads, &context) != QN_OK) goto failed;
    qn_session_options room = {.size = sizeof room, .context = 256, .run = context};
    if (qn_session_create(model, &room, &t.session, &error) != QN_OK) goto failed;
    if (qn_sampler_create(&taste, &sampler, &error) != QN_OK) goto failed;
    want.sampler = sampler;
    if (qn_generate(t.session, &want, print, &t, NULL, &error) != QN_OK)
        goto failed; /* qn_session_cancel ends it from elsewhere */
    putchar('\n');
failed:
    if (!t.words) printf("%s\n", error.text);
    qn_sampler_destroy(sampler);
    qn_session_destroy(t.session);
    qn_context_destroy(context);
    qn_pool_destroy(pool);
    qn_model_close(model);
    return t.words ? 0 : 1;
}
