/* Products on a Vulkan device, kernel by kernel and tile by tile: whether they are right on odd shapes, and how fast they are on a
 * large one; the cost of one small step that waits for the one before it; and products of weights of every type with few rows.
 * One table tells which tiles to keep.
 *   vk_bench [--device N] [--size 4096] [--repeat 20] [--family plain|coop] [--tile N] [--no-speed] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tensor/convert.h"
#include "vulkan/vulkan.h"

static const uint64_t patience = 60000000000u; /* ns */
enum { REPEAT_MAX = 200 };

typedef struct options {
    int device, size, repeat, family, tile; /* the last two: -1 all */
    int speed;
} options;

/* y[j][i] = sum over k: how the two operands lie. */
typedef struct problem {
    int64_t i, j, k;
    int turn_a, turn_b; /* k is not the last axis */
    qn_dtype type_b, type_y;
    int pad; /* elements behind every row, so that rows do not start on 16 bytes */
} problem;

static const problem odd[] = {
    {1, 1, 1, 0, 0, QN_DTYPE_F16, QN_DTYPE_F32, 0},       {19, 13, 43, 0, 0, QN_DTYPE_F32, QN_DTYPE_F32, 0},
    {130, 67, 45, 0, 0, QN_DTYPE_F16, QN_DTYPE_F32, 0},   {136, 72, 40, 0, 0, QN_DTYPE_F16, QN_DTYPE_F32, 0},
    {136, 72, 40, 1, 0, QN_DTYPE_F16, QN_DTYPE_F16, 0},   {136, 72, 40, 0, 1, QN_DTYPE_F16, QN_DTYPE_F16, 0},
    {136, 72, 40, 1, 1, QN_DTYPE_F16, QN_DTYPE_F16, 0},   {137, 71, 41, 1, 1, QN_DTYPE_F16, QN_DTYPE_F16, 1},
    {256, 256, 128, 0, 0, QN_DTYPE_F16, QN_DTYPE_F32, 0}, {256, 512, 64, 1, 0, QN_DTYPE_F16, QN_DTYPE_F16, 0},
    {512, 256, 64, 0, 1, QN_DTYPE_F16, QN_DTYPE_F16, 0},  {256, 256, 192, 0, 0, QN_DTYPE_F32, QN_DTYPE_F32, 0},
    {300, 3, 520, 0, 0, QN_DTYPE_F32, QN_DTYPE_F32, 3},   {257, 300, 96, 0, 0, QN_DTYPE_F16, QN_DTYPE_F32, 8}};

typedef struct place { /* where a problem lies in the arena */
    qn_tensor a, b, y;
    uint64_t bytes;
} place;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void make(qn_tensor *t, qn_dtype dtype, int64_t rows, int64_t columns, int pad, uint64_t *at) {
    int64_t size = qn_dtype_describe(dtype)->bytes;
    memset(t, 0, sizeof *t);
    t->dtype = dtype;
    t->rank = 2;
    t->shape[0] = rows;
    t->shape[1] = columns;
    t->stride[0] = (columns + pad) * size;
    t->stride[1] = size;
    t->data = QN_AT(*at);
    t->size = (uint64_t)((columns + pad) * rows * size);
    *at += (t->size + 255) / 256 * 256;
}

/* matmul has the operands the other way round than the kernel: its first one, [j, k], is the kernel's b. */
static place put(const problem *x) {
    place p = {.bytes = 0};
    make(&p.b, x->type_b, x->turn_b ? x->k : x->j, x->turn_b ? x->j : x->k, x->pad, &p.bytes);
    make(&p.a, QN_DTYPE_F16, x->turn_a ? x->k : x->i, x->turn_a ? x->i : x->k, x->pad, &p.bytes);
    make(&p.y, x->type_y, x->j, x->i, 0, &p.bytes);
    return p;
}

static double at(const char *host, const qn_tensor *t, int64_t r, int64_t c) {
    return qn_load_one((qn_dtype)t->dtype, host + (uintptr_t)t->data + r * t->stride[0] + c * t->stride[1]);
}

