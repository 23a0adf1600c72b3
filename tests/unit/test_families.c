/* Families of ops held to numbers that were worked out elsewhere: levels of the best quantiser, codes and their layout,
 * rotations, routing, masks, an optimiser's steps; the delta rule by chunks against the rule token by token; a ring cache against
 * attention over the keys in order. */
#include "op/op_emit.h"
#include "op/turbo.h"

#include "family_help.h"

/* ---- Codes of rotated vectors */

static const double best_error[9] = {0,           0,           1.174818e-1, 3.454776e-2, 9.501008e-3,
                                     2.504668e-3, 6.442397e-4, 1.634782e-4, 4.118508e-5};

static double density(double x) { return exp(-x * x / 2) / sqrt(2 * acos(-1)); }
static double beyond(double x) { return erfc(x / sqrt(2)) / 2; }

/* Each level is the mean of its cell, so none can be moved to lower the error; and the error is the best there is. */
static void levels_are_the_best(void **state) {
    (void)state;
    for (int bits = 2; bits <= 8; bits++) {
        int half = 1 << (bits - 1);
        double explained = 0;
        for (int i = 0; i < half; i++) {
            double c = qn_op_turbo_level(bits, half + i);
            double low = i ? (qn_op_turbo_level(bits, half + i - 1) + c) / 2 : 0;
            double high = i < half - 1 ? (c + qn_op_turbo_level(bits, half + i + 1)) / 2 : INFINITY;
            double mass = beyond(low) - (isinf(high) ? 0 : beyond(high));
            near(c, (density(low) - (isinf(high) ? 0 : density(high))) / mass, 1e-9);
            near(qn_op_turbo_level(bits, half - 1 - i), -c, 0);
            explained += 2 * mass * c * c;
        }
        near((1 - explained) / best_error[bits], 1, 1e-6);
    }
    near(qn_op_turbo_level(4, 8), 0.1283950, 1e-7);
    near(qn_op_turbo_level(4, 15), 2.7325896, 1e-7);
    near(qn_op_turbo_level(6, 63), 3.7441013, 1e-7);
    near(qn_op_turbo_level(8, 128), 0.0084462, 1e-7);
    near(qn_op_turbo_level(8, 128 + 63), 1.1523054, 1e-7);
    near(qn_op_turbo_level(8, 255), 4.6035356, 1e-7);
    assert_int_equal(qn_op_turbo_code(4, 0), 7); /* half way between two levels: the lower */
}

/* Rows that are far from normal before they are turned: the error is that of the best quantiser all the same, or a little less,
 * because coordinates of a vector of known length have lighter tails. */
static void round_trips_have_the_best_error(void **state) {
    (void)state;
    static const int64_t widths[2] = {256, 512};
    for (int w = 0; w < 2; w++)
        for (int bits = 2; bits <= 8; bits++) {
            qn_tensor x = make(QN_DTYPE_F32, SHAPE(200, widths[w])), coded[2], back;
            double error = 0, size = 0;
            for (int64_t i = 0; i < qn_tensor_count(&x); i++) put(&x, i, normal() * (i % 7 == 0 ? 5 : 0.3));
            qn_attr_tq_encode encode = qn_attr_tq_encode_default();
            qn_attr_tq_decode decode = qn_attr_tq_decode_default();
            encode.bits = decode.bits = bits;
            decode.undo = 1;
            apply(QN_OP_tq_encode, &encode, 1, &x, 2, coded);
            apply(QN_OP_tq_decode, &decode, 2, coded, 1, &back);
            for (int64_t i = 0; i < qn_tensor_count(&x); i++) {
                error += pow(at(&x, i) - at(&back, i), 2);
                size += pow(at(&x, i), 2);
            }
            near(error / size / best_error[bits], 0.98, 0.06);
            forget();
        }
}

/* ---- Affine codes */

