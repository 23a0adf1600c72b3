/* JSON schemas as grammars: documents that fit and documents that do not, for each keyword; and what is refused, by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_setup.h"
#include "text/grammar_parts.h"

typedef struct schema_case {
    const char *schema;
    const char *good[6], *bad[6];
} schema_case;

static const schema_case CASES[] = {
    {"{}", {"1", "\"x\"", "{\"a\": [1, null]}", "[]", "true"}, {"nope", "{a:1}", "[1,]"}},
    {"true", {"1.5e3", "{}"}, {"01"}},
    {"{\"type\": \"string\"}", {"\"\"", "\"a\\n\\u00e9\"", "\"\xC3\xA9\""}, {"1", "\"a\nb\"", "\"\\q\""}},
    {"{\"type\": [\"integer\", \"null\"]}", {"-12", "0", "null"}, {"1.5", "\"1\"", "00"}},
    {"{\"enum\": [\"a\", 2, [true]]}", {"\"a\"", "2", "[true]", "[ true ]"}, {"\"b\"", "3", "[false]"}},
    {"{\"const\": {\"k\": \"q\\\"\"}}", {"{\"k\":\"q\\\"\"}", "{ \"k\" : \"q\\\"\" }"}, {"{}", "{\"k\":\"q\"}"}},
    {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}",
     {"\"ab\"", "\"\xC3\xA9\xC3\xA9\xC3\xA9\""},
     {"\"a\"", "\"abcd\""}},
    {"{\"pattern\": \"^[a-f]+(x|y){2}$\"}", {"\"abxy\"", "\"fxx\""}, {"\"xx\"", "\"ax\"", "\"axyy\""}},
    {"{\"pattern\": \"b\"}", {"\"b\"", "\"abc\""}, {"\"ac\""}},
    {"{\"format\": \"date-time\"}",
     {"\"2024-02-29T12:30:00Z\"", "\"1999-12-31T23:59:59.5+01:00\""},
     {"\"2024-13-01T00:00:00Z\"", "\"2024-01-01\""}},
    {"{\"type\": \"integer\", \"minimum\": -3, \"maximum\": 120}", {"-3", "-1", "0", "99", "120"}, {"-4", "121", "1000", "-0"}},
    {"{\"type\": \"integer\", \"exclusiveMinimum\": 9}", {"10", "11", "99", "123456"}, {"9", "0", "-10"}},
    {"{\"type\": \"integer\", \"maximum\": -10}", {"-10", "-99", "-100"}, {"-9", "10", "0"}},
    {"{\"items\": {\"type\": \"boolean\"}, \"minItems\": 1, \"maxItems\": 2}",
     {"[true]", "[true, false]"},
     {"[]", "[true,true,true]", "[1]"}},
    {"{\"prefixItems\": [{\"type\": \"integer\"}, {\"type\": \"string\"}]}",
     {"[1, \"a\"]"},
     {"[\"a\", 1]", "[1]", "[1,\"a\",2]"}},
    {"{\"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"type\": \"integer\"}, \"c\": {\"type\": \"integer\"}}, "
     "\"required\": [\"b\"]}",
     {"{\"b\":1}", "{\"a\":1,\"b\":2}", "{\"b\":1,\"c\":2}", "{ \"a\": 1, \"b\": 2, \"c\": 3 }"},
     {"{}", "{\"a\":1}", "{\"b\":1,}", "{\"b\":1,\"d\":2}", "{\"c\":1,\"b\":2}"}},
    {"{\"properties\": {\"ab\": {}}, \"additionalProperties\": {\"type\": \"null\"}}",
     {"{}", "{\"ab\":1}", "{\"a\":null}", "{\"abc\":null,\"x\":null}", "{\"ab\":1,\"b\":null}"},
     {"{\"x\":1}", "{\"a\":null,\"ab\":1}"}},
    {"{\"additionalProperties\": {\"type\": \"integer\"}}", {"{}", "{\"q\":1}"}, {"{\"q\":\"1\"}"}},
    {"{\"anyOf\": [{\"type\": \"null\"}, {\"$ref\": \"#/$defs/n\"}], \"$defs\": {\"n\": {\"properties\": {\"next\": {\"$ref\": "
     "\"#\"}}, \"required\": [\"next\"]}}}",
     {"null", "{\"next\":null}", "{\"next\":{\"next\":null}}"},
     {"{}", "{\"next\":1}"}},
    {"{\"allOf\": [{\"$ref\": \"#/definitions/a~1b\"}, {\"properties\": {\"y\": {\"type\": \"null\"}}, \"required\": [\"y\"]}], "
     "\"definitions\": {\"a/b\": {\"properties\": {\"x\": {\"type\": \"boolean\"}}}}}",
     {"{\"y\":null}", "{\"x\":true,\"y\":null}"},
     {"{\"x\":true}"}},
    /* A range over a quote and a backslash holds them as JSON writes them, and never else. */
    {"{\"pattern\": \"^[ -~]*$\"}", {"\"a\\\"\\\\~\"", "\"\""}, {"\"\"\"", "\"\\\"", "\"\\x\""}},
    {"{\"pattern\": \"^[\\\\t\\\\n]+x$\"}", {"\"\\tx\"", "\"\\n\\u0009x\""}, {"\"x\"", "\"\tx\"", "\"\\rx\""}},
    {"{\"pattern\": \"^\\\\n+$\"}", {"\"\\n\\n\"", "\"\\u000a\""}, {"\"\"", "\"\\\""}},
    {"{\"pattern\": \"^a.b$\"}",
     {"\"axb\"", "\"a\\\"b\""},
     {"\"a\\nb\"", "\"a\\u000ab\"",
      "\"a\xE2\x80\xA8"
      "b\""}},
    {"{\"pattern\": \"^[^\\\\s]$\"}", {"\"a\""}, {"\" \"", "\"\xC2\xA0\"", "\"\xE3\x80\x80\""}},
    {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 2}",
     {"\"ab\"", "\"\\ud83d\\ude00x\""},
     {"\"\\ud83d\\ude00\"", "\"\\ud83d\\ud83d\""}},
    /* Of a choice among values, those that are of the type. */
    {"{\"enum\": [\"a\", 1, 2.0, null], \"type\": [\"integer\", \"null\"]}", {"1", "2.0", "null"}, {"\"a\""}},
    {"{\"const\": 12345678901234567890}", {"12345678901234567890"}, {"1.2345678901234567e+19"}},
    {"{\"const\": \"a\", \"enum\": [\"b\", \"a\"], \"type\": \"string\"}", {"\"a\""}, {"\"b\""}},
    {"{\"type\": \"integer\", \"anyOf\": [{\"const\": 3}, {\"type\": \"integer\", \"minimum\": 7}]}", {"3", "7"}, {"4"}},
    {"{\"minimum\": 5}", {"5"}, {"3"}},
    {"{\"type\": \"object\", \"oneOf\": [{\"$ref\": \"#/d\"}, {\"properties\": {\"b\": {}}}], \"d\": {\"anyOf\": [{\"required\": "
     "[\"a\"]}]}}",
     {"{\"a\":1}", "{\"b\":1}"},
     {"1"}},
    /* What other members must be holds for those that are only required as well, and their names have one way to be written. */
    {"{\"required\": [\"a\"], \"additionalProperties\": {\"type\": \"integer\"}}", {"{\"a\":1}"}, {"{\"a\":\"x\"}", "{}"}},
    {"{\"properties\": {\"ab\": {\"type\": \"integer\"}, \"q\\\"\": {\"type\": \"integer\"}}, \"additionalProperties\": "
     "{\"type\": "
     "\"null\"}}",
     {"{\"ab\":1}", "{\"q\\\"\":1}", "{\"q\\\\\":null}", "{\"abc\\u0061\":null}", "{\"\\n\":null}"},
     {"{\"\\u0061b\":null}", "{\"a\\u0062\":null}", "{\"q\\\"\":null}"}},
    {"{\"type\": \"object\", \"unevaluatedProperties\": false}", {"{}"}, {"{\"a\":1}"}},
    {"{\"type\": \"array\", \"unevaluatedItems\": false}", {"[]"}, {"[1]"}},
    {"{\"allOf\": [{\"properties\": {\"a\": {}}, \"additionalProperties\": false}, {\"required\": [\"a\"]}]}",
     {"{\"a\":1}"},
     {"{}"}}};

