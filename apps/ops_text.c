/* The op table as text for people: the list, one op's page, the markdown of docs/ops.md, and the state diagram. */
#include <stdarg.h>
#include <stdio.h>

#include "app.h"

enum { ROOM = 512 };

static void append(char *text, size_t size, const char *format, ...) {
    size_t at = strlen(text);
    va_list args;
    va_start(args, format);
    if (at + 1 < size) vsnprintf(text + at, size - at, format, args);
    va_end(args);
}

char *ops_dtypes_text(uint64_t set, char *text, size_t size) {
    uint64_t blocks = 0;
    text[0] = 0;
    for (int d = 1; d < QN_DTYPE_COUNT; d++)
        if (qn_dtype_describe((qn_dtype)d)->kind == QN_KIND_BLOCK) blocks |= (uint64_t)1 << d;
    if (set == ((uint64_t)1 << QN_DTYPE_COUNT) - 2) {
        append(text, size, "any");
        return text;
    }
    for (int d = 1; d < QN_DTYPE_COUNT; d++)
        if ((set & ~blocks) >> d & 1) append(text, size, "%s%s", text[0] ? " " : "", qn_dtype_describe((qn_dtype)d)->name);
    if ((set & blocks) == blocks) append(text, size, "%sblocks", text[0] ? " " : "");
    return text;
}

char *ops_slots_text(const qn_slot_info *slots, int n, char *text, size_t size) {
    enum { MOST = 16 }; /* of more than that only the ends are of interest: they are numbered */
    text[0] = 0;
    for (int i = 0; i < n; i++) {
        if (n > MOST && i == 2) i = n - 1;
        append(text, size, "%s%s%s",
               !i                       ? ""
               : n > MOST && i == n - 1 ? " ... "
                                        : ", ",
               slots[i].name, slots[i].flags & QN_SLOT_OPTIONAL ? "?" : "");
    }
    return text;
}

char *ops_attr_text(const qn_attr_info *a, char *text, size_t size) {
    text[0] = 0;
    append(text, size, "%s", a->name);
    if (a->required) return text;
    if (a->kind == QN_ATTR_KIND_dims) append(text, size, "=()");
    else if (a->kind == QN_ATTR_KIND_dtype) append(text, size, "=same");
    else if (a->kind != QN_ATTR_KIND_fn) append(text, size, "=%g", a->initial);
    return text;
}

static char *attributes_text(const qn_op_info *op, char *text, size_t size) {
    char one[ROOM];
    text[0] = 0;
    for (int i = 0; i < op->n_attr; i++) append(text, size, "%s%s", i ? ", " : "", ops_attr_text(&op->attr[i], one, sizeof one));
    return text;
}

static char *backends_text(int op, char *text, size_t size) {
    text[0] = 0;
    for (int b = 0; qn_backend_name(b); b++)
        if (qn_op_has_kernel(op, b)) append(text, size, "%s%s", text[0] ? " " : "", qn_backend_name(b));
    return text;
}

/* All dtypes any of its sources takes, or its result for an op without sources. */
static uint64_t dtypes_of(const qn_op_info *op) {
    uint64_t set = 0;
    for (int i = 0; i < op->n_src; i++) set |= op->src[i].dtypes;
    return op->n_src ? set : op->dst[0].dtypes;
}

void ops_print_list(void) {
    char in[ROOM], at[ROOM], types[ROOM], back[ROOM];
    printf("%-24s %-12s %-8s %-36s %-30s %-9s %-10s %s\n", "op", "family", "origin", "inputs", "dtypes", "gradient", "backends",
           "attributes");
    for (int i = 0; i < QN_OP_COUNT; i++) {
        const qn_op_info *op = qn_op_describe(i);
        printf("%-24s %-12s %-8s %-36s %-30s %-9s %-10s %s\n", op->name, op->family, op->origin,
               ops_slots_text(op->src, op->n_src, in, sizeof in), ops_dtypes_text(dtypes_of(op), types, sizeof types),
               op->gradient ? "yes" : "no", backends_text(i, back, sizeof back), attributes_text(op, at, sizeof at));
    }
}

static void print_slots(const char *title, const qn_slot_info *slots, int n) {
    char types[ROOM];
    if (n) printf("\n%s\n", title);
    for (int i = 0; i < n; i++) {
        printf("  %-10s %s", slots[i].name, ops_dtypes_text(slots[i].dtypes, types, sizeof types));
        if (slots[i].flags & QN_SLOT_OPTIONAL) printf("; may be left out");
        if (slots[i].flags & QN_SLOT_IN_PLACE) printf("; may be the destination");
        if (slots[i].flags & QN_SLOT_STATE) printf("; updated in place");
        if (slots[i].flags & QN_SLOT_INDEX) printf("; indices, checked before anything is written");
        if (slots[i].flags & QN_SLOT_SHAPE) printf("; its data is not touched");
        printf("\n");
    }
}

