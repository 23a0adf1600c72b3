/* Programs of regions: words into steps and back, what a step computes, and which ops can be one. */
#include "op/region.h"

#include "op/scalar_math.h"
#include "tensor/half.h"

/* ---- The tables */

typedef enum types { NUMBER, MAP, CAST, COMPARE, LOGIC, WHERE } types;

typedef struct kind {
    const char *name;
    int operands, subops;
    types types;
} kind;

static const kind kinds[] = {
#define QN_REGION_KIND(name, operands, subops, types, formula) {#name, operands, subops, types},
#include "op/region_ops.def"
#undef QN_REGION_KIND
};

enum { OWN = -1 };
#define QN_REGION_NONE
#define QN_REGION_ATTR(op, field) offsetof(qn_attr_##op, field),
#define QN_REGION_OP(op, kind, subop, constants) static const uint32_t offsets_##op[] = {constants 0};
#include "op/region_ops.def"
#undef QN_REGION_OP
#undef QN_REGION_ATTR
#define QN_REGION_ATTR(op, field) +1

const qn_region_op *qn_region_op_of(int op) {
    static const qn_region_op ops[QN_OP_COUNT] = {
#define QN_REGION_OP(op, kind, subop, constants) [QN_OP_##op] = {QN_REGION_##kind, subop, 0 constants, offsets_##op},
#include "op/region_ops.def"
#undef QN_REGION_OP
    };
    return op >= 0 && op < QN_OP_COUNT && ops[op].attr_offset ? &ops[op] : NULL;
}

int qn_region_operands(qn_region_kind k) { return kinds[k].operands; }
int qn_region_subops(qn_region_kind k) { return kinds[k].subops; }
const char *qn_region_kind_name(qn_region_kind k) { return kinds[k].name; }

int qn_region_takes_subop(qn_region_kind k, int subop) {
    int with_parameters = (k == QN_REGION_unary || k == QN_REGION_unary_back) && subop == QN_UNARY_xielu;
    return subop >= 0 && subop < kinds[k].subops && !with_parameters;
}

/* ---- Words */

enum { OUTPUT_BIT = 31, STRAY_BITS = 0x7f000000 };

/* One step as its words say it; kind is in range. */
static void unpack(const uint32_t *w, qn_region_step *s) {
    s->subop = (int)(w[0] >> 8 & 255);
    s->dtype = (qn_dtype)(w[0] >> 16 & 255);
    s->n_operands = kinds[s->kind].operands;
    for (int i = 0; i < QN_REGION_MAX_OPERANDS; i++) s->operand[i] = i < s->n_operands ? (int)(w[1] >> 8 * i & 255) : 0;
    s->number = s->kind == QN_REGION_number ? qn_bits_to_f32(w[1]) : 0;
}

static void number_output(qn_region *r, int i, uint32_t head) {
    r->step[i].output = -1;
    if (!(head >> OUTPUT_BIT)) return;
    r->step[i].output = r->n_outputs;
    if (r->n_outputs < QN_REGION_MAX_OUTPUTS) r->output[r->n_outputs] = i;
    r->n_outputs++;
}

void qn_region_read(const qn_code *code, qn_region *r) {
    r->n_steps = code->count / 2;
    r->n_outputs = 0;
    for (int i = 0; i < r->n_steps; i++) {
        r->step[i].kind = (qn_region_kind)(code->w[2 * i] & 255);
        unpack(&code->w[2 * i], &r->step[i]);
        number_output(r, i, code->w[2 * i]);
    }
}

int qn_region_append(qn_code *code, const qn_region_step *s) {
    if (code->count + 2 > QN_MAX_WORDS) return 0;
    uint32_t head = (uint32_t)s->kind | (uint32_t)s->subop << 8 | (uint32_t)s->dtype << 16, tail = 0;
    for (int i = 0; i < kinds[s->kind].operands; i++) tail |= (uint32_t)s->operand[i] << 8 * i;
    code->w[code->count++] = head | (s->output >= 0 ? 1u << OUTPUT_BIT : 0);
    code->w[code->count++] = s->kind == QN_REGION_number ? qn_f32_to_bits(s->number) : tail;
    return 1;
}

