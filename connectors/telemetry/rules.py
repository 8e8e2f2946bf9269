"""Which lines are not worth keeping: drop and sampling rules, applied before the log.

The first rule that a line matches decides. A line of level ERROR or FATAL is always kept, whatever
the rules say. Sampling looks at the trace id, else at the line's id, and nothing else: the lines
of one trace stay together, a repeated delivery is judged as the first time, and a kept line says
by its weight how many it stands for.

    [[rule]]
    name = "debug"
    levels = ["TRACE", "DEBUG"]
    keep_one_of = 0                 # drop

    [[rule]]
    name = "chatty"
    services = ["edge-*"]
    contains = "GET /healthz"
    keep_one_of = 100
"""

from __future__ import annotations

import hashlib
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from connectors.telemetry.line import KEPT, LEVELS, UNKNOWN, Line


class BadRules(ValueError):
    """The rules cannot be read; the message says where."""


class Rule(BaseModel):
    """Lines of these services (shell patterns) and levels that contain this text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    services: tuple[str, ...] = ("*",)
    levels: tuple[str, ...] = (*LEVELS, UNKNOWN)
    contains: str = ""
    keep_one_of: int = Field(ge=0, le=1_000_000)

    def matches(self, line: Line) -> bool:
        """Whether the rule is about this line."""
        return (
            line.level in self.levels
            and any(fnmatchcase(line.service, pattern) for pattern in self.services)
            and self.contains in line.body
        )


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    rule: tuple[Rule, ...] = ()


@dataclass(frozen=True)
class Kept:
    """The lines that stay, and how many each rule took away."""

    lines: list[Line]
    dropped: Counter[str]


def read(path: Path | None) -> tuple[Rule, ...]:
    """The rules of a TOML file; none without a file. Raises `BadRules`."""
    if path is None:
        return ()
    try:
        rules = _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).rule
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError) as error:
        raise BadRules(f"{path}: {error}") from error
    for rule in rules:
        unknown = set(rule.levels) - {*LEVELS, UNKNOWN}
        if unknown:
            raise BadRules(f"{path}: rule {rule.name}: no such level: {sorted(unknown)}")
    return rules


def apply(rules: Sequence[Rule], lines: Iterable[Line]) -> Kept:
    """Judge lines that have their ids. Every line is kept or counted."""
    kept: list[Line] = []
    dropped: Counter[str] = Counter()
    for line in lines:
        rule = next((rule for rule in rules if rule.matches(line)), None)
        if rule is None or line.level in KEPT or rule.keep_one_of == 1:
            kept.append(line)
        elif rule.keep_one_of and _place(line) % rule.keep_one_of == 0:
            kept.append(replace(line, weight=line.weight * rule.keep_one_of))
        else:
            dropped[rule.name] += 1
    return Kept(kept, dropped)


def _place(line: Line) -> int:
    """A number that only the line's trace, or the line, decides."""
    known = (line.trace_id or line.line_id).encode()
    return int.from_bytes(hashlib.blake2b(known, digest_size=8).digest(), "big")