/* Only the bounds that mean something: those of the C type say nothing. */
static void print_range(const qn_attr_info *a) {
    if (a->kind > QN_ATTR_KIND_bool) return;
    int floor = a->low > -3e38, ceiling = a->high < 2147483647;
    if (floor && ceiling && a->low == a->high) printf(", only %g", a->low);
    else if (floor && ceiling) printf(", %g to %g", a->low, a->high);
    else if (floor) printf(", at least %g", a->low);
    else if (ceiling) printf(", at most %g", a->high);
    else if (!isinf(a->high)) printf(", finite");
}

static void print_attributes(const qn_op_info *op) {
    static const char *const kinds[] = {"f32", "i32", "i64", "bool", "dtype", "list", "callback", "words", "body"};
    if (op->n_attr) printf("\nattributes (qn_attr_%s)\n", op->name);
    for (int i = 0; i < op->n_attr; i++) {
        const qn_attr_info *a = &op->attr[i];
        printf("  %-14s %-8s ", a->name, kinds[a->kind]);
        if (a->required) printf("required");
        else if (a->kind <= QN_ATTR_KIND_bool) printf("default %g", a->initial);
        else printf(a->kind == QN_ATTR_KIND_dtype ? "default: as the source" : "may be left out");
        print_range(a);
        printf("\n");
    }
}

void ops_print_page(int number) {
    const qn_op_info *op = qn_op_describe(number);
    char back[ROOM];
    printf("%s (%s, %s)\n\n%s\n", op->name, op->family, op->origin, op->summary);
    print_slots("sources", op->src, op->n_src);
    print_slots("destinations", op->dst, op->n_dst);
    print_attributes(op);
    if (qn_subop_count(number)) printf("\nsub-ops\n ");
    for (int i = 0; i < qn_subop_count(number); i++) printf(" %s", qn_subop_name(number, i));
    if (qn_subop_count(number)) printf("\n");
    printf("\ngradient  %s%s\n", op->gradient ? "yes" : "none: ", op->gradient ? "" : op->no_gradient);
    printf("backends  %s\n", backends_text(number, back, sizeof back));
}

void ops_print_markdown(void) {
    char in[ROOM], at[ROOM], types[ROOM];
    printf("# Ops\n\nGenerated by `quern ops --markdown` from `include/quern/ops.def`; a test fails when it is stale. A `?` "
           "marks a source "
           "that may be\nleft out, `=` an attribute's default; attributes without one are required. `quern ops NAME` prints an "
           "op's page.\n");
    const char *origins[] = {"seed", "beyond", "quern", "graph"};
    const char *titles[] = {"The 94 of the seed", "Newer in ggml", "Our own, mostly gradients of others",
                            "General ops and layers"};
    for (int o = 0; o < 4; o++) {
        printf("\n## %s\n\n| op | family | sources | attributes | dtypes | gradient |", titles[o]);
        for (int b = 0; qn_backend_name(b); b++) printf(" %s |", qn_backend_name(b));
        printf(" what it does |\n|---|---|---|---|---|---|");
        for (int b = 0; qn_backend_name(b); b++) printf("---|");
        printf("---|\n");
        for (int i = 0; i < QN_OP_COUNT; i++) {
            const qn_op_info *op = qn_op_describe(i);
            if (strcmp(op->origin, origins[o]) != 0) continue;
            printf("| `%s` | %s | %s | %s | %s | %s%s |", op->name, op->family, ops_slots_text(op->src, op->n_src, in, sizeof in),
                   attributes_text(op, at, sizeof at), ops_dtypes_text(dtypes_of(op), types, sizeof types),
                   op->gradient ? "yes" : "none: ", op->gradient ? "" : op->no_gradient);
            for (int b = 0; qn_backend_name(b); b++) printf(" %s |", qn_op_has_kernel(i, b) ? "yes" : "-");
            printf(" %s |\n", op->summary);
        }
    }
    printf("\n## Sub-ops\n\n");
    for (int i = 0; i < QN_OP_COUNT; i++) {
        if (!qn_subop_count(i)) continue;
        printf("- `%s`:", qn_op_describe(i)->name);
        for (int s = 0; s < qn_subop_count(i); s++) printf(" %s", qn_subop_name(i, s));
        printf("\n");
    }
}

/* One state, two guarded transitions per op, the generic request and the catch-all: every one of them leads back to ready. */
void ops_print_mermaid(int full) {
    printf("stateDiagram-v2\ndirection TB\n[*] --> ready\nready --> ready : dispatch_request [always] / dispatch_request__\n");
    for (int i = 0; i < QN_OP_COUNT; i++) {
        const qn_op_info *op = qn_op_describe(i);
        if (full) {
            printf("ready --> ready : dispatch_op_%s [valid_%s] / run_%s\n", op->name, op->name, op->name);
            printf("ready --> ready : dispatch_op_%s [not valid_%s] / reject_%s\n", op->name, op->name, op->name);
        } else if (strcmp(op->origin, "seed") == 0) {
            for (int k = 0; k < 2; k++)
                printf("ready --> ready : dispatch_op_%s [dispatch_op_%s__] / dispatch_op_%s__\n", op->name, op->name, op->name);
        }
    }
    printf("ready --> ready : _ [always] / on_unexpected_\n");
}
