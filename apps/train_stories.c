/* quern train --example stories: a small language model, from nothing but a seed to a GGUF file. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <quern/plan.h>

#include "app.h"
#include "app_profile.h"
#include "lm.h"
#include "splitmix.h"
#include "stories.h"
#include "train_params.h"
#include "train_stories.h"

enum {
    ROWS = STORY_BATCH * STORY_CONTEXT,
    EVERY = 20,
    CHECKS = 4,
    ONE = STORY_CONTEXT + 1,
    CHECK_SEED = 1000003,
    NAME_ROOM = PATH_MAX
};

typedef struct options {
    const char *out, *curve, *profile, *from;
    int64_t steps, seed, threads, tell;
    double rate;
} options;

typedef struct trainer {
    net *train, *test;
    qn_plan *step, *look;
    qn_pool *pool;
    qn_context *context;
    app_profile profile;
    story_vocab words;
    uint64_t tales; /* where the stream of tales is */
    int32_t ids[STORY_BATCH * ONE], check[CHECKS * STORY_BATCH * ONE];
    FILE *curve;
    int64_t done; /* steps */
    int lost;     /* a file beside the model could not be written, which has been said */
} trainer;

/* ---- Params */

/* The weights of a file that an earlier training wrote, over those that chance gave. */
static int read_params(trainer *r, const char *path) {
    qn_file *file;
    qn_error error;
    if (model_open_file(path, 1, &file, &error) != QN_OK) return train_fail(path, error.text); /* read: all of it is copied */
    int good = 1;
    for (int i = 0; i < r->train->n_params && good; i++) {
        const char *name = r->train->params[i].name;
        qn_file_tensor t;
        good = qn_file_entry(file, qn_file_find(file, QN_FILE_TENSORS, name), &t) == QN_OK ||
               train_fail(name, "is not in the file");
        good = good && (qn_plan_set(r->step, name, &t.tensor, &error) == QN_OK || train_fail(name, error.text));
    }
    qn_file_close(file);
    return good;
}

static int copy_params(trainer *r, uint64_t *hash) {
    model_hash h;
    model_hash_begin(&h);
    for (int i = 0; i < r->train->n_params; i++) {
        qn_tensor t;
        if (!train_hand_on(&r->train->params[i], r->step, r->look, &t)) return 0;
        model_hash_add(&h, (const char *)t.data + t.offset, (uint64_t)qn_tensor_count(&t) * sizeof(float));
    }
    *hash = model_hash_value(&h);
    return 1;
}

/* ---- Steps */

/* Every id but the last of a sequence is given, every id but the first asked for. */
static int set_batch(qn_plan *plan, const int32_t *ids) {
    int32_t tokens[ROWS], labels[ROWS];
    for (int i = 0; i < ROWS; i++) {
        tokens[i] = ids[i / STORY_CONTEXT * ONE + i % STORY_CONTEXT];
        labels[i] = ids[i / STORY_CONTEXT * ONE + i % STORY_CONTEXT + 1];
    }
    return train_set(plan, "tokens", QN_DTYPE_I32, 1, (int64_t[]){ROWS}, tokens, sizeof tokens) &&
           train_set(plan, "labels", QN_DTYPE_I32, 1, (int64_t[]){ROWS}, labels, sizeof labels);
}

/* A sequence begins with the beginning of a tale. */
static int fill(const trainer *r, uint64_t *state, int32_t *ids, int sequences) {
    for (int i = 0; i < sequences; i++)
        if (!story_vocab_fill(&r->words, state, ids + i * ONE, ONE)) return 0;
    return 1;
}

static double rate_at(const options *o, int64_t step) {
    int64_t rise = o->steps / 20 + 1;
    if (step <= rise) return o->rate * (double)step / (double)rise;
    double part = (double)(step - rise) / (double)(o->steps - rise + 1);
    return o->rate * (0.05 + 0.475 * (1 + cos(3.14159265358979323846 * part)));
}