/* Halves in [-1, 1), also where the operand is f32: then no kernel has to round. */
static void fill(char *host, const qn_tensor *t, uint32_t seed) {
    for (int64_t r = 0; r < t->shape[0]; r++)
        for (int64_t c = 0; c < t->shape[1]; c++) {
            seed = seed * 1664525u + 1013904223u;
            double v = (double)(seed >> 21) * 0x1p-10 - 1;
            qn_store_one((qn_dtype)t->dtype, host + (uintptr_t)t->data + r * t->stride[0] + c * t->stride[1], v);
        }
}

static double wanted(const char *host, const place *p, const problem *x, int64_t j, int64_t i) {
    double sum = 0;
    for (int64_t k = 0; k < x->k; k++)
        sum += at(host, &p->b, x->turn_b ? k : j, x->turn_b ? j : k) * at(host, &p->a, x->turn_a ? k : i, x->turn_a ? i : k);
    return sum;
}

static qn_device_step step_of(const place *p, const problem *x, qn_attr_matmul *attr) {
    *attr = qn_attr_matmul_default();
    attr->transpose_a = x->turn_b;
    attr->transpose_b = !x->turn_a;
    if (x->type_y == QN_DTYPE_F32) /* halves times anything into f32 is mul_mat, whose operands lie like the kernel's */
        return (qn_device_step){.op = QN_OP_mul_mat, .n_src = 2, .n_dst = 1, .src = {&p->a, &p->b}, .dst = {&p->y}};
    return (qn_device_step){.op = QN_OP_matmul, .attr = attr, .n_src = 2, .n_dst = 1, .src = {&p->b, &p->a}, .dst = {&p->y}};
}

/* A problem made ready once: what goes in, and what must come out at the places that are looked at. */
enum { PICKS = 64 };
typedef struct ready {
    problem x;
    place p;
    char *host, *back;
    int n_picks; /* all elements when the problem is small */
    double *want;
    qn_device_buffer *arena;
} ready;

static int64_t pick(const ready *r, int n) {
    if (r->n_picks != PICKS) return n;
    uint64_t h = (uint64_t)(n + 1) * 0x9e3779b97f4a7c15u;
    return (int64_t)((h >> 20) % (uint64_t)(r->x.i * r->x.j));
}

static int make_ready(ready *r, const problem *x, int all) {
    memset(r, 0, sizeof *r);
    r->x = *x;
    r->p = put(x);
    r->n_picks = all ? (int)(x->i * x->j) : PICKS;
    r->host = calloc(2, r->p.bytes);
    r->want = calloc((size_t)r->n_picks, sizeof *r->want);
    if (!r->host || !r->want) return 0;
    r->back = r->host + r->p.bytes;
    fill(r->host, &r->p.a, 1);
    fill(r->host, &r->p.b, 2);
    for (int n = 0; n < r->n_picks; n++) r->want[n] = wanted(r->host, &r->p, x, pick(r, n) / x->i, pick(r, n) % x->i);
    return 1;
}

static void free_ready(ready *r) {
    if (r->arena) qn_device_buffer_destroy(r->arena);
    free(r->host);
    free(r->want);
}

/* Largest |difference| over the size of a sum of k such products. */
static double worst_error(const ready *r) {
    double worst = 0;
    for (int n = 0; n < r->n_picks; n++) {
        double have = at(r->back, &r->p.y, pick(r, n) / r->x.i, pick(r, n) % r->x.i);
        double error = fabs(have - r->want[n]) / sqrt((double)r->x.k);
        worst = error > worst || isnan(error) ? error : worst;
    }
    return worst;
}

/* -1 and a sentence when it cannot run. */
static double check(qn_device *d, ready *r, qn_error *e) {
    qn_attr_matmul attr;
    qn_device_step step = step_of(&r->p, &r->x, &attr);
    qn_device_range all = {0, r->p.bytes};
    qn_program_options o = {
        .arena_bytes = r->p.bytes, .n_steps = 1, .steps = &step, .n_inputs = 1, .n_outputs = 1, .inputs = &all, .outputs = &all};
    qn_program *program = NULL;
    const void *in = r->host;
    void *out = r->back;
    int ran = qn_program_create(d, &o, &program, e) == QN_OK && qn_program_run(program, &in, &out, patience, e) == QN_OK;
    if (program) qn_program_destroy(program);
    return ran ? worst_error(r) : -1;
}

