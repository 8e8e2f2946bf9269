"""A derivation on Kafka: killed again and again, it loses, doubles and moves no record."""

from __future__ import annotations

import io
import os
import signal
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import fastavro
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Message, TopicPartition
from prometheus_client import CollectorRegistry

from schemas.apply import apply
from schemas.registry import RegistryClient, subjects
from sinks.drivers.memory import MemorySink, MemoryStore
from streams.runtime import kafka
from streams.runtime.avro import Decoder, RegistrySource
from streams.runtime.derivation.filter import Verdict, accept
from streams.runtime.derivation.positions import from_metadata
from streams.runtime.derivation.rules import Derivation
from streams.runtime.derivation.wire import Source, columns, source_header
from streams.runtime.metrics import Metrics
from streams.runtime.native.feed import opened
from streams.runtime.position import NO_WATERMARK, FilterState, Position
from streams.runtime.projection import Projection
from streams.runtime.rebuild import Rebuild
from streams.runtime.settings import Settings
from streams.runtime.sink import ReadModel
from tests.runtime.derivation.scene import GOT, OFFSET, SENT, Sent, batch, fan_out
from tests.runtime.derivation.worker import derivation, encoder
from tests.runtime.lane.bed import Letterbox
from tests.runtime.lane.ruled import SEEN, See

pytestmark = [pytest.mark.stack, pytest.mark.slow]

ROWS = 30_000
KILLS = 3
WAIT_S = 60.0


def rows_of(partition: int) -> list[Sent]:
    return [Sent(f"s{n % 7}", (n * 3 + partition) % 5, 1_000 * n) for n in range(ROWS)]


class Scene:
    """Topics with a filled source, and the group's progress."""

    def __init__(self, folder: Path) -> None:
        self.settings = Settings.read()
        self.prefix = f"test{uuid.uuid4().hex[:8]}"
        self.derivation: Derivation = derivation(self.prefix)
        self.folder = folder
        self.admin = kafka.admin(self.settings.kafka)
        topics = (self.derivation.source, self.derivation.target)
        apply(self.settings, topics)
        with RegistryClient(self.settings.registry) as registry:
            ids = [registry.register(subjects(topic)[0]) for topic in topics]
        self._sent_id, self.schema_id = ids
        self._fill()

    def _fill(self) -> None:
        producer = kafka.producer(self.settings.kafka)
        schema = fastavro.parse_schema(SENT.schema)
        for partition in range(self.derivation.source.partitions):
            for row in rows_of(partition):
                out = io.BytesIO()
                out.write(struct.pack(">bI", 0, self._sent_id))
                values = {"sender": row.sender, "receivers": row.receivers, "at": row.at}
                fastavro.schemaless_writer(out, schema, values)
                producer.produce(
                    self.derivation.source.name, out.getvalue(), row.sender, partition=partition
                )
            assert producer.flush(30) == 0

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        arguments = [self.prefix, str(self.folder), str(self.schema_id)]
        with (self.folder / "worker.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.runtime.derivation.worker", *arguments],
                env={**os.environ, "PYTHONPATH": "."},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(30)

    def positions(self) -> dict[int, Position]:
        places = [TopicPartition(self.derivation.source.name, n) for n in range(2)]
        group = self.derivation.name
        asked = ConsumerGroupTopicPartitions(group, places)
        found = self.admin.list_consumer_group_offsets([asked])[group].result(10).topic_partitions
        return {at.partition: from_metadata(at.metadata)[0] for at in found if at.offset >= 0}

    def committed(self) -> int:
        return sum(position.next_offset for position in self.positions().values())

    def sent(self) -> int:
        """Records in the target topic."""
        bounds = [kafka.log_bounds(self.admin, self.derivation.target.name, n) for n in range(3)]
        return sum(one.end for one in bounds)

    def log(self, partition: int) -> list[Message]:
        """All records of a target partition."""
        end = kafka.log_bounds(self.admin, self.derivation.target.name, partition).end
        consumer = kafka.consumer(self.settings.kafka, f"{self.prefix}-check")
        consumer.assign([TopicPartition(self.derivation.target.name, partition, 0)])
        found: list[Message] = []
        until_s = time.monotonic() + WAIT_S
        while len(found) < end and time.monotonic() < until_s:
            found += consumer.consume(10_000, 1.0)
        consumer.close()
        assert len(found) == end
        return found

    def close(self) -> None:
        found = self.admin.list_topics(timeout=10).topics
        mine = [topic for topic in found if topic.startswith(self.prefix)]
        for future in self.admin.delete_topics(mine).values():
            future.result(30)
        with suppress(KafkaException):  # the last member may not have left yet
            self.admin.delete_consumer_groups([self.derivation.name])[self.derivation.name].result(
                10
            )


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def wait(process: subprocess.Popen[bytes], folder: Path, done: Callable[[], bool]) -> None:
    """Wait while the worker lives."""
    until_s = time.monotonic() + WAIT_S
    while not done():
        told = (folder / "worker.log").read_text()[-4_000:]
        assert process.poll() is None, told
        assert time.monotonic() < until_s, told
        time.sleep(0.02)


