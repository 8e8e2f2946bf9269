"""Every contender of `bench lane` counts right at a tiny size; no figure is judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from streams.runtime.settings import Settings
from tests.bench import clicks, lane
from tests.bench.contenders.finish import Finish
from tests.bench.contenders.lane import Watched, steady
from tests.bench.contenders.lane_two import merged
from tests.bench.measure import Run
from tests.bench.peers import java
from tests.bench.peers.environments import BYTEWAX, QUIX, Environment
from tests.bench.peers.lane import PEERS, Ground
from tests.bench.store import drop_read_model, drop_topics
from tests.bench.turns import WrongTotals, once, ratios

RECORDS = 3_000


@pytest.fixture(scope="module")
def settings() -> Iterator[Settings]:
    given = Settings.read()
    clicks.ensure(given, RECORDS)
    yield given
    drop_topics(given, [clicks.topic(RECORDS)])
    drop_read_model(given, "bench-lane-redis")


@pytest.mark.stack
@pytest.mark.parametrize("name", lane.entries())
def test_every_contender_counts_right(settings: Settings, name: str) -> None:
    if why := lane.entries()[name].missing():
        pytest.skip(why)
    contender = lane.contenders(settings, RECORDS, [name])[name]
    assert not contender.missing
    done = once(contender)
    assert (done.events, done.finish.dropped) == (RECORDS, 0)
    assert done.finish.seconds > 0
    assert done.finish.rss_peak_mib > 0
    assert (done.finish.count is None) == (name == "raw")


def test_an_unknown_contender_is_refused() -> None:
    with pytest.raises(ValueError, match="no contender flonk; there are faust"):
        lane.contenders(Settings.read(), RECORDS, ["flonk"])


def test_slow_peers_take_the_first_records() -> None:
    ground = Ground("broker:1", "clicks", 10_000_000)
    assert PEERS["faust"].share(ground) == 100_000
    assert PEERS["flink"].share(ground) == 10_000_000
    assert PEERS["faust"].share(replace(ground, records=10)) == 10


def test_late_records_are_an_error() -> None:
    with pytest.raises(WrongTotals, match="7 records dropped"):
        lane.check("a contender", _run(Finish(1.0, 1.0, {0: 1}, dropped=7)), RECORDS)


def test_ratios_are_between_runs_of_a_turn() -> None:
    ours = [_run(Finish(1.0, 1.0, {0: n}, steady_events=n, steady_s=0.5)) for n in (400, 90, 300)]
    theirs = [_run(Finish(2.0, 2.0, {0: n})) for n in (200, 60, 50)]
    assert ratios(ours, theirs, lambda one: one.rate) == {
        "median": 4.0,
        "by_turn": [4.0, 3.0, 12.0],
    }
    assert ratios(ours, theirs, lambda one: one.steady_rate) is None


def test_the_summary_compares_lanes_with_peers() -> None:
    fast = Finish(1.0, 1.0, {0: 1_000}, steady_events=500, steady_s=0.25)
    slow = Finish(2.0, 4.0, {0: 1_000}, steady_events=500, steady_s=1.0)
    measured = {"faust": [_run(slow)], "lane": [_run(fast)]}
    result = lane.summary(measured, 1_000)
    assert result["lane_to_faust_cold"] == {"median": 2.0, "by_turn": [2.0]}
    assert result["lane_to_faust_steady"] == {"median": 4.0, "by_turn": [4.0]}
    assert result["contenders"]["faust"]["settings"]["broker_max_poll_records"] == 5_000
    assert "java" not in result["versions"]
    lane.show(result)


def test_two_workers_are_as_slow_as_the_slower_one() -> None:
    parts = [
        Finish(10.0, 9.0, {0: 40, 2: 60}, rss_peak_mib=7),
        Finish(12.0, 8.0, {1: 50, 3: 50}, rss_peak_mib=8),
    ]
    traces = [[(2.0, 40), (10.0, 60)], [(3.0, 50), (12.0, 50)]]
    whole = merged(parts, traces, warm_up=90)
    assert whole.consumed == {0: 40, 1: 50, 2: 60, 3: 50}
    assert (whole.seconds, whole.cpu_s, whole.rss_peak_mib) == (12.0, 17.0, 15)
    assert (whole.steady_events, whole.steady_s) == (110, 9.0)


def test_the_steady_part_begins_after_the_write_that_warms_up() -> None:
    trace = [(1.0, 15), (2.0, 10), (4.5, 25)]
    assert steady(trace, 20) == {"steady_events": 25, "steady_s": 2.5}
    assert steady(trace, 26) == {}
    assert steady([], 0) == {}


def test_a_watched_sink_notes_every_write_until_all_is_stored() -> None:
    ended: list[int] = []
    sink = Watched(_Sink(), lambda stored: sum(stored.values()) >= 50)  # type: ignore[arg-type]
    sink.done = lambda: ended.append(sum(sink.consumed.values()))
    sink.load(1, "clicks", 0)
    for partition, offset in ((0, 15), (1, 10), (0, 40)):
        sink.write(1, _write(partition, offset))  # type: ignore[arg-type]
    assert [records for _, records in sink.trace] == [15, 10, 25]
    assert sink.finish is not None
    assert (sink.finish.consumed, ended) == ({0: 40, 1: 10}, [50])


def test_programs_are_for_one_engine_or_for_both() -> None:
    flink, streams = ({file.name for file in java.sources(engine)} for engine in java.ENGINES)
    assert "LaneFlink.java" in flink - streams
    assert "LaneStreams.java" in streams - flink
    assert {"Finish.java", "Framed.java"} <= flink & streams


@pytest.mark.parametrize("engine", java.ENGINES)
def test_jars_are_locked(engine: java.Engine) -> None:
    digests = java.lock(engine)
    assert all(len(digest) == 64 for digest in digests.values())
    assert any(":avro:jar:" in coordinates for coordinates in digests)


def test_python_engines_are_locked_and_say_what_they_need() -> None:
    assert QUIX.version("quixstreams").startswith("3.28.")
    assert BYTEWAX.version("bytewax").startswith("0.21.")
    assert Environment("bytewax", [99]).missing() == (
        "needs Python 3.99 to 3.99 (this one, or on PATH)"
    )


class _Sink:
    def load(self, version: int, topic: str, partition: int) -> None: ...

    def write(self, version: int, write: object) -> None: ...


def _write(partition: int, offset: int) -> object:
    return SimpleNamespace(partition=partition, position=SimpleNamespace(next_offset=offset))


def _run(finish: Finish) -> Run:
    return Run(finish, 1.0, None, 0.0, 0.0)