/* ---- Speed */

typedef struct speed {
    double best, mean, wall; /* TFLOP/s */
    double error;            /* of elements picked out */
} speed;

/* The same product again and again in one program; a barrier stands between any two because they write the same place. */
static qn_status measure(qn_device *d, const ready *r, int repeat, speed *s, qn_error *e) {
    const place *p = &r->p;
    const problem *x = &r->x;
    qn_attr_matmul attr;
    qn_device_step steps[REPEAT_MAX];
    double ns[REPEAT_MAX], flop = 2.0 * (double)x->i * (double)x->j * (double)x->k, sum = 0, least = INFINITY;
    for (int i = 0; i < repeat; i++) steps[i] = step_of(p, x, &attr);
    qn_program_options o = {
        .arena_bytes = p->bytes, .arena = r->arena, .n_steps = repeat, .steps = steps, .flags = QN_PROGRAM_TIMED};
    qn_program *timed = NULL, *free_run = NULL;
    qn_status status = qn_program_create(d, &o, &timed, e);
    for (int i = 0; i < 3 && status == QN_OK; i++) status = qn_program_run(timed, NULL, NULL, patience, e);
    if (status == QN_OK) status = qn_program_times(timed, ns, repeat, e);
    o.flags = 0;
    if (status == QN_OK) status = qn_program_create(d, &o, &free_run, e);
    if (status == QN_OK) status = qn_program_run(free_run, NULL, NULL, patience, e);
    double from = now();
    if (status == QN_OK) status = qn_program_run(free_run, NULL, NULL, patience, e);
    s->wall = flop * repeat / (now() - from) * 1e-12;
    for (int i = 0; i < repeat && status == QN_OK; i++) {
        sum += ns[i];
        if (ns[i] < least) least = ns[i];
    }
    s->best = flop / least * 1e-3;
    s->mean = flop * repeat / sum * 1e-3;
    if (timed) qn_program_destroy(timed);
    if (free_run) qn_program_destroy(free_run);
    if (status == QN_OK) status = qn_device_download(r->arena, 0, r->back, p->bytes, e);
    s->error = worst_error(r);
    return status;
}

enum { ODD = sizeof odd / sizeof *odd, LARGE = 3 };
typedef struct bench {
    qn_device *d;
    const options *o;
    ready odd[ODD], large[LARGE];
} bench;

static void print_speed(bench *b, const ready *r) {
    speed s = {0};
    qn_error e = {QN_OK, ""};
    if (measure(b->d, r, b->o->repeat, &s, &e) != QN_OK) printf(" | %s", e.text);
    else printf(" | %7.1f %7.1f %7.1f %8.1e", s.best, s.mean, s.wall, s.error);
}

static void print_row(bench *b, const char *name) {
    double worst = 0, from = now();
    qn_error e = {QN_OK, ""};
    int wrong = 0, cannot = 0;
    for (int i = 0; i < ODD; i++) {
        const problem *x = &odd[i];
        double error = check(b->d, &b->odd[i], &e), bound = x->type_y == QN_DTYPE_F16 ? 2e-3 : 2e-6;
        if (error < 0) {
            cannot++;
            continue;
        }
        if (!(error <= bound)) {
            printf("%s: %lldx%lldx%lld turned %d%d: off by %.3g\n", name, (long long)x->j, (long long)x->i, (long long)x->k,
                   x->turn_b, x->turn_a, error);
            wrong++;
        }
        if (x->type_y == QN_DTYPE_F32) worst = error > worst ? error : worst;
    }
    printf("%-52s %s %2d wrong %2d n/a %8.1e", name, wrong ? "WRONG" : "ok   ", wrong, cannot, worst);
    if (cannot == ODD) printf(" | %s", e.text);
    else
        for (int i = 0; i < LARGE && b->o->speed; i++) print_speed(b, &b->large[i]);
    printf(" | %.1f s\n", now() - from);
    fflush(stdout);
}

