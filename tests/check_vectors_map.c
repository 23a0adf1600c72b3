/* From ggml's op names, source order and parameter words to our ops and typed attributes. The rows are vectors_map.def; here are
 * only the functions that a row cannot say in its own words, mostly because ggml counts axes from the fastest. */
#include <strings.h>

#include "check_vectors.h"

int qn_vec_shape(const qn_vec_tensor *t, int least, int64_t *shape) {
    int rank = QN_VEC_AXES;
    while (rank > least && t->ne[rank - 1] == 1) rank--;
    for (int i = 0; i < rank; i++) shape[i] = t->ne[rank - 1 - i];
    return rank;
}

static float f32_word(int32_t word) {
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static qn_dims dst_shape(const qn_vec_case *c) {
    qn_dims dims = {0};
    dims.rank = qn_vec_shape(&c->dst, QN_VEC_AXES, dims.d);
    return dims;
}

/* Four words, one per axis and each `step` from the next, turned round. */
static qn_dims four_reversed(const int32_t *word, int step) {
    qn_dims dims = {0};
    dims.rank = QN_VEC_AXES;
    for (int axis = 0; axis < QN_VEC_AXES; axis++) dims.d[QN_VEC_AXES - 1 - axis] = word[axis * step];
    return dims;
}

static void pad_lists(const qn_vec_case *c, qn_dims *left, qn_dims *right) {
    *left = four_reversed(c->params, 2);
    *right = four_reversed(c->params + 1, 2);
}

static void roll_shifts(const qn_vec_case *c, qn_dims *shift) { *shift = four_reversed(c->params, 1); }

/* Outside 0..3 it stays outside: the op must say so. */
static void concat_axis(const qn_vec_case *c, int32_t *axis) {
    int32_t dim = c->params[0];
    *axis = dim >= 0 && dim < QN_VEC_AXES ? -1 - dim : INT32_MAX;
}

/* ggml tells where each axis goes, we tell where each axis of the result comes from. */
static void permute_axes(const qn_vec_case *c, qn_dims *axes) {
    axes->rank = QN_VEC_AXES;
    for (int i = 0; i < QN_VEC_AXES; i++) axes->d[i] = -1;
    for (int axis = 0; axis < QN_VEC_AXES; axis++) {
        int32_t to = c->params[axis];
        if (to >= 0 && to < QN_VEC_AXES) axes->d[QN_VEC_AXES - 1 - to] = QN_VEC_AXES - 1 - axis;
    }
}

/* set and acc: ggml gives the byte strides of all axes of the region but the fastest, which is dense. */
static void region(const qn_vec_case *c, qn_dims *strides, int64_t *offset) {
    const qn_dtype_info *info = qn_dtype_describe(c->dst.dtype);
    strides->rank = QN_VEC_AXES;
    for (int axis = 1; axis < QN_VEC_AXES; axis++) strides->d[QN_VEC_AXES - 1 - axis] = c->params[axis - 1];
    strides->d[QN_VEC_AXES - 1] = info ? info->bytes : 0;
    *offset = c->params[3];
}

/* The offset is one 64-bit number in two words; extents and strides are the result's own. */
static void view_window(const qn_vec_case *c, qn_dims *strides, int64_t *offset) {
    strides->rank = QN_VEC_AXES;
    for (int axis = 0; axis < QN_VEC_AXES; axis++) strides->d[QN_VEC_AXES - 1 - axis] = c->dst.nb[axis];
    *offset = (int64_t)((uint64_t)(uint32_t)c->params[1] << 32 | (uint32_t)c->params[0]);
}

/* The 1-D form names three extents. */
static void im2col_image(const qn_vec_case *c, qn_dims *shape) {
    shape->rank = qn_vec_shape(&c->dst, c->params[6] ? QN_VEC_AXES : QN_VEC_AXES - 1, shape->d);
}

static void rope_sections(const qn_vec_case *c, qn_dims *sections) {
    for (int i = 0; i < 4; i++) {
        sections->d[i] = c->params[11 + i];
        if (sections->d[i]) sections->rank = 4; /* all zero: not a mode that has sections */
    }
}

static void upscale_mode(const qn_vec_case *c, int32_t *mode, int32_t *align_corners, int32_t *antialias) {
    uint32_t bits = (uint32_t)c->params[0];
    *mode = (int32_t)(bits & 0xff);
    *align_corners = bits >> 8 & 1;
    *antialias = bits >> 9 & 1;
}

#define NONE
#define I32(field, p) a->field = c->params[p];
#define F32(field, p) a->field = f32_word(c->params[p]);
#define EXTENT(field, axis) a->field = c->dst.ne[axis];
#define SHAPE a->shape = dst_shape(c);
#define DTYPE a->dtype = (int32_t)c->dst.dtype;
#define WHEN(p, fields) \
    if (c->params[p]) { \
        fields          \
    }
#define FOR(number, fields)       \
    if (subop == (int)(number)) { \
        fields                    \
    }
#define CALL(function, ...) function(c, __VA_ARGS__);
#define QN_VECTOR(op, sources, rank, compare, attributes)                             \
    static void attributes_##op(const qn_vec_case *c, int subop, qn_vec_attr *attr) { \
        qn_attr_##op *a = &attr->op;                                                  \
        *a = qn_attr_##op##_default();                                                \
        (void)c, (void)subop;                                                         \
        attributes                                                                    \
    }
#include "vectors_map.def"
#undef QN_VECTOR

static const qn_vec_row rows[] = {
#define QN_VECTOR(op, sources, rank, compare, attributes) {QN_OP_##op, sources, rank, QN_VEC_##compare, attributes_##op},
#include "vectors_map.def"
#undef QN_VECTOR
};

/* "UNARY.SILU" in two parts, in our case. */
static void split_name(const char *name, char *op, char *subop, size_t size) {
    char *out = op;
    size_t n = 0;
    *subop = 0;
    for (; *name; name++) {
        if (*name == '.' && out == op) {
            out[n] = 0;
            out = subop;
            n = 0;
        } else if (n + 1 < size) {
            out[n++] = *name >= 'A' && *name <= 'Z' ? (char)(*name - 'A' + 'a') : *name;
        }
    }
    out[n] = 0;
}

const qn_vec_row *qn_vec_find(const qn_vec_case *c, int *subop) {
    char op[sizeof c->op], sub[sizeof c->op];
    split_name(c->op, op, sub, sizeof op);
    int number = qn_op_from_name(op);
    int n_sub = qn_subop_count(number);
    *subop = 0;
    if (sub[0]) *subop = qn_subop_from_name(number, sub);
    else if (n_sub > 0) *subop = c->params[0];
    if (number < 0 || *subop < 0 || (*subop > 0 && *subop >= n_sub)) return NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == number) return &rows[i];
    return NULL;
}
