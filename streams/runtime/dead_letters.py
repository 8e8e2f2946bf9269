"""Records that cannot be processed, and late rows, written back to the log with their bytes.

A dead letter keeps key, value and headers as they were and adds Kafka Connect's
`__connect.errors.*` headers, so that the usual tools read it. A late row goes to the late side
output the same way. Both are sent before the position moves past the record; after a crash
between the two the same letter may be there twice, with the same source offset.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import KafkaException, Message, Producer

CONNECT = "__connect.errors."
LATE = "headrace.late."
FLUSH_TIMEOUT_S = 30.0


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
    stage = "VALUE_CONVERTER" if error is None else "TASK_PUT"
    about = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "connector.name": agent,
        "task.id": "0",
        "stage": stage,
        "class.name": "streams.runtime",
        "exception.class.name": "DecodeError" if error is None else type(error).__qualname__,
        "exception.message": reason,
        "exception.stacktrace": "".join(traceback.format_exception(error)) if error else "",
    }
    return Letter(destination, message, [(CONNECT + name, str(v)) for name, v in about.items()])


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


class KafkaOutbox:
    """Sends letters with an idempotent producer and waits for every delivery report."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def send(self, letters: Sequence[Letter]) -> None:
        failed: list[str] = []

        def report(error: object, _: Message) -> None:
            if error is not None:
                failed.append(str(error))

        for letter in letters:
            self._produce(letter, report)
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        if failed or left:
            raise KafkaException(f"{len(failed) + left} letters not delivered: {failed[:1]}")

    def _produce(self, letter: Letter, report: object) -> None:
        message = letter.message
        kept = list(message.headers() or [])
        names = {name for name, _ in kept}
        added = [(name, value) for name, value in letter.headers if name not in names]
        while True:
            try:
                self._producer.produce(
                    letter.destination,
                    key=message.key(),
                    value=message.value(),
                    headers=[*kept, *added],
                    on_delivery=report,
                )
            except BufferError:
                self._producer.poll(0.05)
            else:
                return
