"""Rebuild: the same answers from the log, while the old ones are still served."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from infra.cli.rebuild import Comparison, compare
from sinks import digest
from streams.runtime import kafka, metrics
from streams.runtime.avro import Decoder, RegistrySource, SchemaSource
from streams.runtime.dead_letters import KafkaOutbox
from streams.runtime.native.feed import opened
from streams.runtime.rebuild import Differs, Progress, Rebuild, Report, abort
from streams.runtime.sink import Sink, SinkError
from tests.chaos.load import DAY_MS, Load, clicks, scores
from tests.chaos.processes import background, until
from tests.chaos.rig import Rig

pytestmark = [pytest.mark.stack, pytest.mark.slow]

RECORDS = 40_000


def rebuild(rig: Rig, agent: str, sink: Sink, **more: Any) -> Report:
    """Rebuild with the rig's stores and topics, as the command line does."""
    with closing(RegistrySource(rig.settings.registry.url)) as schemas:
        return made(rig, agent, sink, schemas, **more).run()


def made(rig: Rig, agent: str, sink: Sink, schemas: SchemaSource, **more: Any) -> Rebuild:
    projection = rig.projections[agent]
    settings = rig.settings
    return Rebuild(
        projection,
        sink,
        Decoder(projection.topic, schemas, projection.columns),
        KafkaOutbox(lambda: kafka.producer(settings.kafka)),
        metrics.default().agent(
            projection.name, system=rig.run, topic=projection.topic.name, store=projection.store
        ),
        opened(settings.kafka, f"{rig.run}-rebuild-{time.monotonic_ns()}", projection.topic.name),
        bounds=lambda seat: kafka.log_bounds(rig.admin, seat.topic, seat.partition),
        compare=lambda live, new: compare(sink, live, new),
        **more,
    )


def fed(rig: Rig, agent: str, rows: Any) -> Load:
    """A load that has sent these rows."""
    load = Load(rig.settings.kafka.bootstrap_servers, rig.topic(agent), rig.schema_ids(agent))
    load.send(rows)
    load.done()
    return load


def equal(report: Report) -> str:
    """The digest of a comparison that came out equal."""
    assert isinstance(report.comparison, Comparison)
    assert report.comparison
    assert report.comparison.rows > 0
    return report.comparison.rebuilt


