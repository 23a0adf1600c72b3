/* Products of matrices: which kernel, and which tile of it. Whether cooperative matrices are used depends on dtypes and strides
 * alone, never on how many rows there are, and every tile adds in the same order: one row's bits are the same in any batch. */
#include <stdio.h>

#include "vulkan/vk_layout.h"

/* y[j][i] = sum over k of `right`[j][k] `left`[i][k]; axes by their number from the end. */
typedef struct product {
    const qn_tensor *left, *right, *y;
    int left_sum, right_sum; /* 0 or 1; the other one is i, or j */
    uint32_t share[2];       /* batches of `right` that have one of `left` together */
} product;

/* Everything but the grid. */
static qn_status pack_product(qn_vk_pack *p, const product *x) {
    qn_vk_push *push = &p->out->push;
    int64_t n[4] = {qn_ne(x->left, 1 - x->left_sum), qn_ne(x->right, 1 - x->right_sum), qn_ne(x->y, 2), qn_ne(x->y, 3)};
    int blocks = qn_is_block(x->left->dtype);
    QN_TRY(qn_vk_at_most_4_axes(p, x->y));
    QN_TRY(qn_vk_float_types(p, blocks ? NULL : x->left, x->right, x->y));
    if (blocks) p->out->spec.type_a = qn_vk_block_type_of(x->left->dtype);
    if (blocks && (p->out->spec.type_a == QN_VK_NO_TYPE || x->left_sum)) return qn_vk_refuse(p, "no kernel for this block type");
    for (int k = 0; k < 4; k++) {
        int axis = k < 2 ? k ^ x->left_sum : k;
        QN_TRY(qn_vk_extent(p, n[k], &push->n[k]));
        QN_TRY(blocks ? qn_vk_byte_stride(p, x->left, axis, &push->sa[k]) : qn_vk_stride(p, x->left, axis, &push->sa[k]));
        QN_TRY(qn_vk_stride(p, x->right, k < 2 ? k ^ x->right_sum : k, &push->sb[k]));
        QN_TRY(qn_vk_stride(p, x->y, k, &push->sy[k]));
    }
    QN_TRY(qn_vk_extent(p, qn_ne(x->left, x->left_sum), &push->p[0]));
    push->p[1] = x->share[0];
    push->p[2] = x->share[1];
    push->a = qn_vk_address(p, x->left);
    push->b = qn_vk_address(p, x->right);
    push->y = qn_vk_address(p, x->y);
    p->out->spec.rank = 4;
    return QN_OK;
}

static qn_status grid_of_tiles(qn_vk_pack *p, uint32_t wide, uint32_t high) {
    qn_vk_push *push = &p->out->push;
    uint64_t across = ((uint64_t)push->n[0] + wide - 1) / wide, down = ((uint64_t)push->n[1] + high - 1) / high;
    uint64_t batches = (uint64_t)push->n[2] * push->n[3];
    if (batches > QN_VK_GROUP_LIMIT || across > QN_VK_GROUP_LIMIT || down > QN_VK_GROUP_LIMIT)
        return qn_vk_refuse(p, "more tiles than a grid has room for");
    p->out->groups[0] = push->p[3] = (uint32_t)across;
    p->out->groups[1] = push->p[4] = (uint32_t)down;
    p->out->groups[2] = (uint32_t)batches;
    return QN_OK;
}

static product of_mul_mat(const qn_vk_pack *p) {
    product x = {p->step->src[0], p->step->src[1], p->step->dst[0], 0, 0, {1, 1}};
    for (int k = 2; k < 4; k++)
        if (qn_ne(x.left, k) > 0) x.share[k - 2] = (uint32_t)(qn_ne(x.right, k) / qn_ne(x.left, k));
    return x;
}

/* Both hold the summed axis second to last. */
static product of_out_prod(const qn_vk_pack *p) {
    product x = of_mul_mat(p);
    x.left_sum = x.right_sum = 1;
    return x;
}

