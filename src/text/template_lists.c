/* Filters and methods of lists and dicts. */
#include <stdlib.h>

#include "text/template.h"

static tpl_value items_of(tpl *t, const tpl_args *args) { return qn_text_tpl_iterate(t, args->at[0]); }

tpl_value qn_text_tpl_filter_length(tpl *t, const tpl_args *args) {
    tpl_value v = args->at[0];
    if (v.kind == TPL_UNDEFINED) return tpl_int(0);
    if (v.kind == TPL_STRING) return tpl_int((int64_t)qn_text_tpl_length(t, v.as.text));
    if (v.kind == TPL_LIST) return tpl_int((int64_t)v.as.list->items.n);
    if (v.kind == TPL_DICT) return tpl_int((int64_t)v.as.dict->pairs.n);
    return qn_text_tpl_fail(t, "%s has no length", qn_text_tpl_kind_name(v));
}

tpl_value qn_text_tpl_filter_first(tpl *t, const tpl_args *args) {
    tpl_value list = items_of(t, args);
    if (t->failed || !list.as.list->items.n) return tpl_undefined((qn_text){"first", 5});
    return list.as.list->items.at[0];
}

tpl_value qn_text_tpl_filter_last(tpl *t, const tpl_args *args) {
    tpl_value list = items_of(t, args);
    if (t->failed || !list.as.list->items.n) return tpl_undefined((qn_text){"last", 4});
    return list.as.list->items.at[list.as.list->items.n - 1];
}

tpl_value qn_text_tpl_filter_list(tpl *t, const tpl_args *args) {
    tpl_value list = items_of(t, args), out = qn_text_tpl_list_new(t, 0);
    for (size_t i = 0; !t->failed && i < list.as.list->items.n; i++) qn_text_tpl_list_add(t, out, list.as.list->items.at[i]);
    return out;
}

tpl_value qn_text_tpl_filter_reverse(tpl *t, const tpl_args *args) {
    tpl_value list = items_of(t, args), out = qn_text_tpl_list_new(t, 0);
    tpl_buffer text = {0};
    for (size_t i = t->failed ? 0 : list.as.list->items.n; i-- > 0 && !t->failed;) {
        tpl_value item = list.as.list->items.at[i];
        if (args->at[0].kind == TPL_STRING) qn_text_tpl_append(t, &text, item.as.text.at, item.as.text.length);
        else qn_text_tpl_list_add(t, out, item);
    }
    return args->at[0].kind == TPL_STRING ? tpl_text(tpl_taken(&text)) : out;
}

tpl_value qn_text_tpl_filter_batch(tpl *t, const tpl_args *args) {
    tpl_value list = items_of(t, args), out = qn_text_tpl_list_new(t, 0), row = tpl_none();
    if (args->at[1].kind != TPL_INT || args->at[1].as.integer < 1) return qn_text_tpl_fail(t, "batch takes a number of items");
    for (size_t i = 0; !t->failed && i < list.as.list->items.n; i++) {
        if (i % (uint64_t)args->at[1].as.integer == 0) {
            row = qn_text_tpl_list_new(t, 0);
            qn_text_tpl_list_add(t, out, row);
        }
        qn_text_tpl_list_add(t, row, list.as.list->items.at[i]);
    }
    while (!t->failed && row.kind == TPL_LIST && tpl_given(args, 2) && (int64_t)row.as.list->items.n < args->at[1].as.integer)
        qn_text_tpl_list_add(t, row, args->at[2]);
    return out;
}

/* "a.b.0" of a value. */
static tpl_value dig(tpl *t, tpl_value of, tpl_value path) {
    if (path.kind != TPL_STRING) return qn_text_tpl_item(t, of, path);
    qn_text rest = path.as.text;
    while (rest.length && !t->failed) {
        const char *dot = memchr(rest.at, '.', rest.length);
        qn_text name = {rest.at, dot ? (size_t)(dot - rest.at) : rest.length};
        if (!qn_text_tpl_step(t, 1 + name.length / 64)) break;
        int64_t index = 0;
        int number = name.length > 0 && name.length < 10;
        for (size_t i = 0; number && i < name.length; i++) {
            number = name.at[i] >= '0' && name.at[i] <= '9';
            index = index * 10 + (name.at[i] - '0');
        }
        of = number ? qn_text_tpl_item(t, of, tpl_int(index)) : qn_text_tpl_attribute(t, of, name, 1);
        rest = dot ? (qn_text){dot + 1, rest.length - name.length - 1} : (qn_text){"", 0};
    }
    return of;
}