static int set_hyper(trainer *r, const options *o, int64_t step) {
    float hyper[7] = {(float)rate_at(o, step), 0.9f, 0.98f, 1e-8f, 0.05f, 0, 0};
    hyper[5] = (float)(1 / (1 - pow(0.9, (double)step)));
    hyper[6] = (float)(1 / (1 - pow(0.98, (double)step)));
    return train_set(r->step, "hyper", QN_DTYPE_F32, 1, (int64_t[]){7}, hyper, sizeof hyper);
}

static int run_loss(qn_plan *plan, qn_context *context, double *loss) {
    qn_error error = {QN_OK, ""};
    qn_tensor t;
    if (qn_plan_run(plan, context, &error) != QN_OK) return train_fail("step", error.text);
    if (qn_plan_output(plan, "loss", &t, &error) != QN_OK) return train_fail("loss", error.text);
    *loss = *(const float *)(const void *)((const char *)t.data + t.offset);
    return isfinite(*loss) || train_fail("loss", "it is not finite; a smaller --rate may help");
}

static int one_step(trainer *r, const options *o, int64_t step, double *loss) {
    qn_error error = {QN_OK, ""};
    if (!r->lost && qn_record_step(r->context, &error) != QN_OK) r->lost = !train_fail("recording", error.text);
    qn_record_loader_begin(r->context, "stories");
    int good = fill(r, &r->tales, r->ids, STORY_BATCH) && set_batch(r->step, r->ids);
    qn_record_loader_end(r->context);
    return good && set_hyper(r, o, step) && run_loss(r->step, r->context, loss);
}

/* The curve is the least of it: where it cannot be written it ends, and the training goes on. */
static void write_curve(trainer *r, const options *o, int64_t step, double loss) {
    if (!r->curve) return;
    if (fprintf(r->curve, "%lld,%.6f,%.4f\n", (long long)step, rate_at(o, step), loss) >= 0 && fflush(r->curve) == 0) return;
    fprintf(stderr, "quern train: %s ends before step %lld: %s; the training goes on\n", o->curve, (long long)step,
            strerror(errno));
    r->lost = 1;
    fclose(r->curve);
    r->curve = NULL;
}

/* After Ctrl-C: whether there is something to write. */
static int stop(const trainer *r, const options *o) {
    fprintf(stderr, "quern train: stopped after %lld of %lld step%s; %s\n", (long long)r->done, (long long)o->steps,
            app_s(o->steps),
            !o->out    ? "without -o no model is written"
            : !r->done ? "no model is written"
                       : "the model as it is now is written under another name");
    return o->out && r->done;
}

static int train(trainer *r, const options *o) {
    double sum = 0, loss = 0;
    int64_t from = 0;
    for (int64_t step = 1; step <= o->steps; step++) {
        if (*model_stopped()) return stop(r, o);
        if (!one_step(r, o, step, &loss)) return 0;
        r->done = step;
        sum += loss;
        if (step % EVERY && step != o->steps) continue;
        sum /= (double)(step - from);
        write_curve(r, o, step, sum);
        if (step % (10 * EVERY) == 0 || step == o->steps) fprintf(stderr, "step %lld: loss %.4f\n", (long long)step, sum);
        from = step;
        sum = 0;
    }
    return 1;
}

/* Tales of another seed, by the graph that was trained. */
static int test(trainer *r, double *loss, uint64_t *hash) {
    uint64_t state = CHECK_SEED;
    double one;
    *loss = 0;
    if (!copy_params(r, hash) || !fill(r, &state, r->check, CHECKS * STORY_BATCH)) return 0;
    for (int i = 0; i < CHECKS; i++) {
        if (!set_batch(r->look, r->check + i * STORY_BATCH * ONE) || !run_loss(r->look, r->context, &one)) return 0;
        *loss += one / CHECKS;
    }
    return 1;
}

/* ---- The command */

