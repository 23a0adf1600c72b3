/* The op table as JSON, for machines. Every string comes from the table and is plain ASCII, but is escaped all the same. */
#include <stdio.h>

#include "app.h"

static void string(const char *text) {
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') putchar('\\');
        if ((unsigned char)*text < 32) printf("\\u%04x", (unsigned)*text);
        else putchar(*text);
    }
    putchar('"');
}

static void key(const char *name) {
    string(name);
    printf(": ");
}

/* JSON has no infinity: a bound without limit is null. */
static void number(double v) {
    if (isinf(v) || isnan(v)) printf("null");
    else printf("%.9g", v);
}

static const char *truth(int v) { return v ? "true" : "false"; }

static void slots(const char *name, const qn_slot_info *list, int n) {
    key(name);
    printf("[");
    for (int i = 0; i < n; i++) {
        printf("%s{", i ? ", " : "");
        key("name");
        string(list[i].name);
        printf(", \"optional\": %s, \"in_place\": %s, \"state\": %s, \"index\": %s, \"shape_only\": %s, \"dtypes\": [",
               truth(list[i].flags & QN_SLOT_OPTIONAL), truth(list[i].flags & QN_SLOT_IN_PLACE),
               truth(list[i].flags & QN_SLOT_STATE), truth(list[i].flags & QN_SLOT_INDEX), truth(list[i].flags & QN_SLOT_SHAPE));
        int first = 1;
        for (int d = 1; d < QN_DTYPE_COUNT; d++)
            if (list[i].dtypes >> d & 1) {
                printf("%s", first ? "" : ", ");
                string(qn_dtype_describe((qn_dtype)d)->name);
                first = 0;
            }
        printf("]}");
    }
    printf("]");
}

static void attributes(const qn_op_info *op) {
    static const char *const kinds[] = {"f32", "i32", "i64", "bool", "dtype", "list", "callback", "words", "body"};
    key("attributes");
    printf("[");
    for (int i = 0; i < op->n_attr; i++) {
        const qn_attr_info *a = &op->attr[i];
        printf("%s{", i ? ", " : "");
        key("name");
        string(a->name);
        printf(", \"type\": \"%s\", \"required\": %s", kinds[a->kind], truth(a->required));
        if (a->kind <= QN_ATTR_KIND_bool) {
            printf(", \"default\": ");
            if (a->required) printf("null");
            else number(a->initial);
            printf(", \"min\": ");
            number(a->low);
            printf(", \"max\": ");
            number(a->high);
        }
        printf("}");
    }
    printf("]");
}

void ops_print_json_op(int i) {
    const qn_op_info *op = qn_op_describe(i);
    printf("  {");
    key("name");
    string(op->name);
    printf(", \"origin\": \"%s\", \"family\": \"%s\", ", op->origin, op->family);
    key("summary");
    string(op->summary);
    printf(",\n   ");
    slots("inputs", op->src, op->n_src);
    printf(",\n   ");
    slots("outputs", op->dst, op->n_dst);
    printf(",\n   ");
    attributes(op);
    printf(",\n   \"subops\": [");
    for (int s = 0; s < qn_subop_count(i); s++) {
        printf("%s", s ? ", " : "");
        string(qn_subop_name(i, s));
    }
    printf("], \"view\": %s, \"gradient\": %s, \"gradient_rule\": ", truth(op->is_view), truth(op->gradient != NULL));
    if (op->gradient) string(op->gradient);
    else printf("null");
    printf(", \"no_gradient_because\": ");
    if (op->no_gradient) string(op->no_gradient);
    else printf("null");
    printf(", \"reference\": %s, \"backends\": {", truth(qn_op_has_kernel(i, 0)));
    for (int b = 0; qn_backend_name(b); b++)
        printf("%s\"%s\": %s", b ? ", " : "", qn_backend_name(b), truth(qn_op_has_kernel(i, b)));
    printf("}}");
}

void ops_print_json(void) {
    printf("[\n");
    for (int i = 0; i < QN_OP_COUNT; i++) {
        ops_print_json_op(i);
        printf(i + 1 < QN_OP_COUNT ? ",\n" : "\n");
    }
    printf("]\n");
}
