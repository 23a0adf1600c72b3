/* quern train: the example networks, trained on the CPU or a device, deterministic from seed to weights. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <quern/device.h>

#include "app.h"
#include "app_profile.h"
#include "lm.h"
#include "mnist.h"
#include "net.h"
#include "splitmix.h"
#include "train_params.h"
#include "train_stories.h"

enum { BATCH = 64, PIXELS = 28 * 28, CLASSES = 10 };

typedef struct options {
    const char *data, *device, *profile;
    int64_t epochs, images, threads, seed;
    double require, compare;
} options;

typedef struct trainer {
    net *train, *test; /* the same params, with and without the loss */
    qn_plan *step, *look;
    qn_context *context;
    mnist_set images, check;
    uint32_t *order;
    float *batch, *labels;
    uint64_t random;
    long t; /* steps so far */
    app_profile profile;
} trainer;

static int fail(const char *what, const qn_error *error) { return train_fail(what, error->text); }

static int set_floats(qn_plan *plan, const char *name, int rank, const int64_t *shape, const float *data, size_t n) {
    return train_set(plan, name, QN_DTYPE_F32, rank, shape, data, n * sizeof *data);
}

static int copy_params(trainer *r, uint64_t *hash) {
    *hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < r->train->n_params; i++) {
        qn_tensor t;
        if (!train_hand_on(&r->train->params[i], r->step, r->look, &t)) return 0;
        const unsigned char *bytes = (const unsigned char *)t.data + t.offset;
        for (int64_t k = 0; k < 4 * qn_tensor_count(&t); k++) *hash = (*hash ^ bytes[k]) * UINT64_C(0x100000001b3);
    }
    return 1;
}

/* ---- Batches */

static int set_images(trainer *r, qn_plan *plan, const mnist_set *from, const uint32_t *which) {
    for (int i = 0; i < BATCH; i++)
        for (int k = 0; k < PIXELS; k++)
            r->batch[i * PIXELS + k] = (float)from->pixels[(size_t)which[i] * PIXELS + (size_t)k] * (1.0f / 255.0f);
    return set_floats(plan, "images", 4, (int64_t[]){BATCH, 1, 28, 28}, r->batch, (size_t)BATCH * PIXELS);
}

static int set_labels(trainer *r, const uint32_t *which) {
    memset(r->labels, 0, sizeof *r->labels * BATCH * CLASSES);
    for (int i = 0; i < BATCH; i++) r->labels[i * CLASSES + r->images.labels[which[i]]] = 1;
    return set_floats(r->step, "labels", 2, (int64_t[]){BATCH, CLASSES}, r->labels, (size_t)BATCH * CLASSES);
}

/* AdamW's numbers: the rate falls in a straight line to a twentieth of what it began with. */
static int set_hyper(trainer *r, long steps) {
    double b1 = 1, b2 = 1;
    for (long i = 0; i < r->t; i++) b1 *= 0.9, b2 *= 0.999;
    float rate = (float)(0.002 * (1 - 0.95 * (double)(r->t - 1) / (double)steps));
    float hyper[7] = {rate, 0.9f, 0.999f, 1e-8f, 0.01f, (float)(1 / (1 - b1)), (float)(1 / (1 - b2))};
    return set_floats(r->step, "hyper", 1, (int64_t[]){7}, hyper, 7);
}

static void shuffle(trainer *r, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) r->order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t k = (uint32_t)(splitmix(&r->random) % i), t = r->order[i - 1];
        r->order[i - 1] = r->order[k];
        r->order[k] = t;
    }
}

static int one_step(trainer *r, const uint32_t *which, long steps, double *loss) {
    qn_error error = {QN_OK, ""};
    qn_tensor t;
    r->t++;
    if (qn_record_step(r->context, &error) != QN_OK) return fail("recording", &error);
    qn_record_loader_begin(r->context, "mnist");
    int good = set_images(r, r->step, &r->images, which) && set_labels(r, which);
    qn_record_loader_end(r->context);
    if (!good || !set_hyper(r, steps)) return 0;
    if (qn_plan_run(r->step, r->context, &error) != QN_OK) return fail("step", &error);
    if (qn_plan_output(r->step, "loss", &t, &error) != QN_OK) return fail("loss", &error);
    *loss = *(const float *)(const void *)((const char *)t.data + t.offset);
    return 1;
}