static void print_tiles(bench *b) {
    char name[128];
    for (int t = 0; qn_vulkan_tile_name(b->d, t, name, sizeof name); t++) {
        if (b->o->tile >= 0 && t != b->o->tile) continue;
        qn_vulkan_bar(b->d, QN_VULKAN_PLAIN, t);
        print_row(b, name);
    }
}

static void print_products(bench *b) {
    static const char *const sides[] = {"[j,k] [i,k]", "[j,k] [k,i]", "f32 in and out"};
    const options *o = b->o;
    printf("%-52s %-28s", "kernel (rows x columns x slice)", "odd shapes, worst error");
    for (int i = 0; i < LARGE && o->speed; i++) printf(" | %-32s", sides[i]);
    printf("\n%-81s", "");
    for (int i = 0; i < LARGE && o->speed; i++) printf(" | %-32s", "   best    mean    wall    error");
    printf("   TFLOP/s at %d^3\n", o->size);
    if (o->family < 0 || o->family == QN_VULKAN_COOP) print_tiles(b);
    qn_vulkan_bar(b->d, QN_VULKAN_COOP, -1);
    if (o->family < 0 || o->family == QN_VULKAN_PLAIN) print_row(b, "plain");
    qn_vulkan_bar(b->d, 0, -1);
    if (o->family < 0) print_row(b, "as chosen");
}

static int prepare(bench *b, qn_error *e) {
    int64_t n = b->o->size;
    const problem large[LARGE] = {{n, n, n, 0, 0, QN_DTYPE_F16, QN_DTYPE_F16, 0},
                                  {n, n, n, 1, 0, QN_DTYPE_F16, QN_DTYPE_F16, 0},
                                  {n, n, n, 0, 0, QN_DTYPE_F32, QN_DTYPE_F32, 0}};
    for (int i = 0; i < ODD; i++)
        if (!make_ready(&b->odd[i], &odd[i], 1)) return 0;
    for (int i = 0; i < LARGE && b->o->speed; i++) {
        ready *r = &b->large[i];
        if (!make_ready(r, &large[i], 0) || qn_device_buffer_create(b->d, r->p.bytes, &r->arena, e) != QN_OK ||
            qn_device_upload(r->arena, 0, r->host, r->p.bytes, e) != QN_OK)
            return 0;
    }
    return 1;
}

static void free_all(bench *b) {
    for (int i = 0; i < ODD; i++) free_ready(&b->odd[i]);
    for (int i = 0; i < LARGE; i++) free_ready(&b->large[i]);
}

/* ---- Few rows */

enum { MATRICES = 16 }; /* one after the other, so that none is still in a cache when its turn comes again */

typedef struct weights {
    qn_tensor a[MATRICES], b, y;
    uint64_t bytes;
} weights;

static weights put_weights(qn_dtype dtype, int64_t n, int64_t rows) {
    weights w = {.bytes = 0};
    for (int i = 0; i <= MATRICES; i++) {
        qn_tensor *t = i < MATRICES ? &w.a[i] : &w.b;
        int64_t shape[2] = {i < MATRICES ? n : rows, n};
        qn_dtype type = i < MATRICES ? dtype : QN_DTYPE_F32;
        uint64_t size = 0;
        qn_tensor_init(t, type, 2, shape, NULL, 0);
        qn_tensor_bytes(type, 2, shape, &size);
        t->data = QN_AT(w.bytes);
        t->size = size;
        w.bytes += (size + 255) / 256 * 256;
    }
    make(&w.y, QN_DTYPE_F32, rows, n, 0, &w.bytes);
    return w;
}

/* A row of numbers, over and over. */
static qn_status load_weights(qn_device_buffer *arena, const weights *w, qn_error *e) {
    int64_t n = w->a[0].shape[1], row = w->a[0].stride[0];
    float *values = calloc((size_t)n, sizeof *values);
    char *host = calloc(1, (size_t)w->a[0].size);
    qn_status status = values && host ? QN_OK : QN_NO_MEMORY;
    for (int64_t i = 0; i < n && status == QN_OK; i++) values[i] = (float)(i * 7919 % 1024 - 512) / 512;
    if (status == QN_OK) status = qn_convert(QN_DTYPE_F32, values, (qn_dtype)w->a[0].dtype, host, n);
    for (int64_t i = 1; i < w->a[0].shape[0] && status == QN_OK; i++) memcpy(host + i * row, host, (size_t)row);
    for (int i = 0; i < MATRICES && status == QN_OK; i++)
        status = qn_device_upload(arena, (uintptr_t)w->a[i].data, host, w->a[i].size, e);
    for (int64_t j = 0; j < w->b.shape[0] && status == QN_OK; j++)
        status = qn_device_upload(arena, (uintptr_t)w->b.data + (uint64_t)(j * n * 4), values, (uint64_t)n * 4, e);
    free(values);
    free(host);
    return status;
}

