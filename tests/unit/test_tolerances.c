/* What tests/tolerances.def says of families and a single call cannot show: sums, signs, states carried from call to call, parts
 * against the whole, codes against what they stand for. All of it by the references, and again with the fast kernels. */
#define _DEFAULT_SOURCE /* mmap's flags */
#include <sys/mman.h>

#include "family_help.h"
#include "graph_run.h"

static qn_tensor f32(int rank, const int64_t *d, double low, double high) {
    qn_tensor t = make(QN_DTYPE_F32, rank, d);
    fill_random(&t, low, high);
    return t;
}

static void same(const qn_tensor *a, const qn_tensor *b) {
    assert_int_equal(qn_tensor_count(a), qn_tensor_count(b));
    assert_memory_equal(a->data, b->data, (size_t)qn_tensor_count(a) * (size_t)qn_dtype_describe((qn_dtype)a->dtype)->bytes);
}

/* ---- Rows */

static void masked_rows_are_zero(void **state) {
    (void)state;
    qn_attr_soft_max attr = qn_attr_soft_max_default();
    qn_tensor x = f32(SHAPE(2, 5, 37), -3, 3), mask = make(QN_DTYPE_F32, SHAPE(1, 5, 37)), y;
    for (int i = 0; i < 37; i++) put(&mask, 2 * 37 + i, -INFINITY);
    attr.scale = 0.5f;
    apply(QN_OP_soft_max, &attr, 2, (qn_tensor[]){x, mask}, 1, &y);
    for (int r = 0; r < 10; r++) {
        double sum = 0;
        for (int i = 0; i < 37; i++) sum += at(&y, r * 37 + i);
        near(sum, r % 5 == 2 ? 0 : 1, r % 5 == 2 ? 0 : 1e-5);
    }
    forget();
}

static void halves_of_softmax_add_up(void **state) {
    (void)state;
    qn_tensor x = make(QN_DTYPE_BF16, SHAPE(3, 16)), y;
    fill_random(&x, -3, 3);
    apply(QN_OP_softmax, NULL, 1, &x, 1, &y);
    for (int r = 0; r < 3; r++) {
        double sum = 0;
        for (int i = 0; i < 16; i++) sum += at(&y, r * 16 + i);
        near(sum, 1, 1e-2);
    }
    forget();
}

static void a_peak_is_always_drawn(void **state) {
    (void)state;
    qn_tensor x = make(QN_DTYPE_F32, SHAPE(64, 10)), r = make(QN_DTYPE_F32, SHAPE(64)), first[2], again[2];
    for (int i = 0; i < 64; i++) {
        put(&x, i * 10, -INFINITY);
        put(&x, i * 10 + 3, 60);
        put(&r, i, i ? (i + 0.5) / 65 : 0);
    }
    apply(QN_OP_softmax_sample, NULL, 2, (qn_tensor[]){x, r}, 2, first);
    apply(QN_OP_softmax_sample, NULL, 2, (qn_tensor[]){x, r}, 2, again);
    assert_int_equal((int)at(&first[0], 0), 1); /* what is merely unlikely, not what cannot be */
    for (int i = 1; i < 64; i++) assert_int_equal((int)at(&first[0], i), 3);
    same(&first[0], &again[0]);
    forget();
}

static void what_is_not_turned_keeps_its_bits(void **state) {
    (void)state;
    static const int modes[] = {0, 2};
    for (int m = 0; m < 2; m++) {
        qn_attr_rope attr = qn_attr_rope_default();
        qn_tensor x = f32(SHAPE(3, 2, 256), -1, 1), pos = make(QN_DTYPE_I32, SHAPE(3)), y;
        fill(&pos, (const double[]){5, 900, 40000});
        attr.n_dims = 64;
        attr.mode = modes[m];
        apply(QN_OP_rope, &attr, 2, (qn_tensor[]){x, pos}, 1, &y);
        for (int r = 0; r < 6; r++)
            assert_memory_equal((float *)y.data + r * 256 + 64, (float *)x.data + r * 256 + 64, (256 - 64) * 4);
        assert_true(at(&y, 0) != at(&x, 0));
        forget();
    }
}

