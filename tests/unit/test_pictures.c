/* Whole chains whose results a person can look at: a chirp through frames, transform and log_mel, and a scene of splats. The
 * numbers below were taken from pictures that were looked at; QUERN_PICTURES=folder writes them again. */
#include <quern/signal.h>

#include "control_help.h"
#include "eager.h"
#include "picture.h"

static uint8_t level(double v) { return (uint8_t)(v <= 0 ? 0 : v >= 1 ? 255 : v * 255 + 0.5); }

/* ---- A chirp */

enum {
    SAMPLES = 8192,
    WINDOW = 256,
    HOP = 64,
    FRAMES = (SAMPLES - WINDOW) / HOP + 1,
    BINS = WINDOW / 2 + 1,
    MELS = 40,
    RATE = 8000
};

static double mel(double hz) { return 2595 * log10(1 + hz / 700); }

/* Triangles, evenly spaced in mel, each with its top at 1. */
static void make_filters(float *filters) {
    double top = mel(RATE / 2.0);
    for (int m = 0; m < MELS; m++)
        for (int k = 0; k < BINS; k++) {
            double at = mel((double)k * RATE / WINDOW) / top * (MELS + 1) - m, height = at < 1 ? at : 2 - at;
            filters[m * BINS + k] = (float)(height > 0 ? height : 0);
        }
}

/* From 200 Hz to 3400 Hz in a second, evenly. */
static void make_chirp(float *x) {
    for (int i = 0; i < SAMPLES; i++) {
        double t = (double)i / RATE, length = (double)SAMPLES / RATE;
        x[i] = (float)sin(2 * acos(-1.0) * (200 * t + 0.5 * (3400 - 200) / length * t * t));
    }
}

static void chirp_rises_through_the_mel_bands(void **state) {
    static float x[SAMPLES], window[WINDOW], filters[MELS * BINS];
    static uint8_t rgb[3 * FRAMES * MELS], spectra[3 * FRAMES * BINS];
    const int64_t n = SAMPLES, w = WINDOW, f[2] = {MELS, BINS};
    (void)state;
    qn_graph *g;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val frames = qn_graph_frames(g, qn_graph_input(g, "x", QN_DTYPE_F32, 1, &n), qn_graph_input(g, "w", QN_DTYPE_F32, 1, &w),
                                    HOP);
    qn_val spectrum = qn_signal_fft(g, qn_signal_pad(g, frames, 2 * WINDOW), 0, 0);
    qn_val src[2] = {spectrum, qn_graph_input(g, "filters", QN_DTYPE_F32, 2, f)};
    qn_graph_output(g, qn_graph_op(g, QN_OP_log_mel, 0, 2, src, NULL), "mels");
    qn_graph_output(g, qn_graph_power(g, qn_graph_rfft(g, frames, 0)), "power");
    qn_plan *p = plan_of(g);
    make_chirp(x);
    make_filters(filters);
    for (int i = 0; i < WINDOW; i++) window[i] = (float)(0.5 - 0.5 * cos(2 * acos(-1.0) * i / WINDOW));
    set(p, "x", x);
    set(p, "w", window);
    set(p, "filters", filters);
    run(p);
    const float *mels = output(p, "mels"), *power = output(p, "power");
    double sum = 0, energy = 0;
    for (int t = 0; t < FRAMES; t++) {
        int best = 0, peak = 0;
        for (int m = 0; m < MELS; m++) {
            const float *v = &mels[t * MELS + m];
            sum += (double)*v;
            if (*v > mels[t * MELS + best]) best = m;
            memset(&rgb[3 * ((MELS - 1 - m) * FRAMES + t)], level((double)*v / 2.2), 3);
        }
        for (int k = 0; k < BINS; k++) {
            const float *v = &power[t * BINS + k];
            energy += (double)*v;
            if (*v > power[t * BINS + peak]) peak = k;
            memset(&spectra[3 * ((BINS - 1 - k) * FRAMES + t)], level(log10(1 + (double)*v) / 4), 3);
        }
        double middle = (double)(t * HOP + WINDOW / 2) / RATE, hz = 200 + (3400 - 200) * middle / ((double)SAMPLES / RATE);
        assert_true(fabs(peak * (double)RATE / WINDOW - hz) < 24);                  /* within a bin */
        assert_true(fabs(mel(hz) / mel(RATE / 2.0) * (MELS + 1) - 1 - best) < 1.5); /* and within a band */
    }
    assert_true(picture_save("chirp_mels", rgb, FRAMES, MELS));
    assert_true(picture_save("chirp_spectra", spectra, FRAMES, BINS));
    assert_true(fabs(sum / (FRAMES * MELS) - 0.126682) < 1e-5);
    assert_true(fabs(energy / FRAMES - 6144.0001) < 1e-2);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* ---- Splats */

enum { WIDTH = 96, HEIGHT = 72, SPLATS = 40, FIELDS = 15 };

typedef struct scene {
    float positions[3 * SPLATS], log_scales[3 * SPLATS], rotations[4 * SPLATS], opacities[SPLATS], colours[3 * SPLATS];
    float camera[FIELDS];
} scene;

/* A ring of balls around a long, tilted, half clear ellipsoid. */
static void make_scene(scene *s) {
    static const float camera[FIELDS] = {0, 1.5f, -6, 0, 0, 0, 0, 1, 0, 40, 0.1f, 100, 0.02f, 0.02f, 0.08f};
    memset(s, 0, sizeof *s);
    memcpy(s->camera, camera, sizeof camera);
    for (int i = 0; i < SPLATS; i++) {
        double turn = 2 * acos(-1.0) * i / (SPLATS - 1);
        int middle = i == SPLATS - 1;
        s->positions[3 * i] = (float)(middle ? 0 : 2 * cos(turn));
        s->positions[3 * i + 1] = (float)(middle ? 0 : 0.3 * sin(3 * turn));
        s->positions[3 * i + 2] = (float)(middle ? 0 : 2 * sin(turn));
        for (int k = 0; k < 3; k++) {
            s->log_scales[3 * i + k] = (float)log(middle ? (k == 1 ? 0.5 : 0.12) : 0.08);
            s->colours[3 * i + k] = (float)(middle ? (k == 0 ? 0.95 : 0.6) : 0.5 + 0.45 * cos(turn - 2.1 * k));
        }
        s->rotations[4 * i] = (float)(middle ? cos(0.3) : 1);
        s->rotations[4 * i + 3] = (float)(middle ? sin(0.3) : 0);
        s->opacities[i] = middle ? 0.7f : 0.95f;
    }
}

static void scene_tensors(const scene *s, qn_tensor *t) {
    t[0] = EAGER(QN_DTYPE_F32, s->positions, SPLATS, 3);
    t[1] = EAGER(QN_DTYPE_F32, s->log_scales, SPLATS, 3);
    t[2] = EAGER(QN_DTYPE_F32, s->rotations, SPLATS, 4);
    t[3] = EAGER(QN_DTYPE_F32, s->opacities, SPLATS);
    t[4] = EAGER(QN_DTYPE_F32, s->colours, SPLATS, 3);
    t[5] = EAGER(QN_DTYPE_F32, s->camera, FIELDS);
}

static void render(const scene *s, int tile, float *image) {
    qn_attr_splat_render at = qn_attr_splat_render_default();
    qn_tensor src[6], dst = EAGER(QN_DTYPE_F32, image, HEIGHT, WIDTH, 4);
    at.width = WIDTH;
    at.height = HEIGHT;
    at.tile = tile;
    scene_tensors(s, src);
    eager_run(QN_OP_splat_render, &at, 6, src, 1, &dst);
}

static void scene_looks_as_it_did(void **state) {
    static float image[HEIGHT * WIDTH * 4];
    static uint8_t rgb[3 * HEIGHT * WIDTH];
    double sum[4] = {0};
    scene s;
    (void)state;
    make_scene(&s);
    render(&s, 16, image);
    for (int i = 0; i < HEIGHT * WIDTH; i++)
        for (int k = 0; k < 4; k++) {
            int y = HEIGHT - 1 - i / WIDTH; /* rows go up in the picture, down in a file */
            sum[k] += (double)image[4 * i + k] / (HEIGHT * WIDTH);
            if (k < 3) rgb[3 * (y * WIDTH + i % WIDTH) + k] = level(pow((double)image[4 * i + k], 1 / 2.2));
        }
    assert_true(picture_save("splats", rgb, WIDTH, HEIGHT));
    static const double pinned[4] = {0.033942, 0.018985, 0.049560, 0.146476};
    for (int k = 0; k < 4; k++) assert_true(fabs(sum[k] - pinned[k]) < 1e-5);
}

static void tiles_do_not_show(void **state) {
    static float image[HEIGHT * WIDTH * 4], other[HEIGHT * WIDTH * 4];
    static const int tiles[] = {1, 5, 8, 13, 96, 1000};
    scene s;
    (void)state;
    make_scene(&s);
    render(&s, 16, image);
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        render(&s, tiles[i], other);
        assert_memory_equal(image, other, sizeof image);
    }
}

