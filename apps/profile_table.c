/* From the JSON of a view to tables. Views are told apart by their form, not by their name: lists of records, columns with rows,
 * objects of either, records with children. Only the overview and the diff, which hold several things, have code of their own. */
#include <stdlib.h>
#include <string.h>

#include "profile_cmd.h"

static void put_value(printer *p, const char *title, const json_value *value);

static const char *text_of(const json_value *value) {
    return value && json_is_scalar(value) && value->type != JSON_NULL ? value->text : "";
}

static int is_number(const json_value *value) { return value && value->type == JSON_NUMBER; }

/* ---- Names of columns --------------------------------------------------------------------------------------------- */

static const char *label_of(const char *key) {
    static const char *const labels[][2] = {
        {"name", "Name"},
        {"value", "Value"},
        {"input_shape", "Input shape"},
        {"calls", "Calls"},
        {"device_self_duration", "Device self (us)"},
        {"device_total_duration", "Device total (us)"},
        {"host_self_duration", "Host self (us)"},
        {"host_total_duration", "Host total (us)"},
        {"tc_eligible", "TC eligible"},
        {"tc_self_ratio", "TC self (%)"},
        {"tc_total_ratio", "TC total (%)"},
        {"has_call_stack", "Stack"},
        {"call_stack", "Call stack"},
        {"id", "Id"},
        {"occurences", "Occurrences"},
        {"operators", "Operators"},
        {"host_duration", "Host (us)"},
        {"self_host_duration", "Host self (us)"},
        {"device_duration", "Device (us)"},
        {"self_device_duration", "Device self (us)"},
        {"avg_duration", "Average (us)"},
        {"start_time", "Start (us)"},
        {"end_time", "End (us)"},
        {"type", "Type"},
        {"tid", "Thread"},
        {"title", "What"},
        {"ph", "Phase"},
        {"pid", "Device"},
        {"ts", "Time (us)"},
        {"extra", "Share (%)"},
    };
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++)
        if (strcmp(labels[i][0], key) == 0) return labels[i][1];
    return key;
}

/* ---- Columns with rows -------------------------------------------------------------------------------------------- */

/* Columns with a role are hints for a chart. */
static int is_shown(const json_value *column) { return !json_member(column, "role"); }

static void put_rows(printer *p, const char *title, const json_value *columns, const json_value *rows) {
    table t;
    table_begin(&t, title);
    for (const json_value *c = columns->first; c; c = c->next)
        if (is_shown(c))
            table_column_add(&t, label_of(text_of(json_member(c, "name"))),
                             strcmp(text_of(json_member(c, "type")), "number") == 0);
    for (const json_value *row = rows->first; row; row = row->next) {
        const json_value *cell = row->first;
        for (const json_value *c = columns->first; c; c = c->next) {
            if (is_shown(c)) table_cell(&t, cell ? text_of(cell) : "");
            cell = cell ? cell->next : NULL;
        }
    }
    table_print(p, &t);
}

/* ---- Records ------------------------------------------------------------------------------------------------------ */

/* The scalar members of the first record are the columns; "args" of a counter are looked into. */
static void record_columns(table *t, const json_value *record) {
    for (const json_value *v = record->first; v; v = v->next) {
        if (json_is_scalar(v) && strcmp(v->key, "description") != 0) table_column_add(t, label_of(v->key), is_number(v));
        else if (v->type == JSON_OBJECT) table_column_add(t, "Value", 1);
    }
}

static void record_cells(table *t, const json_value *record, size_t depth) {
    for (const json_value *v = record->first; v; v = v->next) {
        if (v == record->first && depth && json_is_scalar(v)) {
            char *text = malloc(2 * depth + strlen(text_of(v)) + 1);
            if (!text) {
                t->failed = 1;
                return;
            }
            memset(text, ' ', 2 * depth);
            strcpy(text + 2 * depth, text_of(v));
            table_cell_copy(t, text);
            free(text);
        } else if (json_is_scalar(v) && strcmp(v->key, "description") != 0) {
            table_cell(t, text_of(v));
        } else if (v->type == JSON_OBJECT) {
            table_cell(t, v->first ? text_of(v->first) : "");
        }
    }
}