int qn_region_of_op(int op, int subop, const void *attr, int n_src, qn_dtype dtype, qn_region *r) {
    const qn_region_op *o = qn_region_op_of(op);
    if (!o || !qn_region_takes_subop(o->kind, o->subop == OWN ? subop : o->subop)) return 0;
    int last = o->n_attr, given = n_src + o->n_attr;
    qn_region_step *s = &r->step[last];
    for (int i = 0; i < o->n_attr; i++) {
        r->step[i] = (qn_region_step){.kind = QN_REGION_number, .dtype = QN_DTYPE_F32, .output = -1};
        memcpy(&r->step[i].number, (const char *)attr + o->attr_offset[i], sizeof r->step[i].number);
    }
    *s = (qn_region_step){o->kind, o->subop == OWN ? subop : o->subop, dtype, 0, kinds[o->kind].operands, {0}, 0};
    for (int i = 0; i < s->n_operands; i++) /* what has one operand fewer takes the first once more */
        s->operand[i] = i < n_src ? i : i < given ? QN_REGION_STEP_BIT + i - n_src : 0;
    r->n_steps = last + 1;
    r->n_outputs = 1;
    r->output[0] = last;
    return 1;
}

/* ---- Checks */

static int refuse(qn_region_fault *f, qn_reason reason, int step, int64_t expected, int64_t actual) {
    *f = (qn_region_fault){reason, step, expected, actual};
    return 0;
}

/* dtype of an operand, QN_DTYPE_NONE when there is no such thing. */
static qn_dtype operand_dtype(const qn_region *r, int n_src, const qn_dtype *dtypes, int before, int operand) {
    int step = operand - QN_REGION_STEP_BIT;
    if (step >= 0) return step < before ? r->step[step].dtype : QN_DTYPE_NONE;
    return operand < n_src ? dtypes[operand] : QN_DTYPE_NONE;
}

static int is_truth(qn_dtype d) { return d == QN_DTYPE_BOOL; }

/* Whether a step may take these dtypes; *wrong is the first operand that does not fit, or -1 for the result. */
static int types_fit(const qn_region_step *s, const qn_dtype *have, int *wrong) {
    types t = kinds[s->kind].types;
    int gives_float = qn_is_float(s->dtype), gives_truth = is_truth(s->dtype);
    *wrong = -1;
    if (t == NUMBER) return s->dtype == QN_DTYPE_F32;
    if (t == MAP ? !gives_float : t == CAST || t == WHERE ? !gives_float && !gives_truth : !gives_truth) return 0;
    for (int i = 0; i < s->n_operands; i++) {
        int fits = 1;
        *wrong = i;
        if (t == MAP) fits = qn_is_float(have[i]);
        else if (t == LOGIC) fits = is_truth(have[i]);
        else if (t == WHERE && i == 0) fits = qn_is_float(have[i]) || is_truth(have[i]);
        else if (t == WHERE) fits = gives_float ? qn_is_float(have[i]) : is_truth(have[i]);
        else if (t == COMPARE && i == 1) fits = have[i] == have[0] || (qn_is_float(have[i]) && qn_is_float(have[0]));
        if (!fits) return 0;
    }
    return 1;
}

