/* Statements of templates, run; and the public function. */
#include "text/template.h"

#include <stdlib.h>

#include "base/clock.h"
#include "text/json_dom.h"

enum { STEPS = 10 * 1000 * 1000, MEMORY = 256 << 20, OUTPUT = 64 << 20, DEPTH = 256, MOST_TEMPLATE = 4 << 20 };

void qn_text_tpl_write(tpl *t, qn_text text) {
    if (t->failed || !qn_text_tpl_step(t, 1 + text.length / 64)) return;
    if (t->out.n + text.length > t->most_output) {
        qn_text_tpl_fail(t, "more than %llu bytes of text", (unsigned long long)t->most_output);
        return;
    }
    if (!QN_VEC_ROOM(&t->arena, &t->out, text.length)) {
        qn_text_tpl_no_memory(t);
        return;
    }
    if (text.length) memcpy(t->out.at + t->out.n, text.at, text.length);
    t->out.n += text.length;
}

void qn_text_tpl_assign(tpl *t, tpl_frame *frame, qn_text name, tpl_value value) {
    for (size_t i = 0; qn_text_tpl_step(t, i % 16 == 0) && i < frame->names.n; i++) {
        if (qn_text_tpl_same(t, frame->names.at[i].key.as.text, name)) {
            frame->names.at[i].value = value;
            return;
        }
    }
    if (t->failed) return;
    if (!QN_VEC_ROOM(&t->arena, &frame->names, 1)) {
        qn_text_tpl_no_memory(t);
        return;
    }
    frame->names.at[frame->names.n++] = (tpl_pair){tpl_text(name), value};
}

static void run_parts(tpl *t, const tpl_node *first);

/* What parts print, as a value. */
static tpl_value capture(tpl *t, const tpl_node *parts) {
    size_t from = t->out.n;
    run_parts(t, parts);
    if (t->failed) return tpl_none();
    qn_text text = qn_text_tpl_copy(t, t->out.at ? t->out.at + from : "", t->out.n - from);
    t->out.n = from;
    return tpl_text(text);
}

/* The same in a scope of its own. */
static tpl_value capture_block(tpl *t, const tpl_node *parts) {
    tpl_frame *outer = t->frame, *frame = qn_arena_alloc(&t->arena, 1, sizeof *frame);
    if (!frame) return qn_text_tpl_no_memory(t);
    frame->outer = outer;
    t->frame = frame;
    tpl_value text = capture(t, parts);
    t->frame = outer;
    return text;
}

/* Filters over a text: the constant at their bottom stands for it. */
static tpl_value run_filters(tpl *t, const tpl_node *filters, tpl_value text) {
    if (!filters || filters->kind == NODE_CONSTANT) return text;
    tpl_value below = run_filters(t, filters->a, text); /* as deep as the parser allows */
    tpl_node constant = {.kind = NODE_CONSTANT, .line = filters->line, .value = below}, filter = *filters;
    filter.a = &constant;
    return qn_text_tpl_eval(t, &filter);
}

static void assign_target(tpl *t, const tpl_node *target, tpl_value value) {
    if (target->kind == NODE_NAME) {
        qn_text_tpl_assign(t, t->frame, target->text, value);
        return;
    }
    tpl_value object = qn_text_tpl_eval(t, target->a);
    if (t->failed) return;
    if (object.kind != TPL_DICT || !object.as.dict->is_namespace)
        qn_text_tpl_fail(t, "only a namespace can be assigned to, not %s", qn_text_tpl_kind_name(object));
    else qn_text_tpl_dict_set(t, object.as.dict, tpl_text(target->text), value);
}

/* One name takes the value; several take its items. */
static void assign_targets(tpl *t, const tpl_node *targets, tpl_value value) {
    if (!targets->next) {
        assign_target(t, targets, value);
        return;
    }
    tpl_value items = qn_text_tpl_iterate(t, value);
    size_t i = 0;
    for (const tpl_node *target = targets; target && !t->failed; target = target->next, i++) {
        if (i >= items.as.list->items.n) qn_text_tpl_fail(t, "fewer values than names to assign them to");
        else assign_target(t, target, items.as.list->items.at[i]);
    }
    if (!t->failed && i < items.as.list->items.n) qn_text_tpl_fail(t, "more values than names to assign them to");
}

static void run_set(tpl *t, const tpl_node *node) {
    tpl_value value = node->a ? qn_text_tpl_eval(t, node->a) : run_filters(t, node->c, capture_block(t, node->parts));
    if (!t->failed) assign_targets(t, node->b, value);
}

/* ---- Loops */

static void set_loop(tpl *t, tpl_dict *loop, const char *name, tpl_value value) {
    qn_text_tpl_dict_set(t, loop, tpl_word(name), value);
}

