"""What the fence of S3 is made of, part by part, and what merging and expiry leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sinks.digest import digest
from sinks.drivers.s3 import GRACE_S, S3Sink, connect, frames, names, plan
from sinks.drivers.s3.manifest import FINAL, Manifest, Piece
from sinks.drivers.s3.versions import Versions
from streams.runtime.settings import S3
from streams.runtime.sink import FenceRefused, ReadModel, SinkRejected, SinkUnavailable, Table
from tests.drivers.dying import LOG
from tests.drivers.model import (
    EVENTS,
    SCORES,
    TOPIC,
    WINDOWS,
    at,
    events,
    no_windows,
    read_model,
    span,
    stored,
    windows,
)
from tests.drivers.rigs import S3Rig
from tests.drivers.test_machine import Breaking
from tests.drivers.writer import Writer, clean

pytestmark = pytest.mark.stack


@pytest.fixture
def rig() -> Iterator[S3Rig]:
    opened = S3Rig()
    opened.sink().prepare(1)
    yield opened
    opened.close()


def manifest(rig: S3Rig, version: int = 1) -> Manifest:
    """What is stored of partition 0."""
    return Versions(rig.bucket, rig.model.name).manifests(version)[TOPIC, 0]


def pieces(rig: S3Rig, table: str, version: int = 1) -> list[Piece]:
    return list(manifest(rig, version).tables.get(table, ()))


def dying(rig: S3Rig) -> S3Sink:
    """A writer that dies between its uploads and the manifest."""
    sink: Any = rig.sink()
    sink._versions = Breaking(rig.bucket, rig.model.name, dies=True)
    assert isinstance(sink, S3Sink)
    return sink


def small(monkeypatch: pytest.MonkeyPatch, *, fan: int, cut: int) -> None:
    """Merge early and often."""
    monkeypatch.setattr(plan, "FAN", fan)
    monkeypatch.setattr(frames, "CUT", cut)


def test_uploads_without_a_manifest_do_not_show_and_go(rig: S3Rig) -> None:
    """Dead between rows and position; the next worker cuts its batches elsewhere."""
    with pytest.raises(SinkUnavailable):
        dying(rig).write(1, span(None, 8, windows((0, "a", 8)), events(*range(8))))
    litter = set(rig.pieces())
    sink = rig.sink()
    assert len(litter) == 2
    assert sink.load(1, TOPIC, 0) is None
    assert stored(sink) == stored(sink, "events") == []
    sink.write(1, span(None, 5, windows((0, "a", 5)), events(*range(5))))
    assert not litter & set(rig.pieces())
    sink.write(1, span(5, 9, windows((0, "a", 9)), events(5, 6, 7, 8)))
    assert stored(sink) == [(0, "a", 9, 0, "", 0)]
    assert len(stored(sink, "events")) == 9
    assert set(rig.pieces()) == manifest(rig).pieces()


def test_a_retry_overwrites_the_same_objects_with_the_same_bytes(rig: S3Rig) -> None:
    write = span(None, 8, windows((0, "a", 8)), events(*range(8)))
    found = []
    for _ in range(2):
        with pytest.raises(SinkUnavailable):
            dying(rig).write(1, write)
        found.append({key: rig.bucket.get(key)[0] for key in rig.pieces()})
    rig.sink().write(1, write)
    found.append({key: rig.bucket.get(key)[0] for key in rig.pieces()})
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 2


def test_a_worker_killed_at_any_request_loses_and_doubles_nothing(rig: S3Rig) -> None:
    """kill -9, in turn before and after each kind of request; the next one cuts elsewhere."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    for request, when in enumerate(["before", "after"] * 3):
        command = [sys.executable, "-m", "tests.drivers.dying", rig.model.name, when, str(request)]
        done = subprocess.run(command, env=environment, check=False)
        assert done.returncode == -signal.SIGKILL
        survivor = Writer(rig.sink(), LOG)
        write = survivor.prepared(4)
        assert survivor.send(write)
        assert stored(survivor.sink) == clean(LOG, survivor.next)
        assert [r[0] for r in sorted(stored(survivor.sink, "events"))] == list(range(survivor.next))
    survivor.drain()
    assert stored(survivor.sink) == clean(LOG)
    used = manifest(rig).pieces() | {one.key for one in manifest(rig).retired}
    assert set(rig.pieces()) == used


