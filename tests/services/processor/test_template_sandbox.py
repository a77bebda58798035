"""The sandbox: what templates cannot reach, cannot change, and cannot make too much of."""

from __future__ import annotations

import time
from typing import Any

import pytest

from services.processor.template import ChatTemplate, TemplateError
from services.protocols.processor import ChatMessage, ChatPrompt

PROMPT = ChatPrompt(messages=[ChatMessage(role="user", content="hi"), ChatMessage(role="assistant", content="a<b>&ß")])
AT_ONCE_S = 5.0
"""No template here may take longer by far: without its limit each takes minutes, gigabytes, or the interpreter."""

LISTS = "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(32) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}"  # noqa: E501
TUPLES = LISTS.replace("[1]", "(1,)").replace("[ns.l, ns.l]", "(ns.l, ns.l)").replace("[ns.m, ns.m]", "(ns.m, ns.m)")
BILLION = "is larger than it may be|is given more than it may be"
TEXT = "makes more text than it may"


def render(source: str, prompt: ChatPrompt = PROMPT, **options: Any) -> str:
    return ChatTemplate(source, {}, **options).render(prompt)


def fails(source: str, message: str, **options: Any) -> None:
    """It fails so, and at once, without a limit on time unless one is given."""
    options.setdefault("seconds", 600)
    began = time.monotonic()
    with pytest.raises(TemplateError, match=message):
        render(source, **options)
    assert time.monotonic() - began < AT_ONCE_S


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ self.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ messages.__class__.x }}",
        "{{ raise_exception.__globals__['os'] }}",
        "{{ namespace.__init__.__globals__.x }}",
        "{{ ''['__cl' ~ 'ass__'].x }}",
        "{{ '%s'.__mod__.__self__.x }}",
    ],
)
def test_python_s_internals_are_out_of_reach(source: str) -> None:
    with pytest.raises(TemplateError, match=r"unsafe|undefined|has no attribute"):
        render(source)


@pytest.mark.parametrize("source", ["{{ ''|attr('__class__') }}", "{{ '{0.__class__}'.format(1) }}"])
def test_other_ways_to_python_s_internals_lead_to_nothing(source: str) -> None:
    assert render(source) == ""


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.append(1) }}",
        "{{ messages.clear() }}",
        "{{ messages.sort() }}",
        "{{ messages[0].pop('role') }}",
        "{{ messages[0].update(role='x') }}",
        "{{ messages[0].setdefault('x', 1) }}",
        "{% do messages.append(1) %}",
        "{% set messages[0].role = 'x' %}",
    ],
)
def test_what_a_template_is_given_it_cannot_change(source: str) -> None:
    with pytest.raises(TemplateError, match=r"unsafe|does not compile"):
        render(source)


@pytest.mark.parametrize(
    "name", ["lipsum", "open", "eval", "exec", "getattr", "os", "environ", "__builtins__", "print"]
)
def test_there_is_no_such_thing_as(name: str) -> None:
    assert render("{{ " + name + " is defined }}") == "False"


@pytest.mark.parametrize("name", ["center", "wordwrap", "pprint", "random", "xmlattr", "format", "striptags", "batch"])
def test_filters_that_make_much_of_little_are_not_there(name: str) -> None:
    with pytest.raises(TemplateError, match=f"does not compile: No filter named '{name}'"):
        ChatTemplate("{{ 'a' | " + name + " }}", {})


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}",
        "{% for i in range(99999) %}{% set x = range(99999) | sum %}{% endfor %}",
        "{% set l = [range(99999)] * 99999 %}{{ l | map('sum') | list }}",
        "{% set l = [range(99999) | list] * 50 %}{{ range(-99999, 0) | select('in', l[0]) | list }}",
        "{% set ns = namespace(n=2) %}{% for i in range(99999) %}{% set ns.n = ns.n + ns.n %}{% endfor %}",
    ],
    ids=["loops", "macros", "filters", "mapped_filter", "selecting_test", "numbers"],
)
def test_time_has_a_limit(source: str) -> None:
    fails(source, "it runs longer than it may", seconds=0.1)


