"""Redrives against a real broker."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Message, TopicPartition
from typer.testing import CliRunner

from infra.cli import dlq
from infra.dlq import progress as remembered
from infra.dlq.redrive import Fate, Redrive, Wish
from streams.runtime.kafka import consumer, partition_of, producer
from streams.runtime.settings import Settings
from streams.runtime.topic import Topic

pytestmark = pytest.mark.stack


def about(topic: Topic, number: int, reason: str = "broken", source: str = "") -> list[Any]:
    found = {
        "topic": source or topic.name,
        "partition": "0",
        "offset": str(number),
        "connector.name": "billing",
        "exception.class.name": "ValueError",
        "exception.message": reason,
    }
    return [(f"__connect.errors.{name}", value.encode()) for name, value in found.items()]


def put(settings: Settings, topic: Topic, headers: Sequence[list[Any]], key: str = "") -> None:
    """One letter each, in order; by default all in one partition."""
    client = producer(settings.kafka)
    for number, one in enumerate(headers):
        client.produce(topic.dead_letters, f"v{number}".encode(), key or "user", headers=one)
    assert client.flush(10) == 0


def read(settings: Settings, topic: str, count: int) -> list[Message]:
    """All records of a topic of three partitions; fails when there are more or fewer."""
    reader = consumer(settings.kafka, "test-dlq")
    reader.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(3)])
    found: list[Message] = []
    try:
        deadline = time.monotonic() + 20
        while len(found) < count and time.monotonic() < deadline:
            found += reader.consume(count, timeout=0.2)
        found += reader.consume(1, timeout=0.5)
    finally:
        reader.close()
    assert all(message.error() is None for message in found)
    assert len(found) == count
    return found


def run(settings: Settings, topic: Topic, **wish: Any) -> dict[Fate, int]:
    return dict(Redrive(settings.kafka, Wish(topic, **wish)).run())


def test_a_record_goes_back_as_it_was(settings: Settings, topic: Topic) -> None:
    own = [("tenant", b"a"), ("tenant", None)]
    put(settings, topic, [[*own, *about(topic, 5)]])

    assert run(settings, topic) == {Fate.SENT: 1}

    (sent,) = read(settings, topic.name, 1)
    assert (sent.key(), sent.value()) == (b"user", b"v0")
    assert sent.partition() == partition_of("user", topic.partitions)
    assert sent.headers() == [*own, ("headrace.redrives", b"1")]


def test_without_a_key_it_goes_to_the_partition_it_came_from(
    settings: Settings, topic: Topic
) -> None:
    headers = [*about(topic, 5), ("__connect.errors.partition", b"2")]
    client = producer(settings.kafka)
    client.produce(topic.dead_letters, None, None, headers=headers)
    assert client.flush(10) == 0

    assert run(settings, topic) == {Fate.SENT: 1}

    (sent,) = read(settings, topic.name, 1)
    assert (sent.key(), sent.value(), sent.partition()) == (None, None, 2)


def test_each_source_once_and_a_second_run_goes_on(settings: Settings, topic: Topic) -> None:
    put(settings, topic, [about(topic, n) for n in (1, 2, 2, 3)])

    assert run(settings, topic, limit=2) == {Fate.SENT: 2, Fate.REPEATED: 1}
    put(settings, topic, [about(topic, n) for n in (1, 4)])
    assert run(settings, topic) == {Fate.SENT: 2, Fate.REPEATED: 1}
    assert run(settings, topic) == {}

    assert len(read(settings, topic.name, 4)) == 4


def test_a_filter_leaves_the_others_for_later(settings: Settings, topic: Topic) -> None:
    reasons = ["broken", "odd", "broken", "odd"]
    put(settings, topic, [about(topic, n, reason) for n, reason in enumerate(reasons)])

    assert run(settings, topic, reason="odd") == {Fate.SENT: 2, Fate.OTHER_REASON: 2}
    assert run(settings, topic, reason="odd") == {Fate.OTHER_REASON: 2}
    assert run(settings, topic) == {Fate.SENT: 2}

    assert {m.value() for m in read(settings, topic.name, 4)} == {b"v0", b"v1", b"v2", b"v3"}


def test_what_comes_back_for_ever_stays(settings: Settings, topic: Topic) -> None:
    tired = [("headrace.redrives", b"3"), *about(topic, 1)]
    put(settings, topic, [tired, about(topic, 2)])

    assert run(settings, topic) == {Fate.LOOPING: 1, Fate.SENT: 1}
    assert run(settings, topic) == {Fate.LOOPING: 1}
    assert run(settings, topic, force=True) == {Fate.SENT: 1}

    counts = {dict(m.headers())["headrace.redrives"] for m in read(settings, topic.name, 2)}
    assert counts == {b"1", b"4"}


def test_letters_that_cannot_go_back_are_left(settings: Settings, topic: Topic) -> None:
    put(settings, topic, [[("x", b"y")], about(topic, 1, source="another")])
    assert run(settings, topic) == {Fate.NO_SOURCE: 1, Fate.OTHER_TOPIC: 1}
    read(settings, topic.name, 0)


def test_a_dry_run_changes_nothing(settings: Settings, topic: Topic) -> None:
    put(settings, topic, [about(topic, n) for n in (1, 1, 2)])
    wanted = {Fate.SENT: 2, Fate.REPEATED: 1}
    assert run(settings, topic, dry_run=True) == wanted
    read(settings, topic.name, 0)
    assert run(settings, topic) == wanted


def test_over_chunks_and_partitions_nothing_is_lost(settings: Settings, topic: Topic) -> None:
    client = producer(settings.kafka)
    for number in range(1_000):
        headers = about(topic, number)
        client.produce(topic.dead_letters, b"%d" % number, f"u{number}", headers=headers)
    assert client.flush(10) == 0

    assert run(settings, topic, limit=333) == {Fate.SENT: 333}
    assert run(settings, topic) == {Fate.SENT: 667}

    values = {int(m.value()) for m in read(settings, topic.name, 1_000)}
    assert values == set(range(1_000))


def test_the_rate_is_kept(settings: Settings, topic: Topic) -> None:
    put(settings, topic, [about(topic, n) for n in range(250)])
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    paced = Redrive(settings.kafka, Wish(topic, rate=50.0), lambda: now[0], sleep)
    assert paced.run() == {Fate.SENT: 250}
    assert now[0] == pytest.approx(249 / 50)


def test_it_stops_before_it_would_forget(
    settings: Settings, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "METADATA_CHARS_MAX", 20)
    put(settings, topic, [about(topic, n, "odd" if n % 2 else "even") for n in range(600)])
    filtered = Redrive(settings.kafka, Wish(topic, "odd"))

    assert filtered.run()[Fate.SENT] == 0
    assert filtered.stopped
    assert run(settings, topic) == {Fate.SENT: 600}
    read(settings, topic.name, 600)


def test_the_command_lists_shows_and_redrives(
    settings: Settings, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dlq, "declared", lambda _: topic)
    put(settings, topic, [about(topic, 1), about(topic, 2), about(topic, 3, "odd")])
    command = CliRunner()
    named = ["--topic", topic.name]

    listed = command.invoke(dlq.app, ["list", *named, "--json"])
    rows = json.loads(listed.stdout)
    assert [(row["reason"], row["letters"], row["to_redrive"]) for row in rows] == [
        ("ValueError: broken", 2, 2),
        ("ValueError: odd", 1, 1),
    ]

    partition = str(partition_of("user", topic.partitions))
    shown = command.invoke(dlq.app, ["show", *named, "--partition", partition, "--offset", "2"])
    assert "ValueError: odd" in shown.stdout
    assert f"{topic.name}/0/3" in shown.stdout
    assert "0x7632" in shown.stdout
    beyond = command.invoke(dlq.app, ["show", *named, "--partition", partition, "--offset", "3"])
    assert beyond.exit_code == 2

    redriven = command.invoke(dlq.app, ["redrive", *named, "--reason", "broken"])
    assert (redriven.exit_code, redriven.stdout.splitlines()[0]) == (0, f"2 sent to {topic.name}")
    again = json.loads(command.invoke(dlq.app, ["list", *named, "--json"]).stdout)
    assert [row["to_redrive"] for row in again] == [0, 1]


def test_a_topic_that_is_not_there_is_a_sentence(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dlq, "declared", lambda _: replace(topic, name=f"{topic.name}-absent"))
    answer = CliRunner().invoke(dlq.app, ["redrive", "--topic", "x"])
    assert answer.exit_code == 5
    assert "does not exist" in answer.stderr
