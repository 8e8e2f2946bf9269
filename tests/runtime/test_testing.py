"""The harness, the step, and the counterexamples of the protocol's section 3 that touch time."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO

import fastavro
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.runtime.outcome import Fate, Outcome, RowsLost
from streams.runtime.position import NO_WATERMARK, FilterState, Position
from streams.runtime.sink import FenceRefused
from streams.runtime.step import Refused, advance, flush, join, restore
from streams.runtime.testing import Harness, assert_replay_deterministic
from streams.runtime.window import Emit, hopping, session, tumbling
from tests.runtime.clicks import CLICKED, Clicked, clicks, projection, spec
from tests.runtime.recorder import Recorder

KINDS = {
    "tumbling": lambda s: tumbling(s, 4),
    "hopping": lambda s: hopping(s, 4, 2),
    "session": lambda s: session(s, 4),
}
LOGS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(-7, 3), st.integers(0, 9), st.integers(0, 1)),
    min_size=2,
    max_size=40,
).map(
    lambda rows: [
        Clicked(f"id{max(0, n - back) if back < 3 else n}", key, max(0, n + jitter), cost)
        for n, (key, jitter, back, cost) in enumerate(rows)
    ]
)


def harness(windows, **more) -> Harness:
    built = projection(windows, **more)
    return Harness(built, Recorder(built.model))


def table(h: Harness) -> list[tuple]:
    return h.rows("windows").rows()


@settings(max_examples=120, deadline=None)
@given(
    LOGS, st.sampled_from(list(KINDS)), st.sampled_from(list(Emit)), st.sampled_from([0, 2]),
    st.sampled_from([None, 6]), st.integers(0, 2**16),
)  # fmt: skip
def test_crashes_change_nothing(rows, kind, emit, lateness, horizon_ms, seed):
    """clean(log) == crashed(log, plan): rows, counts and late set, with far-future rows in it."""
    windows = KINDS[kind](spec(emit=emit, allowed_lateness_ms=lateness))
    built = projection(windows, horizon_ms=horizon_ms, skew=3)
    rows = [*rows[: len(rows) // 2], Clicked("odd", "a", 900, 1), *rows[len(rows) // 2 :]]
    appended = [*range(len(rows))]
    assert_replay_deterministic(built, rows, seed, Recorder, append_ms=appended, batch_max=4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_disturbed_run_is_not_void(kind):
    built = projection(KINDS[kind](spec(emit=Emit.FINAL, allowed_lateness_ms=2)), horizon_ms=6)
    rows = [Clicked(f"id{n - n % 3}", "ab"[n % 2], n - 9 * (n % 7 == 0), 1) for n in range(118)]
    rows += [rows[-1], rows[-1]]
    run = assert_replay_deterministic(built, rows, 1, Recorder)
    assert min(run.batches, run.crashes, run.replayed) > 3
    h = Harness(built, Recorder(built.model))
    h.send(*rows)
    h.run()
    assert min(h.counts.get(f, 0) for f in (Fate.APPLIED, Fate.LATE, Fate.DUPLICATE)) > 0
    assert h.memory.state.conflicts > 0
    assert sum(h.counts.values()) == 120


def test_counterexample_14_replay_starts_with_the_watermark_at_low():
    """Session t = 0, 3, 6: with the watermark of `next`, row 0 would be late in the replay."""
    h = harness(session(spec(emit=Emit.FINAL), 4))
    h.send(*clicks(0, 3, 6))
    h.run(cuts=[1, 1, 1])
    assert (h.sink.position.low_offset, h.sink.position.low_watermark_ms) == (0, NO_WATERMARK)
    h.crash()
    h.tick(50)
    h.run()
    assert (table(h), h.late) == ([("c", 0, 10, 3, 3)], [])
    # The mutant: low keeps its offset and takes the watermark of next.
    at_next = replace(h.sink.writes[2].position, low_watermark_ms=5)
    memory = restore(h.projection, h.topic_id, at_next)
    assert memory.now.watermark_ms == 5


def test_counterexample_15_low_counts_the_allowed_lateness():
    """A correction within the lateness holds all rows of its window, also after a crash; and a
    replay reports no late row twice."""
    h = harness(tumbling(spec(emit=Emit.FINAL, allowed_lateness_ms=6), 4))
    h.send(*clicks(0, 6, -40, 2))
    for batch, stored in ((1, []), (1, [("c", 0, 4, 1, 1)]), (2, [("c", 0, 4, 2, 2)])):
        while h.memory.replaying:
            h.step(1)
        h.step(batch)
        h.crash()
        assert table(h) == stored
    assert [offset for offset, _ in h.late] == [2]
    assert h.counts == {Fate.APPLIED: 3, Fate.LATE: 1}


@pytest.mark.parametrize("cut", range(1, 4))
def test_counterexample_15_late_is_judged_by_row_not_by_batch(cut):
    h = harness(tumbling(spec(), 4))
    h.send(*clicks(0, 9, 1, 2))
    h.run(cuts=[cut])
    assert [offset for offset, _ in h.late] == [2, 3]


def test_counterexample_16_a_late_row_does_not_reach_down_to_a_purged_session():
    """Row 2 is late by its own end; merged first, it would overwrite the session [0, 4]."""
    h = harness(session(spec(emit=Emit.FINAL), 4))
    h.send(*clicks(0, 7, 1, 50))
    h.run()
    assert [offset for offset, _ in h.late] == [2]
    assert ("c", 0, 4, 1, 1) in table(h)


def test_counterexample_16_a_merge_deletes_what_an_idle_flush_showed():
    """Sessions 6 and 12 were only shown early; row 9 joins them: one row stays."""
    h = harness(session(spec(emit=Emit.FINAL), 4), bound=20)
    h.send(*clicks(6, 12))
    h.run()
    h.idle()
    assert [row[1] for row in table(h)] == [6, 12]
    h.send(*clicks(9, first=2))
    h.run()
    h.idle()
    assert table(h) == [("c", 6, 16, 3, 3)]


def test_counterexample_16_skew_is_judged_by_the_log_not_by_the_day_of_the_replay():
    """The same log gives the same late set whenever it is folded: append times are in the log."""
    h = harness(tumbling(spec(), 4), skew=3)
    h.send(Clicked("a", "c", 5, 1), append_ms=5)
    h.send(Clicked("b", "c", 500, 1), append_ms=6)
    h.send(Clicked("d", "c", 6, 1), append_ms=7)
    h.run()
    assert h.counts == {Fate.APPLIED: 2, Fate.QUARANTINED: 1}
    assert (h.late, h.sink.position.watermark_ms) == ([], 5)


def test_counterexample_17_the_minimum_over_sources_makes_no_in_order_row_late():
    """Two in-order sources meet in one partition: by the greatest event time the slower one is
    late by lag alone; by the least of both (rule B9) nobody is. The bound stands for the minimum:
    a topic that mixes sources takes as its bound how far they may lag behind each other.
    """
    times = [0, 3, 6, 9, 0, 3, 6, 9]
    for bound, late in ((1, [4, 5, 6]), (10, [])):
        h = harness(tumbling(spec(), 4), bound=bound)
        h.send(*clicks(*times))
        h.run()
        assert [offset for offset, _ in h.late] == late


def test_bug_14_a_row_of_tomorrow_costs_no_other_row():
    minute, day = 60_000, 86_400_000
    h = harness(tumbling(spec(), minute), bound=0, skew=minute)
    for t in (0, 2 * minute):
        h.send(*clicks(t, first=t), append_ms=t)
    h.send(Clicked("odd", "c", day, 1), append_ms=2 * minute)
    for t in range(3, 13):
        h.send(*clicks(t * minute, first=t), append_ms=t * minute)
    h.run()
    assert h.counts == {Fate.APPLIED: 12, Fate.QUARANTINED: 1}


def test_bug_16_an_idle_partition_shows_its_windows_and_late_stays_late():
    """Silence: the last window is shown by the idle flush. Rows that wake it up are judged as if
    there had been none, and the watermark never goes back."""
    h = harness(tumbling(spec(emit=Emit.FINAL), 10))
    h.send(*clicks(3, 14))
    h.run()
    assert [row[1] for row in table(h)] == [0]
    h.idle()
    assert [row[1] for row in table(h)] == [0, 10]
    watermark = h.sink.position.watermark_ms
    h.send(*clicks(2, 12, first=2))
    h.run()
    h.idle()
    assert [offset for offset, _ in h.late] == [2]
    assert table(h)[1] == ("c", 10, 20, 2, 2)
    assert h.sink.position.watermark_ms == watermark


def test_bug_28_a_window_of_a_key_never_seen_again_is_closed_after_a_crash():
    h = harness(tumbling(spec(emit=Emit.FINAL), 10))
    h.send(*clicks(0, 4, 8, campaign="a"))
    h.run()
    h.crash()
    h.send(*clicks(12, campaign="b", first=3))
    h.run()
    assert table(h) == [("a", 0, 10, 3, 3)]
    assert sum(len(w.changes[1].rows) for w in h.sink.writes) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_bug_29_windows_expire_from_memory_also_after_a_restart(kind):
    h = harness(KINDS[kind](spec(emit=Emit.FINAL)))
    for n in range(60):
        h.send(*clicks(*range(n * 20, n * 20 + 20), first=n * 20))
        h.run()
        if n % 20 == 0:
            h.crash()
        windows = h.memory.state.windows
        held = windows.sessions if kind == "session" else windows.panes
        assert held.height < 40
        assert len(h.memory.marks.spans) <= 20
        if kind != "session":
            assert h.sink.position.next_offset - h.sink.position.low_offset <= 20


def test_nothing_open_means_nothing_to_replay():
    h = harness(tumbling(spec(), 4))
    h.send(*clicks(0))
    h.tick(100)
    h.run()
    assert h.sink.position.low_offset == h.sink.position.next_offset == 2
    assert h.sink.position.low_watermark_ms == h.sink.position.watermark_ms == 99


def test_a_replay_writes_counts_and_reports_nothing():
    h = harness(tumbling(spec(allowed_lateness_ms=50), 4))
    h.send(*clicks(0, 80, 1, 70))
    h.run(cuts=[2, 2])
    before = (h.counts, list(h.late), len(h.sink.writes), h.sink.position)
    h.crash()
    h.run()
    assert h.replayed > 0
    assert before == (h.counts, h.late, len(h.sink.writes), h.sink.position)


def test_a_batch_across_the_position_counts_only_its_new_rows():
    h = harness(tumbling(spec(), 100))
    h.send(*clicks(0, 1, 2))
    h.run()
    h.send(*clicks(3, 4, first=3))
    h.crash()
    h.step(5)
    assert h.counts == {Fate.APPLIED: 5}
    assert table(h) == [("c", 0, 100, 5, 5)]


def test_a_deposed_reader_is_refused():
    h = harness(tumbling(spec(), 4))
    zombie = Harness(h.projection, h.sink)
    for reader in (h, zombie):
        reader.send(*clicks(0, 1))
    zombie.step(1)
    h.run()
    with pytest.raises(FenceRefused):
        zombie.step(1)
    assert table(h) == [("c", 0, 4, 2, 2)]


def test_wire_bytes_frames_mappings_and_gaps_give_the_same_rows():
    values = {"click_id": "x", "campaign": "c", "at": 3, "cost": 5}
    body = BytesIO()
    fastavro.schemaless_writer(body, CLICKED.schema, values)
    frame = pl.DataFrame({k: [v] for k, v in values.items()})
    built = projection(tumbling(spec(), 4))
    h = Harness(built, Recorder(built.model), schemas={7: CLICKED}, offset_step=3)
    h.send(b"\0" + (7).to_bytes(4) + body.getvalue(), frame, values, Clicked(**values))
    h.run(cuts=[1, 2])
    assert table(h) == [("c", 0, 4, 4, 20)]
    assert h.sink.position.next_offset == 12


def test_a_fold_sees_only_the_columns_it_asked_for():
    built = replace(projection(tumbling(spec(), 4)), columns={"test.Clicked": ("campaign", "at")})
    h = Harness(built, Recorder(built.model))
    h.send(*clicks(0))
    with pytest.raises(pl.exceptions.ColumnNotFoundError, match="cost"):
        h.run()


class Forgetful:
    def start(self, stored):
        return 0

    def fold(self, state, batch):
        return state + 1, Outcome(counts={Fate.APPLIED: batch.height - 1})

    def provisional(self, state):
        return []


class Borders(Forgetful):
    def fold(self, state, batch):
        counts = {Fate.APPLIED: batch.height - 1, Fate.FILTERED: 1}
        return state, Outcome(counts=counts)


def test_a_fold_that_loses_count_or_depends_on_borders_is_caught():
    built = projection(tumbling(spec(), 4))
    h = Harness(replace(built, fold=Forgetful()), Recorder(built.model))
    h.send(*clicks(0, 1))
    with pytest.raises(RowsLost):
        h.run()
    with pytest.raises(AssertionError, match="counts"):
        assert_replay_deterministic(replace(built, fold=Borders()), clicks(*range(20)), 1, Recorder)


def test_restore_refuses_a_recreated_topic_and_advance_an_old_batch():
    h = harness(tumbling(spec(), 4))
    with pytest.raises(ValueError, match="topic id"):
        restore(h.projection, "new", Position.start("old"))
    h.send(*clicks(0, 1))
    batch, _ = h._batch(h.memory, h._log)
    step = advance(h.projection, h.memory, batch)
    assert step.write.expected is None
    with pytest.raises(ValueError, match="folded up to 2"):
        advance(h.projection, step.memory, batch)


def test_flush_is_an_empty_span_and_join_needs_neighbours():
    h = harness(tumbling(spec(emit=Emit.FINAL), 4))
    assert flush(h.projection, h.memory, "t", 0) is None
    h.send(*clicks(0, 1, 2))
    for _ in range(3):
        h.step(1)
    a, b, c = h.sink.writes
    assert join(a, b).position == b.position
    assert join(join(a, b), c).expected is None
    with pytest.raises(ValueError, match="follow"):
        join(a, c)
    early = flush(h.projection, h.memory, "t", 0)
    assert early.expected == early.position == c.position
    h.crash()
    assert flush(h.projection, h.memory, "t", 0) is None


def test_counterexample_14_the_reader_rule_is_stored_as_it_was_before_low_and_at_next():
    """With F@next at low the replay would drop every row; with none it would accept repeats."""
    h = harness(tumbling(spec(), 4), bound=0)
    h.send(*clicks(0, 5, 6))
    rules = [FilterState(seq=n) for n in range(4)]
    memory, writes = h.memory, []
    for n in range(3):
        batch, _ = h._batch(memory, h._log[n : n + 1])
        step = advance(h.projection, memory, batch, Refused(filter_after=rules[n + 1]))
        memory = step.memory
        writes.append(step.write.position)
    assert [(p.low_offset, p.filter_low, p.filter_next) for p in writes] == [
        (0, None, rules[1]),
        (1, rules[1], rules[2]),
        (1, rules[1], rules[3]),
    ]
    again = restore(h.projection, h.topic_id, writes[1])
    assert again.now.filter == rules[1]
    whole, _ = h._batch(again, h._log[1:])
    step = advance(h.projection, again, whole, Refused(filter_after=rules[3]))
    assert step.write.position == writes[2]
    assert step.memory.marks.spans[-1].start.filter == rules[2]


def test_refused_rows_are_counted_once_also_across_the_position():
    h = harness(tumbling(spec(), 100))
    h.send(*clicks(0, 1))
    h.run()
    again = restore(h.projection, h.topic_id, h.sink.position)
    h.send(*clicks(2, 3, first=2))
    whole, _ = h._batch(again, [h._log[0], h._log[2]])
    refused = Refused({Fate.STALE: [1, 3]})
    step = advance(h.projection, again, replace(whole, next_offset=4), refused)
    assert step.write.position.counts == {Fate.APPLIED: 3, Fate.STALE: 1}