def test_a_zombie_cannot_touch_what_is_stored(rig: S3Rig) -> None:
    """It looked, slept, and goes on with the same span and other rows, and with a longer one."""
    sink, zombie = rig.sink(), rig.sink()
    assert isinstance(zombie, S3Sink)
    sink.write(1, span(None, 5, windows((0, "a", 5))))
    old = Versions(rig.bucket, rig.model.name).look(1, TOPIC, 0)
    assert old is not None
    sink.write(1, span(5, 10, windows((0, "a", 10))))
    before = rig.snapshot()
    for end, clicks in ((10, 77), (20, 20)):
        zombie._known[1, TOPIC, 0] = old
        with pytest.raises(FenceRefused):
            zombie.write(1, span(5, end, windows((0, "a", clicks))))
    after = rig.snapshot()
    assert {key: after[key] for key in before} == before
    assert stored(sink) == [(0, "a", 10, 0, "", 0)]


def test_the_seal_holds_against_a_writer_that_looked_before_it(rig: S3Rig) -> None:
    sink, other = rig.sink(), rig.sink()
    sink.write(1, span(None, 5, windows((0, "a", 5))))
    other.seal(1)
    with pytest.raises(FenceRefused, match="sealed"):
        sink.write(1, span(5, 6, windows((0, "a", 6))))
    assert sink.positions(1) == {(TOPIC, 0): at(5)}
    other.unseal(1)
    sink.write(1, span(5, 6, windows((0, "a", 6))))
    assert stored(sink) == [(0, "a", 6, 0, "", 0)]


def test_the_seal_holds_between_two_looks(rig: S3Rig) -> None:
    """The version was open when the writer looked, its manifest is not any more."""
    sink: Any = rig.sink()
    sink.write(1, span(None, 5))
    versions = Versions(rig.bucket, rig.model.name)
    before = versions.facts(1)

    class Late(Versions):
        def facts(self, version: int) -> Any:
            return before

    rig.sink().seal(1)
    sink._versions = Late(rig.bucket, rig.model.name)
    for call in (lambda: sink.load(1, TOPIC, 0), lambda: sink.write(1, span(5, 6))):
        with pytest.raises(FenceRefused, match="sealed"):
            call()
    assert sink.positions(1) == {(TOPIC, 0): at(5)}


def test_the_seal_closes_a_partition_that_has_no_manifest_yet(rig: S3Rig) -> None:
    """Its first writer was listed, and sleeps before it writes one."""
    versions = Versions(rig.bucket, rig.model.name)
    versions.open(1, TOPIC, 0)
    rig.bucket.delete([names.manifest(rig.model.name, 1, TOPIC, 0)])
    sink = rig.sink()
    assert sink.seal(1) == {}
    with pytest.raises(FenceRefused):
        sink.write(1, span(None, 1))
    sink.unseal(1)
    sink.write(1, span(None, 1, events(0)))
    assert len(stored(sink, "events")) == 1


def test_a_manifest_of_a_dropped_version_is_none(rig: S3Rig) -> None:
    """A writer of the version before was asleep while it was dropped and built again."""
    sink, zombie = rig.sink(), rig.sink()
    sink.prepare(2)
    zombie.write(2, span(None, 5, windows((0, "a", 5))))
    key = names.manifest(rig.model.name, 2, TOPIC, 0)
    old, _ = rig.bucket.get(key)
    sink.drop(2)
    with pytest.raises(FenceRefused):
        zombie.write(2, span(5, 6, windows((0, "a", 6))))
    sink.prepare(2)
    rig.bucket.put(key, old)
    assert sink.load(2, TOPIC, 0) is None
    assert sink.positions(2) == {}
    with pytest.raises(FenceRefused):
        zombie.write(2, span(5, 6, windows((0, "a", 6))))
    sink.write(2, span(None, 1, windows((0, "b", 1))))
    assert stored(sink, version=2) == [(0, "b", 1, 0, "", 0)]


