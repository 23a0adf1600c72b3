/* linear and its kin: products of one x with one or more matrices by way of mul_mat's kernel, then what follows them (bias, activation,
 * gate, residual) over the results while those are still warm. The parts of all products are one list, so that two small ones
 * share the threads as one large one would; their packed weights are one block. */
#include "cpu/kernel.h"

enum { PRODUCTS = 4, OUTPUTS = QN_MAX_DST, COLUMNS = 1024, LINE = 64 }; /* COLUMNS: of a unit of the epilogue */

int QN_K(mul_mat)(const qn_call *c, qn_cpu_step *s);

/* What an op asks for: x times the weights in some slots, each into an output or aside, and outputs made of that. */
typedef struct job {
    int n, slot[PRODUCTS];
    const qn_tensor *y[PRODUCTS]; /* NULL: aside, which one product at most is */
    int64_t aside;                /* columns of that one */
    int n_out, bias[OUTPUTS];
    const qn_tensor *out[OUTPUTS];
    int64_t first[OUTPUTS]; /* column of the bias, and of what is aside */
    int32_t act;
    int transposed, residual, gate, split; /* residual: slot, -1: none; gate: what is aside gates; split: it is handed out */
} job;

typedef struct product {
    qn_tensor w, y;
    const qn_tensor *src[QN_MAX_SRC], *dst[QN_MAX_DST];
    qn_attr_mul_mat attr;
    qn_call call;
} product;

