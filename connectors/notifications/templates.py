"""Templates of notifications: Jinja2 in a sandbox, checked when published, pure when rendered.

A template says *what* is shown and computes nothing: output, conditions, one level of loops, and
the filters in `FILTERS`. So it cannot reach anything, cannot run for long, and the same version
with the same parameters always gives the same text. HTML escapes what parameters bring in, always
(there is no `safe`); plain text does not; a subject is one line without control characters, so
that nothing breaks out of its header.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from jinja2 import StrictUndefined, nodes
from jinja2 import TemplateError as JinjaError
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from schemas.notifications.events import TemplatePublished

CHANNELS = ("email", "sms", "push")
CHARS_MAX = 200_000
"""A rendered text is not longer."""
SUBJECT_CHARS_MAX = 200
FILTERS = frozenset(
    (
        *("capitalize", "count", "d", "default", "e", "escape", "first", "int", "join", "last"),
        *("length", "lower", "round", "title", "trim", "truncate", "upper"),
    )
)
"""None that makes a text much longer than what goes in."""
_ALLOWED = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Const, nodes.Name, nodes.Getattr),
    *(nodes.Getitem, nodes.Filter, nodes.Keyword, nodes.Test, nodes.If, nodes.CondExpr, nodes.For),
    *(nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Concat),
)
_BREAKS = re.compile("[\x00-\x20\x7f-\x9f\u2028\u2029]+")


class TemplateError(ValueError):
    """A template, or parameters for it, that cannot be rendered. The message is for its sender."""


@dataclass(frozen=True)
class Rendered:
    """What one channel is to show. `html` is "" where there is none."""

    subject: str
    text: str
    html: str


class _Environment(ImmutableSandboxedEnvironment):
    """Values are JSON: a dot looks into an object and nowhere else, so no method is ever seen."""

    def __init__(self, *, autoescape: bool) -> None:
        super().__init__(autoescape=autoescape, undefined=StrictUndefined, cache_size=0)
        self.filters = {name: self.filters[name] for name in FILTERS}
        self.globals = {}

    def getattr(self, obj: Any, attribute: str) -> Any:
        """The member of an object, or the loop's counters."""
        if isinstance(obj, LoopContext):
            return super().getattr(obj, attribute)
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """The member of an object or array."""
        kind = dict if isinstance(argument, str) else list
        if isinstance(obj, kind):
            try:
                return obj[argument]
            except LookupError:
                pass
        return self.undefined(obj=obj, name=argument)


_TEXT, _HTML = _Environment(autoescape=False), _Environment(autoescape=True)


class Template:
    """One version of a template, compiled. Raises `TemplateError` for one that cannot be."""

    def __init__(self, published: TemplatePublished) -> None:
        self.published = published
        self._parts: dict[tuple[str, str], tuple[Any, Any, Any]] = {}
        for content in published.contents:
            channel, locale = content["channel"], content["locale"]
            where = f"{channel}, {locale}"
            if channel not in CHANNELS:
                raise TemplateError(f"{where}: no such channel; there are {', '.join(CHANNELS)}")
            if (channel, _tag(locale)) in self._parts:
                raise TemplateError(f"{where}: given twice")
            self._parts[channel, _tag(locale)] = (
                _compiled(_TEXT, content["subject"], f"subject of {where}"),
                _compiled(_TEXT, content["text"], f"text of {where}"),
                _compiled(_HTML, content["html"], f"html of {where}"),
            )
        for channel in self.channels:
            if (channel, _tag(published.default_locale)) not in self._parts:
                raise TemplateError(f"{channel}: no text in {published.default_locale}")
        if not self._parts:
            raise TemplateError("no text at all")

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels it has texts for."""
        given = {channel for channel, _ in self._parts}
        return tuple(channel for channel in CHANNELS if channel in given)

    def render(self, channel: str, locale: str, params: str) -> Rendered:
        """The texts in the best language there is: `de-AT`, else `de`, else the default.

        `params` is a JSON object. Raises `TemplateError`, for a parameter that is missing too.
        """
        if channel not in self.channels:
            raise TemplateError(f"{self.published.template} has no text for {channel}")
        tag = next(t for t in self._fallbacks(locale) if (channel, t) in self._parts)
        values = _object(params)
        subject, text, html = (
            _rendered(part, values, f"{name} of {channel}, {tag}")
            for part, name in zip(
                self._parts[channel, tag], ("subject", "text", "html"), strict=True
            )
        )
        return Rendered(one_line(subject), text, html)

    def check(self, channels: tuple[str, ...] | list[str], params: str) -> None:
        """Render every language of these channels; `TemplateError` where one fails."""
        for channel, tag in self._parts:
            if channel in channels:
                self.render(channel, tag, params)

    def _fallbacks(self, locale: str) -> Iterator[str]:
        tag = _tag(locale)
        while tag:
            yield tag
            tag = tag.rpartition("-")[0]
        yield _tag(self.published.default_locale)


def one_line(subject: str) -> str:
    """A text as the value of a header: no line breaks, no control characters, not too long."""
    return _BREAKS.sub(" ", subject).strip()[:SUBJECT_CHARS_MAX]


def version(published: TemplatePublished) -> str:
    """The version of a template: a digest of everything it says."""
    said = [
        published.template,
        published.priority,
        published.default_locale,
        [dict(sorted(content.items())) for content in published.contents],
        published.digest_window_ms,
        published.lifetime_ms,
    ]
    return blake2b(json.dumps(said).encode(), digest_size=8).hexdigest()


def _tag(locale: str) -> str:
    return locale.replace("_", "-").lower()


def _object(params: str) -> dict[str, Any]:
    values = json.loads(params)
    if not isinstance(values, dict):
        raise TemplateError("parameters are a JSON object")
    return values


def _compiled(environment: _Environment, source: str, where: str) -> Any:
    try:
        tree = environment.parse(source)
        for problem in _problems(tree, loops=0):
            raise TemplateError(f"{where}: {problem}")
        return environment.from_string(tree)
    except (JinjaError, RecursionError) as error:
        raise TemplateError(f"{where}: {error}") from None


def _problems(node: nodes.Node, loops: int) -> Iterator[str]:
    """What a template may not do, with its line."""
    line = f"line {node.lineno}: "
    match node:
        case nodes.Filter(name=name) if name not in FILTERS:
            yield f"{line}no filter {name}"
        case nodes.Getattr(attr=name) if name.startswith("_"):
            yield f"{line}no attribute {name}"
        case nodes.Getitem(arg=argument) if not isinstance(argument, nodes.Const):
            yield f"{line}only constants between brackets"
        case nodes.For(recursive=recursive) if loops or recursive:
            yield f"{line}a loop inside a loop"
        case _ if not isinstance(node, _ALLOWED):
            yield f"{line}no {type(node).__name__.lower()}"
    for child in node.iter_child_nodes():
        yield from _problems(child, loops + isinstance(node, nodes.For))


def _rendered(part: Any, values: dict[str, Any], where: str) -> str:
    """Piece by piece, so that a text that grows too long is never there as a whole."""
    pieces: list[str] = []
    room = CHARS_MAX
    try:
        for piece in part.generate(values):
            room -= len(piece)
            if room < 0:
                break
            pieces.append(piece)
    except Exception as error:  # filters raise what they like on odd parameters
        raise TemplateError(f"{where}: {error}") from None
    if room < 0:
        raise TemplateError(f"{where}: longer than {CHARS_MAX} characters")
    return "".join(pieces)
