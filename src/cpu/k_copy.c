/* Copies and casts of whole tensors: dup, cont, cpy, cast, concat. A copy is brought to its fewest loops; then it is rows that lie side
 * by side, or two axes that change places, which goes by squares, or single elements. */
#include "cpu/k_copy.h"
#include "cpu/k_past.h"

/* Elements of a row that one unit takes; most rows in a bundle, and bytes of one of them. */
enum { PIECE = 4096, BUNDLE = 8, BUNDLE_PAST = 32, ROW = 4096 };

/* ---- Planning */

/* t as a tensor of the extents of `like`, which it may be when it is dense. */
static int as_shape(const qn_tensor *t, const qn_tensor *like, qn_tensor *out) {
    *out = *t;
    int same = 1;
    for (int k = 0; k < QN_MAX_RANK; k++) same &= qn_ne(t, k) == qn_ne(like, k);
    if (same) return 1;
    const qn_dtype_info *d = qn_dtype_describe((qn_dtype)t->dtype);
    if (!qn_cpu_is_dense(t) || qn_ne(like, 0) % d->block) return 0;
    int64_t step = d->bytes;
    out->rank = like->rank;
    for (int k = 0; k < like->rank; k++) {
        int i = like->rank - 1 - k;
        out->shape[i] = like->shape[i];
        out->stride[i] = step;
        step *= k == 0 ? like->shape[i] / d->block : like->shape[i];
    }
    return 1;
}

static void add_axis(qn_copy_loops *l, int64_t extent, int64_t from, int64_t to) {
    if (extent == 1) return;
    if (l->n && l->from_step[l->n - 1] == extent * from && l->to_step[l->n - 1] == extent * to) {
        l->extent[l->n - 1] *= extent;
        l->from_step[l->n - 1] = from;
        l->to_step[l->n - 1] = to;
        return;
    }
    l->extent[l->n] = extent;
    l->from_step[l->n] = from;
    l->to_step[l->n++] = to;
}

static void move_axis(qn_copy_loops *l, int i, int to) {
    for (; i < to; i++) {
#define SWAP(field)                    \
    do {                               \
        int64_t t = l->field[i];       \
        l->field[i] = l->field[i + 1]; \
        l->field[i + 1] = t;           \
    } while (0)
        SWAP(extent);
        SWAP(from_step);
        SWAP(to_step);
#undef SWAP
    }
}

/* An axis whose elements are neighbours where they come from, next to one whose elements are neighbours where they go. */
static void find_square(qn_copy_loops *l) {
    int last = l->n - 1;
    if (l->from != l->to || (l->size != 4 && l->size != 2) || last < 1) return;
    if (l->to_step[last] != l->size || l->from_step[last] == l->size) return;
    for (int i = 0; i < last; i++)
        if (l->from_step[i] == l->size && l->extent[i] >= 4) {
            move_axis(l, i, last - 1);
            l->square = 1;
            return;
        }
}

/* Rows that are neighbours where they come from and lie apart where they go, or the reverse: some of them at a time, so that both sides
 * are walked along a few streams and not from page to page. */
static void find_bundle(qn_copy_loops *l) {
    int last = l->n - 1;
    if (l->square || last < 2 || last + 1 >= QN_MAX_RANK || l->from != l->to) return;
    int64_t row = l->extent[last] * l->size;
    if (l->from_step[last] != l->size || l->to_step[last] != l->size || row > ROW || l->from_step[last - 1] == row) return;
    for (int i = 0; i < last - 1; i++) {
        int64_t some = l->past ? BUNDLE_PAST : BUNDLE;
        if (l->from_step[i] != row) continue;
        while (l->extent[i] % some) some /= 2;
        if (some == 1) return;
        for (int k = l->n++; k > i + 1; k--) {
            l->extent[k] = l->extent[k - 1];
            l->from_step[k] = l->from_step[k - 1];
            l->to_step[k] = l->to_step[k - 1];
        }
        l->extent[i + 1] = some;
        l->from_step[i + 1] = l->from_step[i];
        l->to_step[i + 1] = l->to_step[i];
        l->extent[i] /= some;
        l->from_step[i] *= some;
        l->to_step[i] *= some;
        move_axis(l, i + 1, last);
        return;
    }
}