static size_t in_lines(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

/* ---- The ops */

static const qn_tensor *source(const qn_call *c, int slot) { return slot < c->n_src ? c->src[slot] : NULL; }

static void add_product(job *j, int slot, const qn_tensor *y) {
    j->slot[j->n] = slot;
    j->y[j->n++] = y;
}

static void add_output(job *j, int bias, int64_t first, const qn_tensor *y) {
    j->bias[j->n_out] = bias;
    j->first[j->n_out] = first;
    j->out[j->n_out++] = y;
}

static void describe_split(const qn_call *c, job *j) {
    const qn_attr_linear_split *at = c->attr;
    j->act = at->act;
    j->split = 1;
    for (int i = 0; i < at->widths.rank; j->aside += at->widths.d[i++])
        if (i < c->n_dst && c->dst[i]) add_output(j, 2, j->aside, c->dst[i]);
    add_product(j, 1, NULL);
}

static job describe(const qn_call *c) {
    const qn_attr_linear *at = c->attr; /* the first attributes are the same for all */
    job j = {.transposed = at->transpose_w, .act = -1, .residual = -1};
    if (c->op == QN_OP_linear) {
        j.act = at->act;
        j.residual = source(c, 3) ? 3 : -1;
        add_product(&j, 1, c->dst[0]);
        add_output(&j, 2, 0, c->dst[0]);
    } else if (c->op == QN_OP_linear_split) {
        describe_split(c, &j);
    } else if (c->op == QN_OP_linear_group) {
        for (int i = 0; i < PRODUCTS; i++) {
            if (!source(c, 1 + i) || i >= c->n_dst || !c->dst[i]) continue;
            add_product(&j, 1 + i, c->dst[i]);
            add_output(&j, 1 + PRODUCTS + i, 0, c->dst[i]);
        }
    } else {
        j.gate = 1;
        j.aside = qn_ne(c->dst[0], 0);
        add_product(&j, 1, c->dst[0]);
        add_product(&j, 2, NULL);
        add_output(&j, 3, 0, c->dst[0]);
    }
    return j;
}

/* The mul_mat that product i is; `aside` is where one without a tensor of its own goes. */
static void make_product(const qn_call *c, const job *j, int i, float *aside, void *workspace, product *p) {
    const qn_tensor *w = c->src[j->slot[i]];
    p->w = *w;
    if (!j->transposed) {
        p->w.shape[0] = w->shape[1];
        p->w.stride[0] = w->stride[1];
        p->w.shape[1] = w->shape[0];
        p->w.stride[1] = w->stride[0];
    }
    p->y = j->y[i] ? *j->y[i] : *c->src[0];
    if (!j->y[i]) { /* x's rows, dense, of other width */
        int64_t step = 4;
        p->y.dtype = QN_DTYPE_F32;
        p->y.data = aside;
        p->y.offset = 0;
        p->y.shape[p->y.rank - 1] = j->aside;
        for (int k = p->y.rank - 1; k >= 0; step *= p->y.shape[k--]) p->y.stride[k] = step;
    }
    memset(p->src, 0, sizeof p->src);
    memset(p->dst, 0, sizeof p->dst);
    p->src[0] = &p->w;
    p->src[1] = c->src[0];
    p->dst[0] = &p->y;
    p->attr = qn_attr_mul_mat_default();
    p->call = (qn_call){QN_OP_mul_mat, 0, 2, 1, p->src, p->dst, &p->attr, workspace};
}

/* ---- What follows */

/* Some other op on the same level, or by its reference: y is what it is given. */
static void run_here(int level, const qn_call *c) {
    qn_cpu_step s = {.constant = 0};
    if (!qn_cpu_choose((2u << level) - 1, c, &s) || s.workspace) {
        (void)qn_op_rules_of(c->op)->reference(c);
        return;
    }
    for (int phase = 0; phase < s.n_phases; phase++)
        for (int64_t part = 0; part < s.parts[phase]; part++) s.run(c, &s, phase, part);
}

static qn_tensor line_of(float *x, int64_t n) {
    qn_tensor t = {.dtype = QN_DTYPE_F32, .rank = 1, .data = x, .size = (uint64_t)n * 4};
    t.shape[0] = n;
    t.stride[0] = 4;
    return t;
}

static void apply_unary(int level, int32_t act, float *x, int64_t n) {
    qn_tensor t = line_of(x, n);
    const qn_tensor *src[QN_MAX_SRC] = {&t}, *dst[QN_MAX_DST] = {&t};
    qn_attr_unary at = qn_attr_unary_default();
    run_here(level, &(qn_call){QN_OP_unary, act, 1, 1, src, dst, &at, NULL});
}

static void add_to(float *y, const float *x, int64_t n) {
    int64_t i = 0;
    for (; i + VF_N <= n; i += VF_N) vf_store(y + i, vf_load(y + i) + vf_load(x + i));
    for (; i < n; i++) y[i] += x[i];
}

/* y = gate(y) x: an activation and a product, where the gate is one. */
static void apply_gate(int level, const qn_call *c, float *y, float *x, int64_t n) {
    static const int acts[QN_GLU_COUNT] = {
        [QN_GLU_reglu] = QN_UNARY_relu,
        [QN_GLU_geglu] = QN_UNARY_gelu,
        [QN_GLU_swiglu] = QN_UNARY_silu,
        [QN_GLU_geglu_erf] = QN_UNARY_gelu_erf,
        [QN_GLU_geglu_quick] = QN_UNARY_gelu_quick,
        [QN_GLU_swiglu_oai] = -1,
    };
    if (acts[c->subop] >= 0) {
        int64_t i = 0;
        float away = c->subop == QN_GLU_reglu ? 0 : NAN; /* what reglu gates away is away, whatever it is multiplied with */
        apply_unary(level, acts[c->subop], y, n);
        for (; i + VF_N <= n; i += VF_N) {
            vf u = vf_load(y + i);
            vf_store(y + i, vf_select(u == vf_set1(away), u, u * vf_load(x + i)));
        }
        for (; i < n; i++) y[i] *= y[i] == away ? 1 : x[i];
        return;
    }
    const qn_attr_linear_glu *at = c->attr;
    qn_tensor a = line_of(y, n), b = line_of(x, n);
    const qn_tensor *src[QN_MAX_SRC] = {&a, &b}, *dst[QN_MAX_DST] = {&a};
    qn_attr_glu gate = qn_attr_glu_default();
    gate.alpha = at->alpha;
    gate.limit = at->limit;
    run_here(level, &(qn_call){QN_OP_glu, c->subop, 2, 1, src, dst, &gate, NULL});
}

static float *float_at(const qn_tensor *t, int64_t i) { return (float *)qn_at(t, i * 4); }

/* Columns [from, from + n) of row `row` of output i. */
static void finish(const qn_call *c, const qn_cpu_step *s, const job *j, int i, int64_t row, int64_t from, int64_t n,
                   float *aside) {
    int64_t at = row * qn_ne(j->out[i], 0) + from;
    float *y = float_at(j->out[i], at), *other = aside + row * j->aside + j->first[i] + from;
    if (j->split) memcpy(y, other, (size_t)n * sizeof *y);
    if (source(c, j->bias[i])) add_to(y, float_at(c->src[j->bias[i]], j->first[i] + from), n);
    if (j->gate) {
        if (source(c, 4)) add_to(other, float_at(c->src[4], from), n);
        apply_gate(s->level, c, y, other, n);
    }
    if (j->act >= 0) apply_unary(s->level, j->act, y, n);
    if (j->residual >= 0) add_to(y, float_at(c->src[j->residual], at), n);
}

static int64_t rows_of(const qn_tensor *y) { return qn_ne(y, 0) ? qn_tensor_count(y) / qn_ne(y, 0) : 0; }
static int64_t blocks_of(const qn_tensor *y) { return (qn_ne(y, 0) + COLUMNS - 1) / COLUMNS; }
static int64_t units_of(const qn_tensor *y) { return rows_of(y) * blocks_of(y); }

static int64_t finish_units(const job *j) {
    int64_t units = 0;
    for (int i = 0; i < j->n_out; i++) units += units_of(j->out[i]);
    return units;
}

static void run_finish(const qn_call *c, const qn_cpu_step *s, const job *j, int64_t part, float *aside) {
    int64_t all = finish_units(j), end = qn_cpu_cut(all, s->parts[2], part + 1);
    for (int64_t unit = qn_cpu_cut(all, s->parts[2], part); unit < end; unit++) {
        int64_t left = unit;
        int i = 0;
        for (; left >= units_of(j->out[i]); i++) left -= units_of(j->out[i]);
        int64_t row = left / blocks_of(j->out[i]), from = left % blocks_of(j->out[i]) * COLUMNS, wide = qn_ne(j->out[i], 0);
        finish(c, s, j, i, row, from, wide - from < COLUMNS ? wide - from : COLUMNS, aside);
    }
}

/* ---- Running. Of product i the step remembers parts of both phases and lines of workspace in n[i], where its packed weights begin
 * in n[PRODUCTS + i]. */

static int64_t remember(const qn_cpu_step *s) {
    return s->parts[0] | s->parts[1] << 8 | (int64_t)(in_lines(s->workspace) / LINE) << 16;
}
static int64_t parts_of(int64_t number, int phase) { return number >> (8 * phase) & 255; }

static size_t aside_bytes(const qn_call *c, const job *j) {
    return in_lines((size_t)(rows_of(c->src[0]) * j->aside) * sizeof(float));
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    job j = describe(c);
    product p;
    float *aside = c->workspace;
    char *workspace = (char *)c->workspace + aside_bytes(c, &j);
    if (phase == 2) {
        run_finish(c, s, &j, part, aside);
        return;
    }
    int i = 0;
    for (; part >= parts_of(s->n[i], phase); i++) {
        part -= parts_of(s->n[i], phase);
        workspace += (s->n[i] >> 16) * LINE;
    }
    qn_cpu_step inner = {.constant = s->constant, .level = s->level, .inner = s->inner, .contest = s->contest};
    inner.parts[0] = parts_of(s->n[i], 0);
    inner.parts[1] = parts_of(s->n[i], 1);
    inner.packed = s->packed ? (const char *)s->packed + s->n[PRODUCTS + i] : NULL;
    make_product(c, &j, i, aside, workspace, &p);
    s->wrapped(&p.call, &inner, phase, part);
}

/* The parts of packing come from the products again, which is cheap beside what they do. */
static void pack(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) {
    job j = describe(c);
    product p;
    for (int i = 0; i < j.n; i++) {
        qn_cpu_step inner = {.constant = 1};
        make_product(c, &j, i, NULL, NULL, &p);
        if (!QN_K(mul_mat)(&p.call, &inner) || !inner.pack) return;
        if (part < inner.pack_parts) {
            inner.pack(&p.call, &inner, (char *)packed + s->n[PRODUCTS + i], part);
            return;
        }
        part -= inner.pack_parts;
    }
}

/* Of its own, because what it makes differs: packed weights are told apart by who packed them. */
static void pack_transposed(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) { pack(c, s, packed, part); }

/* ---- Choosing */

static int is_plain(const qn_tensor *t) { return !t || (t->dtype == QN_DTYPE_F32 && qn_cpu_is_dense(t)); }

static int is_ours(const qn_call *c, const job *j) {
    uint32_t x = c->src[0]->dtype;
    int plain = (x == QN_DTYPE_F32 || x == QN_DTYPE_F16 || x == QN_DTYPE_BF16) && c->src[0]->rank <= 4 && qn_ne(c->src[0], 0) > 0;
    for (int i = 0; i < j->n_out; i++)
        plain &= is_plain(j->out[i]) && is_plain(source(c, j->bias[i])) && qn_tensor_count(j->out[i]) > 0;
    if (j->gate) plain &= is_plain(source(c, 4));
    return plain && j->n_out > 0 && (j->residual < 0 || is_plain(c->src[j->residual]));
}

static int follows(const qn_call *c, const job *j) {
    int something = j->act >= 0 || j->residual >= 0 || j->gate || j->split;
    for (int i = 0; i < j->n_out; i++) something |= source(c, j->bias[i]) != NULL;
    return something;
}

/* Product i joins the step; 0: it is not like those before it. */
static int join(const qn_call *c, const job *j, int i, qn_cpu_step *s) {
    product p;
    qn_cpu_step inner = {.constant = s->constant >> j->slot[i] & 1u, .level = s->level};
    make_product(c, j, i, NULL, NULL, &p);
    if (!QN_K(mul_mat)(&p.call, &inner) || inner.n_phases != 2 || inner.parts[0] > 255 || inner.parts[1] > 255) return 0;
    int packs = inner.pack != NULL;
    if (i > 0 && (s->wrapped != inner.run || s->inner != inner.inner || packs != (s->pack != NULL))) return 0;
    s->wrapped = inner.run;
    s->inner = inner.inner;
    s->name = inner.name;
    s->n[i] = remember(&inner);
    s->n[PRODUCTS + i] = (int64_t)s->packed_bytes;
    s->parts[0] += inner.parts[0];
    s->parts[1] += inner.parts[1];
    s->workspace += in_lines(inner.workspace);
    if (!packs) return 1;
    s->pack = j->transposed ? pack_transposed : pack;
    if (i == 0) s->pack_slot = j->slot[0];
    else if (j->slot[i] != s->pack_slot) s->pack_more |= 1u << j->slot[i];
    s->pack_parts += inner.pack_parts;
    s->packed_bytes += in_lines(inner.packed_bytes);
    s->pack_late = inner.pack_late;
    return 1;
}

static int prepare(const qn_call *c, qn_cpu_step *s) {
    job j = describe(c);
    if (!is_ours(c, &j)) return 0;
    s->workspace = aside_bytes(c, &j);
    for (int i = 0; i < j.n; i++)
        if (!join(c, &j, i, s)) return 0;
    s->run = run;
    s->n_phases = 2;
    if (follows(c, &j)) s->parts[s->n_phases++] = qn_cpu_parts(finish_units(&j), COLUMNS * 12.0, COLUMNS * 20.0);
    return 1;
}

int QN_K(linear)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s); }
int QN_K(linear_split)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s); }
int QN_K(linear_group)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s); }
int QN_K(linear_glu)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s); }