/* A row of 32 codes that begins with the given ones and has the whole range, spanned: scale 1 and bias 0. */
static void check_packing(int bits, int n, const int *codes, int n_bytes, const uint8_t *want) {
    qn_attr_affine_quantize attr = qn_attr_affine_quantize_default();
    qn_tensor w = make(QN_DTYPE_F32, SHAPE(32)), out[3];
    for (int i = 0; i < 32; i++) put(&w, i, i < n ? codes[i] : i == 31 ? (1 << bits) - 1 : 0);
    attr.bits = bits;
    attr.group = 32;
    attr.kind = 1;
    apply(QN_OP_affine_quantize, &attr, 1, &w, 3, out);
    near(at(&out[1], 0), 1, 0);
    near(at(&out[2], 0), 0, 0);
    assert_memory_equal(out[0].data, want, n_bytes);
    forget();
}

static void codes_are_packed_lowest_bit_first(void **state) {
    (void)state;
    static const int count[8] = {0, 1, 2, 3, 4, 5, 6, 7}, four[4] = {1, 2, 3, 4};
    check_packing(2, 4, count, 1, (const uint8_t[]){0xe4});
    check_packing(3, 8, count, 3, (const uint8_t[]){0x88, 0xc6, 0xfa});
    check_packing(4, 8, count, 4, (const uint8_t[]){0x10, 0x32, 0x54, 0x76});
    check_packing(5, 8, count, 5, (const uint8_t[]){0x20, 0x88, 0x41, 0x8a, 0x39});
    check_packing(6, 4, four, 3, (const uint8_t[]){0x81, 0x30, 0x10});
}

static void the_larger_edge_is_exact(void **state) {
    (void)state;
    static const double in[2][4] = {{-1, -0.5, 0, 2}, {-3, -0.5, 0, 1}}, scale[2] = {-0.2, 0.272727}, bias[2] = {2, -3};
    static const int codes[2][4] = {{15, 13, 10, 0}, {0, 9, 11, 15}};
    qn_attr_affine_quantize attr = qn_attr_affine_quantize_default();
    attr.group = 4;
    for (int k = 0; k < 2; k++) {
        qn_tensor w = make(QN_DTYPE_F32, SHAPE(8)), out[3];
        for (int i = 0; i < 8; i++) put(&w, i, in[k][i % 4]);
        apply(QN_OP_affine_quantize, &attr, 1, &w, 3, out);
        near(at(&out[1], 0), scale[k], 1e-6);
        near(at(&out[2], 0), bias[k], 0);
        for (int i = 0; i < 8; i++) assert_int_equal((uint32_t)at(&out[0], 0) >> (4 * i) & 15, codes[k][i % 4]);
        forget();
    }
}

static void quantisers_pass_gradients_straight_through(void **state) {
    (void)state;
    qn_tensor src[4] = {make(QN_DTYPE_F32, SHAPE(4)), make(QN_DTYPE_F32, SHAPE(4)), make(QN_DTYPE_F32, SHAPE(1)),
                        make(QN_DTYPE_F32, SHAPE(1))},
              out[3];
    qn_attr_fake_quant_back attr = qn_attr_fake_quant_back_default();
    attr.bins = attr.group = 4;
    fill(&src[0], (const double[]){1, 2, 3, 4});
    fill(&src[1], (const double[]){-1, 0.6, 1.5, 9}); /* z; q is 0, 1, 2, 3, and the second and third are in range */
    put(&src[2], 0, 1);
    apply(QN_OP_fake_quant_back, &attr, 4, src, 3, out);
    for (int i = 0; i < 4; i++) near(at(&out[0], i), (const double[]){0, 2, 3, 0}[i], 0);
    near(at(&out[1], 0), 2 * (1 - 0.6) + 3 * (2 - 1.5) + 4 * 3, 1e-6);
    near(at(&out[2], 0), 1 + 4, 0);
    qn_vjp_call v = {.op = QN_OP_qdq, .n_src = 1, .n_dst = 1, .grad = {7}, .want = {1}, .out = {QN_VAL_NONE}};
    qn_op_rules_of(QN_OP_qdq)->vjp(&v);
    assert_int_equal(v.out[0], 7);
    forget();
}

