"""The reader rule of derived topics (B2), and their event time (B9).

Of each source partition a record counts iff it is newer than the last one that counted and nothing
is missing before it: the record that its run sent before it must not be newer than that last one.
So what a restarted run sends again is dropped, and what comes behind a lost record waits until a
new run has sent both. The state of the rule is a `FilterState`, and part of every position.
Where retention has taken the log's head, the first record of a source has nothing to follow: it
counts (`FilterState.headless`).

The watermark of a derived partition is the least of its sources' watermarks, and there is none
until all sources have been heard of: one source that is ahead makes no rows of another late.

`judge` is the rule for one record, `accept` is the same for the columns of a batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from streams.runtime.derivation.wire import HEARTBEAT, NONE, Headers, Source
from streams.runtime.position import NO_WATERMARK, FilterState, SourceState

Bools = npt.NDArray[np.bool_]
Words = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint8]

_PLACE = ("offset", "index", "prev_offset", "prev_index")
_FIELDS = ("partition", "partitions", *_PLACE, "watermark_ms")
_LAST = ("offset", "index", "partitions")
_UNHEARD = 2**62
"""Stands for the watermark of a source that has not been heard of: it bounds nothing."""


class Verdict(IntEnum):
    """What the rule says of a record; the names of refusals are the `reason` labels."""

    ACCEPTED = 0
    HEARTBEAT = 1
    """Nothing for a fold, whether it counted or not."""
    REPEAT = 2
    """Not newer than the last one of its source."""
    HOLE = 3
    """Something of its source is missing before it."""
    FOREIGN = 4
    """No source header."""


def judge(state: FilterState, source: Source | None) -> tuple[FilterState, Verdict]:
    """The state after one record, and what became of it."""
    if source is None or source.partition < 0:
        return state, Verdict.FOREIGN
    name = f"{source.id}/{source.partition}"
    last = state.sources.get(name)
    at, watermark_ms = NONE, NO_WATERMARK
    if last is None and state.headless:
        at = (source.prev_offset, source.prev_index)
    if last is not None:
        at, watermark_ms = (last.offset, last.index), last.watermark_ms
    beat = source.index == HEARTBEAT
    if (source.offset, source.index) <= at:
        return state, Verdict.HEARTBEAT if beat else Verdict.REPEAT
    if (source.prev_offset, source.prev_index) > at:
        return state, Verdict.HEARTBEAT if beat else Verdict.HOLE
    now = SourceState(
        source.offset,
        source.index,
        max(watermark_ms, source.watermark_ms),
        source.partitions,
    )
    taken = replace(state, sources={**state.sources, name: now})
    return taken, Verdict.HEARTBEAT if beat else Verdict.ACCEPTED


def least(sources: Mapping[str, SourceState], topics: int) -> int:
    """The least watermark of the sources; `NO_WATERMARK` until every partition of at least so many
    source topics has been heard of.
    """
    if not _complete({name: state.partitions for name, state in sources.items()}, topics):
        return NO_WATERMARK
    return min(state.watermark_ms for state in sources.values())


def _complete(partitions: Mapping[str, int], topics: int) -> bool:
    """Whether all sources are there, by what each says of its topic's partitions."""
    heard = Counter(name.split("/")[0] for name in partitions)
    wanted = {
        source: max(n for name, n in partitions.items() if name.startswith(source))
        for source in heard
    }
    return len(heard) >= topics and all(heard[one] >= wanted[one] for one in heard)


@dataclass(frozen=True)
class Accepted:
    """What came of a batch: verdicts (as `Verdict` codes), the watermark before each record, and
    state and watermark after the last.
    """

    codes: Codes
    watermarks: Words
    state: FilterState
    watermark_ms: int

    @property
    def mask(self) -> Bools:
        """The records that reach a fold."""
        taken: Bools = self.codes == Verdict.ACCEPTED
        return taken

    def rows(self, verdict: Verdict) -> Words:
        """The indexes of the records with that verdict."""
        return np.flatnonzero(self.codes == verdict)


def accept(
    state: FilterState, headers: Headers, *, topics: int, before_ms: int, bound_ms: int
) -> Accepted:
    """The rule for a batch in offset order. `topics` is how many topics this one is derived from,
    `before_ms` its watermark before the batch, `bound_ms` what is taken off the least one.
    """
    codes = np.full(len(headers), Verdict.FOREIGN, np.uint8)
    clock = _Clock(state.sources, len(headers))
    sources = dict(state.sources)
    ids = headers["id"].astype(np.uint64)
    fields = {name: headers[name].astype(np.int64) for name in _FIELDS}
    for rows in _by_source(ids, fields["partition"]):
        mine = {name: column[rows] for name, column in fields.items()}
        name = f"{int(ids[rows[0]]):016x}/{mine['partition'][0]}"
        last = sources.get(name) or _unheard(mine, state)
        codes[rows] = verdicts = _verdicts(mine, (last.offset, last.index))
        taken = np.flatnonzero(verdicts == Verdict.ACCEPTED)
        if taken.size:
            now_ms = clock.tell(
                name, rows[taken], mine["watermark_ms"][taken], mine["partitions"][taken]
            )
            offset, index, partitions = (int(mine[f][taken[-1]]) for f in _LAST)
            sources[name] = SourceState(offset, index, now_ms, partitions)
    codes[(fields["index"] == HEARTBEAT) & (fields["partition"] >= 0)] = Verdict.HEARTBEAT
    running = clock.run(topics, before_ms, bound_ms)
    return Accepted(codes, running[:-1], replace(state, sources=sources), int(running[-1]))