static int train(trainer *r, const options *o) {
    uint32_t n = r->images.n - r->images.n % BATCH;
    long steps = (long)o->epochs * (long)(n / BATCH);
    for (long e = 0; e < (long)o->epochs; e++) {
        double sum = 0, loss;
        shuffle(r, r->images.n);
        for (uint32_t i = 0; i < n; i += BATCH) {
            if (!one_step(r, r->order + i, steps, &loss)) return 0;
            sum += loss;
        }
        fprintf(stderr, "epoch %ld: mean loss %.4f\n", e + 1, sum / (n / BATCH));
    }
    return 1;
}

/* ---- Testing */

static int count_right(trainer *r, const uint32_t *which, uint32_t n, uint32_t *right) {
    qn_error error = {QN_OK, ""};
    qn_tensor t;
    if (!set_images(r, r->look, &r->check, which)) return 0;
    if (qn_plan_run(r->look, r->context, &error) != QN_OK) return fail("test", &error);
    if (qn_plan_output(r->look, "logits", &t, &error) != QN_OK) return fail("logits", &error);
    const float *y = (const float *)(const void *)((const char *)t.data + t.offset);
    for (uint32_t i = 0; i < n; i++) {
        int best = 0;
        for (int k = 1; k < CLASSES; k++)
            if (y[i * CLASSES + (uint32_t)k] > y[i * CLASSES + (uint32_t)best]) best = k;
        *right += best == r->check.labels[which[i]];
    }
    return 1;
}

static int test(trainer *r, double *percent, uint64_t *hash) {
    uint32_t right = 0, which[BATCH];
    if (!copy_params(r, hash)) return 0;
    for (uint32_t i = 0; i < r->check.n; i += BATCH) {
        uint32_t n = r->check.n - i < BATCH ? r->check.n - i : BATCH;
        for (uint32_t k = 0; k < BATCH; k++) which[k] = i + (k < n ? k : 0);
        if (!count_right(r, which, n, &right)) return 0;
    }
    *percent = 100.0 * right / r->check.n;
    return 1;
}

/* ---- The command */

static int build(net **n, int with_loss, qn_device *device, qn_plan **plan) {
    return (*n = train_net()) && train_plan(*n, net_mnist(*n, BATCH, with_loss), device, plan);
}

/* A batch is never filled up with what is not there. */
static int enough(const trainer *r, const char *data) {
    if (r->images.n >= BATCH && r->check.n >= BATCH) return 1;
    fprintf(stderr, "quern train: %s: %u training and %u test images, of each at least %d are needed\n", data, r->images.n,
            r->check.n, BATCH);
    return 0;
}

/* The number after the colon, -1: that is no device of ours. */
static int device_index(const char *name) {
    char backend[APP_BACKEND];
    int index;
    return app_device_name(name, backend, &index) && strcmp(backend, "vulkan") == 0 ? index : -1;
}

static int prepare(trainer *r, const options *o, qn_device *device, qn_pool *pool) {
    qn_context_options context = {.size = sizeof context, .pool = pool};
    if (!mnist_read(o->data, "train", (uint32_t)o->images, &r->images) || !mnist_read(o->data, "t10k", 0, &r->check)) return 0;
    if (!enough(r, o->data)) return 0;
    r->order = malloc(sizeof *r->order * r->images.n);
    r->batch = malloc(sizeof *r->batch * BATCH * PIXELS);
    r->labels = malloc(sizeof *r->labels * BATCH * CLASSES);
    r->random = (uint64_t)o->seed;
    if (!r->order || !r->batch || !r->labels || qn_context_create(&context, &r->context) != QN_OK)
        return fail("preparing", &(qn_error){QN_NO_MEMORY, "no memory"});
    if (app_profile_begin(&r->profile, o->profile) != APP_OK) return 0;
    if (app_profile_attach(&r->profile, r->context, "train") != APP_OK) return 0;
    if (o->device && app_profile_device(&r->profile, "vulkan", device_index(o->device)) != APP_OK) return 0;
    return build(&r->train, 1, device, &r->step) && build(&r->test, 0, NULL, &r->look) &&
           train_start(r->train, r->step, &r->random);
}

static void finish(trainer *r) {
    train_free(r->train, r->step);
    train_free(r->test, r->look);
    qn_context_destroy(r->context);
    mnist_free(&r->images);
    mnist_free(&r->check);
    free(r->order);
    free(r->batch);
    free(r->labels);
}