def test_rebuild_under_load_keeps_answering_and_hands_over(rigs: Callable[..., Rig]) -> None:
    rig = rigs(11, needs=("redis", "clickhouse"))
    rig.create("windows", "events")
    load = fed(rig, "windows", clicks(11, RECORDS))
    worker = rig.worker("windows,events")
    sinks = {agent: rig.sink(agent) for agent in ("windows", "events")}
    for agent, sink in sinks.items():
        rig.drained(agent, sink)
    answered: list[int] = []

    def read(stop: threading.Event) -> None:
        mine = rig.sink("windows")
        while not stop.is_set():
            answered.append(rig.folded(mine))

    def produce(stop: threading.Event) -> None:
        load.send(clicks(12, RECORDS // 4), per_s=2_000)
        load.done()

    with background(produce), background(read):
        for agent, sink in sinks.items():
            report = rebuild(rig, agent, sink)
            equal(report)
            assert sink.live_version() == report.version == 2
            until(lambda s=sink: s.versions() == [2], 30, "the old version is gone")
    # Readers never saw a version without rows, and never went back in time.
    assert len(answered) > 2
    assert min(answered) > 0
    assert answered == sorted(answered)
    for agent, sink in sinks.items():
        rig.drained(agent, sink)
    assert worker.process.poll() is None
    assert worker.metric("headrace_fence_refusals_total") > 0
    rig.report(
        "T14 rebuild, windows",
        rig.verdict("windows", "ads", sinks["windows"], ("minutes", "hours")),
    )
    rig.report("T14 rebuild, events", rig.verdict("events", "ads", sinks["events"], ("events",)))


def test_an_interrupted_rebuild_goes_on_and_other_borders_change_nothing(
    rigs: Callable[..., Rig],
) -> None:
    rig = rigs(13)
    rig.create("boards")
    fed(rig, "boards", scores(13, RECORDS))
    worker = rig.worker("boards", rows_max=2_048)
    sink = rig.sink("boards")
    rig.drained("boards", sink)
    worker.end()
    before = digest.summary(digest.digest(sink, 1))

    class Interrupted(Exception):
        pass

    def interrupt(now: Progress) -> None:
        if now.rows > 0:
            raise Interrupted

    with pytest.raises(Interrupted):
        rebuild(rig, "boards", sink, progress=interrupt)
    assert sink.live_version() == 1
    started = sum(one.next_offset for one in sink.positions(2).values())
    assert started > 0
    assert equal(rebuild(rig, "boards", sink)) == before
    assert sink.live_version() == 2


def test_a_version_that_differs_is_not_switched_to(rigs: Callable[..., Rig]) -> None:
    rig = rigs(14)
    rig.create("boards")
    fed(rig, "boards", scores(14, RECORDS // 4))
    rig.worker("boards")
    sink = rig.sink("boards")
    rig.drained("boards", sink)
    client = rig.redis()
    board = next(key for key in client.scan_iter("*:v1:*", count=1_000) if is_board(client, key))
    member = client.zrange(board, 0, 0)[0]
    client.zadd(board, {member: 10**9})  # somebody tampers with the store
    with pytest.raises(Differs) as caught:
        rebuild(rig, "boards", sink)
    assert caught.value.comparison.differences
    assert sink.live_version() == 1
    # The live version takes writes again.
    fed(rig, "boards", scores(15, 1_000))
    rig.drained("boards", sink)
    assert abort(sink) == [2]
    assert sink.versions() == [1]


def is_board(client: Any, key: bytes) -> bool:
    return bool(client.type(key) == b"zset" and b":z:" in key)


def test_a_lost_store_is_rebuilt_to_the_same_digest(rigs: Callable[..., Rig]) -> None:
    rig = rigs(16)
    rig.create("boards")
    fed(rig, "boards", scores(16, RECORDS))
    worker = rig.worker("boards")
    sink = rig.sink("boards")
    rig.drained("boards", sink)
    before = digest.summary(digest.digest(sink, 1))
    letters = rig.ends(rig.topic("boards").dead_letters)
    assert worker.end() == 0
    rig.redis().flushall()
    report = rebuild(rig, "boards", sink)
    assert report.comparison is None  # there was nothing left to compare with
    assert digest.summary(digest.digest(sink, report.version)) == before
    assert rig.ends(rig.topic("boards").dead_letters) == letters  # told once, not again


def test_what_expired_counts_for_neither_version(rigs: Callable[..., Rig]) -> None:
    """The store deletes a little with each write, so the versions are at different points of it."""
    rig = rigs(19)
    rig.create("boards")
    long_ago = (
        (name, key, {**row, "event_time": row["event_time"] - 500 * DAY_MS})
        for name, key, row in scores(19, RECORDS)
    )
    fed(rig, "boards", long_ago)
    rig.worker("boards", rows_max=1_000)
    sink = rig.sink("boards")
    rig.drained("boards", sink)
    fed(rig, "boards", scores(20, 100))
    rig.drained("boards", sink)
    equal(rebuild(rig, "boards", sink))


def test_a_seal_that_was_left_behind_is_lifted(rigs: Callable[..., Rig]) -> None:
    rig = rigs(17)
    rig.create("boards")
    fed(rig, "boards", scores(17, 2_000))
    rig.worker("boards")
    sink = rig.sink("boards")
    rig.drained("boards", sink)
    sink.seal(1)
    with pytest.raises(SinkError):
        sink.load(1, rig.topic("boards").name, 0)
    equal(rebuild(rig, "boards", sink))
    fed(rig, "boards", scores(18, 2_000))
    rig.drained("boards", sink)
