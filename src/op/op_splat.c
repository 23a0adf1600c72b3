/* Gaussian splats: splat_render draws a scene; splat_prepare and splat_rasterize do the same in two steps, so that lists can be
 * kept or made elsewhere. A picture does not depend on the tiles it is drawn in: a tile's list only leaves out what no pixel of
 * the tile would show. The light is in splat.c, the gradient in op_splat_back.c. */
#include <math.h>

#include "op/op_emit.h"
#include "op/op_state.h"
#include "op/ref.h"
#include "op/splat.h"

enum { POSITIONS, LOG_SCALES, ROTATIONS, OPACITIES, COLOURS, CAMERA };
enum { SEEN_DOUBLES = (int)(sizeof(qn_splat_seen) / sizeof(double)) };

/* ---- Guards */

static qn_status need_camera(qn_infer_call *c, int slot) {
    QN_TRY(qn_need_rank(c, slot, 1));
    return qn_need_extent(c, slot, 0, QN_SPLAT_CAMERA);
}

qn_status qn_op_splat_check(qn_infer_call *c, int first) {
    static const int extents[] = {3, 3, 4};
    const qn_tensor *colours = c->src[first + COLOURS];
    int64_t n = qn_ne(c->src[first], 1), bases = qn_op_splat_bases(colours);
    for (int i = POSITIONS; i <= ROTATIONS; i++) {
        QN_TRY(qn_need_rank(c, first + i, 2));
        QN_TRY(qn_need_extent(c, first + i, 0, extents[i]));
        QN_TRY(qn_need_extent(c, first + i, 1, n));
    }
    QN_TRY(qn_need_rank(c, first + OPACITIES, 1));
    QN_TRY(qn_need_extent(c, first + OPACITIES, 0, n));
    QN_TRY(qn_need_rank(c, first + COLOURS, 3));
    QN_TRY(qn_need_extent(c, first + COLOURS, 0, 3));
    QN_TRY(qn_need_extent(c, first + COLOURS, bases ? 2 : 1, n));
    if (colours->rank == 3 && bases != 1 && bases != 4 && bases != 9 && bases != QN_SPLAT_BASES)
        return qn_reject_src(c, first + COLOURS, QN_REASON_SHAPE_EXTENT, 1, QN_SPLAT_BASES, bases);
    if (n > INT32_MAX) return qn_reject_src(c, first, QN_REASON_SHAPE_LARGE, 0, INT32_MAX, n);
    QN_TRY(need_camera(c, first + CAMERA));
    return qn_need_one_dtype(c, first);
}

static qn_status image_out(qn_infer_call *c, int32_t width, int32_t height, uint32_t dtype) {
    int64_t d[3] = {height, width, 4};
    return qn_out_shape(c, 0, dtype, 3, d);
}

qn_status qn_infer_splat_render(qn_infer_call *c) {
    const qn_attr_splat_render *at = c->attr;
    QN_TRY(qn_op_splat_check(c, 0));
    int64_t n = qn_ne(c->src[POSITIONS], 1);
    QN_TRY(qn_scratch_add(c, n, SEEN_DOUBLES + 3, 1)); /* what is seen, its order, a tile's list */
    /* Only what is certain: each splat is seen once, as splat_prepare counts it, and each number of the picture is made. How many
     * splats a pixel meets, which is most of the work, only the scene tells. */
    c->flops_each = 1 + QN_SPLAT_FIELDS * (double)n / (4.0 * at->width * at->height);
    return image_out(c, at->width, at->height, c->src[POSITIONS]->dtype);
}

