"""A log line as every way in makes it, before it is an event: levels, labels, identity."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
"""OpenTelemetry's ranges of severity, each four numbers wide from 1 on."""
UNKNOWN = "UNKNOWN"
KEPT = frozenset({"ERROR", "FATAL"})
"""Levels that no rule may drop or sample."""

BODY_CHARS_MAX = 65_536
NAME_CHARS_MAX = 200
SERVICE_CHARS_MAX = 120
"""Of service and instance each: together they are the record key, of at most 1,024 bytes."""
LABELS_MAX = 64
LABEL_CHARS_MAX = 2_048
NANOS_MS = 1_000_000
TIME_MS_MAX = 7_258_118_400_000
"""The year 2200: no clock is right that says more, and ClickHouse's times end in 2299."""

_ALIASES = {
    "TRACE": "TRACE", "FINEST": "TRACE", "VERBOSE": "TRACE", "T": "TRACE",
    "DEBUG": "DEBUG", "DBG": "DEBUG", "FINE": "DEBUG", "D": "DEBUG",
    "INFO": "INFO", "INFORMATION": "INFO", "NOTICE": "INFO", "I": "INFO", "LOG": "INFO",
    "WARN": "WARN", "WARNING": "WARN", "W": "WARN",
    "ERROR": "ERROR", "ERR": "ERROR", "SEVERE": "ERROR", "E": "ERROR",
    "FATAL": "FATAL", "CRITICAL": "FATAL", "CRIT": "FATAL", "ALERT": "FATAL",
    "EMERG": "FATAL", "EMERGENCY": "FATAL", "PANIC": "FATAL", "DPANIC": "FATAL", "F": "FATAL",
}  # fmt: skip
_HEX = re.compile(r"[0-9a-f]+")
_LONE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Line:
    """A line and where it is from. `time_ns` is since 1970; `labels` are all other attributes."""

    service: str
    time_ns: int
    body: str
    level: str = UNKNOWN
    instance: str = ""
    trace_id: str | None = None
    span_id: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    weight: int = 1
    line_id: str = ""

    @property
    def stream(self) -> str:
        """The process that wrote it; the record key."""
        return f"{self.service}/{self.instance}" if self.instance else self.service

    def row(self) -> dict[str, Any]:
        """The event `LogLine`."""
        time_ms, nanos = divmod(self.time_ns, NANOS_MS)
        row = asdict(self)
        del row["time_ns"], row["instance"]
        return row | {
            "stream": self.stream,
            "event_time": time_ms,
            "nanos": nanos,
            "labels": canonical(self.labels),
        }


def canonical(labels: Mapping[str, str]) -> str:
    """Labels as the one JSON text that equal labels have."""
    return orjson.dumps(dict(labels), option=orjson.OPT_SORT_KEYS).decode()


def level_named(word: str) -> str:
    """The level that a word means, in any case; UNKNOWN for a word that means none."""
    return _ALIASES.get(word.strip().strip("[]:").upper(), UNKNOWN)


def level_numbered(number: int) -> str:
    """The level of an OpenTelemetry severity number, 1 to 24."""
    return LEVELS[(number - 1) // 4] if 1 <= number <= 24 else UNKNOWN


def clean(text: str, most: int) -> str:
    """Text that can be stored: no lone surrogates, no NUL, at most so many characters."""
    return _LONE.sub("\ufffd", text[:most]).replace("\x00", "\ufffd")


def hexadecimal(text: str | None, digits: int) -> str | None:
    """A trace or span id in lower case; None for anything else, and for the invalid id of zeros."""
    lower = (text or "").strip().lower()
    good = len(lower) == digits and _HEX.fullmatch(lower) and lower.strip("0")
    return lower if good else None


def labelled(pairs: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Labels within bounds: at most `LABELS_MAX`, values as text, empty ones left out."""
    labels: dict[str, str] = {}
    for name, value in pairs:
        shown = value if isinstance(value, str) else _text(value)
        if shown and name and len(labels) < LABELS_MAX:
            labels[clean(str(name), NAME_CHARS_MAX)] = clean(shown, LABEL_CHARS_MAX)
    return labels


def _text(value: Any) -> str:
    if value is None:
        return ""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):  # an integer of more than 64 bits, a lone surrogate
        return str(value)


def identified(lines: Iterable[Line]) -> list[Line]:
    """Lines of one request with ids of their content, where they have none.

    Equal lines of a request are told apart by their number, so that a request sent again has the
    ids of the first time, and a line that was logged twice is kept twice.
    """
    met: Counter[bytes] = Counter()
    done: list[Line] = []
    for line in lines:
        if line.line_id:
            done.append(line)
            continue
        content = repr((line.stream, line.time_ns, line.level, line.body, line.trace_id,
                        line.span_id, canonical(line.labels)))  # fmt: skip
        digest = hashlib.blake2b(content.encode(), digest_size=16)
        number = met[digest.digest()]
        met[digest.digest()] += 1
        if number:
            digest.update(number.to_bytes(4, "big"))
        done.append(replace(line, line_id=digest.hexdigest()))
    return done
