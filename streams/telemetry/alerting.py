"""Alert rules over counted lines: what fires, since when, in event time. Pure.

A rule is judged at whole minutes of *event time*, over the minutes before, and never before the
log is known to have come that far: see `Horizon`. So an alert depends on what was logged and not on
when somebody looked, a pipeline that lags delays alerts and makes none, and the same rule run over
last month says what it would have done.

    [[rule]]
    name = "PaymentErrors"
    services = ["pay*"]
    levels = ["ERROR", "FATAL"]
    group_by = ["service"]
    window_minutes = 5
    above = 10                      # or: below = 1
    for_minutes = 2
    labels = {severity = "page"}
    annotations = {summary = "{value:g} errors of {service} in 5 minutes"}

States: nothing → PENDING when the condition holds → FIRING when it has held for `for_minutes` →
RESOLVED when it does not hold any more. A pending alert whose condition ends is resolved, too, so
that nothing stays pending; nobody is told of that.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import orjson
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

MINUTE_MS = 60_000
PENDING, FIRING, RESOLVED = "PENDING", "FIRING", "RESOLVED"
Group = Literal["service", "level"]


class BadRules(ValueError):
    """The rules cannot be read; the message says where."""


class Rule(BaseModel):
    """Groups of lines whose number in a window of minutes is above or below a bound."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)
    services: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    group_by: tuple[Group, ...] = ("service",)
    window_minutes: int = Field(default=5, ge=1, le=1_440)
    above: float | None = None
    below: float | None = None
    for_minutes: int = Field(default=0, ge=0, le=1_440)
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if (self.above is None) == (self.below is None):
            raise ValueError("give either above or below")
        if self.below is not None and self.group_by:
            raise ValueError("below needs group_by = []: a group without lines is not known")
        return self

    def holds(self, value: float) -> bool:
        """The condition."""
        return value > self.above if self.above is not None else value < (self.below or 0)

    def values(self, counts: pl.DataFrame, at_ms: int) -> dict[tuple[str, ...], float]:
        """Group → lines in the window that ends at `at_ms`. `counts` are by minute: `start_ms,
        service, level, weight`; sampled lines count for all they stand for.
        """
        since = at_ms - self.window_minutes * MINUTE_MS
        inside = counts.filter(pl.col("start_ms").is_between(since, at_ms, closed="left"))
        if self.levels:
            inside = inside.filter(pl.col("level").is_in(list(self.levels)))
        if self.services:
            inside = inside.filter(pl.any_horizontal(map(_service, self.services)))
        if not self.group_by:
            return {(): float(inside["weight"].sum())}
        summed = inside.group_by(self.group_by).agg(pl.col("weight").sum())
        return {tuple(map(str, row[:-1])): float(row[-1]) for row in summed.iter_rows()}

    def labelled(self, group: tuple[str, ...]) -> dict[str, str]:
        """Labels of an alert of this rule."""
        grouped: dict[str, str] = dict(zip(self.group_by, group, strict=True))
        return {**self.labels, **grouped, "alertname": self.name}


def _service(name: str) -> pl.Expr:
    column = pl.col("service")
    return column.str.starts_with(name[:-1]) if name.endswith("*") else column == name


@dataclass(frozen=True)
class Alert:
    """An alert as it stands."""

    rule: str
    fingerprint: str
    state: str
    labels: Mapping[str, str]
    value: float
    started_ms: int
    changed_ms: int

    def row(self) -> dict[str, object]:
        """The event `AlertChanged`."""
        return {
            "fingerprint": self.fingerprint,
            "rule": self.rule,
            "state": self.state,
            "labels": orjson.dumps(dict(self.labels), option=orjson.OPT_SORT_KEYS).decode(),
            "value": self.value,
            "started_at": self.started_ms,
            "event_time": self.changed_ms,
        }


Standing = Mapping[str, Alert]
"""Fingerprint → alert."""