qn_status qn_infer_splat_prepare(qn_infer_call *c) {
    const qn_attr_splat_prepare *at = c->attr;
    const qn_splat_view view = QN_SPLAT_VIEW_OF(at);
    QN_TRY(qn_op_splat_check(c, 0));
    int64_t n = qn_ne(c->src[POSITIONS], 1), tiles = view.across * view.down;
    QN_TRY(qn_scratch_add(c, n, SEEN_DOUBLES + 2, 1));
    QN_TRY(qn_scratch_add(c, tiles, 1, 1));
    int64_t splats[2] = {n, QN_SPLAT_FIELDS}, list = at->max_list, ranges[2] = {tiles, 2}, one = 1;
    QN_TRY(qn_out_shape(c, 0, c->src[POSITIONS]->dtype, 2, splats));
    QN_TRY(qn_out_shape(c, 1, QN_DTYPE_I32, 1, &list));
    QN_TRY(qn_out_shape(c, 2, QN_DTYPE_I32, 2, ranges));
    return qn_out_shape(c, 3, QN_DTYPE_I32, 1, &one);
}

qn_status qn_infer_splat_rasterize(qn_infer_call *c) {
    const qn_attr_splat_rasterize *at = c->attr;
    const qn_splat_view view = QN_SPLAT_VIEW_OF(at);
    int64_t n = qn_ne(c->src[0], 1);
    QN_TRY(qn_need_rank(c, 0, 2));
    QN_TRY(qn_need_extent(c, 0, 0, QN_SPLAT_FIELDS));
    QN_TRY(qn_need_rank(c, 1, 1));
    QN_TRY(qn_need_rank(c, 2, 2));
    QN_TRY(qn_need_extent(c, 2, 0, 2));
    QN_TRY(qn_need_extent(c, 2, 1, view.across * view.down));
    QN_TRY(need_camera(c, 3));
    QN_TRY(qn_need_same_dtype(c, 3, 0));
    QN_TRY(qn_scratch_add(c, n, SEEN_DOUBLES, 1));
    QN_TRY(qn_scratch_add(c, qn_ne(c->src[1], 0), 1, 1)); /* a tile's list */
    c->index_limit[1] = n > 0 ? n : 1;                    /* a scene of nothing has a list of nothing, filled with zeros */
    return image_out(c, at->width, at->height, c->src[0]->dtype);
}

/* ---- References */

/* One tile of a picture from its list. */
static void draw_tile(const qn_splat_view *v, int64_t tile, const qn_splat_seen *seen, const int64_t *list, int64_t n,
                      const qn_tensor *image) {
    qn_splat_box box = qn_op_splat_box(v, tile);
    for (int64_t y = box.y0; y < box.y1; y++)
        for (int64_t x = box.x0; x < box.x1; x++) {
            double light[3], left = qn_op_splat_pixel(v, x, y, seen, list, n, light, NULL, NULL);
            for (int k = 0; k < 3; k++) {
                double value = light[k] + left * v->background[k];
                qn_put4(image, 0, y, x, k, value > 0 ? pow(value, v->gamma) : 0);
            }
            qn_put4(image, 0, y, x, 3, 1 - left);
        }
}

qn_status qn_ref_splat_render(const qn_call *c) {
    const qn_attr_splat_render *at = c->attr;
    qn_splat_view view = QN_SPLAT_VIEW_OF(at);
    int64_t n = qn_ne(c->src[POSITIONS], 1);
    qn_splat_seen *seen = c->workspace;
    int64_t *order = (int64_t *)(seen + n), *list = order + 2 * n;
    QN_SPLAT_DRAW_OF(view, at);
    view.outward = at->outward;
    qn_op_splat_look(&view, c->src[CAMERA]);
    int64_t count = qn_op_splat_scene(&view, c->src, seen, order);
    for (int64_t tile = 0; tile < view.across * view.down; tile++)
        draw_tile(&view, tile, seen, list, qn_op_splat_list(&view, seen, order, count, tile, list), c->dst[0]);
    return QN_OK;
}

static void put_index(const qn_tensor *t, int64_t i1, int64_t i0, int64_t value) {
    qn_put4(t, 0, 0, i1, i0, (double)(value < INT32_MAX ? value : INT32_MAX));
}

