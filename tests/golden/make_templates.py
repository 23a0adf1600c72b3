#!/usr/bin/env python3
"""Writes templates.json: small templates, their variables, and what jinja2 (set up as chat templates are rendered) makes of them.

Run it with jinja2 3.1 installed; tests/unit/test_template.c compares. "want": null means that jinja2 refuses.
"""
import datetime
import json
import os

import jinja2
import jinja2.sandbox

NOW = 1700000000
V = {  # variables that most cases share
    "a": 3, "b": -7, "f": 2.5, "s": "Hello", "u": "naïve日本", "e": "", "n": None, "t": True, "l": [3, 1, 2], "m": {"x": 1, "y": "two", "items": 5},
    "ls": ["b", "A", "c"], "nested": {"k": {"z": [1, {"q": "deep"}]}}, "dl": [{"id": 2, "n": "two"}, {"id": 1, "n": "one"}, {"id": 3}],
    "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": " Hi! "}, {"role": "assistant", "content": "Yes?"},
                 {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image"}]}],
}
EXPRESSIONS = """
1 + 2 * 3 ; 7 // 2 ; -7 // 2 ; 7 % 3 ; -7 % 3 ; 7 / 2 ; 2 ** 10 ; 2 ** 3 ** 2 ; -2 ** 2 ; 10 - 3 - 2 ; a + f ; 1.0 ; 1e3 ; 0.1 + 0.2 ; 1e20 ; 1e-7 ; 100000.0
"a" ~ 1 ~ none ~ true ; "a" + "b" ; "ab" * 3 ; [1] * 2 ; [1] + [2] ; 1 ~ 2 + 3
1 < 2 < 3 ; 1 < 3 < 2 ; 1 == 1.0 ; true == 1 ; "a" < "b" ; [1, 2] < [1, 3] ; "a" in "cat" ; 3 in l ; "x" in m ; "q" not in m ; none in [none] ; 2 in "12"
not true ; not 0 and 1 ; 0 or "x" ; "" or [] or "z" ; 1 and 2 ; 1 if t else 2 ; 1 if n else 2 ; (1 if n) ; not a == 3 ; not n is none
s[0] ; s[-1] ; s[1:3] ; s[::-1] ; s[:2] ; s[9:] ; u[5] ; u[-2:] ; u|length ; l[0] ; l[-1] ; l[1:] ; l[::2] ; l[::-1] ; l[9] ; m.x ; m["y"] ; m["items"] ; m.nope
nested.k.z[1].q ; nested["k"]["z"][0] ; dl[1].n ; l.0 ; nope ; nope.x ; nope is defined ; m.nope is defined ; m.x is defined ; nope is undefined
s is string ; l is string ; m is mapping ; l is mapping ; l is sequence ; s is sequence ; l is iterable ; a is iterable ; a is number ; t is number ; f is float
t is integer ; a is integer ; t is boolean ; n is none ; n is not none ; a is odd ; a is even ; a is divisibleby 3 ; a is eq 3 ; a is gt 2 ; s is in ["Hello"]
t is true ; t is false ; 1 is true ; s is upper ; "ABC" is upper ; "abc" is lower ; a is sameas 3
s|upper ; s|lower ; u|upper ; "hello world"|title ; "HELLO wORLD"|capitalize ; "  x "|trim ; "xxaxx"|trim("x") ; s|replace("l", "L") ; s|replace("l", "L", 1)
l|join(",") ; l|join ; ls|join(", ") ; dl|join("-", attribute="id") ; l|first ; l|last ; []|first ; s|first ; l|sort ; l|sort(reverse=true) ; ls|sort ; ls|sort(case_sensitive=true)
dl|sort(attribute="id")|map(attribute="id")|join ; l|reverse|list ; s|reverse ; l|sum ; l|max ; l|min ; l|length ; m|length ; l|unique|list ; [1, 1, 2]|unique|list
m|items|list ; m|dictsort ; {"b": 1, "a": 2}|dictsort ; {"b": 1, "a": 2}|dictsort(by="value") ; {"b": 1, "a": 2}|dictsort(reverse=true)
l|map("string")|join("+") ; ls|map("upper")|list ; [1, 0, 2]|select|list ; l|select("odd")|list ; l|reject("odd")|list ; l|select("gt", 1)|list
dl|selectattr("n")|list|length ; dl|selectattr("n", "defined")|map(attribute="n")|list ; dl|rejectattr("n")|list|length ; dl|selectattr("id", "equalto", 2)|list
dl|map(attribute="n", default="-")|list ; nope|default("d") ; n|default("d") ; e|default("d", true) ; nope|d ; a|string ; "12"|int ; "x"|int ; "x"|int(5) ; "2.9"|int ; 3.9|int
"1.5"|float ; "x"|float ; -3|abs ; 2.567|round(2) ; 2.5|round ; 3.5|round ; 2.1|round(0, "ceil") ; "a b  c"|wordcount ; "<a&'>"|escape ; "x"|safe ; [1, 2, 3]|batch(2)|list
"a\\nb\\n\\nc"|indent(2) ; "a\\nb"|indent(2, true) ; "a\\nb"|indent ; "a\\n\\nb"|indent(1, blank=true) ; "%s is %d"|format("x", 3) ; "%.2f" % 1.005 ; "100%%" % () ; "%s" % "y"
m|tojson ; l|tojson ; n|tojson ; t|tojson ; u|tojson ; "a\\"b\\\\c\\n\\t/<>"|tojson ; f|tojson ; 1.0|tojson ; m|tojson(indent=2) ; {}|tojson(indent=2) ; [[], {}]|tojson ; nested|tojson(indent=4)
u|tojson(ensure_ascii=true) ; {"b": 1, "a": 2}|tojson(sort_keys=true) ; m|tojson(separators=(",", ":")) ; {1: 2, true: none}|tojson ; (1, 2)|tojson
l ; m ; (1,) ; (1, "a") ; [] ; {} ; [none, true, 1.5, "it's", 'q"q'] ; "x'y\\"z" ; ["x'y\\"z", "a\\nb"] ; ["é日", "\\u200b"]
"a,b,,c".split(",") ; " a  b ".split() ; "a,b,c".split(",", 1) ; "a,b,c".rsplit(",", 1) ; "a b c".split(none, 1) ; "  x ".strip() ; "xx1xx".strip("x") ; "xx1".lstrip("x") ; "1xx".rstrip("x")
"hello".startswith("he") ; "hello".endswith("lo") ; "hello".startswith(("x", "h")) ; "a-b".replace("-", "+") ; "aXb".lower() ; "aXb".upper() ; "a b".title() ; "aB".capitalize()
"hello".find("l") ; "hello".rfind("l") ; "hello".find("z") ; "hello".count("l") ; "hello".index("e") ; "-".join(ls) ; "123".isdigit() ; "a1".isalnum() ; "a".isalpha() ; " ".isspace()
"a\\nb\\r\\nc".splitlines() ; "{} {}".format(1, "x") ; "{1} {0}".format(1, 2) ; "{a}={b:.1f}".format(a=1, b=2.25) ; "{{}}".format() ; "abc".removeprefix("a") ; "abc".removesuffix("c")
m.get("x") ; m.get("q") ; m.get("q", 7) ; m.keys()|list ; m.values()|list ; {"a": 1}.items()|list ; range(3)|list ; range(1, 4)|list ; range(5, 0, -2)|list ; dict(a=1, b=2) ; l.index(1) ; l.count(3)
strftime_now("%Y-%m-%d") ; strftime_now("%d %b %Y") ; "a" "b" ; 1_000 ; 'it\\'s' ; "tab\\there" ; "\\u00e9" ; [1, 2,] ; {"a": 1,}.a ; ((1)) ; -f ; +a ; - a ; 5 % 3 * 2 ; "a" if false
l[0:2]|join ; (l|length) > 2 ; l|length > 2 ; s|length + 1 ; "x" in s or "H" in s ; messages[0].role ; messages[-1]["content"][0].text ; messages|map(attribute="role")|join(" ")
1 / 0 ; 1 % 0 ; "a" + 1 ; nope + 1 ; none.x ; l|nofilter ; s is notest ; undefined_function() ; a() ; m.x.y.z ; "a"|int|string + "b" ; l|sort|first ; s.nope ; s.nope.x ; [3]|length == 1
"a" < 1 ; none < 1 ; [] + 1 ; "x"|tojson|length ; true + 1 ; 7.5 // 2 ; 7.5 % 2 ; -7.5 % 2 ; 3 - -2 ; 2 * -3 ; 10 ** -1 ; "é" < "z" ; "Z" < "a" ; u.upper() ; "ǆ".title()
2.675|round(2) ; 0.285|round(2) ; 1e300|round(2) ; 3|round ; 25|round(-1) ; 35|round(-1) ; -25|round(-1) ; 27|round(-1) ; 25.0|round(-1) ; 7|round(0, "ceil") ; true|round
"a-b c(d) [e] {f} <g> h_i j'k x1y"|title ; "a-b c(d) 日本x 1st they're".title() ; "a_b c-d e.f ² x1"|wordcount ; "1234567890123456789"|int ; " -12 "|int ; "-9223372036854775808"|int
"%x" % 255 ; "%x" % -255 ; "%x" % 2.5 ; "a\\x0bb\\x0cc\\u2028d\\r\\ne\\r\\rf".splitlines() ; "a\\r\\nb\\x85c".splitlines(true) ; " a  b c ".split(none, 1) ; "\\033[0m\\101\\7\\a" ; "\\xzz" ; "\\u12" ; "\\U0001F600"
raise_exception("no") ; namespace(a=1).a ; namespace(a=1).b ; ("a", "b")|join ; "abc"|list ; {"a": 1}|list ; "a.b.c".split(".")[1] ; "a.b.c".split(".")|last ; ["a", ["b"]][1][0]
"""
TEMPLATES = [
    "plain", "", "a\n", "a\n\n", "a\r\nb\r\n", "{{ a }}", "{{a}}{{b}}", "{{ '{{' }}", "{# c #}x", "x{# c #}\ny", "  {# c #}\ny", "{#- c -#} y", "{{- a -}} x", "x {{- a }}",
    "x\n  {% if t %}\n  y\n  {% endif %}\nz", "x\n  {%- if t %}\n  y\n  {%- endif %}\nz", "{% if t -%}\n  y\n{%- endif %}\nz", "  {%+ if t %}y{% endif %}", "{% if t +%}\ny{% endif %}",
    "a {% if t %} b {% else %} c {% endif %} d", "{% if n %}1{% elif t %}2{% else %}3{% endif %}", "{% if n %}1{% elif e %}2{% endif %}|",
    "{% if n %}a{% elif e %}b{% elif t %}c{% elif t %}d{% endif %}", "{% for x in l %}{{ x }},{% endfor %}", "{% for x in [] %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}:{{ x }} {% endfor %}", "{% for k, v in m.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in m %}{{ k }}{% endfor %}", "{% for c in u %}{{ c }}.{% endfor %}",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }} {% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in l %}{% if loop.previtem is defined %}y{% endif %}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}", "{% set q = 1 %}{{ q }}", "{% set q, r = 1, 2 %}{{ q }}{{ r }}", "{% set q = (1, 2) %}{{ q }}",
    "{% set q = 1 %}{% for x in l %}{% set q = x %}{% endfor %}{{ q }}", "{% set ns = namespace(q=1) %}{% for x in l %}{% set ns.q = ns.q + x %}{% endfor %}{{ ns.q }}",
    "{% set q = 1 %}{% if t %}{% set q = 2 %}{% endif %}{{ q }}", "{% set q %}a{{ a }}b{% endset %}[{{ q }}]", "{% set q | upper %}abc{% endset %}{{ q }}", "{% filter upper %}a{{ s }}{% endfilter %}",
    "{% macro hi(x, y=2) %}<{{ x }}{{ y }}>{% endmacro %}{{ hi(1) }}{{ hi(1, 3) }}{{ hi(y=4, x=5) }}{{ hi() }}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% set q = 5 %}{% macro f() %}{{ q }}{% endmacro %}{% set q = 6 %}{{ f() }}", "{% macro f(x) %}{{ x }}{% endmacro %}{% for i in l %}{{ f(i) }}{% endfor %}", "{% macro f() %}a{% endmacro %}{{ f()|upper ~ f() }}",
    "{% raw %}{{ a }}{% if %}{% endraw %}b", "{% raw -%}\n x {%- endraw %}", "{% do l.append(9) %}{{ l }}", "{% set x = l.pop() %}{{ x }}{{ l }}", "{% generation %}g{{ a }}{% endgeneration %}", "{% set d = {'a': 1} %}{% do d.update({'b': 2}) %}{{ d }}",
    "{{ {'a': {'b': 1}}['a'] }}", "{{ {'a': {'b': 1}} }}", "{{ [[1, 2], [3]] }}", "{% for x in l|sort %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}", "{{ 'a'\n~ 'b' }}", "{%\nif t\n%}x{%\nendif\n%}",
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + (m['content'] if m['content'] is string else 'parts') + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "{% for m in messages %}\n    {%- if m.role == 'system' and loop.first %}\n        {{- '[S]' + m.content | trim }}\n    {%- elif m.content is string %}\n        {{- '[' + m.role | upper + ']' + m.content | trim + '\\n' }}\n    {%- else %}\n        {%- for p in m.content if p.type == 'text' %}{{ p.text }}{% endfor %}\n    {%- endif %}\n{%- endfor %}",
    "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set sys = messages[0].content %}{% else %}{% set rest = messages %}{% endif %}{{ sys }}:{{ rest|length }}",
    "{% for m in messages[::-1] %}{% set i = (messages|length - 1) - loop.index0 %}{{ i }}{{ m.role[0] }} {% endfor %}", "{% for x in l %}{{ loop.index is divisibleby(2) }}{% endfor %}",
    "{% if a", "{{ a", "{{ a }", "{% if t %}x", "{% endif %}", "{% for x in %}{% endfor %}", "{% for in l %}{% endfor %}", "{% nostatement %}", "{{ }}", "{{ a b }}", "{{ (1 }}", "{{ 'x }}", "{# x", "{% set = 1 %}", "{% macro %}{% endmacro %}",
    "{% for x in 5 %}{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% include 'x' %}", "{% set l.x = 1 %}", "{{ '}}' }}x", "{{ '%}' }}x", "{% if '%}' == '%}' %}y{% endif %}",
    "{%- for k, v in {'a': 1, 'b': [1]}.items() -%} {{ k }}:{{ v | tojson }} {%- endfor -%}", "{{ a if a else b if b else 1 }}", "{{ (a, b) | max }}", "{% set x = a if false %}[{{ x }}]", "{{ x is defined }}{% set x = 1 %}{{ x is defined }}",
    "{% raw %}\n {{ a }}\n  {% endraw %}\nb", "  {% raw %}x {%+ endraw %}\n", "{% raw -%}\n x\n {% endraw -%}\n y", "{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ x }}[{{ y }}]",
    "{% filter upper %}{% set y = 'q' %}{{ y }}{% endfilter %}[{{ y }}]", "{% for i in l %}{% if i == 3 %}{% break %}{% endif %}{% else %}E{% endfor %}", "{% for i in l %}{% continue %}{% else %}E{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% else %}E{% endfor %}", "{% for x in l %}{{ x }}{% set x = 9 %}{{ x }}{% endfor %}", "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}", "\n\n{{ a }}\n\n", "{{ a }}\n", "\ta\n\t{% if t %}\n\tb\n\t{% endif %}\n",
]


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                              extensions=["jinja2.ext.loopcontrols", "jinja2.ext.do"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(f)
    return env


def main():
    env, cases = environment(), []
    expressions = [e for line in EXPRESSIONS.strip().split("\n") for e in line.split(" ; ")]
    for template in ["{{ " + e.strip() + " }}" for e in expressions] + TEMPLATES:
        plain = template.replace("{% generation %}", "").replace("{% endgeneration %}", "")  # which marks, and prints nothing
        try:
            want = env.from_string(plain).render(**json.loads(json.dumps(V)))
        except Exception:  # whatever it is, it is a refusal
            want = None
        cases.append({"template": template, "want": want})
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates.json")
    with open(path, "w", encoding="utf-8") as file:
        lines = ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases)
        file.write('{"now": %d,\n"variables": %s,\n"cases": [\n%s\n]}\n' % (NOW, json.dumps(V, ensure_ascii=False), lines))
    print(f"{len(cases)} cases, {sum(c['want'] is None for c in cases)} of them refused")


main()