static qn_status time_rows(qn_device *d, qn_dtype dtype, int64_t n, int64_t rows, double *us, qn_error *e) {
    weights w = put_weights(dtype, n, rows);
    qn_device_buffer *arena = NULL;
    qn_device_step steps[MATRICES];
    double ns[MATRICES], sum = 0;
    for (int i = 0; i < MATRICES; i++)
        steps[i] = (qn_device_step){.op = QN_OP_mul_mat, .n_src = 2, .n_dst = 1, .src = {&w.a[i], &w.b}, .dst = {&w.y}};
    qn_program *p = NULL;
    qn_status status = qn_device_buffer_create(d, w.bytes, &arena, e);
    if (status == QN_OK) status = load_weights(arena, &w, e);
    qn_program_options o = {
        .arena_bytes = w.bytes, .arena = arena, .n_steps = MATRICES, .steps = steps, .flags = QN_PROGRAM_TIMED};
    if (status == QN_OK) status = qn_program_create(d, &o, &p, e);
    *us = INFINITY;
    for (int i = 0; i < 5 && status == QN_OK; i++, sum = 0) {
        status = qn_program_run(p, NULL, NULL, patience, e);
        if (status == QN_OK) status = qn_program_times(p, ns, MATRICES, e);
        for (int k = 0; k < MATRICES; k++) sum += ns[k] * 1e-3 / MATRICES;
        if (sum < *us) *us = sum;
    }
    if (p) qn_program_destroy(p);
    if (arena) qn_device_buffer_destroy(arena);
    return status;
}

static void print_few(qn_device *d, int64_t n) {
    static const qn_dtype types[] = {QN_DTYPE_F32,  QN_DTYPE_BF16, QN_DTYPE_F16, QN_DTYPE_Q8_0,
                                     QN_DTYPE_Q4_0, QN_DTYPE_Q4_K, QN_DTYPE_Q6_K};
    static const int64_t rows[] = {1, 4, 8, 512};
    printf("weights %lld x %lld of a type times so many rows: us, GB/s of weights, TFLOP/s\n", (long long)n, (long long)n);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int plain = 0; plain <= (types[t] == QN_DTYPE_F16); plain++) {
            qn_vulkan_bar(d, plain ? QN_VULKAN_COOP : 0, -1);
            printf("%-5s%-6s", qn_dtype_describe(types[t])->name, plain ? "plain" : "");
            for (int r = 0; r < 4; r++) {
                double us = 0, of = (double)n * (double)n;
                const qn_dtype_info *info = qn_dtype_describe(types[t]);
                qn_error e = {QN_OK, ""};
                if (time_rows(d, types[t], n, rows[r], &us, &e) != QN_OK) printf(" | %s", e.text);
                else
                    printf(" | %3lld: %8.1f us %6.0f GB/s %6.2f T", (long long)rows[r], us,
                           of * info->bytes / info->block / us * 1e-3, 2 * of * (double)rows[r] / us * 1e-6);
            }
            printf("\n");
        }
    qn_vulkan_bar(d, 0, -1);
}

/* ---- Small steps */