/* a [.., M, K] times b [.., K, N]: the columns of b are the kernel's left side. */
static qn_status of_matmul(qn_vk_pack *p, product *x) {
    const qn_attr_matmul *at = p->step->attr;
    const qn_tensor *a = p->step->src[0], *b = p->step->src[1];
    if (a->rank < 2 || b->rank < 2) return qn_vk_refuse(p, "no kernel for vectors");
    *x = (product){b, a, p->step->dst[0], !at->transpose_b, at->transpose_a, {1, 1}};
    return QN_OK;
}

/* ---- Plain */

static qn_status plain(qn_vk_pack *p, const product *x) {
    enum { TILE = 64 };
    if (p->device->barred & QN_VULKAN_PLAIN) return qn_vk_refuse(p, "the plain kernel was ruled out");
    QN_TRY(pack_product(p, x));
    return grid_of_tiles(p, TILE, TILE);
}

qn_status qn_vk_pack_mul_mat(qn_vk_pack *p, uint32_t fn) {
    product x = of_mul_mat(p);
    (void)fn;
    return plain(p, &x);
}

qn_status qn_vk_pack_matmul(qn_vk_pack *p, uint32_t fn) {
    product x;
    (void)fn;
    QN_TRY(of_matmul(p, &x));
    return plain(p, &x);
}

qn_status qn_vk_pack_out_prod(qn_vk_pack *p, uint32_t fn) {
    product x = of_out_prod(p);
    (void)fn;
    return plain(p, &x);
}

/* ---- Few rows */

static int is_16_bytes(uint64_t address, const int32_t *s, int fast, uint32_t bytes) {
    uint32_t step = 16 / bytes;
    for (int k = 0; k < 4; k++)
        if (k != fast && (uint32_t)s[k] % step) return 0;
    return address % 16 == 0;
}

static uint32_t type_bytes(uint32_t type) { return type == QN_VK_F32 ? 4 : 2; }

enum { FEW = 8, VEC_ROWS = 8, VEC_COLUMNS = 4 };
enum { BY_ID = 1, QUADS = 2 }; /* FN of mul_vec.comp */

/* Whether rows of a can be read 16 bytes at a time. */
static uint32_t quads(const qn_vk_pack *p) {
    const qn_vk_push *u = &p->out->push;
    uint32_t type = p->out->spec.type_a;
    return type <= QN_VK_BF16 && u->sa[0] == 1 && is_16_bytes(u->a, u->sa, 0, type_bytes(type)) ? QUADS : 0;
}

static qn_status vector(qn_vk_pack *p, const product *x) {
    if (p->device->barred & QN_VULKAN_PLAIN) return qn_vk_refuse(p, "the plain kernel was ruled out");
    QN_TRY(pack_product(p, x));
    const qn_vk_push *u = &p->out->push;
    int contiguous = qn_is_block(x->left->dtype) || u->sa[0] == 1 || u->p[0] == 1; /* lanes lie along k */
    if (u->n[1] > FEW || !contiguous) return qn_vk_refuse(p, "another kernel is faster");
    p->out->spec.fn = quads(p);
    return grid_of_tiles(p, VEC_ROWS, VEC_COLUMNS);
}

qn_status qn_vk_pack_mul_vec(qn_vk_pack *p, uint32_t fn) {
    product x = of_mul_mat(p);
    (void)fn;
    return vector(p, &x);
}

qn_status qn_vk_pack_matmul_vec(qn_vk_pack *p, uint32_t fn) {
    product x;
    (void)fn;
    QN_TRY(of_matmul(p, &x));
    return vector(p, &x);
}

/* as [e, i, k], b [t, 1 or u, k], ids [t, u]: y [t, u, i]. */
qn_status qn_vk_pack_mul_mat_id(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *as = p->step->src[0], *b = p->step->src[1], *ids = p->step->src[2], *y = p->step->dst[0];
    qn_vk_push *push = &p->out->push;
    int32_t step[2];
    (void)fn;
    QN_TRY(pack_product(p, &(product){as, b, y, 0, 0, {1, 1}}));
    QN_TRY(qn_vk_extent(p, qn_ne(y, 1), &push->n[1]));
    QN_TRY(qn_vk_extent(p, qn_ne(as, 2), &push->nb[0]));
    QN_TRY(qn_vk_extent(p, qn_ne(b, 1), &push->nb[1]));
    for (int k = 0; k < 2; k++) {
        QN_TRY(qn_vk_stride(p, ids, k, &step[k]));
        push->nb[2 + k] = (uint32_t)step[k];
    }
    p->out->spec.fn = BY_ID | quads(p);
    QN_TRY(grid_of_tiles(p, VEC_ROWS, 1));
    uint64_t where = qn_vk_address(p, ids);
    push->p[1] = p->step_number;
    push->p[2] = (uint32_t)where;
    push->p[3] = (uint32_t)(where >> 32);
    push->p[4] = (uint32_t)p->block_at;
    push->p[5] = (uint32_t)(p->block_at >> 32);
    return QN_OK;
}