static tpl_value named(const tpl_args *args, const char *name) {
    for (size_t i = 0; i < args->named; i++)
        if (args->names[i].length == strlen(name) && memcmp(args->names[i].at, name, args->names[i].length) == 0)
            return args->at[args->n + i];
    return tpl_undefined((qn_text){"", 0});
}

/* As items_of, but what is false is a list of nothing, as the filters that pick and map have it. */
static tpl_value items_or_none(tpl *t, const tpl_args *args) {
    return qn_text_tpl_truth(args->at[0]) ? items_of(t, args) : qn_text_tpl_list_new(t, 0);
}

/* map(attribute="name", default=x) or map("filter", arguments) */
tpl_value qn_text_tpl_filter_map(tpl *t, const tpl_args *args) {
    tpl_value list = items_or_none(t, args), out = qn_text_tpl_list_new(t, 0), path = named(args, "attribute"),
              standard = named(args, "default");
    const tpl_builtin *filter = NULL;
    if (path.kind == TPL_UNDEFINED) {
        if (args->n < 2 || args->at[1].kind != TPL_STRING || !(filter = qn_text_tpl_find_filter(args->at[1].as.text)))
            return qn_text_tpl_fail(t, "map needs an attribute or the name of a filter");
    }
    for (size_t i = 0; !t->failed && i < list.as.list->items.n; i++) {
        tpl_value item = list.as.list->items.at[i];
        if (filter) {
            tpl_value *with = qn_arena_alloc(&t->arena, args->n + args->named, sizeof *with);
            if (!with) return qn_text_tpl_no_memory(t);
            memcpy(with + 1, args->at + 2, (args->n + args->named - 2) * sizeof *with);
            with[0] = item;
            item = qn_text_tpl_apply(t, filter, &(tpl_args){with, args->n - 1, args->names, args->named});
        } else {
            item = dig(t, item, path);
            if (item.kind == TPL_UNDEFINED && standard.kind != TPL_UNDEFINED) item = standard;
        }
        qn_text_tpl_list_add(t, out, item);
    }
    return out;
}

/* select, reject and their like: items, or an attribute of theirs, that pass a test; without one, that are true. */
static tpl_value pick(tpl *t, const tpl_args *args, size_t first, int want) {
    tpl_value list = items_or_none(t, args), out = qn_text_tpl_list_new(t, 0);
    const tpl_builtin *test = NULL;
    if (first == 2 && args->n < 2) return qn_text_tpl_fail(t, "the attribute to look at is missing");
    if (args->n > first) {
        if (args->at[first].kind == TPL_STRING) test = qn_text_tpl_find_test(args->at[first].as.text);
        if (!test) return qn_text_tpl_fail(t, "a test that is not known");
    }
    for (size_t i = 0; !t->failed && i < list.as.list->items.n && qn_text_tpl_step(t, 1); i++) { /* what is left out costs too */
        tpl_value item = list.as.list->items.at[i], with[4] = {first == 2 ? dig(t, item, args->at[1]) : item};
        size_t n = 1;
        for (size_t k = first + 1; k < args->n && n < 4; k++) with[n++] = args->at[k];
        tpl_value passes = test && !t->failed ? qn_text_tpl_apply(t, test, &(tpl_args){with, n, NULL, 0}) : with[0];
        if (!t->failed && qn_text_tpl_truth(passes) == want) qn_text_tpl_list_add(t, out, item);
    }
    return out;
}

tpl_value qn_text_tpl_filter_select(tpl *t, const tpl_args *args) { return pick(t, args, 1, 1); }
tpl_value qn_text_tpl_filter_reject(tpl *t, const tpl_args *args) { return pick(t, args, 1, 0); }
tpl_value qn_text_tpl_filter_selectattr(tpl *t, const tpl_args *args) { return pick(t, args, 2, 1); }
tpl_value qn_text_tpl_filter_rejectattr(tpl *t, const tpl_args *args) { return pick(t, args, 2, 0); }

/* ---- Order. Keys are worked out once; merging keeps equals in their order and is n log n whatever the values. */

tpl_value qn_text_tpl_filter_lower(tpl *t, const tpl_args *args);