static qn_status chain(qn_device *d, int n, uint32_t flags, double *us, double *gpu, qn_error *e) {
    qn_tensor x, y;
    uint64_t end = 0;
    make(&x, QN_DTYPE_F32, 1, 16, 0, &end);
    make(&y, QN_DTYPE_F32, 1, 16, 0, &end);
    qn_device_step *steps = calloc((size_t)n, sizeof *steps);
    double *ns = calloc((size_t)n, sizeof *ns), best = INFINITY;
    if (!steps || !ns) return QN_NO_MEMORY;
    for (int i = 0; i < n; i++)
        steps[i] = (qn_device_step){.op = QN_OP_add, .n_src = 2, .n_dst = 1, .src = {&x, &y}, .dst = {&x}};
    qn_program_options o = {.arena_bytes = end, .n_steps = n, .steps = steps, .flags = flags};
    qn_program *p = NULL;
    qn_status status = qn_program_create(d, &o, &p, e);
    for (int i = 0; i < 10 && status == QN_OK; i++) {
        double from = now();
        status = qn_program_run(p, NULL, NULL, patience, e);
        if (now() - from < best) best = now() - from;
    }
    *us = best * 1e6 / n;
    *gpu = 0;
    if (status == QN_OK && flags & QN_PROGRAM_TIMED) status = qn_program_times(p, ns, n, e);
    for (int i = 0; i < n; i++) *gpu += ns[i] * 1e-3 / n;
    qn_program_destroy(p);
    free(steps);
    free(ns);
    return status;
}

static void print_chain(qn_device *d) {
    double us, gpu;
    qn_error e = {QN_OK, ""};
    if (chain(d, 1000, 0, &us, &gpu, &e) != QN_OK) printf("1000 dependent adds: %s\n", e.text);
    else printf("1000 dependent adds of 16 floats in one submission: %.3f us each, wall\n", us);
    if (chain(d, 1000, QN_PROGRAM_TIMED, &us, &gpu, &e) != QN_OK) printf("the same, timed: %s\n", e.text);
    else printf("the same, timed step by step: %.3f us each, wall; %.3f us between timestamps\n", us, gpu);
    if (chain(d, 1, 0, &us, &gpu, &e) == QN_OK) printf("one add, submit and wait: %.1f us\n", us);
}

int main(int argc, char **argv) {
    options o = {.size = 4096, .repeat = 20, .family = -1, .tile = -1, .speed = 1};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--device")) o.device = atoi(value), i++;
        else if (!strcmp(argv[i], "--size")) o.size = atoi(value), i++;
        else if (!strcmp(argv[i], "--repeat")) o.repeat = atoi(value) < REPEAT_MAX ? atoi(value) : REPEAT_MAX, i++;
        else if (!strcmp(argv[i], "--family")) o.family = !strcmp(value, "coop") ? QN_VULKAN_COOP : QN_VULKAN_PLAIN, i++;
        else if (!strcmp(argv[i], "--tile")) o.tile = atoi(value), i++;
        else if (!strcmp(argv[i], "--no-speed")) o.speed = 0;
        else return fprintf(stderr, "vk_bench: what is %s?\n", argv[i]), 2;
    }
    qn_error e = {QN_OK, ""};
    qn_vulkan_options untested = {.index = o.device, .flags = QN_VULKAN_NO_SELF_TEST | QN_VULKAN_EVERY_KERNEL, .cache = ""};
    qn_device *d = NULL;
    if (qn_vulkan_open(&untested, &d, &e) != QN_OK) return fprintf(stderr, "vk_bench: %s\n", e.text), 1;
    char facts[1024];
    qn_device_info info;
    qn_device_describe(d, &info);
    printf("%s; %s; subgroups of %u; %s\n", info.name, info.driver, info.subgroup, qn_vulkan_facts(d, facts, sizeof facts));
    print_chain(d);
    static bench b;
    b = (bench){.d = d, .o = &o};
    if (o.speed) print_few(d, o.size);
    if (prepare(&b, &e)) print_products(&b);
    else printf("nothing to measure with: %s\n", e.text);
    free_all(&b);
    qn_device_destroy(d);
    qn_vulkan_options tested = {.index = o.device, .flags = QN_VULKAN_EVERY_KERNEL, .cache = ""};
    double from = now();
    if (qn_vulkan_open(&tested, &d, &e) != QN_OK) return printf("self-test: %s\n", e.text), 1;
    qn_device_describe(d, &info);
    printf("opened in %.1f s: %s\n", now() - from, info.verdict);
    qn_device_destroy(d);
    return 0;
}