static void what_was_solved_for_is_solved(void **state) {
    (void)state;
    for (int n = 3; n <= 5; n++)
        for (int m = 1; m <= 8; m += 7) {
            qn_attr_solve_tri attr = qn_attr_solve_tri_default();
            qn_tensor a = f32(SHAPE(5, n, n), -1, 1), b = f32(SHAPE(5, n, m), -1, 1), x;
            attr.unit = 1;
            apply(QN_OP_solve_tri, &attr, 2, (qn_tensor[]){a, b}, 1, &x);
            for (int i = 0; i < 5 * n * m; i++) {
                int batch = i / (n * m), r = i / m % n, c = i % m;
                double left = at(&x, i);
                for (int j = 0; j < r; j++) left += at(&a, (batch * n + r) * n + j) * at(&x, (batch * n + j) * m + c);
                near(left, at(&b, i), 1e-4);
            }
            forget();
        }
}

/* Eight tokens at once, and four after four. */
static void a_convolution_goes_on_from_its_state(void **state) {
    (void)state;
    for (int c = 1; c <= 4; c++) {
        qn_tensor s = f32(SHAPE(1, c, 3), -1, 1), x = f32(SHAPE(1, c, 8), -1, 1), w = f32(SHAPE(c, 4), -1, 1), whole[2], part[2];
        qn_tensor half = make(QN_DTYPE_F32, SHAPE(1, c, 4)), kept = s;
        apply(QN_OP_ssm_conv_silu, NULL, 3, (qn_tensor[]){s, x, w}, 2, whole);
        for (int k = 0; k < 2; k++) {
            for (int i = 0; i < 4 * c; i++) put(&half, i, at(&x, i / 4 * 8 + k * 4 + i % 4));
            apply(QN_OP_ssm_conv_silu, NULL, 3, (qn_tensor[]){kept, half, w}, 2, part);
            for (int i = 0; i < 4 * c; i++) near(at(&part[0], i), at(&whole[0], k * 4 * c + i), 1e-6);
            kept = make(QN_DTYPE_F32, SHAPE(1, c, 3));
            for (int i = 0; i < 3 * c; i++) put(&kept, i, at(&part[1], i / 3 * 7 + 4 + i % 3));
        }
        forget();
    }
}

/* ---- Attention */

static void masked_queries_read_nothing(void **state) {
    (void)state;
    enum { S = 50, L = 64, W = 64 };
    qn_attr_attention attr = qn_attr_attention_default();
    qn_tensor q = f32(SHAPE(1, 2, S, W), -1, 1), k = f32(SHAPE(1, 1, L, W), -1, 1), v = f32(SHAPE(1, 1, L, W), -1, 1);
    qn_tensor mask = make(QN_DTYPE_F32, SHAPE(1, 1, S, L)), y[2];
    for (int j = 0; j < L; j++) put(&mask, 7 * L + j, -INFINITY);
    attr.mask_kind = 4;
    apply(QN_OP_attention, &attr, 4, (qn_tensor[]){q, k, v, mask}, 2, y);
    for (int h = 0; h < 2; h++) {
        for (int i = 0; i < W; i++) near(at(&y[0], (h * S + 7) * W + i), 0, 0);
        for (int i = 0; i < S * W; i++) assert_true(isfinite(at(&y[0], h * S * W + i)));
        assert_true(at(&y[1], h * S + 7) == -INFINITY);
    }
    forget();
}

/* Queries [first, first + n) at their places, over the keys there are by then. */
static void attend_part(const qn_tensor *q, const qn_tensor *k, const qn_tensor *v, int64_t first, int64_t n, qn_tensor *y) {
    qn_attr_attention attr = qn_attr_attention_default();
    qn_tensor some[3] = {*q, *k, *v};
    some[0].offset = first * q->stride[2];
    some[0].shape[2] = n;
    for (int i = 1; i < 3; i++) some[i].shape[2] = first + n;
    attr.mask_kind = 1;
    attr.q_offset = first;
    apply(QN_OP_attention, &attr, 3, some, 1, y);
}