static void cut_loops(qn_copy_loops *l) {
    int last = l->n - 1;
    l->units = 1;
    if (l->square) {
        l->pieces = (l->extent[last - 1] + qn_turn_wide(l) - 1) / qn_turn_wide(l);
        l->across = (l->extent[last] + QN_TURN_HIGH - 1) / QN_TURN_HIGH;
    } else {
        l->pieces = (l->extent[last] + PIECE - 1) / PIECE;
        l->across = 1;
    }
    for (int i = 0; i < last - l->square; i++) l->units *= l->extent[i];
    l->units *= l->pieces * l->across;
}

int qn_copy_plan(const qn_cpu_step *s, const qn_tensor *dst, const qn_tensor *src, qn_copy_loops *l) {
    qn_tensor a, b;
    const qn_dtype_info *from = qn_dtype_describe((qn_dtype)src->dtype);
    memset(l, 0, sizeof *l);
    if (qn_tensor_count(dst) == 0 || !qn_copy_can(src->dtype, dst->dtype)) return 0;
    if (as_shape(dst, src, &b)) a = *src;
    else if (as_shape(src, dst, &a)) b = *dst;
    else return 0;
    l->from = a.dtype;
    l->to = b.dtype;
    l->src = a.data ? qn_at(&a, 0) : NULL;
    l->dst = b.data ? qn_at(&b, 0) : NULL;
    l->size = from->bytes;
    l->past = qn_past_is(NULL, dst, &src, 1);
    l->far = qn_past_way(NULL, dst, &src, 1) != QN_NEAR;
    l->asks = l->far && s->is_near;
    int mixed = a.dtype != b.dtype && (qn_is_block(a.dtype) || qn_is_block(b.dtype));
    int rank = a.rank > b.rank ? a.rank : b.rank;
    int whole = mixed && qn_cpu_is_dense(&a) && qn_cpu_is_dense(&b); /* rows that lie behind each other are one */
    for (int k = rank - 1; k > 0 && !whole; k--) add_axis(l, qn_ne(&a, k), qn_nb(&a, k), qn_nb(&b, k));
    if (mixed) { /* a row of blocks is a loop of its own, counted in elements */
        int64_t size_a = from->bytes, size_b = qn_dtype_bytes(b.dtype);
        if ((!qn_is_block(a.dtype) && qn_nb(&a, 0) != size_a) || (!qn_is_block(b.dtype) && qn_nb(&b, 0) != size_b)) return 0;
        l->extent[l->n] = whole ? qn_tensor_count(&a) : qn_ne(&a, 0);
        l->from_step[l->n] = l->to_step[l->n] = 0;
        l->n++;
    } else add_axis(l, qn_ne(&a, 0) / from->block, qn_nb(&a, 0), qn_nb(&b, 0));
    if (l->n == 0) l->extent[l->n++] = 1;
    if (l->n == 1) l->past = qn_past_is(s, dst, &src, 1); /* one row of all: what is turned loses a fifth by way of the caches */
    find_square(l);
    find_bundle(l);
    cut_loops(l);
    return 1;
}

/* ---- Rows and elements */

#define ELEMENTS(type) \
    for (int64_t i = 0; i < n; i++) memcpy(dst + i * to, src + i * step, sizeof(type))

static void copy_elements(const char *src, int64_t step, char *dst, int64_t to, int64_t n, int64_t size) {
    switch (size) {
    case 1: ELEMENTS(uint8_t); return;
    case 2: ELEMENTS(uint16_t); return;
    case 4: ELEMENTS(uint32_t); return;
    case 8: ELEMENTS(uint64_t); return;
    default:
        for (int64_t i = 0; i < n; i++) memcpy(dst + i * to, src + i * step, (size_t)size);
    }
}

/* f32 to f16 or bf16 past the caches, by vectors. Returns how many elements it took. */
QN_INLINE int64_t halve_past(uint32_t to, const float *src, uint16_t *dst, int64_t n) {
    int64_t i = 0;
    for (; i + 2 * VF_N <= n; i += 2 * VF_N) {
        qn_past_ask((const char *)(src + i), 2 * VF_N * 4);
        qn_past_store16(to, dst + i, vf_load(src + i));
        qn_past_store16(to, dst + i + VF_N, vf_load(src + i + VF_N));
    }
    return i;
}