/* Children follow their record, indented. The walk needs no recursion: trees reach the depth of a Python stack. */
static void put_records(printer *p, const char *title, const json_value *first) {
    const json_value **open = NULL;
    size_t depth = 0, cap = 0;
    table t;
    table_begin(&t, title);
    if (first) record_columns(&t, first);
    while (first && !t.failed && !*p->cancel) {
        record_cells(&t, first, depth);
        if (t.columns && t.cells % t.columns) { /* a record of another form: leave it out */
            t.cells -= t.cells % t.columns;
        }
        const json_value *children = json_member(first, "children");
        if (children && children->first) {
            if (depth == cap) {
                cap = cap * 2 + 64;
                const json_value **more = realloc(open, cap * sizeof *more);
                if (!more) {
                    t.failed = 1;
                    break;
                }
                open = more;
            }
            open[depth++] = first;
            first = children->first;
            continue;
        }
        first = first->next;
        while (!first && depth) first = open[--depth]->next;
    }
    free(open);
    table_print(p, &t);
}

/* ---- Objects ------------------------------------------------------------------------------------------------------ */

static int all_scalars(const json_value *list) {
    for (const json_value *v = list->first; v; v = v->next)
        if (!json_is_scalar(v)) return 0;
    return 1;
}

/* {step: {worker: [values]}} with the names of the values apart. */
static void put_bars(printer *p, const char *title, const json_value *legends, const json_value *data) {
    table t;
    table_begin(&t, title);
    table_column_add(&t, "Step", 0);
    table_column_add(&t, "Worker", 0);
    for (const json_value *l = legends->first; l; l = l->next) table_column_add(&t, text_of(l), 1);
    for (const json_value *step = data->first; step; step = step->next)
        for (const json_value *worker = step->first; worker; worker = worker->next) {
            table_cell(&t, step->key);
            table_cell(&t, worker->key);
            for (const json_value *v = worker->first; v; v = v->next) table_cell(&t, text_of(v));
        }
    table_print(p, &t);
}

/* {view: [workers]} */
static void put_lists(printer *p, const char *title, const json_value *object) {
    table t;
    table_begin(&t, title);
    table_column_add(&t, "View", 0);
    table_column_add(&t, "Worker", 0);
    for (const json_value *v = object->first; v; v = v->next)
        for (const json_value *w = v->first; w; w = w->next) {
            table_cell(&t, v->key);
            table_cell(&t, text_of(w));
        }
    table_print(p, &t);
}

static void put_scalars(printer *p, const char *title, const json_value *list) {
    table t;
    table_begin(&t, title);
    table_column_add(&t, list->type == JSON_OBJECT ? "What" : "Name", 0);
    if (list->type == JSON_OBJECT) table_column_add(&t, "Value", 0);
    for (const json_value *v = list->first; v; v = v->next) {
        if (v->key) table_cell(&t, v->key);
        table_cell(&t, text_of(v));
    }
    table_print(p, &t);
}

static void put_titled(printer *p, const char *title, const char *more, const json_value *value) {
    char text[256];
    snprintf(text, sizeof text, "%s%s%s", title ? title : "", title ? ": " : "", more);
    put_value(p, text, value);
}

static void put_object(printer *p, const char *title, const json_value *object) {
    const json_value *columns = json_member(object, "columns"), *rows = json_member(object, "rows");
    const json_value *metadata = json_member(object, "metadata"), *data = json_member(object, "data");
    const json_value *legends = json_member(metadata, "legends"), *name = json_member(metadata, "title");
    if (columns && rows) {
        if (json_member(object, "title")) title = text_of(json_member(object, "title"));
        if (rows->type == JSON_LIST) put_rows(p, title, columns, rows);
        for (const json_value *v = rows->type == JSON_OBJECT ? rows->first : NULL; v; v = v->next)
            put_rows(p, v->key, columns, v);
        if (rows->type == JSON_OBJECT && !rows->first) print_line(p, "nothing recorded");
    } else if (data && legends) {
        put_bars(p, text_of(name), legends, data);
    } else if (data && (metadata || columns)) {
        put_value(p, name ? text_of(name) : title, data);
    } else if (json_member(object, "start_time")) {
        put_records(p, title, object);
    } else if (all_scalars(object)) {
        put_scalars(p, title, object);
    } else if (object->first->type == JSON_LIST && all_scalars(object->first)) {
        put_lists(p, title, object);
    } else {
        for (const json_value *v = object->first; v && !p->failed; v = v->next)
            if (v->type != JSON_NULL) put_titled(p, title, v->key, v);
    }
}