/* Distance over length: one weight whose gradient is next to nothing may go either way. */
static int compare_param(const trainer *r, const trainer *on_cpu, const net_param *p, double most) {
    qn_error error = {QN_OK, ""};
    qn_tensor a, b;
    char name[160];
    double apart = 0, length = 0;
    snprintf(name, sizeof name, "%s'", p->name);
    if (qn_plan_output(r->step, name, &a, &error) != QN_OK || qn_plan_output(on_cpu->step, name, &b, &error) != QN_OK)
        return fail(name, &error);
    const float *x = (const float *)(const void *)((const char *)a.data + a.offset);
    const float *y = (const float *)(const void *)((const char *)b.data + b.offset);
    for (int64_t i = 0; i < qn_tensor_count(&b); i++) {
        apart += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        length += (double)y[i] * (double)y[i];
    }
    double off = sqrt(apart / (length > 0 ? length : 1));
    printf("%-6s off by %.2g\n", p->name, off);
    return off <= most || (fprintf(stderr, "quern train: %s is %.2g off, more than %.2g\n", p->name, off, most), 0);
}

/* The same training on the CPU, from the same seed. */
static int compare(const trainer *r, const options *o, qn_pool *pool) {
    trainer on_cpu;
    options same = *o;
    memset(&on_cpu, 0, sizeof on_cpu);
    same.device = same.profile = NULL;
    int good = prepare(&on_cpu, &same, NULL, pool) && train(&on_cpu, &same);
    if (app_profile_end(&on_cpu.profile) != APP_OK) good = 0;
    for (int i = 0; good && i < r->train->n_params; i++) good = compare_param(r, &on_cpu, &r->train->params[i], o->compare);
    finish(&on_cpu);
    return good;
}

static int run(const options *o) {
    trainer r;
    struct timespec from, to;
    qn_pool *pool = NULL;
    qn_device *device = NULL;
    double percent = 0;
    uint64_t hash = 0;
    memset(&r, 0, sizeof r);
    if (qn_pool_create((int)o->threads, &pool) != QN_OK) {
        fail("threads", &(qn_error){QN_NO_MEMORY, "there is no such pool"});
        return APP_FAILED;
    }
    if (o->device && app_device_open("quern train", o->device, &device) != APP_OK) {
        qn_pool_destroy(pool);
        return APP_FAILED;
    }
    clock_gettime(CLOCK_MONOTONIC, &from);
    int good = prepare(&r, o, device, pool) && train(&r, o);
    clock_gettime(CLOCK_MONOTONIC, &to);
    int recorded = app_profile_end(&r.profile) == APP_OK; /* testing is no part of the last step */
    good = good && test(&r, &percent, &hash);
    if (good)
        printf("accuracy %.2f %% of %u test images after %ld step%s; weights %016llx; %.1f s\n", percent, r.check.n, r.t,
               app_s(r.t), (unsigned long long)hash,
               (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec));
    good = good && (o->compare <= 0 || compare(&r, o, pool));
    finish(&r);
    qn_device_close(device);
    qn_pool_destroy(pool);
    if (good && percent < o->require) {
        fprintf(stderr, "quern train: %.2f %% is below the %.2f %% asked for\n", percent, o->require);
        good = 0;
    }
    return good && recorded ? APP_OK : APP_FAILED;
}

static int take_real(const char *flag, const char *word, double *to) {
    char *end;
    if (!word) return APP_OK;
    *to = strtod(word, &end);
    if (*word && !*end && isfinite(*to)) return APP_OK;
    fprintf(stderr, "quern train: %s takes a number, not '%s'\n", flag, word);
    return APP_USAGE;
}

static int take_numbers(options *o, const train_words *w) {
    const struct {
        const char *flag, *word;
        int64_t low, high, *to;
    } whole[] = {{"--epochs", w->epochs, 1, 1000, &o->epochs},
                 {"--images", w->images, BATCH, 60000, &o->images},
                 {"--threads", w->threads, 0, QN_POOL_MAX, &o->threads},
                 {"--seed", w->seed, 0, INT32_MAX, &o->seed}};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (whole[i].word && lm_number("train", whole[i].flag, whole[i].word, whole[i].low, whole[i].high, whole[i].to) != APP_OK)
            return APP_USAGE;
    int rc = take_real("--require", w->require, &o->require);
    return rc == APP_OK ? take_real("--compare", w->compare, &o->compare) : rc;
}