static int build(net **n, int64_t words, int with_steps, qn_plan **plan) {
    return (*n = train_net()) && train_plan(*n, net_stories(*n, words, with_steps), NULL, plan);
}

/* Whether a model can be written there: better known before the training than behind it. */
static int can_write(const char *path) {
    qn_writer *writer;
    qn_error error;
    if (!path) return 1;
    if (qn_writer_create(path, &writer, &error) != QN_OK) return train_fail("the model", error.text);
    qn_writer_finish(writer, 0, &error);
    return 1;
}

/* NAME.gguf as NAME.WORD-N.gguf. */
static int name_beside(const char *path, const char *word, long long n, char name[NAME_ROOM]) {
    size_t stem = strlen(path);
    if (stem > 5 && strcmp(path + stem - 5, ".gguf") == 0) stem -= 5;
    return snprintf(name, NAME_ROOM, "%.*s.%s-%lld%s", (int)stem, path, word, n, path + stem) < NAME_ROOM ||
           train_fail(path, "the path is too long");
}

/* The file that was made gets the name when it has been opened and found to be what was trained, and stays where it is when it could
 * not be: it took long to make, and what has the name may be good. */
static int check_and_name(trainer *r, const char *made, const char *name, const double *loss) {
    double again;
    int good = loss && story_file_loss(made, r->context, r->check, CHECKS * STORY_BATCH, &again);
    if (good && !(fabs(again - *loss) < 1e-4)) good = train_fail(made, "the file is not the model that was trained");
    if (good && rename(made, name) != 0) good = train_fail(name, strerror(errno));
    if (good) printf("%s: loss %.5f when opened as a model, %.5f by the graph that was trained\n", name, again, *loss);
    else fprintf(stderr, "quern train: the new model is kept as %s, and %s is as it was\n", made, name);
    return good;
}

/* Only a whole training gives the name that was asked for. loss: NULL when nobody knows it. */
static int export(trainer *r, const options *o, const double *loss) {
    char real[NAME_ROOM], made[NAME_ROOM], part[NAME_ROOM];
    if (!o->out) return 1;
    if (!can_write(o->out)) return 0;
    struct stat link; /* which stays, and leads to the model */
    const char *name = lstat(o->out, &link) == 0 && S_ISLNK(link.st_mode) && realpath(o->out, real) ? real : o->out;
    if (!name_beside(name, "new", (long long)getpid(), made) || !name_beside(name, "step", (long long)r->done, part)) return 0;
    return story_export(made, r->train, r->step, &r->words) && check_and_name(r, made, r->done < o->steps ? part : name, loss);
}

/* Last of all: what was there is lost from here on. */
static int begin_curve(trainer *r, const char *path) {
    if (!path) return 1;
    r->curve = fopen(path, "w");
    if (!r->curve) return train_fail(path, strerror(errno));
    return (fprintf(r->curve, "step,rate,loss\n") >= 0 && fflush(r->curve) == 0) || train_fail(path, strerror(errno));
}

static int prepare(trainer *r, const options *o) {
    uint64_t random = (uint64_t)o->seed;
    r->tales = splitmix(&random);
    if (qn_pool_create((int)o->threads, &r->pool) != QN_OK) return train_fail("threads", "there is no such pool");
    qn_context_options context = {.size = sizeof context, .pool = r->pool};
    if (qn_context_create(&context, &r->context) != QN_OK) return train_fail("context", "no memory");
    if (!can_write(o->out) || !story_vocab_make(&r->words)) return 0;
    if (app_profile_begin(&r->profile, o->profile) != APP_OK) return 0;
    if (app_profile_attach(&r->profile, r->context, "train") != APP_OK) return 0;
    return build(&r->train, r->words.n, 1, &r->step) && build(&r->test, r->words.n, 0, &r->look) &&
           train_start(r->train, r->step, &random) && (!o->from || read_params(r, o->from)) && begin_curve(r, o->curve);
}