def wanted(scene: Scene, partition: int) -> dict[int, list[bytes]]:
    """f(source) by target partition, of one source partition."""
    found: dict[int, list[bytes]] = {n: [] for n in range(3)}
    derived = fan_out(batch(partition, 0, rows_of(partition), NO_WATERMARK))[GOT.fullname]
    encode = encoder(GOT, scene.schema_id, "receiver")
    for key, value in encode(GOT.fullname, derived.drop(OFFSET)):
        found[kafka.partition_of(key.decode(), 3)].append(value)
    return found


def test_kill_9_again_and_again_loses_and_doubles_nothing(scene: Scene) -> None:
    for _ in range(KILLS):
        enough = scene.sent() + 500
        with scene.worker() as process:
            wait(process, scene.folder, lambda: scene.sent() > enough)  # noqa: B023 - used here
            process.send_signal(signal.SIGKILL)
            process.wait(10)
    with scene.worker() as process:
        wait(process, scene.folder, lambda: scene.committed() == 2 * ROWS)
    expected = [wanted(scene, partition) for partition in range(2)]
    repeats = 0
    for target in range(3):
        messages = scene.log(target)
        headers = [source_header(message.headers()) for message in messages]
        found = accept(
            FilterState(), columns(headers), topics=1, before_ms=NO_WATERMARK, bound_ms=0
        )
        assert not found.rows(Verdict.FOREIGN).size
        repeats += found.rows(Verdict.REPEAT).size
        got: dict[int, list[bytes | None]] = {0: [], 1: []}
        for row in found.rows(Verdict.ACCEPTED).tolist():
            raw = headers[row]
            assert raw is not None
            got[Source.unpack(raw).partition].append(messages[row].value())
        for partition in range(2):
            assert got[partition] == expected[partition][target]
    assert repeats > 0  # else nothing was interrupted
    for partition, position in scene.positions().items():
        nothing = sum(row.receivers == 0 for row in rows_of(partition))
        assert position.counts == {"applied": ROWS - nothing, "filtered": nothing}
    _fold(scene, sum(len(part[n]) for part in expected for n in range(3)))


def _fold(scene: Scene, rows: int) -> None:
    """A read model of the target, as rebuild folds it, has every record once."""
    target = scene.derivation.target
    model = ReadModel(f"{scene.prefix}-seen", (SEEN,))
    projection = Projection(model.name, target, See(), model, "memory")
    sink = MemorySink(model, MemoryStore())
    schemas = RegistrySource(scene.settings.registry.url)
    Rebuild(
        projection,
        sink,
        Decoder(target, schemas),
        Letterbox(),
        Metrics(CollectorRegistry()).agent(model.name, system="t", topic="t", store="memory"),
        opened(scene.settings.kafka, model.name, target.name),
        bounds=lambda seat: kafka.log_bounds(scene.admin, seat.topic, seat.partition),
    ).run()
    schemas.close()
    positions = sink.positions(sink.live_version())
    counts = [position.counts for position in positions.values()]
    assert sum(one["applied"] for one in counts) == rows
    assert all(one["control"] > 0 for one in counts)
    newest = min(row[-1].at for row in map(rows_of, range(2))) - 1
    for position in positions.values():
        assert newest - 2_000 <= position.watermark_ms <= newest
