"""Lag by a real log: records, seconds, states, sources, exit codes."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from infra.cli.lag import app, as_dict
from infra.lag import Lag, Place, Source, State, total
from infra.lag.measure import committed, measure, shown_by_workers
from infra.lag.stored import agents, stored
from infra.prometheus.scrape import Frame
from sinks.drivers.memory import MemorySink, MemoryStore
from streams import catalog
from streams.runtime.kafka import admin, producer
from streams.runtime.position import Position
from streams.runtime.projection import Projection
from streams.runtime.settings import Kafka, Settings
from streams.runtime.sink import Sink, SinkUnavailable, Write

AGES_S = (90, 60, 30, 10)
"""Ages of the records of partition 0, oldest first; partition 1 is empty."""


def lag(position: int, *, log_start: int = 0, log_end: int = 100) -> Lag:
    return Lag(Place("a", "t", 0), Source.WORKER, position, log_start, log_end, None)


def test_records_and_state_by_where_the_position_lies() -> None:
    assert (lag(40).records, lag(40).state) == (60, State.OK)
    assert (lag(100).records, lag(100).state) == (0, State.OK)
    assert (lag(101).records, lag(101).state) == (0, State.AHEAD)
    assert lag(40, log_start=41).state is State.EXPIRED
    assert total([lag(40), lag(90)]) == {"a": 70}


def test_of_two_processes_the_one_further_on_is_believed() -> None:
    labels = frozenset({("consumergroup", "a"), ("topic", "t"), ("partition", "3")})
    name = "kafka_consumergroup_current_offset"
    frame = Frame(0, {("old:1", name, labels): 7.0, ("new:1", name, labels): 9.0})
    assert shown_by_workers(frame) == {Place("a", "t", 3): (Source.WORKER, 9)}


def test_positions_come_from_the_live_version_of_each_store() -> None:
    store = MemoryStore()
    (name, *_) = agents()
    _, projection = catalog.projection(name)
    sink = MemorySink(projection.model, store)
    for version, offset in ((1, 42), (2, 7)):
        sink.prepare(version)
        position = Position.start("id", offset)
        sink.write(version, Write(projection.topic.name, 3, None, position))
    found = stored([name, "not-in-the-catalogue"], lambda p: MemorySink(p.model, store))
    assert found.positions == {Place(name, projection.topic.name, 3): (Source.SINK, 42)}
    assert found.silent == {}


def test_a_store_that_is_down_is_noted_and_hides_no_other() -> None:
    down, up = agents()[:2]

    def open_store(projection: Projection) -> Sink:
        if projection.name == down:
            raise SinkUnavailable("connection refused")
        sink = MemorySink(projection.model, MemoryStore())
        sink.prepare(1)
        sink.write(1, Write(projection.topic.name, 0, None, Position.start("id", 5)))
        return sink

    found = stored([down, up], open_store)
    assert {place.agent for place in found.positions} == {up}
    assert "connection refused" in found.silent[down]


@pytest.fixture(scope="module")
def kafka() -> Kafka:
    return Settings.read().kafka


@pytest.fixture(scope="module")
def client(kafka: Kafka) -> AdminClient:
    return admin(kafka)


@pytest.fixture(scope="module")
def group(kafka: Kafka, client: AdminClient) -> Iterator[str]:
    """A topic and a group of the same name that has committed offset 1 of partition 0."""
    name = f"observability-{uuid.uuid4().hex[:8]}"
    created = NewTopic(name, 2, 1, config={"message.timestamp.type": "CreateTime"})
    client.create_topics([created])[name].result(30)
    source, now_ms = producer(kafka), int(time.time() * 1000)
    for age_s in AGES_S:
        source.produce(name, b"x", partition=0, timestamp=now_ms - age_s * 1000)
    assert source.flush(30) == 0
    at = [TopicPartition(name, 0, 1), TopicPartition(name, 1, 0)]
    client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(name, at)])[name].result(30)
    yield name
    client.delete_consumer_groups([name])[name].result(30)
    client.delete_topics([name])[name].result(30)


@pytest.mark.stack
def test_lag_in_records_and_in_seconds_of_the_first_waiting_record(
    kafka: Kafka, group: str
) -> None:
    first, second = measure(kafka, committed(kafka, [group]), timeout_s=20)
    assert (first.position, first.log_end, first.records) == (1, 4, 3)
    assert first.seconds is not None
    assert AGES_S[1] <= first.seconds < AGES_S[1] + 30
    assert (second.records, second.seconds, second.state) == (0, 0.0, State.OK)
    assert first.source is Source.COMMITTED


@pytest.mark.stack
def test_agents_at_different_offsets_of_one_partition(kafka: Kafka, group: str) -> None:
    stored = {Place(f"agent{at}", group, 0): (Source.SINK, at) for at in range(5)}
    found = measure(kafka, stored, timeout_s=20)
    assert [one.records for one in found] == [4, 3, 2, 1, 0]
    ages = [one.seconds for one in found]
    assert all(age is not None for age in ages)
    assert ages == sorted(ages, key=lambda age: -(age or 0))


@pytest.mark.stack
def test_a_topic_that_is_gone_is_left_out(kafka: Kafka) -> None:
    assert measure(kafka, {Place("a", f"gone-{uuid.uuid4().hex}", 0): (Source.SINK, 0)}) == []


@pytest.mark.stack
def test_an_unknown_group_has_no_offsets(kafka: Kafka) -> None:
    assert committed(kafka, [f"nobody-{uuid.uuid4().hex}"]) == {}


@pytest.mark.stack
def test_the_command_prints_json_and_fails_above_a_limit(group: str, tmp_path: Path) -> None:
    asked = ["--agent", group, "--json", "--targets", str(tmp_path)]
    fine = CliRunner().invoke(app, [*asked, "--fail-above", "3"])
    assert fine.exit_code == 0, fine.output
    rows = json.loads(fine.stdout)
    assert [(row["partition"], row["lag_records"]) for row in rows] == [(0, 3), (1, 0)]
    assert rows[0].keys() == as_dict(lag(0)).keys()
    above = CliRunner().invoke(app, [*asked, "--fail-above", "2"])
    assert above.exit_code == 1
    assert group in above.stderr


@pytest.mark.stack
def test_the_command_prints_a_table(group: str, tmp_path: Path) -> None:
    asked = ["--agent", group, "--targets", str(tmp_path)]
    shown = CliRunner().invoke(app, asked, env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert group in shown.stdout
    assert "committed" in shown.stdout


@pytest.mark.stack
def test_watching_refreshes_until_interrupted_and_still_judges(
    group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refreshed: list[float] = []

    def sleep(seconds: float) -> None:
        refreshed.append(seconds)
        if len(refreshed) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("infra.cli.lag.time.sleep", sleep)
    asked = ["--agent", group, "--watch", "--interval", "0.5", "--fail-above", "2"]
    answer = CliRunner().invoke(app, [*asked, "--targets", str(tmp_path)])
    assert refreshed == [0.5, 0.5]
    assert answer.exit_code == 1
    assert group in answer.stderr


@pytest.mark.stack
def test_an_unknown_agent_is_named(tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["--agent", "no-such-agent", "--targets", str(tmp_path)])
    assert answer.exit_code == 2
    assert "no-such-agent" in answer.stderr


def test_a_broken_target_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "worker.json").write_text('{"no": "list"')
    answer = CliRunner().invoke(app, ["--agent", "any", "--targets", str(tmp_path)])
    assert answer.exit_code == 2
    assert "worker.json" in answer.stderr
