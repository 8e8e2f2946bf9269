"""Templates: languages, escaping, and what they cannot do."""

from __future__ import annotations

import json
from dataclasses import replace
from email import message_from_bytes, policy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.notifications.message import Message, Refused
from connectors.notifications.smtp import mime
from connectors.notifications.templates import CHARS_MAX, Template, TemplateError, version
from schemas.notifications.events import Content, TemplatePublished


def content(channel: str = "email", locale: str = "en", **parts: str) -> Content:
    made = {"subject": "", "text": "", "html": ""} | parts
    return Content(channel=channel, locale=locale, **made)  # type: ignore[typeddict-item]


def published(*contents: Content, **fields: Any) -> TemplatePublished:
    made = {"priority": "transactional", "default_locale": "en", "digest_window_ms": 0,
            "lifetime_ms": 0, "published_at": 0}  # fmt: skip
    return TemplatePublished(template="t", version="", contents=list(contents), **(made | fields))


def html(source: str, **params: Any) -> str:
    return Template(published(content(html=source))).render("email", "en", json.dumps(params)).html


def text(source: str, **params: Any) -> str:
    return Template(published(content(text=source))).render("email", "en", json.dumps(params)).text


ATTACK = "<script>alert('1')</script>\" onload=\"x"


def test_html_is_escaped_and_text_is_not() -> None:
    assert "<script" not in html('<p title="{{ name }}">{{ name }}</p>', name=ATTACK)
    assert html("<b>{{ a }}</b>", a="1 < 2") == "<b>1 &lt; 2</b>"
    assert text("{{ a }}", a="1 < 2 & 3") == "1 < 2 & 3"
    assert html("{{ a | join(', ') }}", a=["<i>", "b"]) == "&lt;i&gt;, b"


@given(st.text())
def test_no_parameter_opens_a_tag(value: str) -> None:
    made = html("[{{ v }}|{{ v | upper }}|{{ v | truncate(5) }}]", v=value)
    assert not {"<", ">", '"', "'"} & set(made)


@pytest.mark.parametrize(
    ("locale", "expected"),
    [
        ("de-AT", "Servus"),
        ("de_at", "Servus"),
        ("DE-CH", "Hallo"),
        ("de", "Hallo"),
        ("fr", "Hello"),
        ("", "Hello"),
    ],
)
def test_the_nearest_language_is_used(locale: str, expected: str) -> None:
    template = Template(
        published(
            content(text="Hello"),
            content(locale="de", text="Hallo"),
            content(locale="de-AT", text="Servus"),
        )
    )
    assert template.render("email", locale, "{}").text == expected


INJECTIONS = ["a\r\nBcc: x@example.org", "a\nb", "a\rb", "a\x0bb", "a\x85b", "a\u2028b", "a\x00b"]


@pytest.mark.parametrize("value", INJECTIONS)
def test_a_subject_stays_one_line(value: str) -> None:
    template = Template(published(content(subject="Re: {{ v }}", text="x")))
    made = template.render("email", "en", json.dumps({"v": value}))
    mail = mime(Message("n/email", "email", "a@example.org", made.subject, "x"), "b@example.org")
    read = message_from_bytes(mail.as_bytes(), policy=policy.default)
    assert read["Bcc"] is None
    assert str(read["Subject"]) == made.subject
    assert made.subject.startswith("Re: a ")
    assert len(made.subject.splitlines()) == 1


@pytest.mark.parametrize("address", ["a@example.org\r\nBcc: b@example.org", "a\n@example.org"])
def test_an_address_cannot_bring_a_header(address: str) -> None:
    with pytest.raises(Refused):
        mime(Message("n/email", "email", address, "s", "x"), "b@example.org")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ }}",
        "{{ v | attr('x') }}",
        "{{ v | safe }}",
        "{{ v['__class__'] | length }}{{ w() }}",
        "{{ range(10) }}",
        "{{ 'a' * 1000000000 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{% for a in v %}{% for b in v %}x{% endfor %}{% endfor %}",
        "{% for a in v recursive %}{{ loop(a) }}{% endfor %}",
        "{% macro m() %}{% endmacro %}",
        "{% set x = 1 %}",
        "{% include 'x' %}",
        "{% extends 'x' %}",
        "{% import 'x' as y %}",
        "{{ v[v] }}",
        "{{ v[0:2] }}",
        "{% if %}",
        "{{ v",
    ],
)
def test_what_a_template_may_not_do_is_found_when_it_is_published(source: str) -> None:
    with pytest.raises(TemplateError, match="of email, en"):
        Template(published(content(text=source)))


def test_a_dot_looks_into_objects_and_nowhere_else() -> None:
    assert text("{{ o.items }}", o={"items": 3}) == "3"
    for source in ("{{ o.keys }}", "{{ o.items }}", "{{ s.upper }}", "{{ s[9] }}", "{{ n.real }}"):
        with pytest.raises(TemplateError):
            text(source, o={}, s="x", n=1)
    assert text("{% for a in o.items %}{{ loop.index }}{{ a }}{% endfor %}",
                o={"items": ["x", "y"]}) == "1x2y"  # fmt: skip


@pytest.mark.parametrize("params", ['{"a": 1}', "[]", '"x"'])
def test_a_missing_parameter_is_an_error_and_never_an_empty_place(params: str) -> None:
    template = Template(published(content(text="{{ name }}"), content("sms", text="hi")))
    with pytest.raises(TemplateError):
        template.check(("email",), params)


def test_every_language_is_checked() -> None:
    template = Template(published(content(text="a"), content(locale="de", text="{{ b }}")))
    with pytest.raises(TemplateError, match="'b' is undefined"):
        template.check(("email",), "{}")


def test_a_text_cannot_grow_without_end() -> None:
    with pytest.raises(TemplateError, match="longer than"):
        text("{% for a in v %}" + "x" * 1_000 + "{% endfor %}", v=[0] * (CHARS_MAX // 1_000 + 1))


@pytest.mark.parametrize(
    "contents",
    [
        (),
        (content("fax"),),
        (content(), content()),
        (content(), content(locale="EN")),
        (content(), content("sms", "de")),
    ],
)
def test_contents_that_do_not_fit_together_are_refused(contents: tuple[Content, ...]) -> None:
    with pytest.raises(TemplateError):
        Template(published(*contents))


def test_a_version_is_what_a_template_says() -> None:
    one = published(content(text="a"))
    assert version(one) == version(replace(one, published_at=9, version="x"))
    others = [
        replace(one, priority="otp"),
        replace(one, lifetime_ms=1),
        replace(one, contents=[content(text="b")]),
        replace(one, contents=[content(html="a")]),
    ]
    assert len({version(one), *map(version, others)}) == 5