static tpl_value key_of(tpl *t, tpl_value item, tpl_value path, int exact) {
    tpl_value key = path.kind == TPL_UNDEFINED || path.kind == TPL_NONE ? item : dig(t, item, path);
    if (!exact && key.kind == TPL_STRING && qn_text_tpl_step(t, key.as.text.length / 64))
        key = qn_text_tpl_filter_lower(t, &(tpl_args){&key, 1, NULL, 0});
    return key;
}

static void merge_sort(tpl *t, tpl_pair *at, tpl_pair *spare, size_t n, int down) {
    for (size_t width = 1; width < n && !t->failed; width *= 2) {
        for (size_t from = 0; from < n; from += 2 * width) {
            size_t middle = from + width < n ? from + width : n, end = from + 2 * width < n ? from + 2 * width : n, a = from,
                   b = middle;
            for (size_t k = from; k < end; k++) {
                int take_b = b < end && (a >= middle || (down ? qn_text_tpl_compare(t, at[b].key, at[a].key) > 0
                                                              : qn_text_tpl_compare(t, at[b].key, at[a].key) < 0));
                spare[k] = take_b ? at[b++] : at[a++];
            }
        }
        memcpy(at, spare, n * sizeof *at);
    }
}

static tpl_value sorted(tpl *t, tpl_value list, tpl_value path, int exact, int down) {
    size_t n = t->failed ? 0 : list.as.list->items.n;
    tpl_pair *pairs = qn_arena_alloc(&t->arena, 2 * n + 1, sizeof *pairs);
    tpl_value out = qn_text_tpl_list_new(t, n);
    if (!pairs) return qn_text_tpl_no_memory(t);
    for (size_t i = 0; i < n && !t->failed; i++)
        pairs[i] = (tpl_pair){key_of(t, list.as.list->items.at[i], path, exact), list.as.list->items.at[i]};
    if (!t->failed) merge_sort(t, pairs, pairs + n, n, down);
    for (size_t i = 0; i < n && !t->failed; i++) qn_text_tpl_list_add(t, out, pairs[i].value);
    return out;
}

tpl_value qn_text_tpl_filter_sort(tpl *t, const tpl_args *args) {
    return sorted(t, items_of(t, args), tpl_given(args, 3) ? args->at[3] : tpl_none(),
                  tpl_given(args, 2) && qn_text_tpl_truth(args->at[2]), tpl_given(args, 1) && qn_text_tpl_truth(args->at[1]));
}

tpl_value qn_text_tpl_filter_unique(tpl *t, const tpl_args *args) {
    tpl_value list = items_of(t, args), out = qn_text_tpl_list_new(t, 0), seen = qn_text_tpl_list_new(t, 0);
    for (size_t i = 0; !t->failed && i < list.as.list->items.n; i++) {
        tpl_value key = key_of(t, list.as.list->items.at[i], tpl_given(args, 2) ? args->at[2] : tpl_none(),
                               tpl_given(args, 1) && qn_text_tpl_truth(args->at[1]));
        if (t->failed || qn_text_tpl_contains(t, seen, key)) continue;
        qn_text_tpl_list_add(t, seen, key);
        qn_text_tpl_list_add(t, out, list.as.list->items.at[i]);
    }
    return out;
}

static tpl_value extreme(tpl *t, const tpl_args *args, int sign) {
    tpl_value list = items_of(t, args), best = tpl_undefined((qn_text){"", 0}), best_key = best;
    for (size_t i = 0; !t->failed && i < list.as.list->items.n; i++) {
        tpl_value key = key_of(t, list.as.list->items.at[i], tpl_given(args, 2) ? args->at[2] : tpl_none(),
                               tpl_given(args, 1) && qn_text_tpl_truth(args->at[1]));
        if (i && sign * qn_text_tpl_compare(t, key, best_key) <= 0) continue;
        best = list.as.list->items.at[i];
        best_key = key;
    }
    return best;
}

tpl_value qn_text_tpl_filter_max(tpl *t, const tpl_args *args) { return extreme(t, args, 1); }
tpl_value qn_text_tpl_filter_min(tpl *t, const tpl_args *args) { return extreme(t, args, -1); }

tpl_value qn_text_tpl_filter_sum(tpl *t, const tpl_args *args) {
    tpl_value list = items_of(t, args), sum = tpl_given(args, 2) ? args->at[2] : tpl_int(0);
    for (size_t i = 0; !t->failed && i < list.as.list->items.n && qn_text_tpl_step(t, 1); i++)
        sum = qn_text_tpl_binary(t, OP_ADD, sum,
                                 key_of(t, list.as.list->items.at[i], tpl_given(args, 1) ? args->at[1] : tpl_none(), 1));
    return sum;
}