static void qdq_gives_what_a_file_would_hold(void **state) {
    (void)state;
    qn_attr_qdq attr = qn_attr_qdq_default();
    qn_tensor w = make(QN_DTYPE_F32, SHAPE(32)), y;
    for (int i = 0; i < 32; i++) put(&w, i, i - 15.5);
    attr.dtype = QN_DTYPE_Q4_0;
    apply(QN_OP_qdq, &attr, 1, &w, 1, &y);
    for (int i = 0; i < 32; i++) near(at(&y, i), (fmin(15, floor((i - 15.5) / 1.9375 + 8.5)) - 8) * 1.9375, 0);
    forget();
}

/* ---- The delta rule */

/* Running sums inside chunks. */
static qn_tensor chunk_sums(const qn_tensor *g, int64_t steps, int64_t heads, int64_t chunk) {
    qn_tensor sums = make(QN_DTYPE_F32, g->rank, g->shape);
    for (int64_t i = 0; i < qn_tensor_count(g); i++)
        put(&sums, i, at(g, i) + (i / heads % steps % chunk ? at(&sums, i - heads) : 0));
    return sums;
}

static void chunks_agree_with_the_recurrence(int64_t steps, int blocked) {
    enum { HEADS = 4, KEYS = 2, K = 16, V = 24, CHUNK = 64, SEQS = 2 };
    qn_attr_delta_rule one = qn_attr_delta_rule_default(), many = one;
    qn_tensor src[6] = {make(QN_DTYPE_F32, SHAPE(SEQS, steps, KEYS, K)),  make(QN_DTYPE_F32, SHAPE(SEQS, steps, KEYS, K)),
                        make(QN_DTYPE_F32, SHAPE(SEQS, steps, HEADS, V)), make(QN_DTYPE_F32, SHAPE(SEQS, steps, HEADS)),
                        make(QN_DTYPE_F32, SHAPE(SEQS, steps, HEADS)),    make(QN_DTYPE_F32, SHAPE(SEQS, HEADS, V, K))};
    qn_tensor plain[2], chunked[2], a, inverse, wu[2], states[3], y;
    for (int i = 0; i < 6; i++) fill_random(&src[i], i == 3 ? -0.2 : i == 4 ? 0 : -0.5, i == 3 ? 0 : i == 4 ? 1 : 0.5);
    one.blocked = many.blocked = blocked;
    many.chunk = CHUNK;
    apply(QN_OP_delta_rule, &one, 6, src, 2, plain);
    apply(QN_OP_delta_rule, &many, 6, src, 2, chunked);
    for (int i = 0; i < 2; i++) near(apart(&chunked[i], &plain[i]), 0, 1e-5);
    qn_attr_delta_kkt kkt = qn_attr_delta_kkt_default();
    qn_attr_delta_wu stage = qn_attr_delta_wu_default();
    qn_attr_delta_states carry = qn_attr_delta_states_default();
    qn_attr_delta_outputs read = qn_attr_delta_outputs_default();
    kkt.blocked = stage.blocked = carry.blocked = read.blocked = blocked;
    qn_tensor g = chunk_sums(&src[3], steps, HEADS, CHUNK);
    apply(QN_OP_delta_kkt, &kkt, 3, (qn_tensor[]){src[1], src[4], g}, 1, &a);
    apply(QN_OP_delta_invert, NULL, 1, &a, 1, &inverse);
    apply(QN_OP_delta_wu, &stage, 5, (qn_tensor[]){src[1], src[2], src[4], g, inverse}, 2, wu);
    apply(QN_OP_delta_states, &carry, 5, (qn_tensor[]){src[1], wu[0], wu[1], g, src[5]}, 3, states);
    apply(QN_OP_delta_outputs, &read, 5, (qn_tensor[]){src[0], src[1], states[1], states[0], g}, 1, &y);
    near(apart(&y, &plain[0]), 0, 1e-5);
    near(apart(&states[2], &plain[1]), 0, 1e-5);
    forget();
}

static void the_delta_rule_by_chunks(void **state) {
    (void)state;
    static const int64_t steps[] = {1, 63, 64, 65, 128, 150};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) chunks_agree_with_the_recurrence(steps[i], (int)(i % 2));
}

