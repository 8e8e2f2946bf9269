"""Letters of three conventions, read alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from infra.dlq.letters import Letter, Source
from streams.runtime.dead_letters import dead_letter


@dataclass
class Record:
    """As confluent-kafka hands a message out."""

    sent: list[tuple[str, Any]] = field(default_factory=list)
    place: tuple[str, int, int] = ("ads.events", 2, 41)

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.place[2]

    def timestamp(self) -> tuple[int, int]:
        return 2, 1_000

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> list[tuple[str, Any]]:
        return self.sent


def spring(**more: bytes) -> list[tuple[str, bytes]]:
    headers = {
        "original-topic": b"ads.events",
        "original-partition": (2).to_bytes(4, "big"),
        "original-offset": (41).to_bytes(8, "big"),
        "original-consumer-group": b"billing",
        "exception-fqcn": b"org.springframework.ListenerExecutionFailedException",
        "exception-cause-fqcn": b"java.lang.IllegalStateException",
        "exception-message": b"no account\nsecond line",
        **more,
    }
    return [(f"kafka_dlt-{name}", value) for name, value in headers.items()]


STREAMS = [
    ("__streams.errors.topic", b"ads.events"),
    ("__streams.errors.partition", b"2"),
    ("__streams.errors.offset", b"41"),
    ("__streams.errors.exception", b"org.apache.kafka.common.errors.SerializationException"),
    ("__streams.errors.message", b"Size of data received is not 8"),
    ("__streams.errors.stacktrace", b"at ..."),
]


def own() -> list[tuple[str, str]]:
    error = ValueError("negative cost")
    letter = dead_letter("d", Record(), agent="billing", reason="negative cost", error=error)
    return list(letter.headers)


@pytest.mark.parametrize(
    ("headers", "agent", "reason"),
    [
        (own(), "billing", "ValueError: negative cost"),
        (STREAMS, "", "SerializationException: Size of data received is not 8"),
        (spring(), "billing", "IllegalStateException: no account"),
    ],
    ids=["ours and Connect", "Streams", "Spring"],
)
def test_source_agent_and_reason(headers: list[Any], agent: str, reason: str) -> None:
    letter = Letter.of(Record([("own", b"\xff"), *headers], ("ads.events.dlq", 0, 7)))  # type: ignore[arg-type]
    assert letter.source == Source("ads.events", 2, 41)
    assert (letter.agent, letter.reason) == (agent, reason)
    assert (letter.partition, letter.offset, letter.redrives) == (0, 7, 0)
    assert letter.original_headers() == [("own", b"\xff"), ("headrace.redrives", b"1")]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("__connect.errors.topic", None), ("__connect.errors.partition", b"x")],
        [("__connect.errors.topic", b"t"), ("__connect.errors.partition", "²".encode())],
        [("__connect.errors.topic", b"t"), ("__connect.errors.partition", b"-1")],
        spring(**{"original-partition": b"2"}),
        spring(**{"original-offset": (-1).to_bytes(8, "big", signed=True)}),
        spring(**{"original-topic": b""}),
    ],
)
def test_headers_that_name_no_source_are_no_source(headers: list[Any]) -> None:
    assert Letter.of(Record(headers)).source is None  # type: ignore[arg-type]


def test_redrives_are_counted_and_journeys_forgotten() -> None:
    headers = [
        ("traceparent", b"00-1"),
        ("B3", b"1"),
        ("__replicator_id", b"x"),
        ("headrace.late.topic", b"x"),
        ("tenant", b"a"),
        ("tenant", b"b"),
        ("empty", None),
        ("headrace.redrives", b"2"),
        *own(),
    ]
    letter = Letter.of(Record(headers))  # type: ignore[arg-type]
    assert letter.redrives == 2
    assert letter.original_headers() == [
        ("tenant", b"a"),
        ("tenant", b"b"),
        ("empty", None),
        ("headrace.redrives", b"3"),
    ]


def test_a_redrive_count_that_is_no_number_is_none() -> None:
    letter = Letter.of(Record([("headrace.redrives", b"many"), ("headrace.redrives", None)]))  # type: ignore[arg-type]
    assert letter.redrives == 0
