/* Tells a story: loads a model, reads a prompt, prints text as it comes, and ends it at a full stop after 60 words. */
#include <quern/quern.h>
#include <stdio.h>

static qn_status print(void *user, const char *text, size_t length, int32_t id) {
    int *words = user;
    (void)id;
    fwrite(text, 1, length, stdout);
    *words += text[0] == ' ';
    return *words > 60 && text[length - 1] == '.' ? QN_CANCELLED : QN_OK; /* anything but QN_OK ends it */
}

static int fail(const qn_error *error) {
    printf("%s\n", error->text);
    return 1;
}

int main(int argc, char **argv) {
    int words = 0;
    qn_error error;
    qn_model *model;
    qn_session *session;
    qn_sampler *sampler;
    qn_session_options room = {.size = sizeof room, .context = 256};
    qn_generate_options want = qn_generate_options_default();
    qn_sampler_options taste = qn_sampler_options_default();
    taste.seed = 7;
    want.prompt = (qn_text){"Once upon a time", 16};
    if (qn_model_open(argc > 1 ? argv[1] : "models/stories.gguf", NULL, &model, &error) != QN_OK) return fail(&error);
    if (qn_session_create(model, &room, &session, &error) != QN_OK) return fail(&error);
    if (qn_sampler_create(&taste, &sampler, &error) != QN_OK) return fail(&error);
    want.sampler = sampler;
    if (qn_generate(session, &want, print, &words, NULL, &error) != QN_OK)
        return fail(&error); /* qn_session_cancel: from elsewhere */
    putchar('\n');
    qn_sampler_destroy(sampler);
    qn_session_destroy(session);
    qn_model_close(model);
    return 0;
}