static void prefill_in_parts_has_the_same_bits(void **state) {
    (void)state;
    static const int64_t widths[2] = {64, 256}, cuts[] = {0, 1, 17, 32, 33, 70, 96};
    enum { S = 96, H = 4 };
    for (int w = 0; w < 2; w++) {
        int64_t d = widths[w];
        qn_tensor q = f32(SHAPE(1, H, S, d), -1, 1), k = f32(SHAPE(1, 2, S, d), -1, 1), v = f32(SHAPE(1, 2, S, d), -1, 1), all;
        attend_part(&q, &k, &v, 0, S, &all);
        for (size_t c = 0; c + 1 < sizeof cuts / sizeof *cuts; c++) {
            int64_t n = cuts[c + 1] - cuts[c];
            qn_tensor y;
            attend_part(&q, &k, &v, cuts[c], n, &y);
            for (int h = 0; h < H; h++)
                assert_memory_equal((float *)y.data + h * n * d, (float *)all.data + (h * S + cuts[c]) * d, (size_t)(n * d) * 4);
        }
        forget();
    }
}

/* Two rows of a mask lie as far apart as in one of 65536 queries and as many keys, and farther than 32 bits count. */
static void masks_may_be_larger_than_32_bits_count(void **state) {
    (void)state;
    enum { L = 8, W = 16 };
    const int64_t apart_bytes = (INT64_C(1) << 32) + 4096;
    size_t bytes = (size_t)apart_bytes + 4096;
    char *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) skip();
    qn_attr_attention attr = qn_attr_attention_default();
    qn_tensor q = f32(SHAPE(1, 1, 2, W), -1, 1), k = f32(SHAPE(1, 1, L, W), -1, 1), v = f32(SHAPE(1, 1, L, W), -1, 1);
    qn_tensor mask = make(QN_DTYPE_F32, SHAPE(1, 1, 2, L)), far = mask, near_y, far_y;
    fill_random(&mask, -2, 2);
    put(&mask, L + 3, -INFINITY);
    far.data = room;
    far.size = bytes;
    far.stride[2] = apart_bytes;
    for (int r = 0; r < 2; r++) memcpy(room + r * apart_bytes, (float *)mask.data + r * L, L * 4);
    attr.mask_kind = 4;
    apply(QN_OP_attention, &attr, 4, (qn_tensor[]){q, k, v, mask}, 1, &near_y);
    apply(QN_OP_attention, &attr, 4, (qn_tensor[]){q, k, v, far}, 1, &far_y);
    for (int i = 0; i < 2 * W; i++) near(at(&far_y, i), at(&near_y, i), 1e-6);
    munmap(room, bytes);
    forget();
}

static void tiles_say_what_lies_in_them(void **state) {
    (void)state;
    enum { S = 50, L = 72, R = 32, C = 16 };
    qn_attr_attention_mask of = qn_attr_attention_mask_default();
    qn_attr_mask_tiles attr = qn_attr_mask_tiles_default();
    qn_tensor mask, tiles;
    of.queries = S;
    of.keys = L;
    of.q_offset = 22;
    of.window = 20;
    attr.rows = R;
    attr.columns = C;
    apply(QN_OP_attention_mask, &of, 0, NULL, 1, &mask);
    apply(QN_OP_mask_tiles, &attr, 1, &mask, 1, &tiles);
    int counts[3] = {0}, across = (L + C - 1) / C;
    for (int t = 0; t < (S + R - 1) / R * across; t++) {
        int seen = 0, hidden = 0, r0 = t / across * R, c0 = t % across * C;
        for (int r = r0; r < r0 + R && r < S; r++)
            for (int c = c0; c < c0 + C && c < L; c++) *(at(&mask, r * L + c) == 0 ? &seen : &hidden) += 1;
        int want = c0 + C > L || (seen && hidden) ? 1 : seen ? 2 : 0; /* cut off on the right: look */
        counts[want]++;
        assert_int_equal((int)at(&tiles, t), want);
    }
    assert_true(counts[0] && counts[1]);
    forget();
}

/* ---- Codes */

