/* Chat templates: what jinja2 makes of hundreds of small ones (tests/golden/templates.json), and that no template runs away. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libraries.h"
#include "text/json_dom.h"
#include <quern/text.h>

typedef struct output {
    char text[1 << 16];
    size_t n;
    int calls;
} output;

static qn_status take(void *user, const char *text, size_t length) {
    output *o = user;
    assert_true(length < sizeof o->text);
    memcpy(o->text, text, length);
    o->text[o->n = length] = 0;
    o->calls++;
    return QN_OK;
}

static qn_text word(const char *s) { return (qn_text){s, strlen(s)}; }

static qn_status render(const char *chat_template, const char *context, const qn_chat_limits *limits, output *o,
                        qn_error *error) {
    memset(o, 0, sizeof *o);
    return qn_chat_render(word(chat_template), word(context), limits, take, o, error);
}

/* The text between "variables": and the line's end is the context, as it stands. */
static qn_text variables_of(const char *file) {
    const char *from = strstr(file, "\"variables\": ") + 13, *end = strstr(from, ",\n\"cases\"");
    return (qn_text){from, (size_t)(end - from)};
}

/* Letters beyond ASCII whose case changes. */
static int needs_unicode(qn_text chat_template) {
    static const char *const LIST[] = {"{{ u|upper }}", "{{ u.upper() }}", "{{ \"\xC7\x86\".title() }}"};
    int needs = 0;
    for (size_t i = 0; i < sizeof LIST / sizeof *LIST; i++)
        needs |= chat_template.length == strlen(LIST[i]) && memcmp(chat_template.at, LIST[i], chat_template.length) == 0;
    return needs;
}

static void templates_give_what_jinja2_gives(void **state) {
    (void)state;
    FILE *f = fopen("tests/golden/templates.json", "rb");
    char *file = calloc(1, 1 << 20);
    assert_non_null(f);
    assert_non_null(file);
    size_t n = fread(file, 1, (1 << 20) - 1, f);
    fclose(f);
    qn_arena arena;
    json_node *root = NULL;
    qn_error error = {QN_OK, ""};
    qn_arena_init(&arena, 0);
    assert_int_equal(qn_text_json_parse(&arena, (qn_text){file, n}, &root, &error), QN_OK);
    qn_chat_limits limits = {.size = sizeof limits, .now = qn_text_json_get(root, "now")->integer};
    qn_text context = variables_of(file);
    static output o;
    int cases = 0, wrong = 0;
    for (const json_node *c = qn_text_json_get(root, "cases")->first; c; c = c->next, cases++) {
        qn_text t = qn_text_json_get(c, "template")->text;
        const json_node *want = qn_text_json_get(c, "want");
        if (!HAVE_UTF8PROC && needs_unicode(t)) {
            print_message("not tested: %.*s: this build was made without utf8proc\n", (int)t.length, t.at);
            continue;
        }
        memset(&o, 0, sizeof o);
        qn_status status = qn_chat_render(t, context, &limits, take, &o, &error);
        int ok = want->kind == JSON_NULL ? status != QN_OK && o.calls == 0
                                         : status == QN_OK && o.n == want->text.length && memcmp(o.text, want->text.at, o.n) == 0;
        if (ok) continue;
        wrong++;
        print_message("%.*s\n  want %.*s\n  got  %s\n", (int)t.length, t.at, want->kind == JSON_NULL ? 9 : (int)want->text.length,
                      want->kind == JSON_NULL ? "a refusal" : want->text.at, status == QN_OK ? o.text : error.text);
    }
    assert_true(cases > 300);
    assert_int_equal(wrong, 0);
    qn_arena_destroy(&arena);
    free(file);
}