static int check_step(qn_region *r, int i, const uint32_t *w, int n_src, const qn_dtype *dtypes, qn_region_fault *f) {
    qn_region_step *s = &r->step[i];
    qn_dtype have[QN_REGION_MAX_OPERANDS] = {QN_DTYPE_NONE};
    int wrong;
    if ((w[0] & 255) >= QN_REGION_KINDS) return refuse(f, QN_REASON_STEP_KIND, i, QN_REGION_KINDS - 1, w[0] & 255);
    s->kind = (qn_region_kind)(w[0] & 255);
    unpack(w, s);
    if (!qn_region_takes_subop(s->kind, s->subop)) return refuse(f, QN_REASON_STEP_SUBOP, i, kinds[s->kind].subops, s->subop);
    if (w[0] & STRAY_BITS) return refuse(f, QN_REASON_STEP_BITS, i, 0, w[0] & STRAY_BITS);
    uint32_t stray = w[1] & ~(uint32_t)(((uint64_t)1 << 8 * s->n_operands) - 1);
    if (s->kind != QN_REGION_number && stray) return refuse(f, QN_REASON_STEP_BITS, i, 0, stray);
    for (int k = 0; k < s->n_operands; k++) {
        have[k] = operand_dtype(r, n_src, dtypes, i, s->operand[k]);
        if (have[k] != QN_DTYPE_NONE) continue;
        if (s->operand[k] < QN_REGION_STEP_BIT) return refuse(f, QN_REASON_STEP_SOURCE, i, n_src, s->operand[k]);
        return refuse(f, QN_REASON_STEP_ORDER, i, i, s->operand[k] - QN_REGION_STEP_BIT);
    }
    if (!types_fit(s, have, &wrong)) return refuse(f, QN_REASON_STEP_DTYPE, i, wrong + 1, wrong < 0 ? s->dtype : have[wrong]);
    return 1;
}

int qn_region_decode(const qn_code *code, int n_src, const qn_dtype *dtypes, qn_region *r, qn_region_fault *f) {
    if (code->count < 2 || code->count % 2 || code->count > QN_MAX_WORDS)
        return refuse(f, QN_REASON_STEP_COUNT, -1, QN_REGION_MAX_STEPS, code->count);
    r->n_steps = code->count / 2;
    r->n_outputs = 0;
    for (int i = 0; i < r->n_steps; i++) {
        if (!check_step(r, i, &code->w[2 * i], n_src, dtypes, f)) return 0;
        number_output(r, i, code->w[2 * i]);
    }
    if (r->n_outputs < 1 || r->n_outputs > QN_REGION_MAX_OUTPUTS)
        return refuse(f, QN_REASON_STEP_OUTPUTS, -1, QN_REGION_MAX_OUTPUTS, r->n_outputs);
    return 1;
}

/* ---- What a step computes */

double qn_region_value(const qn_region_step *s, double a, double b, double c) {
    switch (s->kind) {
    case QN_REGION_number: return (double)s->number;
    case QN_REGION_cast: return a;
    case QN_REGION_unary: return qn_op_unary(s->subop, a);
    case QN_REGION_math: return qn_op_math(s->subop, a);
    case QN_REGION_sqr: return a * a;
    case QN_REGION_sqrt: return sqrt(a);
    case QN_REGION_log: return log(a);
    case QN_REGION_sin: return sin(a);
    case QN_REGION_cos: return cos(a);
    case QN_REGION_scale: return qn_scale(a, b, c);
    case QN_REGION_clamp: return qn_clamp(a, b, c);
    case QN_REGION_leaky_relu: return qn_leaky_relu(a, b);
    case QN_REGION_arith: return qn_op_arith(s->subop, a, b);
    case QN_REGION_compare: return qn_op_compare(s->subop, a, b);
    case QN_REGION_logic: return qn_op_logic(s->subop, a, b);
    case QN_REGION_where: return a != 0 ? b : c;
    case QN_REGION_unary_back: return a * qn_op_unary_slope(s->subop, b);
    case QN_REGION_math_back: return a * qn_op_math_slope(s->subop, b);
    case QN_REGION_silu_back: return qn_silu_back(a, b);
    case QN_REGION_KINDS: break;
    }
    return NAN;
}

double qn_region_round(qn_dtype dtype, double v) {
    switch (dtype) {
    case QN_DTYPE_F32: return (double)(float)v;
    case QN_DTYPE_F16: return (double)qn_f16_to_f32(qn_f64_to_f16(v));
    case QN_DTYPE_BF16: return (double)qn_bf16_to_f32(qn_f64_to_bf16(v));
    case QN_DTYPE_BOOL: return v != 0;
    default: return v;
    }
}