/* Two tokens worked out by hand: half of v is learnt from nothing; then all of it, after half has decayed. */
static void the_delta_rule_by_hand(void **state) {
    (void)state;
    static const float keys[] = {1, 0, 0.6f, 0.8f}, values[] = {1, 2, 3, -1}, decays[] = {0, -0.693147181f}, betas[] = {0.5f, 1};
    static const double y[] = {0.5, 1, 3, -1}, last[] = {1.96, 2.28, -0.28, -1.04};
    for (int chunk = 0; chunk <= 2; chunk += 2) {
        qn_attr_delta_rule attr = qn_attr_delta_rule_default();
        qn_tensor src[6] = {make(QN_DTYPE_F32, SHAPE(1, 2, 1, 2)), make(QN_DTYPE_F32, SHAPE(1, 2, 1, 2)),
                            make(QN_DTYPE_F32, SHAPE(1, 2, 1, 2)), make(QN_DTYPE_F32, SHAPE(1, 2, 1)),
                            make(QN_DTYPE_F32, SHAPE(1, 2, 1)),    make(QN_DTYPE_F32, SHAPE(1, 1, 2, 2))};
        static const float *const given[] = {keys, keys, values, decays, betas};
        qn_tensor out[2];
        for (int i = 0; i < 5; i++) memcpy(src[i].data, given[i], (size_t)qn_tensor_count(&src[i]) * 4);
        memset(src[5].data, 0, 16);
        attr.scale = 1;
        attr.chunk = chunk;
        apply(QN_OP_delta_rule, &attr, 6, src, 2, out);
        for (int i = 0; i < 4; i++) near(at(&out[0], i), y[i], 1e-6);
        for (int i = 0; i < 4; i++) near(at(&out[1], i), last[i], 1e-6);
        forget();
    }
}

/* gated_delta_net is the same rule with keys as wide as values. */
static void both_delta_rules_agree(void **state) {
    (void)state;
    enum { T = 5, H = 4, W = 3 };
    qn_tensor src[6] = {make(QN_DTYPE_F32, SHAPE(1, T, 2, W)), make(QN_DTYPE_F32, SHAPE(1, T, 2, W)),
                        make(QN_DTYPE_F32, SHAPE(1, T, H, W)), make(QN_DTYPE_F32, SHAPE(1, T, H)),
                        make(QN_DTYPE_F32, SHAPE(1, T, H)),    make(QN_DTYPE_F32, SHAPE(1, H, W, W))};
    qn_tensor ours[2], packed;
    for (int i = 0; i < 6; i++) fill_random(&src[i], i == 3 ? -1 : 0, i == 3 ? 0 : 1);
    apply(QN_OP_delta_rule, NULL, 6, src, 2, ours);
    for (int i = 3; i < 5; i++)
        assert_int_equal(qn_tensor_init(&src[i], QN_DTYPE_F32, SHAPE(1, T, H, 1), src[i].data, T * H * 4), QN_OK);
    apply(QN_OP_gated_delta_net, NULL, 6, src, 1, &packed);
    for (int i = 0; i < T * H * W; i++) near(at(&packed, i), at(&ours[0], i), 1e-6);
    for (int i = 0; i < H * W * W; i++) near(at(&packed, T * H * W + i), at(&ours[1], i), 1e-6);
    forget();
}

/* ---- Attention */

static void windows_count_the_query_itself(void **state) {
    (void)state;
    qn_attr_attention_mask attr = qn_attr_attention_mask_default();
    qn_tensor y;
    attr.queries = attr.keys = 8;
    attr.window = 4;
    attr.dtype = QN_DTYPE_BF16;
    apply(QN_OP_attention_mask, &attr, 0, NULL, 1, &y);
    for (int j = 0; j < 8; j++) assert_int_equal(((uint16_t *)y.data)[6 * 8 + j], j >= 3 && j <= 6 ? 0 : 0xff80);
    forget();
}

/* One head's attention over the last keys in order, from all there were. */
static double expected(const qn_tensor *q, const qn_tensor *k, const qn_tensor *v, int64_t pos, int64_t seen, int64_t width,
                       int64_t i) {
    double top = 0, below = 0;
    for (int64_t p = pos + 1 - seen; p <= pos; p++) {
        double score = 0;
        for (int64_t j = 0; j < width; j++) score += at(q, j) * at(k, p * width + j);
        double weight = exp(2 * tanh(score * 0.5 / 2));
        top += weight * at(v, p * width + i);
        below += weight;
    }
    return top / below;
}