static tpl_value loop_at(tpl *t, tpl_value items, size_t i) {
    size_t n = items.as.list->items.n;
    tpl_value loop = qn_text_tpl_dict_new(t);
    if (t->failed) return loop;
    tpl_dict *d = loop.as.dict;
    d->is_namespace = 1;
    set_loop(t, d, "index", tpl_int((int64_t)i + 1));
    set_loop(t, d, "index0", tpl_int((int64_t)i));
    set_loop(t, d, "revindex", tpl_int((int64_t)(n - i)));
    set_loop(t, d, "revindex0", tpl_int((int64_t)(n - i - 1)));
    set_loop(t, d, "first", tpl_bool(i == 0));
    set_loop(t, d, "last", tpl_bool(i + 1 == n));
    set_loop(t, d, "length", tpl_int((int64_t)n));
    set_loop(t, d, "depth", tpl_int(1));
    set_loop(t, d, "depth0", tpl_int(0));
    set_loop(t, d, "previtem", i ? items.as.list->items.at[i - 1] : tpl_undefined((qn_text){"previtem", 8}));
    set_loop(t, d, "nextitem", i + 1 < n ? items.as.list->items.at[i + 1] : tpl_undefined((qn_text){"nextitem", 8}));
    return loop;
}

/* Items for which the loop's own condition holds. */
static tpl_value select_items(tpl *t, const tpl_node *node, tpl_value items) {
    tpl_value kept = qn_text_tpl_list_new(t, 0);
    tpl_frame frame = {.outer = t->frame};
    t->frame = &frame;
    for (size_t i = 0; i < items.as.list->items.n && !t->failed; i++) {
        assign_targets(t, node->b, items.as.list->items.at[i]);
        if (!t->failed && qn_text_tpl_truth(qn_text_tpl_eval(t, node->c)))
            qn_text_tpl_list_add(t, kept, items.as.list->items.at[i]);
    }
    t->frame = frame.outer;
    return kept;
}

static void run_for(tpl *t, const tpl_node *node) {
    tpl_value items = qn_text_tpl_eval(t, node->a);
    if (t->failed) return;
    items = qn_text_tpl_iterate(t, items);
    if (!t->failed && node->c) items = select_items(t, node, items);
    if (t->failed) return;
    tpl_frame *outer = t->frame;
    int whole = 0; /* turns that came to their end */
    for (size_t i = 0; i < items.as.list->items.n && !t->failed; i++) {
        tpl_frame *frame = qn_arena_alloc(&t->arena, 1, sizeof *frame); /* a macro defined here may outlive the loop */
        if (!frame) qn_text_tpl_no_memory(t);
        if (!frame) break;
        frame->outer = outer;
        t->frame = frame;
        assign_targets(t, node->b, items.as.list->items.at[i]);
        qn_text_tpl_assign(t, frame, (qn_text){"loop", 4}, loop_at(t, items, i));
        run_parts(t, node->parts);
        int leaving = t->leaving;
        t->leaving = 0;
        whole |= !leaving;
        if (leaving == NODE_BREAK) break;
    }
    t->frame = outer;
    if (!t->failed && !whole && node->d) run_parts(t, node->d->parts);
}

/* ---- Macros */

static void bind_parameters(tpl *t, const tpl_node *node, const tpl_args *args, tpl_frame *frame) {
    size_t i = 0;
    for (const tpl_node *p = node->b; p && !t->failed; p = p->next, i++) {
        tpl_value value = tpl_undefined(p->text);
        int given = i < args->n;
        if (given) value = args->at[i];
        for (size_t k = 0; k < args->named && (k % 16 != 15 || qn_text_tpl_step(t, 1)); k++)
            if (qn_text_tpl_same(t, args->names[k], p->text)) value = args->at[args->n + k], given = 1;
        if (!given && p->a) value = qn_text_tpl_eval(t, p->a);
        qn_text_tpl_assign(t, frame, p->text, value);
    }
    if (!t->failed && args->n > i)
        qn_text_tpl_fail(t, "macro '%.*s' takes %zu arguments, not %zu", (int)(node->text.length > 40 ? 40 : node->text.length),
                         node->text.at, i, args->n);
}

tpl_value qn_text_tpl_call_macro(tpl *t, const tpl_macro *macro, const tpl_args *args) {
    tpl_frame *frame = qn_arena_alloc(&t->arena, 1, sizeof *frame), *caller = t->frame;
    if (!frame) return qn_text_tpl_no_memory(t);
    frame->outer = macro->frame;
    t->frame = frame;
    bind_parameters(t, macro->node, args, frame);
    tpl_value text = t->failed ? tpl_none() : capture(t, macro->node->parts);
    t->frame = caller;
    t->leaving = 0;
    return text;
}