def test_drop_leaves_no_object(rig: S3Rig) -> None:
    sink = rig.sink()
    for partition in range(3):
        Writer(sink, LOG, partition).drain(rows=9)
    sink.switch(2)
    sink.drop(1)
    assert [key for key in rig.snapshot() if "/v1/" in key] == []


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_merging_bounds_the_objects_and_changes_no_row(
    rig: S3Rig, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    small(monkeypatch, fan=3, cut=2**19)
    sink = rig.sink()
    Writer(sink, LOG).drain(rows)
    assert stored(sink) == clean(LOG)
    assert [row[0] for row in sorted(stored(sink, "events"))] == list(range(100))
    for table in ("windows", "events"):
        assert len(pieces(rig, table)) <= 2 * 5, "two pieces a level, three to the fifth writes"


def test_objects_below_the_cut_depend_on_the_log_alone(
    rig: S3Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebuild with other batch borders: the same bytes, and the same digests for all."""
    small(monkeypatch, fan=3, cut=16)
    sink, finals = rig.sink(), []
    versions = range(1, 6)
    for version, rows in zip(versions, (1, 5, 16, 23, 100), strict=True):
        sink.prepare(version)
        writer = Writer(sink, LOG)
        writer.position = None
        while writer.next < len(LOG):
            write = writer.prepared(rows)
            sink.write(version, write)
            writer.position = write.position
        found = [piece for piece in pieces(rig, "events", version) if piece.level == FINAL]
        finals.append([(one.first, one.next, rig.bucket.get(one.key)[0]) for one in found])
    assert [(first, stop) for first, stop, _ in finals[0]] == [
        (i, i + 16) for i in range(0, 96, 16)
    ]
    assert finals == finals[:1] * 5
    assert [digest(sink, version) for version in versions] == [digest(sink, 1)] * 5


def test_replaced_objects_stay_for_a_while(rig: S3Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch, fan=2, cut=2**19)
    now = [1_000_000.0]
    sink = S3Sink(rig.model, connect(rig.settings), clock=lambda: now[0])
    sink.write(1, span(None, 1, events(0)))
    sink.write(1, span(1, 2, events(1)))
    assert len(pieces(rig, "events")) == 1
    assert len(rig.pieces()) == 2, "what was merged, and what it became"
    now[0] += GRACE_S - 1
    sink.write(1, span(2, 3))
    assert len(rig.pieces()) == 2
    now[0] += 1
    sink.write(1, span(3, 4))
    assert set(rig.pieces()) == manifest(rig).pieces()
    assert len(stored(sink, "events")) == 2
    sink.close()


def test_expired_objects_go(rig: S3Rig) -> None:
    now = [1_000_000.0]
    sink = S3Sink(rig.model, connect(rig.settings), clock=lambda: now[0])
    for i in range(5):
        sink.write(1, span(i or None, i + 1, windows((i * 10, "a", 1), (i * 10 + 1, "a", 1))))
    sink.write(1, span(5, 6, expire={"windows": 21}))
    assert [row[0] for row in sorted(stored(sink))] == [21, 30, 31, 40, 41]
    assert len(pieces(rig, "windows")) == 3
    now[0] += GRACE_S
    sink.write(1, span(6, 7))
    assert len(rig.pieces()) == 3
    sink.close()


changes = st.lists(
    st.tuples(
        st.dictionaries(
            st.tuples(st.integers(0, 3), st.sampled_from("ab")), st.integers(0, 9), max_size=3
        ),
        st.sets(st.tuples(st.integers(0, 3), st.sampled_from("ab")), max_size=2),
        st.integers(0, 2),
    ),
    max_size=12,
)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(changes)
def test_merged_tables_are_those_of_a_dictionary(rig: S3Rig, script: list[Any]) -> None:
    """Upserts, deletes and expiry through many small merges."""
    with pytest.MonkeyPatch.context() as patch:
        small(patch, fan=2, cut=2**19)
        sink, model, cutoff = rig.sink(), dict[Any, int](), 0
        for i, (new, gone, since) in enumerate(script):
            model = {key: n for key, n in {**model, **new}.items() if key not in gone}
            cutoff = max(cutoff, since)
            upserts = windows(*((*key, n) for key, n in new.items()))
            write = span(i or None, i + 1, upserts, no_windows(*gone), expire={"windows": cutoff})
            sink.write(3, write)
        expected = [(*key, n, 0, "", 0) for key, n in model.items() if key[0] >= cutoff]
        assert stored(sink, version=3) == sorted(expected, key=repr)
        sink.drop(3)


def test_tombstones_with_nothing_to_hide_go(rig: S3Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch, fan=2, cut=2**19)
    sink = rig.sink()
    sink.write(1, span(None, 1, windows((0, "a", 1))))
    sink.write(1, span(1, 2, no_windows((0, "a"))))
    assert pieces(rig, "windows") == []


def test_a_bucket_that_is_not_there_and_keys_that_are_wrong_are_waited_for(rig: S3Rig) -> None:
    for wrong in ({"bucket": "no-such-bucket"}, {"secret_key": S3(secret_key="x").secret_key}):
        sink = S3Sink(rig.model, connect(rig.settings.model_copy(update=wrong)))
        for call in (lambda s=sink: s.prepare(1), lambda s=sink: s.load(1, TOPIC, 0)):
            with pytest.raises(SinkRejected) as refused:
                call()
            assert refused.value.transient
        sink.close()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (SCORES, "no rankings"),
        (Table("positions", WINDOWS.key, {}), "folder of the driver"),
        (Table("a/b", WINDOWS.key, {}), "no name"),
        (Table("t", {**EVENTS.key, "_deleted": frames.pl.Boolean}, {}), "own begin so"),
    ],
)
def test_models_it_cannot_hold_are_refused(table: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        S3Sink(ReadModel(read_model(rankings=False).name, (table,)), connect(S3()))