static void put_value(printer *p, const char *title, const json_value *value) {
    if (value->type == JSON_NULL) {
        print_line(p, "nothing recorded");
    } else if (value->type == JSON_LIST) {
        if (value->first && value->first->type == JSON_OBJECT) put_records(p, title, value->first);
        else put_scalars(p, title, value);
    } else if (value->type == JSON_OBJECT) {
        put_object(p, title, value);
    } else {
        print_line(p, text_of(value));
    }
}

/* ---- The overview ------------------------------------------------------------------------------------------------- */

/* Items of an HTML list as lines; links keep their words. */
static void put_advice(printer *p, const char *html) {
    char line[2048];
    size_t n = 0;
    for (; *html; html++) {
        if (*html == '<') {
            if (strncmp(html, "</li>", 5) == 0) {
                line[n] = 0;
                if (strcmp(line, "N/A") != 0) print_line(p, line);
                n = 0;
            }
            html += strcspn(html, ">");
            if (!*html) break;
        } else if (n + 1 < sizeof line) {
            line[n++] = *html;
        }
    }
}

static void put_overview(printer *p, const json_value *root) {
    static const char *const metrics[] = {"gpu_metrics", "mlu_metrics"};
    const json_value *average = json_member(root, "performance"), *steps = json_member(root, "steps");
    const json_value *advice = json_member(root, "recommendations"), *around = json_member(root, "environments");
    if (average) put_records(p, "Average step (us)", average->first);
    if (steps) put_value(p, "Steps (us)", steps);
    if (around) put_records(p, "Environment", around->first);
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++) {
        const json_value *data = json_member(json_member(root, metrics[i]), "data");
        if (data) put_records(p, text_of(json_member(json_member(root, metrics[i]), "title")), data->first);
    }
    if (advice) put_advice(p, text_of(advice));
}

/* ---- The diff ----------------------------------------------------------------------------------------------------- */

static void put_change(table *t, const json_value *left, const json_value *right) {
    char text[48];
    snprintf(text, sizeof text, "%+.3f", strtod(text_of(right), NULL) - strtod(text_of(left), NULL));
    table_cell_copy(t, text);
}

static void diff_row(table *t, const json_value *node, const char *path) {
    static const char *const keys[] = {"duration", "device_duration", "total_duration"};
    const json_value *left = json_member(node, "left"), *right = json_member(node, "right");
    table_cell_copy(t, path);
    table_cell(t, text_of(json_member(left, "name")));
    table_cell(t, text_of(json_member(right, "name")));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        table_cell(t, text_of(json_member(left, keys[i])));
        table_cell(t, text_of(json_member(right, keys[i])));
    }
    put_change(t, json_member(left, "total_duration"), json_member(right, "total_duration"));
}

enum { DIFF_DEPTH = 64 };

static void put_diff_nodes(printer *p, const json_value *root) {
    static const char *const names[] = {"Host left (us)",  "Host right (us)",  "Device left (us)", "Device right (us)",
                                        "Total left (us)", "Total right (us)", "Change (us)"};
    const json_value *at[DIFF_DEPTH] = {root};
    size_t number[DIFF_DEPTH] = {0}, depth = 0;
    char path[DIFF_DEPTH * 12];
    table t;
    table_begin(&t, "Nodes");
    table_column_add(&t, "Path", 0);
    table_column_add(&t, "Left", 0);
    table_column_add(&t, "Right", 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) table_column_add(&t, names[i], 1);
    for (;;) {
        size_t n = 0;
        for (size_t i = 0; i <= depth; i++) n += (size_t)snprintf(path + n, 12, i ? "-%zu" : "%zu", number[i] % 1000000000);
        diff_row(&t, at[depth], path);
        const json_value *children = json_member(at[depth], "children");
        if (children && children->first && depth + 1 < DIFF_DEPTH) {
            at[++depth] = children->first;
            number[depth] = 0;
            continue;
        }
        while (depth && !at[depth]->next) depth--;
        if (depth == 0) break;
        at[depth] = at[depth]->next;
        number[depth]++;
    }
    table_print(p, &t);
}

