/* Elementwise regions as kernels of their own. What a kernel computes, dtypes included, is written down in a key; pipelines are found
 * by it, and it alone decides the emitted module. Shapes, strides and addresses are not in it: they come at run time. */
#include "op/region.h"
#include "vulkan/spirv_emit.h"
#include "vulkan/vk_layout.h"

/* Must agree with Block in glsl/region.comp. */
typedef struct region_block {
    int32_t stride[QN_VK_OPERANDS][4];
    uint64_t base[QN_VK_OPERANDS];
} region_block;
_Static_assert(sizeof(region_block) == 384, "as the shader has it");

/* The key: how many sources and outputs, their qn_vk_type, and the program's words. An output that nobody wants has NO_TYPE. */
enum { KEY_COUNTS, KEY_TYPES, BITS = 8 };

/* ---- Emitting */

typedef struct emission {
    qn_spirv s;
    const qn_vk_key *key;
    int n_src, n_dst;
    qn_region region;
    uint32_t at;                          /* where in the shape */
    uint32_t source[QN_VK_OPERANDS];      /* values read so far */
    uint32_t result[QN_REGION_MAX_STEPS]; /* of the steps */
} emission;

static uint32_t type_of(const emission *e, int slot) { return e->key->words[KEY_TYPES + slot]; }

static uint32_t operand(emission *e, int o) {
    if (o >= QN_REGION_STEP_BIT) return e->result[o - QN_REGION_STEP_BIT];
    if (!e->source[o]) {
        uint32_t arguments[3] = {qn_spirv_uint(&e->s, (uint32_t)o), qn_spirv_uint(&e->s, type_of(e, o)), e->at};
        e->source[o] = qn_spirv_call(&e->s, "read_source", 3, arguments);
    }
    return e->source[o];
}

static int is_word(const emission *e, int o) {
    return o < QN_REGION_STEP_BIT && (type_of(e, o) == QN_VK_I32 || type_of(e, o) == QN_VK_U32);
}

static uint32_t compare_words(emission *e, const qn_region_step *s) {
    uint32_t word[2], type = qn_spirv_uint(&e->s, type_of(e, s->operand[0]));
    for (int i = 0; i < 2; i++) {
        uint32_t arguments[3] = {qn_spirv_uint(&e->s, (uint32_t)s->operand[i]), type, e->at};
        word[i] = qn_spirv_call(&e->s, "read_word", 3, arguments);
    }
    uint32_t arguments[4] = {qn_spirv_uint(&e->s, (uint32_t)s->subop), type, word[0], word[1]};
    return qn_spirv_call(&e->s, "compare_words", 4, arguments);
}

static uint32_t emit_step(emission *e, const qn_region_step *s) {
    char name[64] = "step_";
    uint32_t arguments[1 + QN_REGION_MAX_OPERANDS];
    if (s->kind == QN_REGION_number) return qn_spirv_float(&e->s, s->number);
    if (s->kind == QN_REGION_compare && is_word(e, s->operand[0])) return compare_words(e, s);
    arguments[0] = qn_spirv_uint(&e->s, (uint32_t)s->subop);
    for (int i = 0; i < s->n_operands; i++) arguments[i + 1] = operand(e, s->operand[i]);
    strncat(name, qn_region_kind_name(s->kind), sizeof name - sizeof "step_");
    uint32_t value = qn_spirv_call(&e->s, name, s->n_operands + 1, arguments);
    if (s->dtype == QN_DTYPE_F32) return value;
    uint32_t rounding[2] = {qn_spirv_uint(&e->s, qn_vk_type_of(s->dtype)), value};
    return qn_spirv_call(&e->s, "round_to", 2, rounding);
}

const uint32_t *qn_vk_region_emit(qn_arena *arena, const qn_vk_key *key, size_t *n_words) {
    emission e = {.key = key};
    qn_code code = {.count = 0};
    const qn_vk_shader *base = &qn_vk_shaders[qn_vk_shader_find("region")];
    e.n_src = (int)(key->words[KEY_COUNTS] & ((1u << BITS) - 1));
    e.n_dst = (int)(key->words[KEY_COUNTS] >> BITS);
    int head = KEY_TYPES + e.n_src + e.n_dst;
    code.count = key->n - head;
    memcpy(code.w, key->words + head, (size_t)code.count * sizeof *code.w);
    qn_region_read(&code, &e.region);
    qn_spirv_begin(&e.s, arena, base->code, base->bytes / sizeof *base->code, "region");
    e.at = qn_spirv_parameter(&e.s, 0);
    for (int i = 0; i < e.region.n_steps; i++) e.result[i] = emit_step(&e, &e.region.step[i]);
    for (int i = 0; i < e.n_dst; i++) {
        uint32_t type = type_of(&e, e.n_src + i);
        if (type == QN_VK_NO_TYPE) continue;
        uint32_t arguments[4] = {qn_spirv_uint(&e.s, (uint32_t)(e.n_src + i)), qn_spirv_uint(&e.s, type), e.at,
                                 e.result[e.region.output[i]]};
        qn_spirv_call(&e.s, "write_output", 4, arguments);
    }
    return qn_spirv_finish(&e.s, n_words);
}

/* ---- Packing */

typedef struct operands {
    int n_src, n_dst;
    const qn_tensor *at[QN_VK_OPERANDS]; /* sources, then outputs; NULL where one is left out */
    const qn_tensor *shape;
} operands;

