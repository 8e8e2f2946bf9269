"""What a record carries in its headers on its way through retry and dead letter topics.

It keeps key, value and its own headers; ours say where it first was, which try comes next, and
when. On the source topic these headers mean nothing: whoever writes there could claim anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from confluent_kafka import Message

PREFIX = "headrace.retry."
REDRIVES = "headrace.redrives"
"""How often an operator sent the record again; it stays with the record."""

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Journey:
    """One task's way so far. `topic`, `partition`, `offset` and `time_ms` (append time) are those
    of the source record.

    - `attempt`: the number of the next try, from 1.
    - `due_ms`: when the record leaves the retry topic it is in.
    - `not_before_ms`: when the next try may be; later than `due_ms` where one delay is not enough.
    - `reason`: why it is here.
    """

    topic: str
    partition: int
    offset: int
    time_ms: int
    attempt: int = 1
    due_ms: int = 0
    not_before_ms: int = 0
    reason: str = ""
    redrives: int = 0

    @property
    def id(self) -> str:
        """The task's id."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def of(cls, message: Message, *, retried: bool) -> Journey:
        """Of a record of the source topic, or of a retry topic (`retried`). What a retried record
        does not say readably is as if it began where it is.
        """
        place = (message.topic(), message.partition(), message.offset())
        headers, appended_ms = message.headers() or (), message.timestamp()[1]
        if retried:
            return cls.of_headers(headers, place, appended_ms)
        redrives = _number(_texts(headers).get(REDRIVES), 0)
        return cls(*place, time_ms=appended_ms, redrives=redrives)

    @classmethod
    def of_headers(
        cls, headers: Iterable[Header], place: tuple[str, int, int], appended_ms: int
    ) -> Journey:
        """What the headers say; `place` and time stand in for what they do not."""
        texts = _texts(headers)
        ours = {name.removeprefix(PREFIX): text for name, text in texts.items()}
        return cls(
            topic=ours.get("topic", place[0]),
            partition=_number(ours.get("partition"), place[1]),
            offset=_number(ours.get("offset"), place[2]),
            time_ms=_number(ours.get("time_ms"), appended_ms),
            attempt=max(1, _number(ours.get("attempt"), 1)),
            due_ms=_number(ours.get("due_ms"), 0),
            not_before_ms=_number(ours.get("not_before_ms"), 0),
            reason=ours.get("reason", ""),
            redrives=_number(texts.get(REDRIVES), 0),
        )

    def anew(self) -> Journey:
        """The journey of a task that is sent again after the last try."""
        return replace(self, attempt=1, due_ms=0, not_before_ms=0, reason="redriven")

    def headers(self) -> list[tuple[str, bytes]]:
        """Our headers, without the number of redrives, which stays where it is."""
        named = {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "time_ms": self.time_ms,
            "attempt": self.attempt,
            "due_ms": self.due_ms,
            "not_before_ms": self.not_before_ms,
            "reason": self.reason,
        }
        return [(PREFIX + name, str(value).encode()) for name, value in named.items()]


def own_headers(headers: Iterable[Header] | None) -> list[Header]:
    """A record's headers without those of its retries."""
    return [header for header in headers or () if not header[0].startswith(PREFIX)]


def _texts(headers: Iterable[Header]) -> Mapping[str, str]:
    """The last one of each name of ours counts."""
    return {
        name: value.decode(errors="replace")
        for name, value in headers
        if value is not None and (name.startswith(PREFIX) or name == REDRIVES)
    }


def _number(text: str | None, otherwise: int) -> int:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 18:
        return otherwise
    return int(text)
