"""One dead letter: where it came from, who set it aside and why, and the record itself.

Three conventions are read:

- `__connect.errors.*`: Kafka Connect, and Headrace's own workers; all values are text.
- `__streams.errors.*`: Kafka Streams (KIP-1034); all values are text.
- `kafka_dlt-*`: Spring for Apache Kafka; partition is a 4-byte and offset an 8-byte big-endian
  integer.

A letter whose headers do not say where it came from has no source and cannot be sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import Message

from streams.runtime.reactor.wire import REDRIVES, Journey

CONNECT = "__connect.errors."
STREAMS = "__streams.errors."
SPRING = "kafka_dlt-"
DROPPED = (CONNECT, STREAMS, SPRING, "headrace.", "__replicator", "X-B3-", "x-b3-")
"""Prefixes of headers that tell of an earlier journey and not of the record."""
DROPPED_NAMES = ("traceparent", "tracestate", "baggage", "b3")

Header = tuple[str, bytes | None]


class Source(NamedTuple):
    """Where the record was when it failed."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class Letter:
    """A record of a dead letter topic. `reason` is the exception's class and message."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    source: Source | None
    agent: str
    reason: str
    stacktrace: str

    @classmethod
    def of(cls, message: Message) -> Letter:
        """Read a record."""
        headers = [(name, _bytes(value)) for name, value in message.headers() or []]
        found = dict(headers)
        if f"{SPRING}original-topic" in found:
            source, agent, reason, trace = _spring(found)
        else:
            prefix = STREAMS if f"{STREAMS}topic" in found else CONNECT
            source, agent, reason, trace = _text_headers(found, prefix)
        return cls(
            partition=message.partition(),
            offset=message.offset(),
            timestamp_ms=message.timestamp()[1],
            key=message.key(),
            value=message.value(),
            headers=headers,
            source=source,
            agent=agent,
            reason=reason,
            stacktrace=trace,
        )

    @property
    def redrives(self) -> int:
        """How often the record was sent again; 0 where the header says nothing readable."""
        return max(
            (_number(value) or 0 for name, value in self.headers if name == REDRIVES), default=0
        )

    def original_headers(self) -> list[Header]:
        """The record's own headers, without those of its failed journeys, with the number of
        redrives counted up.
        """
        kept = [
            (name, value)
            for name, value in self.headers
            if not name.startswith(DROPPED) and name.lower() not in DROPPED_NAMES
        ]
        return [*kept, (REDRIVES, str(self.redrives + 1).encode())]

    def retry_headers(self) -> list[Header]:
        """The same for a retry topic of the reactor that gave up: it begins to count its tries
        anew, at once.
        """
        assert self.source is not None
        given_up = Journey.of_headers(self.headers, self.source, self.timestamp_ms)
        return [*self.original_headers(), *given_up.anew().headers()]


def _text_headers(
    found: dict[str, bytes | None], prefix: str
) -> tuple[Source | None, str, str, str]:
    """Connect's and Streams' headers."""

    def text(*names: str) -> str:
        return next((_text(found[prefix + n]) for n in names if prefix + n in found), "")

    partition, offset = (
        _number(found.get(f"{prefix}partition")),
        _number(found.get(f"{prefix}offset")),
    )
    source = _source(text("topic"), partition, offset)
    kind = text("exception.class.name", "exception")
    reason = _reason(kind, text("exception.message", "message"))
    return source, text("connector.name"), reason, text("exception.stacktrace", "stacktrace")


def _spring(found: dict[str, bytes | None]) -> tuple[Source | None, str, str, str]:
    def text(name: str) -> str:
        return _text(found.get(SPRING + name))

    partition = _big_endian(found.get(f"{SPRING}original-partition"), 4)
    offset = _big_endian(found.get(f"{SPRING}original-offset"), 8)
    source = _source(text("original-topic"), partition, offset)
    kind = text("exception-cause-fqcn") or text("exception-fqcn")
    reason = _reason(kind, text("exception-message"))
    return source, text("original-consumer-group"), reason, text("exception-stacktrace")


def _source(topic: str, partition: int | None, offset: int | None) -> Source | None:
    if not topic or partition is None or offset is None:
        return None
    return Source(topic, partition, offset)


def _reason(kind: str, message: str) -> str:
    """The class without its package, and the message's first line."""
    lines = message.strip().splitlines()
    parts = [kind.rsplit(".", 1)[-1], lines[0] if lines else ""]
    return ": ".join(part for part in parts if part) or "no reason given"


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode(errors="replace")


def _number(value: bytes | None) -> int | None:
    text = _text(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else None


def _big_endian(value: bytes | None, size: int) -> int | None:
    """An unsigned reading of Java's bytes; None where the size is another."""
    if value is None or len(value) != size:
        return None
    number = int.from_bytes(value, "big", signed=True)
    return number if number >= 0 else None
