/* Building what a rule puts in place of its pattern. Each op is asked first, because a graph keeps the first refusal for good;
 * when one refuses, everything the replacement had added is taken off again. */
#include "pass/terms.h"

#include "tensor/convert.h"
#include "tensor/dtype.h"

typedef struct builder {
    const qn_match *m;
    qn_graph *to;
    const qn_val *values;
} builder;

static void set_field(const qn_attr_info *a, char *record, const qn_rule_value *v) {
    float f32 = (float)v->f;
    int32_t i32 = (int32_t)v->i;
    char *field = record + a->offset;
    switch (a->kind) {
    case QN_ATTR_KIND_f32: memcpy(field, &f32, sizeof f32); break;
    case QN_ATTR_KIND_i64: memcpy(field, &v->i, sizeof v->i); break;
    case QN_ATTR_KIND_dims: memcpy(field, &v->list, sizeof v->list); break;
    case QN_ATTR_KIND_i32:
    case QN_ATTR_KIND_bool:
    case QN_ATTR_KIND_dtype: memcpy(field, &i32, sizeof i32); break;
    default: break;
    }
}

/* Attributes of the node that had {..}, to those of the same names; all of its own must have a place. */
static int copy_rest(const builder *b, const qn_op_info *info, char *record) {
    const qn_ir_node *n = &b->m->g->nodes.at[b->m->rest];
    const qn_op_info *from = qn_op_describe(n->op);
    for (int i = 0; i < from->n_attr; i++) {
        int k = 0;
        while (k < info->n_attr && strcmp(info->attr[k].name, from->attr[i].name) != 0) k++;
        if (k == info->n_attr || info->attr[k].kind != from->attr[i].kind) return 0;
        memcpy(record + info->attr[k].offset, (const char *)qn_pass_attr(n) + from->attr[i].offset, from->attr[i].bytes);
    }
    return 1;
}

static int fill_record(const builder *b, const qn_term *t, char *record) {
    const qn_op_info *info = qn_op_describe(t->op);
    qn_rule_value v;
    memcpy(record, info->attr_default, info->attr_bytes);
    if (t->rest && (b->m->rest < 0 || !copy_rest(b, info, record))) return 0;
    for (int i = 0; i < t->n_attr; i++) {
        if (!qn_rule_eval(b->m, t->attr[i].expr, &v)) return 0;
        set_field(&info->attr[t->attr[i].attr], record, &v);
    }
    return 1;
}

/* A constant of the numbers of a term. */
static int build_numbers(const builder *b, const qn_term *t, qn_val *out) {
    const qn_match *m = b->m;
    qn_dtype dtype = (qn_dtype)m->g->values.at[m->g->nodes.at[m->node[0]].out].shape.dtype;
    int64_t n = t->n_attr, each = qn_dtype_bytes(dtype);
    char bytes[QN_RULE_ATTRS * sizeof(double)];
    qn_rule_value v;
    if (!qn_is_float(dtype)) return 0;
    for (int64_t i = 0; i < n; i++) {
        if (!qn_rule_eval(m, t->attr[i].expr, &v)) return 0;
        qn_store_one(dtype, bytes + i * each, v.f);
    }
    *out = qn_graph_constant(b->to, dtype, 1, &n, bytes, (size_t)(n * each));
    return *out != QN_VAL_NONE;
}

static int subop_of(const builder *b, const qn_term *t) { return t->subop_var >= 0 ? (int)b->m->var[t->subop_var].i : t->subop; }

static int build(const builder *b, int term, int n_out, qn_val *out) {
    const qn_term *t = &b->m->rule->term[term];
    _Alignas(16) char record[QN_ATTR_BYTES_MAX];
    qn_val src[QN_MAX_SRC];
    int n_src = 0, has_attr = t->rest || t->n_attr;
    out[0] = QN_VAL_NONE;
    if (t->kind == QN_TERM_ABSENT) return 1;
    if (t->kind == QN_TERM_NUMBERS) return build_numbers(b, t, out);
    if (t->kind == QN_TERM_VALUE) {
        if (b->m->has_value >> t->index & 1) out[0] = b->values[t->index];
        return 1;
    }
    for (int i = 0; i < t->n_args; i++) {
        if (!build(b, t->arg[i], 1, &src[i])) return 0;
        if (src[i] != QN_VAL_NONE) n_src = i + 1;
    }
    if (!fill_record(b, t, record)) return 0;
    const void *attr = has_attr ? record : NULL;
    int subop = subop_of(b, t);
    return qn_pass_try(b->to, t->op, subop, n_src, src, attr, n_out, out);
}

int qn_rule_build(const qn_match *m, qn_graph *to, const qn_val *values, int n_out, qn_val *out) {
    builder b = {m, to, values};
    qn_pass_mark mark = qn_pass_mark_of(to);
    if (to->error.status == QN_OK && build(&b, m->rule->replacement, n_out, out) && out[0] != QN_VAL_NONE) return 1;
    if (to->error.status == QN_OK)
        qn_pass_roll_back(to, mark); /* else it is memory that is missing, and the graph is lost anyway */
    return 0;
}

int qn_rule_makes(const qn_match *m, int *subop) {
    const qn_term *t = &m->rule->term[m->rule->replacement];
    builder b = {m, NULL, NULL};
    *subop = t->kind == QN_TERM_NODE ? subop_of(&b, t) : 0;
    return t->kind == QN_TERM_NODE ? t->op : -1;
}