static void convert_piece(const qn_copy_loops *l, const char *src, char *dst, int64_t n) {
    int64_t size = qn_dtype_bytes(l->to);
    if (!l->past) {
        qn_copy_row(l->from, src, l->to, dst, n);
        return;
    }
    if (l->from == QN_DTYPE_F32 && qn_lanes_float(l->to) && (uintptr_t)dst % (VF_N * 2) == 0) {
#define HALVE_TO(d) done = halve_past(d, (const float *)(const void *)src, (uint16_t *)(void *)dst, n)
        int64_t done = 0;
        QN_BY_FLOAT(l->to, HALVE_TO);
        src += done * l->size, dst += done * size, n -= done;
    }
    _Alignas(64) char tile[QN_PAST_TILE];
    for (int64_t some; n > 0; n -= some, dst += some * size, src += some * l->size) {
        some = qn_past_some(dst, n, size);
        qn_past_ask(src, some * l->size);
        qn_copy_row(l->from, src, l->to, tile, some);
        qn_past_put(dst, tile, some * size);
    }
}

/* n elements from element `first` of a row. */
static void copy_piece(const qn_copy_loops *l, const char *src, char *dst, int64_t first, int64_t n) {
    int last = l->n - 1;
    const qn_dtype_info *b = qn_dtype_describe((qn_dtype)l->to);
    if (l->from != l->to && (qn_is_block(l->from) || qn_is_block(l->to))) {
        int64_t block = qn_dtype_describe((qn_dtype)l->from)->block;
        qn_copy_row(l->from, src + first / block * l->size, l->to, dst + first / b->block * b->bytes, n);
        return;
    }
    int64_t step = l->from_step[last], to = l->to_step[last];
    src += first * step;
    dst += first * to;
    if (l->extent[last] == 1) step = l->size, to = b->bytes;
    if (l->from == l->to) {
        if (step == l->size && to == l->size && l->past) qn_past_copy(dst, src, n * l->size, src + n * l->size);
        else if (step == l->size && to == l->size && l->asks) qn_far_copy(dst, src, n * l->size, src + n * l->size);
        else if (step == l->size && to == l->size) memmove(dst, src, (size_t)(n * l->size));
        else copy_elements(src, step, dst, to, n, l->size);
        return;
    }
    if (step == l->size && to == b->bytes) {
        convert_piece(l, src, dst, n);
        return;
    }
    double in[64], out[64]; /* of any plain type */
    for (int64_t i = 0; i < n; i += 64) {
        int64_t some = n - i < 64 ? n - i : 64;
        copy_elements(src + i * step, step, (char *)in, l->size, some, l->size);
        qn_copy_row(l->from, (const char *)in, l->to, (char *)out, some);
        copy_elements((const char *)out, b->bytes, dst + i * to, to, some, b->bytes);
    }
}

/* Where the outer loops stand at turn `rest` of them. */
static void outer_at(const qn_copy_loops *l, int outer, int64_t rest, const char **src, char **dst) {
    *src = l->src;
    *dst = l->dst;
    for (int i = outer - 1; i >= 0; i--) {
        *src += rest % l->extent[i] * l->from_step[i];
        *dst += rest % l->extent[i] * l->to_step[i];
        rest /= l->extent[i];
    }
}

/* Short rows as they are, without looking up where each of them stands. */
static void copy_short_rows(const qn_copy_loops *l, int64_t first, int64_t end) {
    int axis = l->n - 2;
    int64_t from = l->from_step[axis], to = l->to_step[axis];
    size_t bytes = (size_t)(l->extent[l->n - 1] * l->size);
    for (int64_t unit = first; unit < end;) {
        const char *src;
        char *dst;
        int64_t rows = l->extent[axis] - unit % l->extent[axis];
        if (rows > end - unit) rows = end - unit;
        outer_at(l, l->n - 1, unit, &src, &dst);
        for (int64_t i = 0; i < rows; i++) memmove(dst + i * to, src + i * from, bytes);
        unit += rows;
    }
}

