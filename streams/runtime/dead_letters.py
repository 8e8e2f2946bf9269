"""Records that cannot be processed, and late rows, written back to the log with their bytes.

A dead letter keeps key, value and headers as they were and adds Kafka Connect's
`__connect.errors.*` headers, so that the usual tools read it. A late row goes to the late side
output the same way. Both are sent before the position moves past the record; after a crash
between the two the same letter may be there twice, with the same source offset.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import KafkaException, Message, Producer

CONNECT = "__connect.errors."
LATE = "headrace.late."
FLUSH_TIMEOUT_S = 30.0
REASON_CHARS_MAX = 2_000
STACKTRACE_CHARS_MAX = 10_000
"""A letter must fit into the room that its topic has beyond the record (UTF-8: ×4 at most)."""


@dataclass(frozen=True)
class Letter:
    """One record to set aside: where it goes, the record, and the headers that say why."""

    destination: str
    message: Message
    headers: Sequence[tuple[str, str]]


class Outbox(Protocol):
    """Where letters go; the tests' twin collects them."""

    def send(self, letters: Sequence[Letter]) -> None:
        """Return when all are on the log. Raises `KafkaException` when that is not certain."""
        ...


def dead_letter(
    destination: str, message: Message, *, agent: str, reason: str, error: BaseException | None
) -> Letter:
    """A letter for the dead letter topic with Connect's headers (all UTF-8 text)."""
    place = (message.topic(), message.partition(), message.offset())
    about = connect_headers(place, agent=agent, reason=reason, error=error)
    return Letter(destination, message, about)


def connect_headers(
    place: tuple[str, int, int], *, agent: str, reason: str, error: BaseException | None
) -> list[tuple[str, str]]:
    """Connect's headers about the record that was at `place` (topic, partition, offset)."""
    topic, partition, offset = place
    about = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "connector.name": agent,
        "task.id": "0",
        "stage": "VALUE_CONVERTER" if error is None else "TASK_PUT",
        "class.name": "streams.runtime",
        "exception.class.name": "DecodeError" if error is None else type(error).__qualname__,
        "exception.message": reason[:REASON_CHARS_MAX],
        "exception.stacktrace": _stacktrace(error),
    }
    return [(CONNECT + name, str(value)) for name, value in about.items()]


def late_letter(destination: str, message: Message, *, agent: str, watermark_ms: int) -> Letter:
    """A letter for the late side output."""
    about = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "agent": agent,
        "watermark_ms": watermark_ms,
    }
    return Letter(
        destination, message, [(LATE + name, str(value)) for name, value in about.items()]
    )


def _stacktrace(error: BaseException | None) -> str:
    """The end of it, which names the place, when it is too long."""
    if error is None:
        return ""
    return "".join(traceback.format_exception(error))[-STACKTRACE_CHARS_MAX:]


class KafkaOutbox:
    """Sends letters with an idempotent producer and waits for every delivery report.

    After a failure the producer is thrown away with what it still holds: an idempotent producer
    may be broken for good, and a late delivery would be a surprise.
    """

    def __init__(self, connect: Callable[[], Producer]) -> None:
        self._connect = connect
        self._producer: Producer | None = None

    def send(self, letters: Sequence[Letter]) -> None:
        producer = self._producer or self._connect()
        self._producer = None
        failed: list[str] = []

        def report(error: object, _: Message) -> None:
            if error is not None:
                failed.append(str(error))

        try:
            for letter in letters:
                _produce(producer, letter, report)
            left = producer.flush(FLUSH_TIMEOUT_S)
        except KafkaException:
            producer.purge()
            raise
        if failed or left:
            producer.purge()
            raise KafkaException(f"{len(failed) + left} letters not delivered: {failed[:1]}")
        self._producer = producer


def _produce(producer: Producer, letter: Letter, report: Callable[..., None]) -> None:
    """Queue a letter. Our headers come last, and the last one of a name is the one that counts:
    a record that was redriven, or that lies, brings some of these names along.
    """
    message = letter.message
    ours = [(name, value.encode()) for name, value in letter.headers]
    while True:
        try:
            producer.produce(
                letter.destination,
                key=message.key(),
                value=message.value(),
                headers=[*(message.headers() or []), *ours],
                on_delivery=report,
            )
        except BufferError:
            producer.poll(0.05)
        else:
            return