static void faults_name_line_and_reason(void **state) {
    (void)state;
    static output o;
    static const struct {
        const char *chat_template, *text;
        qn_status status;
    } FAULTS[] = {{"a\nb\n{{ x.y }}", "line 3: 'x' is undefined", QN_INVALID},
                  {"{% if a %}\n\n{{ 1 + }}{% endif %}", "line 3: an expression is missing", QN_INVALID},
                  {"{{ x|shout }}", "a filter that is not known: 'shout'", QN_INVALID},
                  {"{% include 'x' %}", "a statement that is not known: 'include'", QN_INVALID},
                  {"\n{{ raise_exception('No system role!') }}", "line 2: No system role!", QN_USER},
                  {"{{ 9223372036854775807 + 1 }}", "an integer beyond 64 bits", QN_INVALID},
                  {"{{ m() }}", "line 1: 'm' is undefined", QN_INVALID},
                  {"{{ ''.join([1]) }}", "join of int", QN_INVALID}};
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        qn_error error = {QN_OK, ""};
        assert_int_equal(render(FAULTS[i].chat_template, "{\"a\": 1}", NULL, &o, &error), FAULTS[i].status);
        if (!strstr(error.text, FAULTS[i].text))
            fail_msg("%s: '%s', should hold '%s'", FAULTS[i].chat_template, error.text, FAULTS[i].text);
        assert_int_equal(o.calls, 0);
    }
    qn_error error;
    assert_int_equal(render("x", "[1]", NULL, &o, &error), QN_INVALID);
    assert_int_equal(render("x", "{\"a\": }", NULL, &o, &error), QN_INVALID);
    assert_non_null(strstr(error.text, "JSON, byte 6"));
    assert_int_equal(render("x", "", NULL, &o, &error), QN_INVALID);
}

static void nothing_runs_away(void **state) {
    (void)state;
    static output o;
    static const char *const RUNAWAYS[] = {
        "{% for a in range(99999999) %}{% endfor %}",
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{% macro f(n) %}{{ f(n) ~ f(n) }}{% endmacro %}{{ f(1) }}",
        "{{ 'x' * 99999999999 }}", "{{ [0] * 99999999999 }}",
        "{% set ns = namespace(s='xx') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
        "{% set l = [1] %}{% for x in l %}{% do l.append(x) %}{% endfor %}", "{% set l = [] %}{% do l.append(l) %}{{ l }}",
        "{% set l = [] %}{% do l.append(l) %}{{ l|tojson }}", "{% set l = [] %}{% set k = [l] %}{% do l.append(k) %}{{ l == k }}",
        "{% set ns = namespace(s='ab') %}{% for i in range(40) %}{% set ns.s = ns.s.replace('a', 'aab') %}{% endfor %}",
        "{{ 'a'|indent(99999999999, true) }}",
        /* few nodes that look through many bytes */
        "{% set a = ('a' * 4096) * 40 %}{{ (a ~ 'b') in (a ~ a) }}", "{% set a = ('a' * 4096) * 40 %}{{ (a ~ a).rfind(a) }}",
        "{{ ('a' * 4096).strip(('b' * 4096) * 4 ~ 'a') }}",
        "{% set a = ' ' * 99999 %}{% for i in range(999) %}{{ a|wordcount }}{% endfor %}",
        "{% set a = 'a' * 99999 %}{% set b = 'a' * 99999 %}{% for i in range(999) %}{{ a == b }}{% endfor %}",
        "{% set a = 'a' * 99999 %}{% set b = 'a' * 99999 %}{% for i in range(999) %}{{ a > b }}{% endfor %}",
        "{% set a = 'a' * 99999 %}{% set b = ['a' * 99999] %}{% for i in range(999) %}{{ a.endswith(b) }}{% endfor %}",
        "{% set a = 'a' * 99999 %}{% set b = {'a' * 99999: 1} %}{% for i in range(999) %}{{ b[a] }}{% endfor %}",
        "{{ 2 ** 64 ** 64 ** 64 }}{{ range(0,9223372036854775807,9223372036854775806)|list }}{{ '%.40f'|format(1) * 9999999 }}"};
    for (size_t i = 0; i < sizeof RUNAWAYS / sizeof *RUNAWAYS; i++) {
        qn_error error = {QN_OK, ""};
        qn_chat_limits limits = {.size = sizeof limits, .steps = 1000 * 1000, .memory = 32 << 20};
        qn_status status = render(RUNAWAYS[i], "{}", &limits, &o, &error);
        if (status == QN_OK) fail_msg("%s gave %zu bytes", RUNAWAYS[i], o.n);
        assert_true(strlen(error.text) > 10);
    }
    char deep[20000] = "{{ ";
    qn_error error;
    memset(deep + 3, '(', 9000);
    assert_int_equal(render(deep, "{}", NULL, &o, &error), QN_INVALID);
    assert_non_null(strstr(error.text, "too deeply"));
    deep[0] = 0;
    for (int i = 0; i < 1000; i++) strcat(deep, "{% if 1 %}");
    assert_int_equal(render(deep, "{}", NULL, &o, &error), QN_INVALID);
    memset(deep, '-', 5000);
    memcpy(deep, "{{ 1", 4);
    deep[5000] = 0;
    assert_int_equal(render(deep, "{}", NULL, &o, &error), QN_INVALID);
    strcpy(deep, "{{ 1"); /* long is not deep */
    for (int i = 0; i < 3000; i++) strcat(deep, " + 1");
    strcat(deep, " }}");
    assert_int_equal(render(deep, "{}", NULL, &o, &error), QN_OK);
    assert_string_equal(o.text, "3001");
    strcpy(deep, "{\"a\": ");
    memset(deep + 6, '[', 5000);
    deep[5006] = 0;
    assert_int_equal(render("x", deep, NULL, &o, &error), QN_INVALID);
}