/* ---- Cooperative */

/* FN of coop.comp. */
enum { TURN_A = 1, TURN_B = 2, STORE_WHOLE = 4, LOADS = 8 };
enum { WHOLE, CHECKED, SINGLE };

/* Subgroups down and across, fragments each of them has, fragments along k, slices in shared memory. */
typedef struct tile {
    uint32_t down, across, rows, columns, slices, stages;
} tile;

/* The first one that leaves no processor idle is taken, so smaller ones come later. The first was the fastest of eleven on an
 * H200 at 4096^3 (226 to 261 TFLOP/s, by layout). */
static const tile tiles[] = {{2, 4, 4, 2, 4, 1}, {2, 2, 4, 4, 2, 2}, {2, 4, 2, 2, 2, 2}, {2, 2, 2, 2, 2, 2}, {2, 2, 2, 1, 2, 2}};
enum { TILES = sizeof tiles / sizeof *tiles };

typedef struct shape { /* of a tile on this device */
    uint32_t down, across, slice;
} shape;

static shape shape_of(const qn_vk_coop *c, const tile *t) {
    return (shape){t->down * t->rows * c->m, t->across * t->columns * c->n, t->slices * c->k};
}

/* Shared memory as the shader lays it out, in words of 16 bytes. */
static uint64_t tile_words(const qn_vk_pack *p, shape s, uint32_t stages) {
    uint32_t fn = p->out->spec.fn;
    uint64_t a = fn & TURN_A ? (s.across / 8 + 1) * s.slice : (s.slice / 8 + 1) * s.across;
    uint64_t b = fn & TURN_B ? (s.down / 8 + 1) * s.slice : (s.slice / 8 + 1) * s.down;
    return (a + b) * stages;
}

static int tile_fits(const qn_vk_pack *p, const tile *t) {
    const qn_vk_facts *f = &p->device->facts;
    shape s = shape_of(&f->coop, t);
    uint64_t lanes = (uint64_t)t->down * t->across * f->info.subgroup, words = tile_words(p, s, t->stages);
    uint64_t most = f->properties.limits.maxComputeWorkGroupInvocations, wide = f->properties.limits.maxComputeWorkGroupSize[0];
    if (lanes == 0 || lanes > most || lanes > wide || words * 16 > f->properties.limits.maxComputeSharedMemorySize) return 0;
    if ((uint64_t)s.down * s.slice / 8 % lanes || (uint64_t)s.across * s.slice / 8 % lanes) return 0;
    return (uint64_t)t->down * t->across * f->coop.m * f->coop.n / 4 <= words; /* one fragment of sums per subgroup */
}

/* Which axis is contiguous in each operand, and how loads and stores may go. */
static uint32_t ways(const qn_vk_pack *p) {
    const qn_vk_push *u = &p->out->push;
    const qn_vk_spec *s = &p->out->spec;
    uint32_t fn = 0, k = u->p[0];
    int fast_a = u->sa[0] == 1 || u->sa[1] != 1 ? 0 : 1, fast_b = u->sb[0] == 1 || u->sb[1] != 1 ? 0 : 1;
    if (fast_a) fn |= TURN_A;
    if (fast_b) fn |= TURN_B;
    int eights = (fast_a ? u->n[0] : k) % 8 == 0 && (fast_b ? u->n[1] : k) % 8 == 0 && u->sa[fast_a] == 1 && u->sb[fast_b] == 1 &&
                 is_16_bytes(u->a, u->sa, fast_a, type_bytes(s->type_a)) &&
                 is_16_bytes(u->b, u->sb, fast_b, type_bytes(s->type_b));
    fn |= (eights ? CHECKED : SINGLE) * LOADS;
    if (u->sy[0] == 1 && is_16_bytes(u->y, u->sy, 0, type_bytes(s->type_y))) fn |= STORE_WHOLE;
    return fn;
}