/* Write, then attend, past the end of the ring and round again. */
static void rings_keep_the_last_keys(void **state) {
    (void)state;
    enum { SLOTS = 4, W = 8, N = 11 };
    qn_tensor k = make(QN_DTYPE_F32, SHAPE(1, SLOTS, W)), v = make(QN_DTYPE_F32, SHAPE(1, SLOTS, W)),
              q = make(QN_DTYPE_F32, SHAPE(1, W));
    qn_tensor all_k = make(QN_DTYPE_F32, SHAPE(N, W)), all_v = make(QN_DTYPE_F32, SHAPE(N, W)),
              pos = make(QN_DTYPE_I32, SHAPE(1)), y;
    qn_attr_cache_attention attr = qn_attr_cache_attention_default();
    attr.scale = 0.5f;
    attr.softcap = 2;
    fill_random(&q, -2, 2);
    fill_random(&all_k, -2, 2);
    fill_random(&all_v, -2, 2);
    for (int p = 0; p < N; p++) {
        qn_tensor token = all_k;
        put(&pos, 0, p);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(
                qn_tensor_init(&token, QN_DTYPE_F32, SHAPE(1, 1, W), (float *)(i ? all_v : all_k).data + p * W, W * 4), QN_OK);
            apply(QN_OP_cache_write, NULL, 3, (qn_tensor[]){i ? v : k, token, pos}, 1, &y);
        }
        for (int window = 0; window <= 3; window += 3) {
            int64_t seen = p < SLOTS ? p + 1 : SLOTS;
            attr.window = window;
            apply(QN_OP_cache_attention, &attr, 4, (qn_tensor[]){q, k, v, pos}, 1, &y);
            for (int i = 0; i < W; i++)
                near(at(&y, i), expected(&q, &all_k, &all_v, p, window && seen > 3 ? 3 : seen, W, i), 1e-5);
        }
    }
    forget();
}

/* Over codes, attention is that over what they stand for; the caller may do the turning himself. */
static void codes_are_attended_to_as_what_they_stand_for(void **state) {
    (void)state;
    enum { H = 4, KV = 2, S = 6, W = 256 };
    qn_tensor raw[2] = {make(QN_DTYPE_F32, SHAPE(KV, S, W)), make(QN_DTYPE_F32, SHAPE(KV, S, W))},
              q = make(QN_DTYPE_F32, SHAPE(H, W));
    qn_tensor pos = make(QN_DTYPE_I32, SHAPE(1)), none = {0}, coded[2][2], plain[2], want, have, turned;
    qn_attr_cache_attention attr = qn_attr_cache_attention_default();
    qn_attr_tq_decode decode = qn_attr_tq_decode_default();
    qn_attr_fwht turn = qn_attr_fwht_default();
    decode.undo = 1;
    fill_random(&q, -1, 1);
    put(&pos, 0, S + 2);
    for (int i = 0; i < 2; i++) {
        fill_random(&raw[i], -1, 1);
        apply(QN_OP_tq_encode, NULL, 1, &raw[i], 2, coded[i]);
        apply(QN_OP_tq_decode, &decode, 2, coded[i], 1, &plain[i]);
    }
    apply(QN_OP_cache_attention, &attr, 4, (qn_tensor[]){q, plain[0], plain[1], pos}, 1, &want);
    attr.k_bits = attr.v_bits = 8;
    apply(QN_OP_cache_attention, &attr, 6, (qn_tensor[]){q, coded[0][0], coded[1][0], pos, coded[0][1], coded[1][1]}, 1, &have);
    near(apart(&have, &want), 0, 1e-5);
    attr.turned = 1;
    turn.form = 1;
    apply(QN_OP_fwht, &turn, 1, &q, 1, &turned);
    apply(QN_OP_cache_attention, &attr, 6, (qn_tensor[]){turned, coded[0][0], coded[1][0], pos, coded[0][1], coded[1][1]}, 1,
          &have);
    turn.form = 2;
    apply(QN_OP_fwht, &turn, 1, &have, 1, &turned);
    near(apart(&turned, &want), 0, 1e-5);
    attr.turned = attr.k_bits = 0; /* keys as they are, values in codes */
    apply(QN_OP_cache_attention, &attr, 6, (qn_tensor[]){q, plain[0], coded[1][0], pos, none, coded[1][1]}, 1, &have);
    near(apart(&have, &want), 0, 1e-5);
    forget();
}