def _unheard(mine: Mapping[str, Words], state: FilterState) -> SourceState:
    """What stands for the last record of a source of which none has counted."""
    place = NONE
    if state.headless:
        place = (int(mine["prev_offset"][0]), int(mine["prev_index"][0]))
    return SourceState(*place, NO_WATERMARK, 0)


def _by_source(ids: npt.NDArray[np.uint64], partitions: Words) -> Iterator[Words]:
    """The indexes of each source's records; those without a source are left out."""
    if not ids.size:
        return
    codes = partitions
    if (ids != ids[0]).any():
        _, which = np.unique(ids, return_inverse=True)
        codes = np.where(partitions < 0, -1, which * (partitions.max() + 1) + partitions)
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    for rows in np.split(order, np.flatnonzero(np.diff(ordered)) + 1):
        if partitions[rows[0]] >= 0:
            yield rows


def _verdicts(mine: Mapping[str, Words], last: tuple[int, int]) -> Codes:
    """Verdicts on the records of one source, heartbeats taken like others."""
    offset, index, prev_offset, prev_index = (mine[name] for name in _PLACE)
    before_offset = np.concatenate([[last[0]], offset[:-1]])
    before_index = np.concatenate([[last[1]], index[:-1]])
    fresh = _after(offset, index, before_offset, before_index)
    hole = _after(prev_offset, prev_index, before_offset, before_index)
    codes = np.zeros(offset.size, np.uint8)
    odd = np.flatnonzero(~fresh | hole)
    if not odd.size:
        return codes
    # Up to the first odd one each record follows the one before it; from there, one by one.
    begin = int(odd[0])
    last = (int(before_offset[begin]), int(before_index[begin]))
    rest = (column[begin:].tolist() for column in (offset, index, prev_offset, prev_index))
    for row, (at, place, prev_at, prev_place) in enumerate(zip(*rest, strict=True), begin):
        if (at, place) <= last:
            codes[row] = Verdict.REPEAT
        elif (prev_at, prev_place) > last:
            codes[row] = Verdict.HOLE
        else:
            last = (at, place)
    return codes


def _after(offset: Words, index: Words, than_offset: Words, than_index: Words) -> Bools:
    after: Bools = (offset > than_offset) | ((offset == than_offset) & (index > than_index))
    return after


class _Clock:
    """The watermarks of all sources over a batch."""

    def __init__(self, sources: Mapping[str, SourceState], records: int) -> None:
        self._sources = sources
        self._records = records
        self._lines: dict[str, Words] = {}
        self._news: list[tuple[int, str, int]] = []
        """Records that a source is first heard of with, or that change its partitions."""

    def tell(self, name: str, rows: Words, watermarks: Words, partitions: Words) -> int:
        """The records of one source that count; returns its watermark after them."""
        known = self._sources.get(name)
        line = np.full(self._records + 1, NO_WATERMARK, np.int64)
        line[rows + 1] = watermarks
        if known is not None:
            line[0] = known.watermark_ms
        np.maximum.accumulate(line, out=line)
        if known is None:
            line[: rows[0] + 1] = _UNHEARD
        self._lines[name] = line
        news = np.diff(partitions, prepend=known.partitions if known else -1) != 0
        self._news += [(int(rows[n]), name, int(partitions[n])) for n in np.flatnonzero(news)]
        return int(line[-1])

    def run(self, topics: int, before_ms: int, bound_ms: int) -> Words:
        """The watermark of the topic before each record, and after the last."""
        still = [one.watermark_ms for at, one in self._sources.items() if at not in self._lines]
        running = np.full(self._records + 1, min(still, default=_UNHEARD), np.int64)
        for line in self._lines.values():
            np.minimum(running, line, out=running)
        running -= bound_ms
        known = {name: one.partitions for name, one in self._sources.items()}
        complete, begin = _complete(known, topics), 0
        for row, name, partitions in [*sorted(self._news), (self._records, "", 0)]:
            if not complete:
                running[begin : row + 1] = NO_WATERMARK
            known[name], begin = partitions, row + 1
            complete = bool(name) and _complete(known, topics)
        running[0] = max(before_ms, int(running[0]))
        return np.maximum.accumulate(running, out=running)
