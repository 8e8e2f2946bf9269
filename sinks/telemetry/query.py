"""A search over lines: written as text, asked of ClickHouse and of Parquet alike.

    timeout -retry "connection reset" service:pay level:>=warn trace:5b8aa5a2… host:pod-7

Words and quoted phrases must be in the message (ASCII case ignored), those with a minus must not.
`name:value` is a field: `service` (with `*` as a wildcard at the end), `level` (also `>=`),
`trace`, `span`, `stream`; every other name is a label. All of it must hold.

One query has two translations, `sql` and `expression`, and a test that they agree on any line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import orjson
import polars as pl

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "UNKNOWN")
TERMS_MAX = 32
_TERM = re.compile(r'(-?)(?:([A-Za-z_@][\w.@/-]*):)?("(?:[^"\\]|\\.)*"|[^\s"]+)')
_UPPER, _LOWER = list(ascii_uppercase), list(ascii_lowercase)


class BadQuery(ValueError):
    """The text is no query; the message says which part."""


@dataclass(frozen=True)
class LogQuery:
    """Lines with all of these. Empty means any. `texts` are in lower case (ASCII)."""

    services: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    stream: str = ""
    trace_id: str = ""
    span_id: str = ""
    texts: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()

    def sql(self) -> tuple[list[str], dict[str, Any]]:
        """Conditions and their parameters."""
        conditions: list[str] = []
        parameters: dict[str, Any] = {}

        def bind(value: str) -> str:
            name = f"q{len(parameters)}"
            parameters[name] = value
            return f"{{{name}:String}}"

        if self.services:
            tests = [
                f"startsWith(service, {bind(s[:-1])})"
                if s.endswith("*")
                else f"service = {bind(s)}"
                for s in self.services
            ]
            conditions.append(f"({' OR '.join(tests)})")
        if self.levels:
            conditions.append(f"level IN ({', '.join(bind(level) for level in self.levels)})")
        conditions += [f"{column} = {bind(value)}" for column, value in self._exact()]
        conditions += [f"lower(body) LIKE {bind(_like(text))}" for text in self.texts]
        conditions += [f"lower(body) NOT LIKE {bind(_like(text))}" for text in self.without]
        for name, value in self.labels:
            pair = _pair(name, value)
            first, later = bind("{" + pair), bind("," + pair)
            conditions.append(f"(startsWith(labels, {first}) OR position(labels, {later}) > 0)")
        return conditions, parameters

    def _exact(self) -> list[tuple[str, str]]:
        wanted = ("stream", self.stream), ("trace_id", self.trace_id), ("span_id", self.span_id)
        return [(column, value) for column, value in wanted if value]

    def expression(self) -> pl.Expr:
        """The same as one expression over the columns of a line."""
        body = pl.col("body").str.replace_many(_UPPER, _LOWER)
        tests = [pl.lit(value=True)]
        if self.services:
            tests.append(pl.any_horizontal(_service(name) for name in self.services))
        if self.levels:
            tests.append(pl.col("level").is_in(list(self.levels)))
        tests += [pl.col(column) == value for column, value in self._exact()]
        tests += [body.str.contains(text, literal=True) for text in self.texts]
        tests += [~body.str.contains(text, literal=True) for text in self.without]
        for name, value in self.labels:
            pair = _pair(name, value)
            labels = pl.col("labels")
            later = labels.str.contains("," + pair, literal=True)
            tests.append(labels.str.starts_with("{" + pair) | later)
        return pl.all_horizontal(tests).fill_null(value=False)


def _service(name: str) -> pl.Expr:
    column = pl.col("service")
    return column.str.starts_with(name[:-1]) if name.endswith("*") else column == name


def _like(text: str) -> str:
    return "%" + re.sub(r"([\\%_])", r"\\\1", text) + "%"


def _pair(name: str, value: str) -> str:
    """A label as canonical JSON has it. Inside strings quotes are escaped, so that behind a brace
    or comma this can only be the label itself.
    """
    return f"{orjson.dumps(name).decode()}:{orjson.dumps(value).decode()}"


def lowered(text: str) -> str:
    """Lower case of ASCII letters only, as ClickHouse's `lower`."""
    return text.translate(str.maketrans(ascii_uppercase, ascii_lowercase))


def parse(text: str) -> LogQuery:
    """The query that a text is; raises `BadQuery`."""
    query = LogQuery()
    for number, (minus, name, value) in enumerate(_terms(text)):
        if number == TERMS_MAX:
            raise BadQuery(f"more than {TERMS_MAX} terms")
        query = _with_field(query, name, value) if name else _with_text(query, minus, value)
        if minus and name:
            raise BadQuery(f"only words can be excluded, not {name}:")
    return query


def _terms(text: str) -> Iterator[tuple[bool, str, str]]:
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        match = _TERM.match(text, at)
        if match is None or (match.end() < len(text) and not text[match.end()].isspace()):
            raise BadQuery(f"not a term at character {at + 1}")
        at = match.end()
        raw = match[3]
        value = re.sub(r"\\(.)", r"\1", raw[1:-1]) if raw.startswith('"') else raw
        yield bool(match[1]), match[2] or "", value


def _with_text(query: LogQuery, minus: bool, value: str) -> LogQuery:
    if not value:
        raise BadQuery("an empty phrase")
    if minus:
        return replace(query, without=(*query.without, lowered(value)))
    return replace(query, texts=(*query.texts, lowered(value)))


def _with_field(query: LogQuery, name: str, value: str) -> LogQuery:
    match name.lower():
        case "service":
            return replace(query, services=(*query.services, value))
        case "level":
            return replace(query, levels=(*query.levels, *levels(value)))
        case "stream":
            return replace(query, stream=value)
        case "trace" | "trace_id":
            return replace(query, trace_id=value.lower())
        case "span" | "span_id":
            return replace(query, span_id=value.lower())
    return replace(query, labels=(*query.labels, (name.removeprefix("@"), value)))


def levels(value: str) -> tuple[str, ...]:
    """`error`, `warn,error` or `>=warn`; raises `BadQuery`."""
    least = value.startswith(">=")
    named = [one.strip().upper() for one in value.removeprefix(">=").split(",")]
    unknown = [one for one in named if one not in LEVELS]
    if unknown or (least and len(named) > 1):
        raise BadQuery(f"level: one of {', '.join(LEVELS)}, some of them, or >= one of them")
    if not least:
        return tuple(named)
    return tuple(level for level in LEVELS[:-1] if LEVELS.index(level) >= LEVELS.index(named[0]))


@dataclass(frozen=True)
class Span:
    """Event times, milliseconds: from, inclusive, to, exclusive."""

    from_ms: int
    to_ms: int


@dataclass(frozen=True)
class Page:
    """How much to answer, and behind which line to go on."""

    limit: int = 100
    before: tuple[int, int, str] | None = None
    """Event time, nanos and id of the last line of the page before."""


@dataclass(frozen=True)
class FoundLine:
    """A line that was found."""

    line_id: str
    event_time: int
    nanos: int
    service: str
    stream: str
    level: str
    body: str
    trace_id: str | None
    span_id: str | None
    labels: str
    weight: int
    late: bool
    partition: int
    offset: int
    tier: str = field(default="hot")