def test_the_time_is_that_of_the_clock_it_is_given() -> None:
    ticks = iter(range(1000))
    with pytest.raises(TemplateError, match="runs longer"):
        render("{% for i in range(9999) %}{% endfor %}", clock=lambda: float(next(ticks)), seconds=50)
    assert next(ticks) < 120


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ 'a' * 10**9 }}", TEXT),
        ("{{ 10**9 * 'a' }}", TEXT),
        ("{{ [1] * 10**9 }}", TEXT),
        ("{{ 'a'.ljust(10**9) }}", "is beyond"),
        ("{{ 'a'.center(10**9) }}", "is beyond"),
        ("{{ 'a'.zfill(10**9) }}", "is beyond"),
        ("{{ '\t'.expandtabs(10**9) }}", "not for templates"),
        ("{{ 'a'.encode() }}", "not for templates"),
        ("{{ 'a'.translate({97: 'b' * 9999}) }}", "not for templates"),
        ("{{ (1).to_bytes(10**9, 'big') }}", "not for templates"),
        ("{{ '%99999d' % 1 }}", "a format asks"),
        ("{{ '%*d' % (10**9, 1) }}", "a format asks"),
        ("{{ '{:99999}'.format(1) }}", "a format asks"),
        ("{{ '{:>{w}}'.format(1, w=10**9) }}", "a format asks"),
        ("{{ 10**9999 }}", "a power is"),
        ("{{ (2**511) * (2**511) * 16 }}", "a product is"),
        ("{{ 1 | round(10**9) }}", "is beyond"),
        ("{{ [1] | tojson(indent=10**9) }}", "is beyond"),
        ("{{ 'a\nb' | indent(10**9) }}", "is beyond"),
        ("{{ [1, 2] | tojson(separators=('x' * 9999, ':')) }}", "separators of 10000 characters"),
        ("{{ [1] | tojson(indent='x' * 9999) }}", "indent is a number"),
        ("{{ [[1], [2]] | sum(start=[]) }}", "sum is for numbers"),
        ("{{ range(10**9) }}", "Range too big"),
    ],
)
def test_a_large_number_is_refused_before_anything_is_made(source: str, message: str) -> None:
    fails(source, message)


@pytest.mark.parametrize(
    "source",
    [
        "{% set ns = namespace(s='aaaa') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s='aaaa') %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set n = namespace(s=1) %}{% for i in range(64) %}{% set n.s %}{{ n.s }}{{ n.s }}{% endset %}{% endfor %}",
        "{% set s = 'a' * 99999 %}{{ s | replace('a', s) }}",
        "{% set s = 'a' * 99999 %}{{ s.replace('a', s) }}",
        "{% set s = 'a' * 99999 %}{{ s.join(s) }}",
        "{% set s = 'a' * 99999 %}{{ range(99999) | join(s) }}",
        "{% set s = 'a' * 99999 %}{{ ('a\n' * 99999) | indent(s) }}",
        "{% set s = 'a' * 99999 %}{{ ('{0}' * 9999).format(s) }}",
        "{% set s = 'a' * 99999 %}{{ ('%(a)s' * 9999) % {'a': s} }}",
        "{{ ('{:9999}' * 9999).format(*[1] * 9999) }}",
        "{{ ('%9999d' * 9999) % ((1,) * 9999) }}",
        "{% set s = 'a' * 99999 %}{% for i in range(99999) %}{{ s }}{% endfor %}",
        "{% for i in range(99999) %}" + "constant text " * 1000 + "{% endfor %}",
        "{% set s = 'a' * 999999 %}{% for i in range(99999) %}{% set x = s | upper %}{% endfor %}",
        "{% set s = 'a' * 999999 %}{% for i in range(99999) %}{% set x = s | list %}{% endfor %}",
    ],
)
def test_text_has_a_limit(source: str) -> None:
    fails(source, TEXT, characters=5_000_000)


@pytest.mark.parametrize(
    "use",
    [
        "{{ ns.l }}",
        "{{ ns.l | string }}",
        "{{ ns.l | upper }}",
        "{{ ns.l | e }}",
        "{{ ns.l | urlencode }}",
        "{{ ns.l | tojson }}",
        "{{ ns.l == ns.m }}",
        "{{ ns.l in [ns.m] }}",
        "{{ ns.l < ns.m }}",
        "{{ [ns.l, ns.m] | sort }}",
        "{{ [ns.l].count(ns.m) }}",
        "{{ [ns.l] | select('eq', ns.m) | list }}",
        "{{ '{}'.format(ns.l) }}",
        "{{ '%s' % [ns.l] }}",
        "{{ loop(ns.l) }}",
    ],
)
def test_a_value_that_holds_itself_many_times_over_is_refused_as_it_is_built(use: str) -> None:
    fails(LISTS + use, BILLION)


@pytest.mark.parametrize(
    "use", ["{{ {ns.l: 1} }}", "{{ [ns.l] | unique | list }}", "{{ {}[ns.l] }}", "{{ {}.get(ns.l) }}"]
)
def test_so_are_tuples_which_would_be_hashed_for_ever(use: str) -> None:
    fails(TUPLES + use, BILLION)


@pytest.mark.parametrize(
    "build",
    [
        "{% set ns.l = dict(a=ns.l, b=ns.l) %}",
        "{% set ns.l = {'a': ns.l, 'b': ns.l} %}",
        "{% set ns.l = [ns.l] * 2 %}",
        "{% set ns.l = [ns.l] + [ns.l] %}",
        "{% set ns.l = {}.fromkeys(range(2), ns.l) %}",
        "{% set ns.l = [none, none] | map('default', ns.l, true) | list %}",
        "{% set ns.l = {'a': ns.l, 'b': ns.l}.values() %}",
        "{% set ns.l = [{'k': 1, 'v': ns.l}, {'k': 2, 'v': ns.l}] | groupby('k') %}",
        "{% set x = keep(ns.l, ns.l) %}{% set ns.l = kept.l %}",
    ],
)
def test_there_is_no_other_way_to_build_one(build: str) -> None:
    begin = "{% set ns, kept = namespace(l=[1]), namespace(l=1) %}"
    keep = "{% macro keep() %}{% set kept.l = varargs %}{% endmacro %}"
    fails(begin + keep + "{% for i in range(60) %}" + build + "{% endfor %}{{ ns.l }}", BILLION + "|nested deeper")