def read(path: Path) -> tuple[Rule, ...]:
    """The rules of a TOML file. Raises `BadRules`."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        unknown = content.keys() - {"rule"}
        if unknown:
            raise BadRules(f"{path}: only [[rule]] is known, not {sorted(unknown)}")
        rules = tuple(Rule.model_validate(rule) for rule in content.get("rule", ()))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError) as error:
        raise BadRules(f"{path}: {error}") from error
    names = [rule.name for rule in rules]
    if len(set(names)) < len(names):
        raise BadRules(f"{path}: a name is used twice: {sorted(names)}")
    return rules


def fingerprint(rule: Rule, group: tuple[str, ...]) -> str:
    """Identity of an alert: rule and group."""
    return hashlib.blake2b("\0".join((rule.name, *group)).encode(), digest_size=16).hexdigest()


def judge(
    rule: Rule, standing: Standing, counts: pl.DataFrame, at_ms: int
) -> tuple[dict[str, Alert], list[Alert]]:
    """The alerts of a rule after its evaluation at `at_ms`, a whole minute, and those that it
    changed.
    """
    values = rule.values(counts, at_ms)
    after = dict(standing)
    changes: list[Alert] = []
    groups = {fingerprint(rule, group): group for group in values}
    for mark in sorted(groups.keys() | standing.keys()):
        old = standing.get(mark)
        value = values[groups[mark]] if mark in groups else 0.0
        holds = mark in groups and rule.holds(value)
        labels = rule.labelled(groups[mark]) if mark in groups or old is None else old.labels
        new = _next(rule, old, Alert(rule.name, mark, "", labels, value, at_ms, at_ms), holds)
        if new is not None:
            after[mark] = new
            changes.append(new)
    return after, changes


def _next(rule: Rule, old: Alert | None, now: Alert, holds: bool) -> Alert | None:
    """What an alert becomes at this evaluation; None where it stays as it is."""
    active = old is not None and old.state in {PENDING, FIRING}
    if not holds:
        return _become(now, RESOLVED, old) if active else None
    if not active:
        return _become(now, FIRING if rule.for_minutes == 0 else PENDING, None)
    assert old is not None
    waited_ms = now.changed_ms - old.started_ms
    if old.state == PENDING and waited_ms >= rule.for_minutes * MINUTE_MS:
        return _become(now, FIRING, old)
    return None


def _become(now: Alert, state: str, old: Alert | None) -> Alert:
    started = now.changed_ms if old is None else old.started_ms
    return Alert(now.rule, now.fingerprint, state, now.labels, now.value, started, now.changed_ms)


def minutes(after_ms: int, until_ms: int) -> range:
    """The whole minutes m with `after_ms < m <= until_ms`."""
    first = (after_ms // MINUTE_MS + 1) * MINUTE_MS
    return range(first, until_ms + 1, MINUTE_MS)


@dataclass(frozen=True)
class Progress:
    """How far one partition is folded, and where its log ended when that was asked before."""

    watermark_ms: int
    next_offset: int
    end_offset: int


def horizon(partitions: Iterable[Progress], now_ms: int, grace_ms: int) -> int:
    """The event time up to which all lines have come, as a rule.

    A partition with lines that are not folded yet vouches for its watermark only, however old:
    its lag holds evaluation back. One that is folded to its end vouches for now, less the grace
    that lines may take to get here.
    """
    told = []
    for one in partitions:
        settled = now_ms - grace_ms if one.next_offset >= one.end_offset else one.watermark_ms
        told.append(max(one.watermark_ms, settled))
    return min(told, default=now_ms - grace_ms)


def annotated(rule: Rule, alert: Alert) -> dict[str, str]:
    """Annotations with the alert's value and labels in their places."""
    words: dict[str, object] = {**alert.labels, "value": alert.value}
    return {name: text.format_map(_Words(words)) for name, text in rule.annotations.items()}


class _Words(dict[str, object]):
    def __missing__(self, key: str) -> str:
        return f"{{{key}}}"


def replay(
    rules: Sequence[Rule], counts: pl.DataFrame, after_ms: int, until_ms: int
) -> list[Alert]:
    """Every change that the rules would have made over a span of the past."""
    found: list[Alert] = []
    for rule in rules:
        standing: dict[str, Alert] = {}
        for at_ms in minutes(after_ms, until_ms):
            standing, changes = judge(rule, standing, counts, at_ms)
            found += changes
    return sorted(found, key=lambda one: (one.changed_ms, one.rule, one.fingerprint))