/* ---- Positions, pictures, steps */

/* With a position on one axis alone, the pairs that turn are those of that axis. */
static void interleaved_sections_take_turns(void **state) {
    (void)state;
    for (int axis = 0; axis < 3; axis++) {
        qn_attr_rope attr = qn_attr_rope_default();
        qn_tensor x = make(QN_DTYPE_F32, SHAPE(1, 1, 64)), pos = make(QN_DTYPE_I32, SHAPE(4)), y;
        attr.n_dims = 64;
        attr.mode = 40;
        attr.sections = (qn_dims){.rank = 4, .d = {11, 11, 10, 0}};
        for (int i = 0; i < 64; i++) put(&x, i, 1);
        put(&pos, axis, 3);
        apply(QN_OP_rope, &attr, 2, (qn_tensor[]){x, pos}, 1, &y);
        for (int i = 0; i < 32; i++) assert_int_equal(at(&y, i) != 1, i % 3 == axis);
        forget();
    }
}

static void resizing_weighs_neighbours(void **state) {
    (void)state;
    static const struct {
        int from, to;
        double weight[8];
    } cases[] = {{2, 4, {1, 0.75, 0.25, 0, 0, 0.25, 0.75, 1}},
                 {4, 2, {3. / 7, 0, 3. / 7, 1. / 7, 1. / 7, 3. / 7, 0, 3. / 7}},
                 {3, 2, {0.625, 0, 0.375, 0.375, 0, 0.625}}};
    for (int k = 0; k < 3; k++) {
        int n = cases[k].from, m = cases[k].to;
        qn_attr_upscale attr = qn_attr_upscale_default();
        qn_tensor x = make(QN_DTYPE_F32, SHAPE(n, 1, n)), y;
        for (int i = 0; i < n; i++) put(&x, i * n + i, 1);
        attr.shape = (qn_dims){.rank = 3, .d = {n, 1, m}};
        attr.mode = 1;
        attr.antialias = 1;
        apply(QN_OP_upscale, &attr, 1, &x, 1, &y);
        for (int i = 0; i < n * m; i++) near(at(&y, i), cases[k].weight[i], 1e-6);
        forget();
    }
}

static void blocks_of_four_patches_are_neighbours(void **state) {
    (void)state;
    static const int want[16] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};
    qn_tensor x = make(QN_DTYPE_F32, SHAPE(2, 2, 2, 2)), y;
    for (int i = 0; i < 16; i++) put(&x, i, i);
    qn_tensor view = x;
    view.stride[1] = x.stride[2];
    view.stride[2] = x.stride[1];
    apply(QN_OP_cont, NULL, 1, &view, 1, &y);
    for (int i = 0; i < 16; i++) near(at(&y, i), want[i], 0);
    forget();
}

static void adam_takes_two_steps(void **state) {
    (void)state;
    qn_tensor t[5], out[3];
    for (int i = 0; i < 5; i++) t[i] = make(QN_DTYPE_F64, SHAPE(i == 4 ? 7 : 1));
    put(&t[0], 0, 1);
    put(&t[3], 0, 0.5);
    for (int step = 1; step <= 2; step++) {
        fill(&t[4], (const double[]){0.1, 0.9, 0.999, 1e-8, 0, 1 / (1 - pow(0.9, step)), 1 / (1 - pow(0.999, step))});
        apply(QN_OP_opt_step_adamw, NULL, 5, t, 3, out);
        near(at(&t[0], 0), step == 1 ? 0.900000002 : 0.800000004, 1e-9);
    }
    forget();
}

