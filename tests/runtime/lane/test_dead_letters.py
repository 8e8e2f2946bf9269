"""Dead letters: the record as it was, our headers last, small enough, and a producer that heals."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaException

from streams.runtime.dead_letters import (
    CONNECT,
    REASON_CHARS_MAX,
    STACKTRACE_CHARS_MAX,
    KafkaOutbox,
    dead_letter,
)
from tests.runtime.lane.bed import message


class FakeProducer:
    def __init__(self, *, error: str | None = None, left: int = 0, full: int = 0) -> None:
        self.error, self.left, self.full = error, left, full
        self.sent: list[dict[str, Any]] = []
        self.purged = False
        self._reports: list[Any] = []

    def produce(self, topic: str, **record: Any) -> None:
        if self.full:
            self.full -= 1
            raise BufferError
        self._reports.append(record.pop("on_delivery"))
        self.sent.append({"topic": topic, **record})

    def poll(self, timeout: float) -> int:
        return 0

    def flush(self, timeout: float) -> int:
        for report in self._reports:
            report(self.error, None)
        self._reports = []
        return self.left

    def purge(self) -> None:
        self.purged = True


def letter(**more: Any) -> Any:
    error = more.pop("error", None)
    record = message(7, b"\xff raw", **more)
    return dead_letter("t.dlq", record, agent="a", reason="r" * 5_000, error=error)


def test_the_record_is_as_it_was_and_our_headers_win() -> None:
    lie = (CONNECT + "offset", b"1")
    producer = FakeProducer(full=2)
    KafkaOutbox(lambda: producer).send([letter(headers=[("a", b"\x00"), lie])])
    (sent,) = producer.sent
    assert (sent["topic"], sent["key"], sent["value"]) == ("t.dlq", b"k", b"\xff raw")
    assert sent["headers"][:2] == [("a", b"\x00"), lie]
    assert dict(sent["headers"])[CONNECT + "offset"] == b"7"


def test_a_letter_fits_where_the_record_did() -> None:
    one = letter(error=ValueError("x" * 1_000_000))
    about = dict(one.headers)
    assert len(about[CONNECT + "exception.message"]) == REASON_CHARS_MAX
    assert len(about[CONNECT + "exception.stacktrace"]) == STACKTRACE_CHARS_MAX
    assert sum(len(value.encode()) for value in about.values()) < 64 * 1024


@pytest.mark.parametrize("broken", [FakeProducer(error="fenced"), FakeProducer(left=1)])
def test_a_producer_that_failed_is_not_used_again(broken: FakeProducer) -> None:
    good = FakeProducer()
    producers = iter([broken, good])
    outbox = KafkaOutbox(lambda: next(producers))
    with pytest.raises(KafkaException):
        outbox.send([letter()])
    assert broken.purged
    outbox.send([letter()])
    outbox.send([letter()])
    assert len(good.sent) == 2