static void run_macro(tpl *t, const tpl_node *node) {
    tpl_macro *macro = qn_arena_alloc(&t->arena, 1, sizeof *macro);
    if (!macro) {
        qn_text_tpl_no_memory(t);
        return;
    }
    *macro = (tpl_macro){node, t->frame};
    qn_text_tpl_assign(t, t->frame, node->text, (tpl_value){.kind = TPL_MACRO, .as.macro = macro});
}

/* ---- Everything */

static void run_if(tpl *t, const tpl_node *node) {
    while (node && node->kind == NODE_IF && !t->failed) {
        if (qn_text_tpl_truth(qn_text_tpl_eval(t, node->a))) {
            if (!t->failed) run_parts(t, node->parts);
            return;
        }
        node = node->b;
    }
    if (node && !t->failed) run_parts(t, node->parts);
}

static void run_node(tpl *t, const tpl_node *node) {
    tpl_value value;
    switch (node->kind) {
    case NODE_TEXT: qn_text_tpl_write(t, node->text); return;
    case NODE_OUTPUT:
        value = qn_text_tpl_eval(t, node->a);
        if (!t->failed) qn_text_tpl_write(t, qn_text_tpl_string(t, value));
        return;
    case NODE_IF: run_if(t, node); return;
    case NODE_FOR: run_for(t, node); return;
    case NODE_SET: run_set(t, node); return;
    case NODE_MACRO: run_macro(t, node); return;
    case NODE_FILTER_BLOCK:
        value = run_filters(t, node->c, capture_block(t, node->parts));
        if (!t->failed) qn_text_tpl_write(t, qn_text_tpl_string(t, value));
        return;
    case NODE_BODY: run_parts(t, node->parts); return;
    case NODE_DO: qn_text_tpl_eval(t, node->a); return;
    case NODE_BREAK:
    case NODE_CONTINUE: t->leaving = (int)node->kind; return;
    default: qn_text_tpl_fail(t, "an expression where a statement belongs"); return;
    }
}

static void run_parts(tpl *t, const tpl_node *first) {
    if (++t->depth > t->most_depth) qn_text_tpl_fail(t, "nested too deeply");
    for (const tpl_node *node = first; node && !t->failed && !t->leaving; node = node->next) {
        t->line = node->line;
        if (qn_text_tpl_step(t, 1)) run_node(t, node);
    }
    t->depth--;
}

void qn_text_tpl_run(tpl *t, const tpl_node *body) { run_parts(t, body->parts); }

qn_status qn_chat_render(qn_text chat_template, qn_text context, const qn_chat_limits *limits, qn_text_write_fn write, void *user,
                         qn_error *error) {
    if (!write || (chat_template.length && !chat_template.at) || (context.length && !context.at))
        return qn_error_set(error, QN_ARGUMENT, "qn_chat_render needs a template, a context and a function to write with");
    if (limits && limits->size != sizeof *limits)
        return qn_error_set(error, QN_ARGUMENT, "chat limits of %u bytes, expected %zu", limits->size, sizeof *limits);
    if (chat_template.length > MOST_TEMPLATE)
        return qn_error_set(error, QN_INVALID, "a template of %zu bytes; at most %d are taken", chat_template.length,
                            MOST_TEMPLATE);
    qn_error own = {QN_OK, ""};
    tpl t = {.error = error ? error : &own, .status = QN_OK, .line = 1};
    t.most_steps = limits && limits->steps ? limits->steps : STEPS;
    t.most_output = limits && limits->output ? limits->output : OUTPUT;
    t.most_depth = limits && limits->depth ? limits->depth : DEPTH;
    t.now = limits && limits->now ? limits->now : (int64_t)(qn_clock_wall() / 1000000000);
    qn_arena_init(&t.arena, limits && limits->memory ? (size_t)limits->memory : MEMORY);
    tpl_frame globals = {.outer = NULL};
    t.frame = &globals;
    tpl_value variables = qn_text_tpl_from_json(&t, context);
    if (!t.failed && variables.kind != TPL_DICT)
        qn_text_tpl_fail(&t, "the context of a template is a JSON object, not %s", qn_text_tpl_kind_name(variables));
    for (size_t i = 0; !t.failed && i < variables.as.dict->pairs.n; i++)
        qn_text_tpl_assign(&t, &globals, variables.as.dict->pairs.at[i].key.as.text, variables.as.dict->pairs.at[i].value);
    const tpl_node *body = t.failed ? NULL : qn_text_tpl_parse(&t, chat_template);
    if (body && !t.failed) qn_text_tpl_run(&t, body);
    qn_status status = t.failed ? t.status : write(user, t.out.at ? t.out.at : "", t.out.n);
    if (!t.failed && status != QN_OK) qn_error_set(error, status, "the text of the template could not be written");
    qn_arena_destroy(&t.arena);
    return status;
}