static int is_in_tile(const qn_splat_view *v, const qn_splat_seen *s, int64_t tile) {
    qn_splat_box box = qn_op_splat_box(v, tile);
    qn_splat_window window = qn_op_splat_window(v, &box);
    return qn_op_splat_touches(s, &window);
}

/* Each tile's list behind the other's, as far as there is room for them taken from near to far. ends[] counts first, then says
 * where each tile's next id goes. */
static void put_lists(const qn_splat_view *v, const qn_splat_seen *seen, const int64_t *order, int64_t count, int64_t *ends,
                      const qn_call *c) {
    int64_t tiles = v->across * v->down, room = qn_ne(c->dst[1], 0), needed = 0, start = 0;
    for (int64_t t = 0; t < tiles; t++) ends[t] = 0;
    for (int64_t i = 0; i < count; i++)
        for (int64_t t = 0; t < tiles; t++)
            if (is_in_tile(v, &seen[order[i]], t) && needed++ < room) ends[t]++;
    for (int64_t t = 0; t < tiles; t++) {
        int64_t n = ends[t];
        put_index(c->dst[2], t, 0, n ? start : 0);
        put_index(c->dst[2], t, 1, n ? start + n : 0);
        ends[t] = start;
        start += n;
    }
    for (int64_t i = 0, put = 0; i < count && put < room; i++)
        for (int64_t t = 0; t < tiles && put < room; t++)
            if (is_in_tile(v, &seen[order[i]], t)) {
                put_index(c->dst[1], 0, ends[t]++, order[i]);
                put++;
            }
    for (int64_t i = start; i < room; i++) put_index(c->dst[1], 0, i, 0);
    put_index(c->dst[3], 0, 0, needed);
}

qn_status qn_ref_splat_prepare(const qn_call *c) {
    const qn_attr_splat_prepare *at = c->attr;
    qn_splat_view view = QN_SPLAT_VIEW_OF(at);
    int64_t n = qn_ne(c->src[POSITIONS], 1);
    qn_splat_seen *seen = c->workspace;
    int64_t *order = (int64_t *)(seen + n);
    view.outward = at->outward;
    qn_op_splat_look(&view, c->src[CAMERA]);
    int64_t count = qn_op_splat_scene(&view, c->src, seen, order);
    for (int64_t i = 0; i < n; i++) qn_op_splat_store(c->dst[0], i, &seen[i]);
    put_lists(&view, seen, order, count, order + 2 * n, c);
    return QN_OK;
}

/* Ids of one tile that name a valid splat; a range that leaves the list ends with it. */
static int64_t load_list(const qn_call *c, int64_t tile, const qn_splat_seen *seen, int64_t *list) {
    int64_t room = qn_ne(c->src[1], 0), n = qn_ne(c->src[0], 1), count = 0;
    int64_t start = qn_index4(c->src[2], 0, 0, tile, 0), end = qn_index4(c->src[2], 0, 0, tile, 1);
    for (int64_t i = start < 0 ? 0 : start; i < end && i < room; i++) {
        int64_t id = qn_index4(c->src[1], 0, 0, 0, i);
        if (id < n && seen[id].valid != 0) list[count++] = id;
    }
    return count;
}

qn_status qn_ref_splat_rasterize(const qn_call *c) {
    const qn_attr_splat_rasterize *at = c->attr;
    qn_splat_view view = QN_SPLAT_VIEW_OF(at);
    int64_t n = qn_ne(c->src[0], 1);
    qn_splat_seen *seen = c->workspace;
    int64_t *list = (int64_t *)(seen + n);
    QN_SPLAT_DRAW_OF(view, at);
    qn_op_splat_look(&view, c->src[3]);
    for (int64_t i = 0; i < n; i++) qn_op_splat_load(c->src[0], i, &seen[i]);
    for (int64_t tile = 0; tile < view.across * view.down; tile++)
        draw_tile(&view, tile, seen, list, load_list(c, tile, seen, list), c->dst[0]);
    return QN_OK;
}