static char judge(const char *schema, const char *document) {
    qn_arena arena;
    qn_error error = {QN_OK, ""};
    qn_text grammar = {"", 0};
    network net = {0};
    run walk;
    qn_arena_init(&arena, 0);
    grammar_tree tree = {.arena = &arena};
    if (qn_text_schema_to_grammar(&arena, (qn_text){schema, strlen(schema)}, &grammar, &error) != QN_OK ||
        qn_text_grammar_parse(&tree, grammar, NULL, &error) != QN_OK ||
        qn_text_grammar_compile(&net, &arena, &tree, &error) != QN_OK)
        fail_msg("%s: %s\n%.*s", schema, error.text, (int)grammar.length, grammar.at);
    int32_t set = qn_text_run_start(&walk, &net);
    for (const char *p = document; *p && set > SET_DEAD; p++) set = qn_text_run_step(&walk, set, (uint8_t)*p);
    char answer = set > SET_DEAD && walk.sets.at[set].ends ? 'y' : 'n';
    qn_text_run_free(&walk);
    qn_arena_destroy(&arena);
    return answer;
}

static void documents_fit_or_do_not(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        for (size_t k = 0; k < 6 && CASES[i].good[k]; k++)
            if (judge(CASES[i].schema, CASES[i].good[k]) != 'y') fail_msg("%s should take %s", CASES[i].schema, CASES[i].good[k]);
        for (size_t k = 0; k < 6 && CASES[i].bad[k]; k++)
            if (judge(CASES[i].schema, CASES[i].bad[k]) != 'n')
                fail_msg("%s should not take %s", CASES[i].schema, CASES[i].bad[k]);
    }
}