typedef struct change {
    const json_value *left, *right;
    double by;
    size_t order; /* where it was met: equal changes stay in that order */
} change;

/* Largest change first; the reader asks what became slower. */
static int larger_change(const void *a, const void *b) {
    double x = ((const change *)a)->by, y = ((const change *)b)->by;
    x = x < 0 ? -x : x;
    y = y < 0 ? -y : y;
    return x < y ? 1 : x > y ? -1 : ((const change *)a)->order < ((const change *)b)->order ? -1 : 1;
}

static double agg_time(const json_value *agg) {
    double device = strtod(text_of(json_member(agg, "self_device_duration")), NULL);
    return device != 0 ? device : strtod(text_of(json_member(agg, "self_host_duration")), NULL);
}

static const json_value *agg_named(const json_value *side, const char *name) {
    const json_value *aggs = json_member(side, "aggs");
    for (const json_value *a = aggs ? aggs->first : NULL; a; a = a->next)
        if (strcmp(text_of(json_member(a, "name")), name) == 0) return a;
    return NULL;
}

static void print_changes(printer *p, const change *list, size_t n) {
    static const char *const keys[] = {"calls", "self_host_duration", "self_device_duration"};
    static const char *const names[] = {"Calls left",           "Calls right",           "Host self left (us)",
                                        "Host self right (us)", "Device self left (us)", "Device self right (us)",
                                        "Change (us)"};
    table t;
    table_begin(&t, "Operators, largest change first");
    table_column_add(&t, "Name", 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) table_column_add(&t, names[i], 1);
    for (size_t i = 0; i < n; i++) {
        char by[48];
        table_cell(&t, text_of(json_member(list[i].left ? list[i].left : list[i].right, "name")));
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            table_cell(&t, list[i].left ? text_of(json_member(list[i].left, keys[k])) : "");
            table_cell(&t, list[i].right ? text_of(json_member(list[i].right, keys[k])) : "");
        }
        snprintf(by, sizeof by, "%+.3f", list[i].by);
        table_cell_copy(&t, by);
    }
    table_print(p, &t);
}

static void put_diff_operators(printer *p, const json_value *root) {
    const json_value *left = json_member(root, "left"), *right = json_member(root, "right");
    const json_value *sides[] = {json_member(left, "aggs"), json_member(right, "aggs")};
    size_t n = 0, most = (sides[0] ? sides[0]->count : 0) + (size_t)(sides[1] ? sides[1]->count : 0);
    change *list = calloc(most + 1, sizeof *list);
    if (!list) {
        p->failed = 1;
        return;
    }
    for (int s = 0; s < 2; s++)
        for (const json_value *a = sides[s] ? sides[s]->first : NULL; a; a = a->next) {
            const json_value *other = agg_named(s ? left : right, text_of(json_member(a, "name")));
            if (s && other) continue;
            change *c = &list[n];
            c->order = n++;
            c->left = s ? NULL : a;
            c->right = s ? a : other;
            c->by = (c->right ? agg_time(c->right) : 0) - (c->left ? agg_time(c->left) : 0);
        }
    qsort(list, n, sizeof *list, larger_change);
    print_changes(p, list, n);
    free(list);
}

int profile_print_view(printer *p, const json_value *root) {
    if (json_member(root, "steps")) {
        put_overview(p, root);
    } else if (json_member(root, "left")) {
        put_diff_nodes(p, root);
        put_diff_operators(p, root);
    } else {
        put_value(p, NULL, root);
    }
    return !p->failed && !*p->cancel;
}
