"""`key=value key="quoted value"` lines, as Go's loggers write them.

Source: github.com/go-logfmt/logfmt (grammar), with Prometheus', Grafana's and Loki's dialect.
"""

from __future__ import annotations

import re

import orjson

from connectors.telemetry.parse.said import Parsed, Unparsed
from connectors.telemetry.parse.structured import told

_PAIR = re.compile(r'([^\s="]+)(?:=("(?:[^"\\]|\\.)*(?:"|\\?$)|[^\s"]*))?(?=\s|$)')
PAIRS_MAX = 256


def logfmt(text: str, now_ns: int) -> Parsed | Unparsed:
    """A line made of pairs only, `key=value` first. A quoted value that was cut off ends with the
    line.
    """
    pairs: list[tuple[str, str]] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        if text[at].isspace():
            at += 1
            continue
        match = _PAIR.match(text, at)
        if match is None:
            return Unparsed(f"not logfmt at character {at}")
        if match[2] is None and not pairs:
            return Unparsed("not logfmt: the first word is no key=value")
        if len(pairs) == PAIRS_MAX:
            return Unparsed(f"more than {PAIRS_MAX} pairs")
        pairs.append((match[1], "true" if match[2] is None else _value(match[2])))
        at = match.end()
    return told(list(pairs), text) if pairs else Unparsed("empty")


def _value(raw: str) -> str:
    if not raw.startswith('"'):
        return raw
    try:
        return str(orjson.loads(raw))
    except orjson.JSONDecodeError:  # cut off, or an escape of Go's that JSON has not
        closed = len(raw) > 1 and raw.endswith('"')
        return re.sub(r"\\(.)", r"\1", raw[1:-1] if closed else raw[1:])