static void finish(trainer *r) {
    train_free(r->train, r->step);
    train_free(r->test, r->look);
    qn_context_destroy(r->context);
    qn_pool_destroy(r->pool);
    story_vocab_free(&r->words);
}

static int run(const options *o) {
    trainer *r = calloc(1, sizeof *r);
    struct timespec from, to;
    double loss = 0;
    uint64_t hash = 0;
    int64_t weights = 0;
    if (!r) return APP_FAILED;
    int good = prepare(r, o);
    clock_gettime(CLOCK_MONOTONIC, &from);
    good = good && train(r, o);
    clock_gettime(CLOCK_MONOTONIC, &to);
    double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    if (app_profile_end(&r->profile) != APP_OK) r->lost = 1;
    if (r->curve && fclose(r->curve) != 0) r->lost = !train_fail(o->curve, "could not be written");
    int tested = good && test(r, &loss, &hash);
    for (int i = 0; tested && i < r->train->n_params; i++)
        weights += r->train->params[i].shape[0] * (r->train->params[i].rank > 1 ? r->train->params[i].shape[1] : 1);
    if (tested)
        printf("loss %.4f on new tales after %lld step%s; %lld weights %016llx; %.1f s, %.0f ms a step\n", loss,
               (long long)r->done, app_s(r->done), (long long)weights, (unsigned long long)hash, seconds,
               1e3 * seconds / (double)r->done);
    good = good && export(r, o, tested ? &loss : NULL) && tested && !r->lost;
    int stopped = *model_stopped() && r->done < o->steps;
    finish(r);
    free(r);
    return stopped ? MODEL_INTERRUPTED : good ? APP_OK : APP_FAILED;
}

static int tell(const options *o) {
    char text[STORY_BYTES];
    uint64_t random = (uint64_t)o->seed, state = splitmix(&random);
    for (int64_t i = 0; i < o->tell; i++) {
        story_tell(&state, text);
        printf("%s\n\n", text);
    }
    return APP_OK;
}

static int take_rate(const char *word, double *rate) {
    char *end;
    if (!word) return APP_OK;
    *rate = strtod(word, &end);
    if (end != word && !*end && *rate > 0 && *rate <= 1) return APP_OK;
    fprintf(stderr, "quern train: --rate takes a number above 0 and up to 1, not '%s'\n", word);
    return APP_USAGE;
}

static int take_words(options *o, const train_words *w) {
    const struct {
        const char *flag, *word;
        int64_t low, high, *to;
    } whole[] = {{"--steps", w->steps, 1, 1000000, &o->steps},
                 {"--seed", w->seed, 0, INT32_MAX, &o->seed},
                 {"--threads", w->threads, 1, QN_POOL_MAX, &o->threads},
                 {"--tell", w->tell, 1, 1000000, &o->tell}};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (whole[i].word && lm_number("train", whole[i].flag, whole[i].word, whole[i].low, whole[i].high, whole[i].to) != APP_OK)
            return APP_USAGE;
    return take_rate(w->rate, &o->rate);
}

int train_stories(const train_words *w) {
    options o = {w->out, w->curve, app_profile_folder(&w->profile), w->from, 1500, 1, 0, 0, 0.003};
    const char *unused = w->out     ? "-o"
                         : w->curve ? "--curve"
                         : w->from  ? "--from"
                         : w->steps ? "--steps"
                         : w->rate  ? "--rate"
                                    : NULL;
    if (w->tell && unused) return app_apart("quern train", "--tell", unused);
    if (app_is_empty("quern train", "the file to write", o.out) || app_is_empty("quern train", "the curve", o.curve) ||
        app_is_empty("quern train", "the model to go on from", o.from))
        return APP_USAGE;
    int rc = take_words(&o, w);
    if (rc != APP_OK) return rc;
    if (model_is_same("train", o.from, o.curve)) return APP_USAGE;
    model_catch_stop();
    signal(SIGPIPE, SIG_IGN); /* who reads the curve or the losses may go; the training stays */
    return o.tell ? tell(&o) : run(&o);
}