static int is_short_rows(const qn_copy_loops *l) {
    int last = l->n - 1;
    return l->from == l->to && !l->square && !l->past && last > 0 && l->pieces == 1 && l->from_step[last] == l->size &&
           l->to_step[last] == l->size;
}

void qn_copy_units(const qn_copy_loops *l, int64_t first, int64_t end) {
    int last = l->n - 1, outer = last - l->square;
    if (l->src == l->dst && l->from == l->to) return; /* in place there is nothing to do */
    if (is_short_rows(l)) {
        copy_short_rows(l, first, end);
        return;
    }
    for (int64_t unit = first; unit < end; unit++) {
        int64_t down = unit / l->across % l->pieces, along = unit % l->across;
        const char *src;
        char *dst;
        outer_at(l, outer, unit / (l->pieces * l->across), &src, &dst);
        if (!l->square) {
            int64_t at = down * PIECE, n = l->extent[last] - at < PIECE ? l->extent[last] - at : PIECE;
            copy_piece(l, src, dst, at, n);
            continue;
        }
        qn_copy_turned(l, src, dst, down * qn_turn_wide(l), along * QN_TURN_HIGH);
    }
    if (l->past) qn_past_end();
}

/* ---- Ops */

static int prepare(qn_cpu_step *s, int phase, const qn_tensor *dst, const qn_tensor *src) {
    qn_copy_loops l;
    if (!qn_copy_plan(s, dst, src, &l)) return 0;
    double bytes = (double)qn_tensor_count(dst) * 8;
    if (qn_is_block(l.to) && l.from != l.to) bytes *= 16; /* encoders search */
    s->parts[phase] = qn_cpu_parts(l.units, bytes / (double)l.units, 0);
    return 1;
}

static void run_copy(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_copy_loops l;
    if (!qn_copy_plan(s, c->dst[0], c->src[0], &l)) return;
    qn_copy_units(&l, qn_cpu_cut(l.units, s->parts[phase], part), qn_cpu_cut(l.units, s->parts[phase], part + 1));
}

static int prepare_copy(const qn_call *c, qn_cpu_step *s) {
    s->run = run_copy;
    s->name = "copy";
    s->n_phases = 1;
    return prepare(s, 0, c->dst[0], c->src[0]);
}
int QN_K(dup)(const qn_call *c, qn_cpu_step *s) { return prepare_copy(c, s); }
int QN_K(cont)(const qn_call *c, qn_cpu_step *s) { return prepare_copy(c, s); }
int QN_K(cpy)(const qn_call *c, qn_cpu_step *s) { return prepare_copy(c, s); }
int QN_K(cast)(const qn_call *c, qn_cpu_step *s) { return prepare_copy(c, s); }

/* Part `which` of a concatenation, as a view of its result; the k-th axis from the end is the joined one. */
static qn_tensor joined(const qn_call *c, int which) {
    const qn_tensor *a = c->src[0], *b = c->src[1];
    int axis = ((const qn_attr_concat *)c->attr)->axis, rank = a->rank > b->rank ? a->rank : b->rank;
    int k = axis < 0 ? -1 - axis : rank - 1 - axis, i = c->dst[0]->rank - 1 - k;
    qn_tensor part = *c->dst[0];
    part.shape[i] = qn_ne(c->src[which], k);
    if (which) part.offset += qn_ne(a, k) / (k == 0 ? qn_dtype_describe((qn_dtype)a->dtype)->block : 1) * part.stride[i];
    return part;
}

static void run_concat(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_tensor to = joined(c, phase);
    qn_copy_loops l;
    if (!qn_copy_plan(s, &to, c->src[phase], &l)) return;
    qn_copy_units(&l, qn_cpu_cut(l.units, s->parts[phase], part), qn_cpu_cut(l.units, s->parts[phase], part + 1));
}

int QN_K(concat)(const qn_call *c, qn_cpu_step *s) {
    qn_tensor first = joined(c, 0), second = joined(c, 1);
    s->run = run_concat;
    s->name = "concat";
    s->n_phases = 2;
    return prepare(s, 0, &first, c->src[0]) && prepare(s, 1, &second, c->src[1]);
}