typedef struct coded {
    qn_tensor raw, codes, scale, plain; /* as it was; its codes; what they stand for, turned back */
} coded;

static coded encode(int64_t heads, int64_t slots, int64_t width, int bits) {
    qn_attr_tq_encode to = qn_attr_tq_encode_default();
    qn_attr_tq_decode from = qn_attr_tq_decode_default();
    coded c;
    qn_tensor out[2];
    c.raw = make(QN_DTYPE_F32, SHAPE(heads, slots, width));
    for (int64_t i = 0; i < qn_tensor_count(&c.raw); i++) put(&c.raw, i, normal());
    to.bits = from.bits = bits;
    from.undo = 1;
    apply(QN_OP_tq_encode, &to, 1, &c.raw, 2, out);
    c.codes = out[0];
    c.scale = out[1];
    apply(QN_OP_tq_decode, &from, 2, out, 1, &c.plain);
    return c;
}

static void attend_codes(const qn_tensor *q, const coded *k, const coded *v, int k_bits, int v_bits, int window, qn_tensor *y) {
    qn_attr_cache_attention attr = qn_attr_cache_attention_default();
    qn_tensor pos = make(QN_DTYPE_I32, SHAPE(1)), none = {0};
    put(&pos, 0, (double)k->raw.shape[1] - 1);
    attr.k_bits = k_bits;
    attr.v_bits = v_bits;
    attr.window = window;
    apply(QN_OP_cache_attention, &attr, 6,
          (qn_tensor[]){*q, k_bits ? k->codes : k->plain, v_bits ? v->codes : v->plain, pos, k_bits ? k->scale : none,
                        v_bits ? v->scale : none},
          1, y);
}

static double relative_rms(const qn_tensor *a, const qn_tensor *b) {
    double error = 0, size = 0;
    for (int64_t i = 0; i < qn_tensor_count(a); i++) {
        error += pow(at(a, i) - at(b, i), 2);
        size += pow(at(b, i), 2);
    }
    return sqrt(error / size);
}

static void attention_survives_four_bits(void **state) {
    (void)state;
    static const int64_t sizes[][4] = {{8, 4, 256, 64}, {16, 4, 256, 200}, {8, 4, 512, 64}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        qn_tensor q = f32(SHAPE(sizes[s][0], sizes[s][2]), -0.1, 0.1), have, want;
        coded k = encode(sizes[s][1], sizes[s][3], sizes[s][2], 4), v = encode(sizes[s][1], sizes[s][3], sizes[s][2], 4);
        attend_codes(&q, &k, &v, 4, 4, 0, &have);
        k.plain = k.raw;
        v.plain = v.raw;
        attend_codes(&q, &k, &v, 0, 0, 0, &want);
        assert_true(relative_rms(&have, &want) < 0.15);
        assert_true(relative_rms(&have, &want) > 0.01); /* that codes were read at all */
        for (int64_t i = 0; i < qn_tensor_count(&have); i++) near(at(&have, i), at(&want, i), 1.0);
        forget();
    }
}

static void codes_keep_directions(void **state) {
    (void)state;
    static const int64_t widths[2] = {256, 512};
    static const struct {
        int bits;
        double cosine, rms;
    } bounds[] = {{8, 0.998, 0.07}, {6, 0.995, 0.1}, {5, 0.985, 0.2}};
    for (int w = 0; w < 2; w++)
        for (int b = 0; b < 3; b++) {
            coded c = encode(1, 20, widths[w], bounds[b].bits);
            for (int64_t r = 0; r < 20; r++) {
                double dot = 0, one = 0, two = 0, error = 0, scales = 0;
                for (int64_t i = r * widths[w]; i < (r + 1) * widths[w]; i++) {
                    double x = at(&c.raw, i), y = at(&c.plain, i);
                    dot += x * y, one += x * x, two += y * y, error += (x - y) * (x - y);
                }
                assert_true(dot / sqrt(one * two) >= bounds[b].cosine);
                assert_true(sqrt(error / one) <= bounds[b].rms);
                for (int64_t i = 0; i < widths[w] / 256; i++) scales += pow(at(&c.scale, r * widths[w] / 256 + i), 2);
                near(sqrt(scales * 256 / one), 1, 1e-3); /* turning keeps lengths */
            }
            forget();
        }
}