static void what_is_not_known_is_named(void **state) {
    (void)state;
    static const struct {
        const char *schema, *text;
        qn_status status;
    } REFUSED[] = {
        {"{\"not\": {}}", "'not'", QN_UNSUPPORTED},
        {"{\"uniqueItems\": true}", "'uniqueItems'", QN_UNSUPPORTED},
        {"{\"patternProperties\": {\"x\": {}}}", "'patternProperties'", QN_UNSUPPORTED},
        {"{\"format\": \"email\"}", "format 'email'", QN_UNSUPPORTED},
        {"{\"type\": \"number\", \"maximum\": 1}", "maximum of a number", QN_UNSUPPORTED},
        {"{\"$ref\": \"other.json\"}", "only references into the same document", QN_UNSUPPORTED},
        {"{\"$ref\": \"#/a/b\"}", "'#/a/b' leads nowhere", QN_INVALID},
        {"{\"anyOf\": [{}], \"required\": [\"a\"]}", "'anyOf' together with 'required'", QN_UNSUPPORTED},
        {"{\"pattern\": \"(?!a)\"}", "look ahead", QN_UNSUPPORTED},
        {"{\"pattern\": \"^a|b$\"}", "put the choice in parentheses", QN_UNSUPPORTED},
        {"{\"pattern\": \"[a\"}", "ends too early", QN_UNSUPPORTED},
        {"{\"pattern\": \"a\", \"minLength\": 2}", "pattern together with a length", QN_UNSUPPORTED},
        {"{\"minLength\": 1000000}", "minLength is above", QN_UNSUPPORTED},
        {"{\"type\": \"integer\", \"minimum\": 3, \"maximum\": 2}", "maximum is below minimum", QN_INVALID},
        {"{\"type\": \"text\"}", "a type that JSON does not have", QN_INVALID},
        {"{\"enum\": []}", "a choice among nothing", QN_INVALID},
        {"{\"items\": {}, \"minItems\": 3, \"maxItems\": 2}", "more items than it may have", QN_INVALID},
        {"{\"required\": [\"a\"], \"additionalProperties\": false}", "required and not allowed", QN_INVALID},
        {"false", "'false' allows no document", QN_INVALID},
        {"[]", "no schema", QN_INVALID},
        {"{\"type\": ", "schema: JSON, byte 9", QN_INVALID},
        {"{\"allOf\": [{\"$ref\": \"#\"}]}", "or of itself", QN_UNSUPPORTED},
        {"{\"allOf\": [{\"type\": \"string\"}, {\"type\": \"object\"}]}", "anything but objects", QN_UNSUPPORTED},
        {"{\"type\": \"string\", \"allOf\": [{\"minLength\": 3}]}", "anything but objects", QN_UNSUPPORTED},
        {"{\"allOf\": [{\"minLength\": 3}]}", "anything but objects", QN_UNSUPPORTED},
        {"{\"allOf\": [{\"type\": \"object\", \"minProperties\": 2}]}", "'minProperties'", QN_UNSUPPORTED},
        {"{\"allOf\": [false]}", "allows no document", QN_INVALID},
        {"{\"allOf\": [{\"properties\": {\"a\": {}}, \"additionalProperties\": false}, {\"properties\": {\"b\": {}}}]}",
         "only some parts", QN_UNSUPPORTED},
        {"{\"allOf\": [{\"additionalProperties\": false}, {\"additionalProperties\": false}]}", "says twice", QN_UNSUPPORTED},
        {"{\"$ref\": \"#/a\", \"minimum\": 3, \"a\": {}}", "'$ref' together with 'minimum'", QN_UNSUPPORTED},
        {"{\"enum\": [\"a\"], \"minLength\": 2}", "'enum' together with 'minLength'", QN_UNSUPPORTED},
        {"{\"enum\": [\"a\"], \"type\": \"integer\"}", "a choice among nothing", QN_INVALID},
        {"{\"const\": 5, \"type\": \"string\"}", "a const that its own schema", QN_INVALID},
        {"{\"const\": 1e999}", "beyond what a double holds", QN_UNSUPPORTED},
        {"{\"type\": \"string\", \"anyOf\": [{\"type\": \"integer\"}]}", "beside a type", QN_UNSUPPORTED},
        {"{\"propertyNames\": false}", "'propertyNames'", QN_UNSUPPORTED},
        {"{\"format\": \"date\", \"minLength\": 3}", "format together with a length", QN_UNSUPPORTED},
        {"{\"pattern\": \"a{2,1}\"}", "a repetition that cannot be", QN_UNSUPPORTED},
        {"{\"pattern\": \"a{x}\"}", "begins no repetition", QN_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        qn_arena arena;
        qn_error error = {QN_OK, ""};
        qn_text out;
        qn_arena_init(&arena, 0);
        qn_status status = qn_text_schema_to_grammar(&arena, (qn_text){REFUSED[i].schema, strlen(REFUSED[i].schema)}, &out,
                                                     &error);
        if (status != REFUSED[i].status || !strstr(error.text, REFUSED[i].text))
            fail_msg("%s: %s '%s', should hold '%s'", REFUSED[i].schema, qn_status_name(status), error.text, REFUSED[i].text);
        qn_arena_destroy(&arena);
    }
}

/* A hundred optional members: two rules for each place, not one for each choice of them. */
static void optional_members_do_not_multiply(void **state) {
    (void)state;
    char schema[20000], document[8000];
    size_t n = (size_t)sprintf(schema, "{\"properties\": {"), d = (size_t)sprintf(document, "{");
    for (int i = 0; i < 100; i++) {
        n += (size_t)sprintf(schema + n, "%s\"key%d\": {\"type\": \"integer\"}", i ? ", " : "", i);
        if (i % 3 == 0) d += (size_t)sprintf(document + d, "%s\"key%d\": %d", i ? ", " : "", i, i);
    }
    sprintf(schema + n, "}, \"additionalProperties\": true}");
    sprintf(document + d, ", \"key\": [], \"key100\": null}");
    assert_int_equal(judge(schema, document), 'y');
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(documents_fit_or_do_not), cmocka_unit_test(what_is_not_known_is_named),
                                       cmocka_unit_test(optional_members_do_not_multiply)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
