/* rope: whatever does not depend on a position goes into a table when the program is made. */
#include <math.h>

#include "vulkan/vk_layout.h"

enum { NORMAL = 0, NEOX = 2, MULTI = 8, VISION = 24, INTERLEAVED = 40, PLANES = 4 }; /* modes, as the op has them */

/* Must agree with Table in glsl/rope.comp. */
typedef struct pair {
    uint64_t turns; /* per position, in 2^-64 of a turn: a whole turn is nothing, so it may wrap */
    uint64_t first; /* of its positions */
} pair;

/* Where the positions of pair i are, and which power of the base it turns with. */
static int plane_of(const qn_attr_rope *at, int64_t i, int64_t *power) {
    const int64_t *n = at->sections.d;
    int64_t end[PLANES], all = 0;
    *power = i;
    if (at->mode == NORMAL || at->mode == NEOX) return 0;
    for (int k = 0; k < PLANES; k++) end[k] = all += n[k];
    int64_t s = i % all;
    if (at->mode == INTERLEAVED) {
        if (s % 3 == 1 && s < 3 * n[1]) return 1;
        if (s % 3 == 2 && s < 3 * n[2]) return 2;
        return s % 3 == 0 && s < 3 * n[0] ? 0 : 3;
    }
    int plane = 0;
    while (plane < PLANES - 1 && s >= end[plane]) plane++;
    if (at->mode == VISION) *power = s - (plane ? end[plane - 1] : 0);
    return plane;
}

/* Pair at which n_ctx_orig tokens make r turns. */
static double pair_of_turns(const qn_attr_rope *at, double r) {
    return at->n_dims * log(at->n_ctx_orig / (2 * acos(-1) * r)) / (2 * log((double)at->freq_base));
}

/* Turns per position of pair i, YaRN's mixture of the stretched and the original ones included. */
static double turns_of(const qn_attr_rope *at, int64_t i, int64_t power) {
    double far = pow((double)at->freq_base, -2.0 * (double)power / at->n_dims) / (2 * acos(-1));
    double near = (double)at->freq_scale * far;
    if (at->ext_factor == 0) return near;
    double low = fmax(0, floor(pair_of_turns(at, (double)at->beta_fast)));
    double high = fmin(at->n_dims - 1, ceil(pair_of_turns(at, (double)at->beta_slow)));
    double ramp = ((double)i - low) / fmax(0.001, high - low);
    double mix = (double)at->ext_factor * (1 - fmin(1, fmax(0, ramp)));
    return near * (1 - mix) + far * mix;
}

static qn_status fill_table(qn_vk_pack *p, int64_t pairs, int64_t tokens, int divided, pair *table) {
    const qn_attr_rope *at = p->step->attr;
    const double whole = 18446744073709551616.0;
    for (int64_t i = 0; i < pairs; i++) {
        int64_t power;
        int plane = plane_of(at, i, &power);
        double turns = turns_of(at, i, power);
        if (!(fabs(turns) < 1e9)) return qn_vk_refuse(p, "its frequencies are too high");
        /* what is divided later must be there whole */
        if (divided && !(turns >= 0 && turns < 1)) return qn_vk_refuse(p, "its frequencies are too high for factors");
        double part = (turns - floor(turns)) * whole;
        if (table) table[i] = (pair){part >= whole ? 0 : (uint64_t)part, (uint64_t)(plane * tokens)};
    }
    return QN_OK;
}

static qn_status pack_factors(qn_vk_pack *p, const qn_tensor *factors) {
    uint32_t *nb = p->out->push.nb;
    int32_t step;
    if (!factors) return QN_OK;
    if (factors->dtype != QN_DTYPE_F32) return qn_vk_refuse(p, "no kernel for factors that are not f32");
    QN_TRY(qn_vk_stride(p, factors, 0, &step));
    uint64_t where = qn_vk_address(p, factors);
    nb[0] = (uint32_t)where;
    nb[1] = (uint32_t)(where >> 32);
    nb[2] = (uint32_t)step;
    return QN_OK;
}

qn_status qn_vk_pack_rope(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_rope *at = p->step->attr;
    const qn_tensor *x = p->step->src[0], *pos = p->step->src[1], *y = p->step->dst[0];
    const qn_tensor *factors = p->step->n_src > 2 ? p->step->src[2] : NULL;
    qn_vk_push *push = &p->out->push;
    (void)fn;
    QN_TRY(qn_vk_at_most_4_axes(p, x));
    QN_TRY(qn_vk_float_types(p, x, NULL, y));
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){x, x, NULL, y, 4}));
    QN_TRY(qn_vk_stride(p, pos, 0, &push->sb[0]));
    QN_TRY(pack_factors(p, factors));
    push->b = qn_vk_address(p, pos);
    uint32_t pairs = (uint32_t)(at->mode == VISION ? at->n_dims : at->n_dims / 2);
    uint64_t where;
    pair *table = qn_vk_take_block(p, pairs * sizeof *table, &where);
    QN_TRY(fill_table(p, pairs, qn_ne(x, 2), factors != NULL, table));
    double gain = (double)at->attn_factor;
    if (at->ext_factor != 0) gain *= 1 + 0.1 * log(1 / (double)at->freq_scale);
    push->n[0] -= pairs; /* a lane for each pair and for each channel that stays */
    push->p[0] = pairs;
    push->p[1] = (uint32_t)at->n_offs;
    push->p[2] = (uint32_t)where;
    push->p[3] = (uint32_t)(where >> 32);
    push->p[4] = qn_vk_bits((float)(p->step->op == QN_OP_rope_back ? -gain : gain));
    push->p[5] = qn_vk_bits((float)gain);
    p->out->spec.fn = (at->mode != NORMAL ? 1u : 0u) | (factors ? 2u : 0u);
    return qn_vk_grid_elements(p);
}