static void refine(qn_vk_pack *p, shape s) {
    const qn_vk_push *u = &p->out->push;
    int whole = u->n[0] % s.across == 0 && u->n[1] % s.down == 0 && u->p[0] % s.slice == 0;
    if (whole && (p->out->spec.fn / LOADS & 3) == CHECKED) p->out->spec.fn -= (CHECKED - WHOLE) * LOADS;
}

/* Tiles that a product is cut into. */
static uint64_t count_tiles(const qn_vk_push *u, uint32_t down, uint32_t across) {
    return (uint64_t)((u->n[0] + across - 1) / across) * ((u->n[1] + down - 1) / down) * u->n[2] * u->n[3];
}

static qn_status halves_only(qn_vk_pack *p) {
    const qn_vk_spec *s = &p->out->spec;
    if (s->type_a != QN_VK_F16 || s->type_b == QN_VK_BF16 || s->type_y == QN_VK_BF16)
        return qn_vk_refuse(p, "cooperative matrices are for halves");
    return QN_OK;
}

static qn_status coop(qn_vk_pack *p, const product *x) {
    const qn_vk_device *d = p->device;
    enum { ENOUGH = 128 }; /* tiles for a device of many processors */
    int best = -1;
    if (!d->facts.coop.m || ((d->barred | d->distrusted) & QN_VULKAN_COOP)) return qn_vk_refuse(p, "no cooperative matrices");
    QN_TRY(pack_product(p, x));
    QN_TRY(halves_only(p));
    p->out->spec.fn = ways(p);
    for (int i = 0; i < TILES; i++) {
        if ((d->forced_tile >= 0 && d->forced_tile != i) || !tile_fits(p, &tiles[i])) continue;
        shape s = shape_of(&d->facts.coop, &tiles[i]);
        best = i;
        if (count_tiles(&p->out->push, s.down, s.across) >= ENOUGH) break;
    }
    if (best < 0) return qn_vk_refuse(p, "no tile fits the device");
    const tile *t = &tiles[best];
    shape s = shape_of(&d->facts.coop, t);
    refine(p, s);
    p->out->spec.lanes = t->down * t->across * d->facts.info.subgroup;
    const uint32_t numbers[9] = {
        s.down,          s.across,        s.slice,        t->rows * d->facts.coop.m, t->columns * d->facts.coop.n, t->stages,
        d->facts.coop.m, d->facts.coop.n, d->facts.coop.k};
    memcpy(p->out->spec.tile, numbers, sizeof numbers);
    return grid_of_tiles(p, s.across, s.down);
}

qn_status qn_vk_pack_mul_mat_coop(qn_vk_pack *p, uint32_t fn) {
    product x = of_mul_mat(p);
    (void)fn;
    return coop(p, &x);
}

qn_status qn_vk_pack_out_prod_coop(qn_vk_pack *p, uint32_t fn) {
    product x = of_out_prod(p);
    (void)fn;
    return coop(p, &x);
}

qn_status qn_vk_pack_matmul_coop(qn_vk_pack *p, uint32_t fn) {
    product x;
    (void)fn;
    QN_TRY(of_matmul(p, &x));
    return coop(p, &x);
}

const char *qn_vulkan_tile_name(const qn_device *device, int number, char *text, size_t room) {
    const qn_vk_facts *f = &((const qn_vk_device *)device)->facts;
    if (number < 0 || number >= TILES) return NULL;
    const tile *t = &tiles[number];
    shape s = shape_of(&f->coop, t);
    snprintf(text, room, "coop %ux%ux%u, %u lanes, %ux%u each, %u stage%s", s.down, s.across, s.slice,
             t->down * t->across * f->info.subgroup, t->rows * f->coop.m, t->columns * f->coop.n, t->stages,
             t->stages > 1 ? "s" : "");
    return text;
}