/* Prepared and rasterized: the same picture but for the rounding in between, and a list that is too short says so. */
static void two_steps_draw_the_same(void **state) {
    enum { TILE = 16, TILES = (WIDTH / TILE) * ((HEIGHT + TILE - 1) / TILE), LIST = 2000 };
    static float image[HEIGHT * WIDTH * 4], other[HEIGHT * WIDTH * 4], splats[SPLATS * FIELDS];
    static int32_t ids[LIST], ranges[TILES * 2];
    int32_t needed = 0;
    qn_attr_splat_prepare prepare = qn_attr_splat_prepare_default();
    qn_attr_splat_rasterize draw = qn_attr_splat_rasterize_default();
    qn_tensor src[6], out = EAGER(QN_DTYPE_F32, other, HEIGHT, WIDTH, 4);
    scene s;
    (void)state;
    make_scene(&s);
    scene_tensors(&s, src);
    render(&s, TILE, image);
    prepare.width = draw.width = WIDTH;
    prepare.height = draw.height = HEIGHT;
    prepare.max_list = LIST;
    qn_tensor parts[4] = {EAGER(QN_DTYPE_F32, splats, SPLATS, FIELDS), EAGER(QN_DTYPE_I32, ids, LIST),
                          EAGER(QN_DTYPE_I32, ranges, TILES, 2), EAGER(QN_DTYPE_I32, &needed, 1)};
    eager_run(QN_OP_splat_prepare, &prepare, 6, src, 4, parts);
    assert_true(needed > SPLATS && needed < LIST);
    qn_tensor from[4] = {parts[0], parts[1], parts[2], src[5]};
    eager_run(QN_OP_splat_rasterize, &draw, 4, from, 1, &out);
    for (int i = 0; i < HEIGHT * WIDTH * 4; i++) assert_true(fabs((double)image[i] - (double)other[i]) < 1e-4);
    int32_t all = needed;
    prepare.max_list = 10;
    parts[1] = EAGER(QN_DTYPE_I32, ids, 10);
    eager_run(QN_OP_splat_prepare, &prepare, 6, src, 4, parts);
    assert_int_equal(needed, all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chirp_rises_through_the_mel_bands),
        cmocka_unit_test(scene_looks_as_it_did),
        cmocka_unit_test(tiles_do_not_show),
        cmocka_unit_test(two_steps_draw_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