static qn_status gather(qn_vk_pack *p, int n_dst, operands *x) {
    const qn_checked_step *s = p->step;
    if (s->n_src + n_dst > QN_VK_OPERANDS) return qn_vk_refuse(p, "more sources than a kernel takes");
    x->n_src = s->n_src;
    x->n_dst = n_dst;
    x->shape = s->dst[0];
    for (int i = 0; i < s->n_src; i++) x->at[i] = s->src[i];
    for (int i = 0; i < n_dst; i++) {
        x->at[s->n_src + i] = i < s->n_dst ? s->dst[i] : NULL;
        if (!x->shape) x->shape = x->at[s->n_src + i];
    }
    return x->shape ? QN_OK : qn_vk_refuse(p, "it has no output");
}

/* Integers of 32 bits go through a float; only compare reads them as they are. */
static int loses_bits(const qn_region *r, const operands *x) {
    for (int i = 0; i < r->n_steps; i++)
        for (int k = 0; k < r->step[i].n_operands; k++) {
            int o = r->step[i].operand[k];
            if (o >= QN_REGION_STEP_BIT || r->step[i].kind == QN_REGION_compare || !x->at[o]) continue;
            int wide = x->at[o]->dtype == QN_DTYPE_I32 || x->at[o]->dtype == QN_DTYPE_U32;
            if (wide && r->step[i].dtype == QN_DTYPE_BF16) return 1;
        }
    return 0;
}

static qn_status fill_key(qn_vk_pack *p, const operands *x, const qn_code *code) {
    qn_vk_key *key = &p->out->key;
    key->words[KEY_COUNTS] = (uint32_t)x->n_src | (uint32_t)x->n_dst << BITS;
    key->n = KEY_TYPES;
    for (int i = 0; i < x->n_src + x->n_dst; i++) {
        qn_vk_type type = x->at[i] ? qn_vk_type_of(x->at[i]->dtype) : QN_VK_NO_TYPE;
        if (x->at[i] && type == QN_VK_NO_TYPE) return qn_vk_refuse(p, "no kernel for one of its dtypes");
        key->words[key->n++] = type;
    }
    memcpy(key->words + key->n, code->w, (size_t)code->count * sizeof *code->w);
    key->n += code->count;
    return QN_OK;
}

static qn_status pack(qn_vk_pack *p, const operands *x, const qn_code *code, const qn_region *r) {
    qn_vk_fold f = {.shape = x->shape, .n = x->n_src + x->n_dst};
    region_block block;
    uint64_t where;
    for (int i = 0; i < r->n_steps; i++)
        if (qn_vk_type_of(r->step[i].dtype) == QN_VK_NO_TYPE)
            return qn_vk_refuse(p, "a step has a dtype that kernels do not compute");
    if (loses_bits(r, x)) return qn_vk_refuse(p, "no kernel rounds 32-bit integers to bf16");
    QN_TRY(fill_key(p, x, code));
    for (int i = 0; i < f.n; i++) {
        f.operand[i] = x->at[i];
        for (int k = 0; x->at[i] && k < x->shape->rank; k++)
            if (qn_ne(x->at[i], k) != 1 && qn_ne(x->at[i], k) != qn_ne(x->shape, k))
                return qn_vk_refuse(p, "no region repeats a source");
    }
    QN_TRY(qn_vk_fold_axes(p, &f));
    memset(&block, 0, sizeof block);
    memcpy(block.stride, f.stride, sizeof block.stride);
    for (int i = 0; i < f.n; i++) block.base[i] = x->at[i] ? qn_vk_address(p, x->at[i]) : 0;
    void *to = qn_vk_take_block(p, sizeof block, &where);
    if (to) memcpy(to, &block, sizeof block);
    p->out->push.p[0] = (uint32_t)where;
    p->out->push.p[1] = (uint32_t)(where >> 32);
    return qn_vk_grid_elements(p);
}

qn_status qn_vk_pack_region(qn_vk_pack *p, uint32_t fn) {
    const qn_code *code = &((const qn_attr_region *)p->step->attr)->code;
    operands x;
    qn_region r;
    (void)fn;
    qn_region_read(code, &r);
    QN_TRY(gather(p, r.n_outputs, &x));
    return pack(p, &x, code, &r);
}

/* An op that could join a region, alone in one. */
qn_status qn_vk_pack_as_region(qn_vk_pack *p, uint32_t fn) {
    const qn_region_op *op = qn_region_op_of(p->step->op);
    qn_code code = {.count = 0};
    qn_region_step step = {.output = -1, .dtype = QN_DTYPE_F32};
    qn_dtype dtypes[QN_VK_OPERANDS];
    operands x;
    qn_region r;
    qn_region_fault fault;
    (void)fn;
    QN_TRY(gather(p, 1, &x));
    if (!op || op->n_attr + x.n_src > QN_REGION_MAX_OPERANDS) return qn_vk_refuse(p, "it is no step of a region");
    step.kind = QN_REGION_number;
    for (int i = 0; i < op->n_attr; i++) {
        memcpy(&step.number, (const char *)p->step->attr + op->attr_offset[i], sizeof step.number);
        qn_region_append(&code, &step);
    }
    step.kind = op->kind;
    step.subop = op->subop < 0 ? p->step->subop : op->subop;
    step.dtype = (qn_dtype)x.at[x.n_src]->dtype;
    step.output = 0;
    for (int i = 0; i < qn_region_operands(op->kind); i++) /* `not` has one source and two operands */
        step.operand[i] = i < x.n_src ? i : i - x.n_src < op->n_attr ? QN_REGION_STEP_BIT + i - x.n_src : 0;
    qn_region_append(&code, &step);
    for (int i = 0; i < x.n_src; i++) dtypes[i] = x.at[i] ? (qn_dtype)x.at[i]->dtype : QN_DTYPE_NONE;
    if (!qn_region_takes_subop(step.kind, step.subop) || !qn_region_decode(&code, x.n_src, dtypes, &r, &fault))
        return qn_vk_refuse(p, "no kernel for this combination of dtypes");
    return pack(p, &x, &code, &r);
}