static tpl_value pairs_of(tpl *t, tpl_value v) {
    tpl_value out = qn_text_tpl_list_new(t, 0);
    if (v.kind == TPL_UNDEFINED) return out;
    if (v.kind != TPL_DICT) return qn_text_tpl_fail(t, "%s has no items", qn_text_tpl_kind_name(v));
    for (size_t i = 0; !t->failed && i < v.as.dict->pairs.n; i++) {
        tpl_value pair = qn_text_tpl_list_new(t, 2);
        qn_text_tpl_list_add(t, pair, v.as.dict->pairs.at[i].key);
        qn_text_tpl_list_add(t, pair, v.as.dict->pairs.at[i].value);
        if (!t->failed) pair.as.list->is_tuple = 1;
        qn_text_tpl_list_add(t, out, pair);
    }
    return out;
}

tpl_value qn_text_tpl_filter_items(tpl *t, const tpl_args *args) { return pairs_of(t, args->at[0]); }
tpl_value qn_text_tpl_method_items(tpl *t, const tpl_args *args) { return pairs_of(t, args->at[0]); }

tpl_value qn_text_tpl_filter_dictsort(tpl *t, const tpl_args *args) {
    int by_value = tpl_given(args, 2) && args->at[2].kind == TPL_STRING && tpl_same(args->at[2].as.text, (qn_text){"value", 5});
    if (args->at[0].kind != TPL_DICT) return qn_text_tpl_fail(t, "dictsort of %s", qn_text_tpl_kind_name(args->at[0]));
    return sorted(t, pairs_of(t, args->at[0]), tpl_int(by_value), tpl_given(args, 1) && qn_text_tpl_truth(args->at[1]),
                  tpl_given(args, 3) && qn_text_tpl_truth(args->at[3]));
}

tpl_value qn_text_tpl_filter_attr(tpl *t, const tpl_args *args) {
    return args->at[1].kind == TPL_STRING ? qn_text_tpl_attribute(t, args->at[0], args->at[1].as.text, 0)
                                          : qn_text_tpl_fail(t, "attr takes a name");
}

/* ---- Methods */

tpl_value qn_text_tpl_method_append(tpl *t, const tpl_args *args) {
    qn_text_tpl_list_add(t, args->at[0], args->at[1]);
    return tpl_none();
}

tpl_value qn_text_tpl_method_extend(tpl *t, const tpl_args *args) {
    tpl_value more = qn_text_tpl_iterate(t, args->at[1]);
    size_t n = t->failed ? 0 : more.as.list->items.n; /* it may be the list itself */
    for (size_t i = 0; i < n && !t->failed; i++) qn_text_tpl_list_add(t, args->at[0], more.as.list->items.at[i]);
    return tpl_none();
}

tpl_value qn_text_tpl_method_insert(tpl *t, const tpl_args *args) {
    tpl_list *list = args->at[0].as.list;
    if (args->at[1].kind != TPL_INT) return qn_text_tpl_fail(t, "insert takes a place and a value");
    int64_t n = (int64_t)list->items.n, i = args->at[1].as.integer < 0 ? args->at[1].as.integer + n : args->at[1].as.integer;
    i = i < 0 ? 0 : i > n ? n : i;
    qn_text_tpl_list_add(t, args->at[0], args->at[2]);
    if (t->failed || !qn_text_tpl_step(t, (uint64_t)n / 16)) return tpl_none();
    memmove(list->items.at + i + 1, list->items.at + i, (size_t)(n - i) * sizeof *list->items.at);
    list->items.at[i] = args->at[2];
    return tpl_none();
}

tpl_value qn_text_tpl_method_pop(tpl *t, const tpl_args *args) {
    tpl_list *list = args->at[0].as.list;
    int64_t n = (int64_t)list->items.n, i = tpl_given(args, 1) && args->at[1].kind == TPL_INT ? args->at[1].as.integer : -1;
    if (i < 0) i += n;
    if (i < 0 || i >= n) return qn_text_tpl_fail(t, "pop: the list has no such item");
    tpl_value item = list->items.at[i];
    memmove(list->items.at + i, list->items.at + i + 1, (size_t)(n - i - 1) * sizeof item);
    list->items.n--;
    qn_text_tpl_step(t, (uint64_t)n / 16);
    return item;
}