static int train_mnist(const train_words *w) {
    options o = {w->data ? w->data : "../shared/data/mnist", w->device, app_profile_folder(&w->profile), 2, 0, 0, 1, 0, 0};
    int rc = take_numbers(&o, w);
    if (rc != APP_OK) return rc;
    if (o.device && device_index(o.device) < 0) return app_device_wrong("quern train", o.device);
    return run(&o);
}

static const option_row rows[] = {
    OPTION(train_words, example, "--example", "mnist|stories",
           "what to train: a CNN on handwritten digits, or a small language model", .once = 1),
    OPTION(train_words, threads, "-t, --threads", "N", "threads (default: one for each processor)"),
    OPTION(train_words, seed, "--seed", "N", "of the weights, and of the order of the images or of the tales (default 1)"),
    APP_PROFILE_ROW(train_words, profile),
    {0}};
static const option_row mnist_rows[] = {
    OPTION(train_words, data, "--data", "DIR", "the four MNIST files, plain or .gz (default ../shared/data/mnist)", .files = "/"),
    OPTION(train_words, epochs, "--epochs", "N", "times over the training images (default 2)"),
    OPTION(train_words, images, "--images", "N", "only the first N training images"),
    OPTION(train_words, device, "--device", "vulkan[:N]", "train on this device"),
    OPTION(train_words, require, "--require", "A", "fail when the accuracy is below A percent"),
    OPTION(train_words, compare, "--compare", "T",
           "train on the CPU as well, and fail when a weight tensor is further off than T of its size"),
    {0}};
static const option_row stories_rows[] = {
    OPTION(train_words, steps, "--steps", "N", "training steps, each of 4 sequences of 256 tokens (default 1500)"),
    OPTION(train_words, rate, "--rate", "X",
           "the largest learning rate (default 0.003); it rises for a twentieth of the steps, then falls as a cosine"),
    OPTION(train_words, from, "--from", "FILE",
           "go on from the weights of a file that an earlier -o wrote, with the tales of another seed", .files = "gguf"),
    OPTION(train_words, out, "-o", "FILE.gguf",
           "write the model in f32, and check that the file has the same loss before it takes the name; after Ctrl-C, what there "
           "is is written to FILE.step-N.gguf, from which --from goes on",
           .files = "gguf"),
    OPTION(train_words, curve, "--curve", "FILE", "write the loss of every 20 steps, as CSV", .files = "csv"),
    OPTION(train_words, tell, "--tell", "N", "only print N tales of the grammar"),
    {0}};
static const option_group groups[] = {
    {NULL, rows, 0}, {"Of --example mnist", mnist_rows, 0}, {"Of --example stories", stories_rows, 0}, {0}};

/* What was given and is the other example's, NULL: nothing. */
static const char *stranger(const train_words *w, int is_stories) {
    const char *const *place;
    for (const option_row *row = is_stories ? mnist_rows : stories_rows; row->names; row++) {
        place = (const char *const *)(const void *)((const char *)w + row->at);
        if (*place) return row->names;
    }
    return NULL;
}

static int run_example(const quern_verb *self, int argc, char **argv) {
    train_words w = {0};
    int rc = options_read(self, argc, argv, &w);
    if (rc != APP_OK) return rc;
    int is_stories = w.example && strcmp(w.example, "stories") == 0;
    if (!w.example || (!is_stories && strcmp(w.example, "mnist") != 0)) {
        fprintf(stderr,
                w.example ? "quern train: there is no example '%s'; there are mnist and stories\n"
                          : "quern train: which example? There are mnist and stories\n",
                w.example);
        return APP_USAGE;
    }
    const char *strange = stranger(&w, is_stories);
    if (strange) return app_apart("quern train", is_stories ? "--example stories" : "--example mnist", strange);
    return is_stories ? train_stories(&w) : train_mnist(&w);
}

const quern_verb verb_train = {
    .name = "train",
    .brief = "train one of the example networks",
    .run = run_example,
    .usage = "--example mnist [options]\n--example stories [options]",
    .about = "Trains an example, the same from seed to weights for any number of threads.\n\n"
             "mnist: a small CNN on handwritten digits; prints its accuracy on the test images and a hash of its weights.\n"
             "stories: a llama-shaped model of about a million weights on tales that a small grammar tells without end; prints "
             "its loss on "
             "tales it has not seen and a hash of its weights.",
    .groups = groups};