static void limits_are_obeyed(void **state) {
    (void)state;
    static output o;
    qn_error error;
    qn_chat_limits limits = {.size = sizeof limits, .output = 10};
    assert_int_equal(render("{{ '0123456789' }}", "{}", &limits, &o, &error), QN_OK);
    assert_int_equal(render("{{ '0123456789' }}x", "{}", &limits, &o, &error), QN_INVALID);
    limits = (qn_chat_limits){.size = sizeof limits, .steps = 20};
    assert_int_equal(render("{{ 1 }}", "{}", &limits, &o, &error), QN_OK);
    assert_int_equal(render("{% for i in range(50) %}{% endfor %}", "{}", &limits, &o, &error), QN_INVALID);
    limits = (qn_chat_limits){.size = 3};
    assert_int_equal(render("x", "{}", &limits, &o, &error), QN_ARGUMENT);
    limits = (qn_chat_limits){.size = sizeof limits, .memory = 1000};
    assert_int_not_equal(render("{{ 1 }}", "{}", &limits, &o, &error), QN_OK);
}

/* Models that are told the date were told that it is 1970. */
static void today_is_not_1970(void **state) {
    (void)state;
    static output o;
    qn_error error;
    qn_chat_limits limits = {.size = sizeof limits};
    const char *day = "{{ strftime_now('%d %b %Y %H:%M:%S') }}";
    for (int given = 0; given < 2; given++) {
        char before[32], after[32];
        time_t now = time(NULL);
        struct tm tm;
        assert_non_null(gmtime_r(&now, &tm));
        strftime(before, sizeof before, "%Y-%m-%d %H:%M:%S", &tm);
        assert_int_equal(render("{{ strftime_now('%Y-%m-%d %H:%M:%S') }}", "{}", given ? &limits : NULL, &o, &error), QN_OK);
        now = time(NULL);
        assert_non_null(gmtime_r(&now, &tm));
        strftime(after, sizeof after, "%Y-%m-%d %H:%M:%S", &tm);
        if (strcmp(before, o.text) > 0 || strcmp(o.text, after) > 0) fail_msg("%s, %s, %s", before, o.text, after);
    }
    limits.now = 1700000000; /* and who gives a time has the same text on every day */
    assert_int_equal(render(day, "{}", &limits, &o, &error), QN_OK);
    assert_string_equal(o.text, "14 Nov 2023 22:13:20");
    limits.now = 1;
    assert_int_equal(render(day, "{}", &limits, &o, &error), QN_OK);
    assert_string_equal(o.text, "01 Jan 1970 00:00:01");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(templates_give_what_jinja2_gives),
                                       cmocka_unit_test(faults_name_line_and_reason), cmocka_unit_test(nothing_runs_away),
                                       cmocka_unit_test(limits_are_obeyed), cmocka_unit_test(today_is_not_1970)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