tpl_value qn_text_tpl_method_list_count(tpl *t, const tpl_args *args) {
    int64_t n = 0;
    for (size_t i = 0; i < args->at[0].as.list->items.n && !t->failed; i++)
        n += qn_text_tpl_equal(t, args->at[0].as.list->items.at[i], args->at[1]);
    return tpl_int(n);
}

tpl_value qn_text_tpl_method_list_index(tpl *t, const tpl_args *args) {
    for (size_t i = 0; i < args->at[0].as.list->items.n && !t->failed; i++)
        if (qn_text_tpl_equal(t, args->at[0].as.list->items.at[i], args->at[1])) return tpl_int((int64_t)i);
    return qn_text_tpl_fail(t, "index: the list has no such item");
}

tpl_value qn_text_tpl_method_get(tpl *t, const tpl_args *args) {
    const tpl_value *found = qn_text_tpl_dict_get(t, args->at[0].as.dict, args->at[1]);
    return found ? *found : args->n > 2 ? args->at[2] : tpl_none();
}

tpl_value qn_text_tpl_method_keys(tpl *t, const tpl_args *args) { return qn_text_tpl_iterate(t, args->at[0]); }

tpl_value qn_text_tpl_method_values(tpl *t, const tpl_args *args) {
    tpl_value out = qn_text_tpl_list_new(t, 0);
    for (size_t i = 0; i < args->at[0].as.dict->pairs.n && !t->failed; i++)
        qn_text_tpl_list_add(t, out, args->at[0].as.dict->pairs.at[i].value);
    return out;
}

tpl_value qn_text_tpl_method_copy(tpl *t, const tpl_args *args) {
    tpl_value out = qn_text_tpl_dict_new(t);
    for (size_t i = 0; i < args->at[0].as.dict->pairs.n && !t->failed; i++)
        qn_text_tpl_dict_set(t, out.as.dict, args->at[0].as.dict->pairs.at[i].key, args->at[0].as.dict->pairs.at[i].value);
    return out;
}

tpl_value qn_text_tpl_method_update(tpl *t, const tpl_args *args) {
    if (args->at[1].kind != TPL_DICT) return qn_text_tpl_fail(t, "update takes a dict");
    size_t n = args->at[1].as.dict->pairs.n;
    for (size_t i = 0; i < n && !t->failed; i++)
        qn_text_tpl_dict_set(t, args->at[0].as.dict, args->at[1].as.dict->pairs.at[i].key,
                             args->at[1].as.dict->pairs.at[i].value);
    return tpl_none();
}

tpl_value qn_text_tpl_method_setdefault(tpl *t, const tpl_args *args) {
    const tpl_value *found = qn_text_tpl_dict_get(t, args->at[0].as.dict, args->at[1]);
    tpl_value value = found ? *found : args->n > 2 ? args->at[2] : tpl_none();
    if (!found) qn_text_tpl_dict_set(t, args->at[0].as.dict, args->at[1], value);
    return value;
}

tpl_value qn_text_tpl_method_dict_pop(tpl *t, const tpl_args *args) {
    tpl_dict *d = args->at[0].as.dict;
    const tpl_value *found = qn_text_tpl_dict_get(t, d, args->at[1]);
    if (!found) return args->n > 2 ? args->at[2] : qn_text_tpl_fail(t, "pop: the dict has no such key");
    tpl_value value = *found;
    size_t i = 0;
    while (&d->pairs.at[i].value != found) i++;
    memmove(&d->pairs.at[i], &d->pairs.at[i + 1], (d->pairs.n - i - 1) * sizeof *d->pairs.at);
    d->pairs.n--;
    qn_text_tpl_step(t, d->pairs.n / 16);
    return value;
}

/* loop.cycle(a, b): one of them by the turn of the loop. */
tpl_value qn_text_tpl_method_cycle(tpl *t, const tpl_args *args) {
    const tpl_value *index = qn_text_tpl_dict_get(t, args->at[0].as.dict, tpl_word("index0"));
    if (!index || index->kind != TPL_INT || args->n < 2)
        return qn_text_tpl_fail(t, "cycle belongs to loops, and takes what to cycle through");
    return args->at[1 + (uint64_t)index->as.integer % (args->n - 1)];
}