static void attention_on_codes_is_that_on_values(void **state) {
    (void)state;
    static const struct {
        int64_t heads, kv, slots, width;
        int k_bits, v_bits, window;
    } cases[] = {{8, 4, 64, 256, 8, 8, 0},    {8, 4, 256, 256, 8, 8, 64}, {4, 2, 32, 256, 5, 5, 0}, {4, 2, 32, 512, 6, 6, 0},
                 {32, 4, 1024, 256, 8, 8, 0}, {4, 1, 16, 256, 0, 8, 0},   {16, 4, 64, 512, 0, 4, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qn_tensor q = f32(SHAPE(cases[i].heads, cases[i].width), -0.2, 0.2), have, want;
        int bits = cases[i].v_bits;
        coded k = encode(cases[i].kv, cases[i].slots, cases[i].width, bits),
              v = encode(cases[i].kv, cases[i].slots, cases[i].width, bits);
        attend_codes(&q, &k, &v, cases[i].k_bits, bits, cases[i].window, &have);
        attend_codes(&q, &k, &v, 0, 0, cases[i].window, &want);
        near(apart(&have, &want), 0, 1e-4);
        forget();
    }
}

static void turning_twice_is_nothing(void **state) {
    (void)state;
    for (int64_t width = 4; width <= 512; width *= 2)
        for (int form = 0; form < 2; form++) {
            qn_attr_fwht there = qn_attr_fwht_default(), back = there;
            qn_tensor x = f32(SHAPE(3, width), -1, 1), y, z;
            there.form = form;
            back.form = form ? 2 : 0;
            apply(QN_OP_fwht, &there, 1, &x, 1, &y);
            apply(QN_OP_fwht, &back, 1, &y, 1, &z);
            double before = 0, after = 0;
            for (int64_t i = 0; i < 3 * width; i++) {
                before += at(&x, i) * at(&x, i);
                after += at(&y, i) * at(&y, i);
                near(at(&z, i), at(&x, i), 1e-5);
            }
            near(sqrt(after / before), 1, 1e-5);
            forget();
        }
}

/* ---- Experts, quantisers */

static void weights_of_experts_add_up(void **state) {
    (void)state;
    static const int64_t experts[] = {4, 5, 100, 128};
    for (size_t e = 0; e < 4; e++)
        for (int score = 0; score < 3; score++) {
            qn_attr_moe_route attr = qn_attr_moe_route_default();
            qn_tensor x = f32(SHAPE(7, experts[e]), -3, 3), out[2];
            attr.k = experts[e] < 8 ? 2 : 8;
            attr.score = score;
            apply(QN_OP_moe_route, &attr, 1, &x, 2, out);
            for (int t = 0; t < 7; t++) {
                double sum = 0;
                for (int64_t i = 0; i < attr.k; i++) {
                    sum += at(&out[0], t * attr.k + i);
                    int64_t id = (int64_t)at(&out[1], t * attr.k + i);
                    assert_true(id >= 0 && id < experts[e]);
                }
                near(sum, 1, 1e-5);
            }
            forget();
        }
}

/* Ramp, sine, nothing, one far out, a negative peak: what the cast into blocks and back gives, bit for bit. */
static void qdq_is_the_codec_of_files(void **state) {
    (void)state;
    static const qn_dtype dtypes[2] = {QN_DTYPE_Q4_0, QN_DTYPE_Q8_0};
    for (int d = 0; d < 2; d++) {
        qn_attr_qdq attr = qn_attr_qdq_default();
        qn_attr_cast to = qn_attr_cast_default(), from = to;
        qn_tensor w = make(QN_DTYPE_F32, SHAPE(5, 32)), y, blocks, back;
        for (int i = 0; i < 32; i++) {
            put(&w, i, i - 15.5);
            put(&w, 32 + i, sin(0.4 * i));
            put(&w, 96 + i, i == 9 ? 50 : 0.01 * i);
            put(&w, 128 + i, i == 20 ? -7 : 0.3 * i / 32);
        }
        attr.dtype = to.dtype = dtypes[d];
        from.dtype = QN_DTYPE_F32;
        apply(QN_OP_qdq, &attr, 1, &w, 1, &y);
        apply(QN_OP_cast, &to, 1, &w, 1, &blocks);
        apply(QN_OP_cast, &from, 1, &blocks, 1, &back);
        same(&y, &back);
        for (int i = 0; i < 32; i++) near(at(&y, 64 + i), 0, 0);
        forget();
    }
}

static void affine_codes_are_the_nearest(void **state) {
    (void)state;
    qn_attr_affine_quantize attr = qn_attr_affine_quantize_default();
    qn_tensor w = f32(SHAPE(4, 64), -2, 3), out[3];
    attr.group = 32;
    attr.kind = 1;
    for (int i = 0; i < 32; i++) put(&w, 96 + i, 0.7); /* a group of one value */
    apply(QN_OP_affine_quantize, &attr, 1, &w, 3, out);
    for (int g = 0; g < 8; g++) {
        double low = INFINITY, high = -INFINITY;
        for (int i = 0; i < 32; i++) low = fmin(low, at(&w, g * 32 + i)), high = fmax(high, at(&w, g * 32 + i));
        double s = at(&out[1], g), b = at(&out[2], g);
        near(b, low, 1e-6);
        near(s, high > low ? (high - low) / 15 : 1, 1e-6);
        for (int i = 0; i < 32; i++) {
            int code = (int)((uint32_t)at(&out[0], g * 4 + i / 8) >> (4 * (i % 8)) & 15);
            assert_int_equal(code, (int)fmin(15, floor((at(&w, g * 32 + i) - b) / s + 0.5)));
            assert_true(fabs(code * s + b - at(&w, g * 32 + i)) <= s / 2 * 1.00001);
        }
    }
    forget();
}

/* ---- Training */

static void adam_finds_five(void **state) {
    (void)state;
    qn_tensor t[5], out[3];
    for (int i = 0; i < 5; i++) t[i] = make(QN_DTYPE_F32, SHAPE(i == 4 ? 7 : 1));
    for (int step = 1; step <= 200; step++) {
        put(&t[3], 0, 2 * (at(&t[0], 0) - 5));
        fill(&t[4], (const double[]){0.1, 0.9, 0.999, 1e-8, 0, 1 / (1 - pow(0.9, step)), 1 / (1 - pow(0.999, step))});
        apply(QN_OP_opt_step_adamw, NULL, 5, t, 3, out);
    }
    near(at(&t[0], 0), 5, 0.05);
    forget();
}

/* sum p (log p - log softmax(z)) written with softmax and log: its slope by z is softmax(z) - p. */
static void the_slope_of_kl_is_a_difference(void **state) {
    (void)state;
    enum { R = 32, C = 32 };
    const int64_t shape[2] = {R, C};
    qn_graph *g;
    graph_run r;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val z = qn_graph_input(g, "student", QN_DTYPE_F32, 2, shape), t = qn_graph_input(g, "teacher", QN_DTYPE_F32, 2, shape), dz;
    qn_val p = qn_graph_op(g, QN_OP_softmax, 0, 1, &t, NULL), s = qn_graph_op(g, QN_OP_softmax, 0, 1, &z, NULL);
    qn_val log_p = qn_graph_op(g, QN_OP_log, 0, 1, &p, NULL), log_s = qn_graph_op(g, QN_OP_log, 0, 1, &s, NULL);
    qn_val off = qn_graph_op(g, QN_OP_sub, 0, 2, (qn_val[]){log_p, log_s}, NULL);
    qn_val terms = qn_graph_op(g, QN_OP_mul, 0, 2, (qn_val[]){p, off}, NULL);
    qn_val rows = qn_graph_op(g, QN_OP_sum_rows, 0, 1, &terms, NULL), loss = qn_graph_op(g, QN_OP_sum, 0, 1, &rows, NULL);
    assert_int_equal(qn_graph_grad(g, loss, 1, &z, &dz), QN_OK);
    graph_run_all(&r, g, 0);
    for (int i = 0; i < R * C; i++) {
        double want = at(&r.t[s], i) - at(&r.t[p], i);
        near(at(&r.t[dz], i), want, 1e-6);
    }
    graph_run_free(&r);
    qn_graph_destroy(g);
}

/* ---- Pictures */

static void patches_are_merged_by_fours(void **state) {
    (void)state;
    static const int64_t sizes[2][2] = {{8, 8}, {12, 4}};
    enum { C = 3 };
    for (int k = 0; k < 2; k++) {
        int64_t ny = sizes[k][0], nx = sizes[k][1];
        qn_tensor x = f32(SHAPE(ny / 2, 2, nx / 2, 2 * C), -1, 1), view = x, y;
        view.shape[1] = x.shape[2];
        view.shape[2] = x.shape[1];
        view.stride[1] = x.stride[2];
        view.stride[2] = x.stride[1];
        apply(QN_OP_cont, NULL, 1, &view, 1, &y);
        for (int64_t row = 0; row < ny; row++)
            for (int64_t column = 0; column < nx; column++)
                for (int64_t c = 0; c < C; c++) {
                    int64_t patch = 4 * (row / 2 * (nx / 2) + column / 2) + 2 * (row & 1) + (column & 1);
                    near(at(&y, patch * C + c), at(&x, (row * nx + column) * C + c), 0);
                }
        forget();
    }
}

static void patches_are_cut_out(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{128, 128, 16}, {64, 128, 8}, {64, 128, 4}};
    for (size_t k = 0; k < 3; k++) {
        int64_t h = sizes[k][0], w = sizes[k][1], p = sizes[k][2], across = w / p;
        qn_attr_im2col attr = qn_attr_im2col_default();
        qn_tensor x = f32(SHAPE(1, 3, h, w), -1, 1), kernel = make(QN_DTYPE_F32, SHAPE(1, 3, p, p)), y;
        attr.s0 = attr.s1 = (int32_t)p;
        apply(QN_OP_im2col, &attr, 2, (qn_tensor[]){kernel, x}, 1, &y);
        assert_int_equal(qn_tensor_count(&y), 3 * h * w);
        for (int64_t i = 0; i < 3 * h * w; i++) {
            int64_t patch = i / (3 * p * p), c = i / (p * p) % 3, dy = i / p % p, dx = i % p;
            near(at(&y, i), at(&x, (c * h + patch / across * p + dy) * w + patch % across * p + dx), 0);
        }
        forget();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masked_rows_are_zero),
        cmocka_unit_test(halves_of_softmax_add_up),
        cmocka_unit_test(a_peak_is_always_drawn),
        cmocka_unit_test(what_is_not_turned_keeps_its_bits),
        cmocka_unit_test(what_was_solved_for_is_solved),
        cmocka_unit_test(a_convolution_goes_on_from_its_state),
        cmocka_unit_test(masked_queries_read_nothing),
        cmocka_unit_test(prefill_in_parts_has_the_same_bits),
        cmocka_unit_test(masks_may_be_larger_than_32_bits_count),
        cmocka_unit_test(tiles_say_what_lies_in_them),
        cmocka_unit_test(attention_survives_four_bits),
        cmocka_unit_test(codes_keep_directions),
        cmocka_unit_test(attention_on_codes_is_that_on_values),
        cmocka_unit_test(turning_twice_is_nothing),
        cmocka_unit_test(weights_of_experts_add_up),
        cmocka_unit_test(qdq_is_the_codec_of_files),
        cmocka_unit_test(affine_codes_are_the_nearest),
        cmocka_unit_test(adam_finds_five),
        cmocka_unit_test(the_slope_of_kl_is_a_difference),
        cmocka_unit_test(patches_are_merged_by_fours),
        cmocka_unit_test(patches_are_cut_out),
    };
    int plain = cmocka_run_group_tests_name("references", tests, open_reference, close_context);
    return plain + cmocka_run_group_tests_name("kernels", tests, open_fast, close_context);
}