/* Uniform logits and many numbers: each index about as often as any other. */
static void samples_follow_the_weights(void **state) {
    (void)state;
    int count[10] = {0};
    qn_tensor x = make(QN_DTYPE_F32, SHAPE(1000, 10)), r = make(QN_DTYPE_F32, SHAPE(1000)), out[2];
    fill_random(&r, 0, 1);
    apply(QN_OP_softmax_sample, NULL, 2, (qn_tensor[]){x, r}, 2, out);
    for (int i = 0; i < 1000; i++) {
        count[(int)at(&out[0], i)]++;
        near(at(&out[1], i), log(0.1), 1e-6);
    }
    for (int i = 0; i < 10; i++) assert_true(count[i] >= 50 && count[i] <= 200);
    forget();
}

/* Zeros would pass for a result. A key whose score is -Inf is no key, wherever it stands; one that is no number makes the result none, and
 * so does a part. */
static void what_is_no_number_stays_none(void **state) {
    (void)state;
    qn_tensor src[4] = {make(QN_DTYPE_F32, SHAPE(1, 1, 1)), make(QN_DTYPE_F32, SHAPE(1, 1, 2, 1)),
                        make(QN_DTYPE_F32, SHAPE(1, 1, 2, 1)), make(QN_DTYPE_I32, SHAPE(1))};
    qn_tensor parts[3] = {make(QN_DTYPE_F32, SHAPE(2, 1, 2)), make(QN_DTYPE_F32, SHAPE(2, 1)), make(QN_DTYPE_F32, SHAPE(2, 1))},
              y;
    put(&src[0], 0, 1);
    put(&src[3], 0, 1);
    fill(&src[2], (double[]){5, 7});
    fill(&src[1], (double[]){-INFINITY, 1});
    apply(QN_OP_cache_attention, NULL, 4, src, 1, &y);
    near(at(&y, 0), 7, 0);
    fill(&src[1], (double[]){-INFINITY, -INFINITY});
    apply(QN_OP_cache_attention, NULL, 4, src, 1, &y);
    near(at(&y, 0), 0, 0);
    fill(&src[1], (double[]){1, NAN});
    apply(QN_OP_cache_attention, NULL, 4, src, 1, &y);
    assert_true(isnan(at(&y, 0)));
    fill(&parts[0], (double[]){1, 2, 3, 4});
    fill(&parts[1], (double[]){1, 1});
    fill(&parts[2], (double[]){0, NAN});
    apply(QN_OP_attention_merge, NULL, 3, parts, 1, &y);
    assert_true(isnan(at(&y, 0)) && isnan(at(&y, 1)));
    fill(&parts[2], (double[]){0, -INFINITY}); /* a part without a key */
    apply(QN_OP_attention_merge, NULL, 3, parts, 1, &y);
    near(at(&y, 1), 2, 0);
    forget();
}

int main(void) {
    const struct CMUnitTest kernels_too[] = {cmocka_unit_test(what_is_no_number_stays_none)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_are_the_best),
        cmocka_unit_test(round_trips_have_the_best_error),
        cmocka_unit_test(codes_are_packed_lowest_bit_first),
        cmocka_unit_test(the_larger_edge_is_exact),
        cmocka_unit_test(quantisers_pass_gradients_straight_through),
        cmocka_unit_test(qdq_gives_what_a_file_would_hold),
        cmocka_unit_test(the_delta_rule_by_chunks),
        cmocka_unit_test(the_delta_rule_by_hand),
        cmocka_unit_test(both_delta_rules_agree),
        cmocka_unit_test(windows_count_the_query_itself),
        cmocka_unit_test(rings_keep_the_last_keys),
        cmocka_unit_test(codes_are_attended_to_as_what_they_stand_for),
        cmocka_unit_test(interleaved_sections_take_turns),
        cmocka_unit_test(resizing_weighs_neighbours),
        cmocka_unit_test(blocks_of_four_patches_are_neighbours),
        cmocka_unit_test(adam_takes_two_steps),
        cmocka_unit_test(samples_follow_the_weights),
        cmocka_unit_test(what_is_no_number_stays_none),
    };
    return cmocka_run_group_tests(tests, open_reference, close_context) +
           cmocka_run_group_tests(kernels_too, open_fast, close_context);
}