def test_the_arguments_of_one_call_have_a_limit_together() -> None:
    source = "{% macro m() %}{{ varargs | length }}{% endmacro %}{% set s = 'a' * 999999 %}{{ m(" + "s, " * 100 + ") }}"
    fails(source, "a call is given more than it may be")


def test_a_value_that_is_nested_deep_is_refused_before_its_hash_overflows_the_stack() -> None:
    source = (
        "{% set ns = namespace(l=()) %}{% for i in range(99999) %}{% set ns.l = (ns.l,) %}{% endfor %}{{ {ns.l: 1} }}"
    )
    fails(source, "nested deeper than it may be")


def test_a_namespace_is_not_written_out_for_it_may_hold_itself() -> None:
    nested = (
        "{% set ns = namespace(l=1) %}{% for i in range(32) %}{% set ns.l = namespace(a=ns.l, b=ns.l) %}{% endfor %}"
    )
    assert render(nested + "{{ ns.l }}{{ [ns] }}") == "<Namespace>[<Namespace>]"


def test_a_number_of_thousands_of_digits_does_not_compile() -> None:
    with pytest.raises(TemplateError, match="does not compile"):
        ChatTemplate("{{ " + "9" * 5000 + " }}", {})


def test_one_rendering_s_spending_is_not_another_s() -> None:
    template = ChatTemplate("{{ 'a' * 900 }}", {}, characters=3000)
    assert [len(template.render(PROMPT)) for _ in range(5)] == [900] * 5


def test_a_long_conversation_is_not_taken_for_an_attack() -> None:
    prompt = ChatPrompt(messages=[ChatMessage(role="user", content="x" * 1000)] * 2000)
    source = (
        "{% set ns = namespace(n=0, kept=[]) %}{% for m in messages %}{% set ns.kept = ns.kept[-9:] + [m] %}"
        "{% if m.role in ['user', 'system'] and messages | length > 1 %}{{ '<' ~ m['role'] + '>' ~ m.content | trim }}"
        "{% endif %}{% set pair = {'all': messages, 'm': m} %}{% endfor %}{{ messages | tojson | length }}"
    )
    assert len(render(source, prompt, seconds=60)) > 2000 * 1000


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ 'a' ~ 1 ~ none }}", "a1None"),
        ("{{ ['a', 1] | join('-') }}", "a-1"),
        ("{{ '-'.join(['a', 'b']) }}", "a-b"),
        ("{{ messages | map(attribute='role') | join(',') }}", "user,assistant"),
        ("{{ 'aab' | replace('a', 'x', 1) }}", "xab"),
        ("{{ 'aab'.replace('a', 'x') }}", "xxb"),
        ("{{ 'a\nb' | indent(2) }}", "a\n  b"),
        ("{{ 'a\nb' | indent(2, true) }}", "  a\n  b"),
        ("{{ {'ü': '<a>'} | tojson }}", '{"ü": "<a>"}'),
        ("{{ [1, {'a': 2}] | tojson(indent=2) }}", '[\n  1,\n  {\n    "a": 2\n  }\n]'),
        ("{{ [1, 2] | tojson(separators=(',', ':')) }}", "[1,2]"),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}", '{"a": 2, "b": 1}'),
        ("{{ [1, 2, 3] | sum }}", "6"),
        ("{{ [{'a': 1}, {'a': 2}] | sum(attribute='a') }}", "3"),
        ("{{ 1.256 | round(2) }}", "1.26"),
        ("{% generation %}said{% endgeneration %}", "said"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{{ '%s-%d' % ('a', 3) }}", "a-3"),
        ("{{ '{}: {}'.format('a', 1) }}", "a: 1"),
        ("{{ 2 ** 10 }}", "1024"),
        ("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "a1"),
        ("{{ 'a' in {'a': 1}.keys() }}", "True"),
        ("{% set a, b = 1, 2 %}{{ a }}{{ b }}", "12"),
        ("{% for a, b in [(1, 2)] %}{{ a + b }}{% endfor %}", "3"),
        ("{{ messages[1].content | e }}", "a&lt;b&gt;&amp;ß"),
        ("{{ messages[0] is mapping }}", "True"),
        ("{{ nothing | default('x') }}", "x"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ messages[0].content | upper | trim }}", "HI"),
        ("{% macro m(a, b=[1]) %}{{ a }}{{ b }}{% endmacro %}{{ m(2) }}", "2[1]"),
        ("{{ nothing }}|{{ [] | first }}|", "||"),
        ("  {% if true %}\n  a\n  {% endif %}\nb", "  a\nb"),
        ("{{ 'a' if messages else 'b' }}{{ [1, messages | length][1] }}", "a2"),
    ],
)
def test_what_templates_use_gives_what_they_expect(source: str, expected: str) -> None:
    assert render(source) == expected
