"""Which ids were seen: exactly-once by content, within a horizon of event time.

An id is remembered until the watermark passes its event time + horizon, so the memory is bounded
by the events of one horizon. What a row is told depends on the log alone: an id counts as
remembered *for a row* iff it has not expired by that row's own watermark, whenever the memory
happened to be cleaned.

Ids are kept as 128-bit hashes, content as 64-bit fingerprints. Two of n ids are mistaken for each
other with probability n² / 2¹²⁹ (n = 10⁹: 10⁻²¹); a changed repeat passes for a plain one with
probability 2⁻⁶⁴.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from streams.runtime.position import NO_WATERMARK
from streams.runtime.runs import CODE, UNTIL, Runs
from streams.runtime.watermark import milliseconds

Int64s = npt.NDArray[np.int64]
Uint64s = npt.NDArray[np.uint64]
Int8s = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]

REST = "_rest"
CONTENT = "_content"


class Verdict(IntEnum):
    """What a row is to those before it."""

    NEW = 0
    DUPLICATE = 1
    """Same id, same content as one remembered: drop and count."""
    CONFLICT = 2
    """A remembered id with content not seen under it: somebody reused an id. The caller keeps the
    row under another id; a repeat of the same conflict is a `DUPLICATE`."""


@dataclass(frozen=True)
class SeenIds:
    """The ids of one partition; immutable. `horizon_ms` is how long repeats are recognised."""

    horizon_ms: int
    watermark_ms: int = NO_WATERMARK
    ids: Runs = field(default_factory=Runs)

    def check(
        self,
        ids: pl.Series,
        fingerprints: pl.Series,
        event_ms: pl.Series,
        watermark_ms: pl.Series,
        after_ms: int,
    ) -> tuple[SeenIds, pl.Series]:
        """The memory with these rows, and a `Verdict` for each (Int8, in order).

        Rows are in offset order; `ids` may be of any hashable type, `fingerprints` are integers
        (`Series.hash` of the content, say). `watermark_ms` is each row's own watermark and
        `after_ms` the one after the batch. A row with event time + horizon at or below its own
        watermark is late and must have been judged so before: `ValueError`.
        The rows matter (`Outcome.open_until_ms`) until their last event time + horizon.
        """
        times = milliseconds(event_ms).to_numpy()
        rows = _Rows(
            code=ids.hash(seed=1).to_numpy(),
            rest=ids.hash(seed=2).to_numpy(),
            content=fingerprints.hash(seed=3).to_numpy(),
            until=times + self.horizon_ms,
            watermark=watermark_ms.to_numpy(),
        )
        if (rows.until <= rows.watermark).any():
            raise ValueError("rows beyond the horizon: judge them late before looking for repeats")
        first, uniform = _groups(rows)
        known = self._known(rows.code[first])
        old_until, old_content = _matched(known, rows, first)
        visible = old_until > rows.watermark[first]
        # Easy: all rows of the id say the same, and what they meet stays visible for all of them.
        easy = uniform & ~(
            visible & ((old_content != rows.content[first]) | (old_until < rows.until[first]))
        )
        verdicts = np.full(len(ids), Verdict.DUPLICATE, dtype=np.int8)
        fresh = first[easy & ~visible]
        verdicts[fresh] = Verdict.NEW
        entries = rows.entries(fresh)
        if not easy.all():
            hard = np.flatnonzero(np.isin(rows.code, rows.code[first[~easy]]))
            entries = pl.concat([entries, self._one_by_one(rows, hard, known, verdicts)])
        memory = replace(self, watermark_ms=after_ms, ids=self._remember(entries, known))
        return memory, pl.Series("verdict", verdicts)

    def _known(self, codes: Uint64s) -> pl.DataFrame | None:
        """The entries of these codes that may still be visible to a row."""
        found = self.ids.take(np.unique(codes))
        return None if found is None else found.filter(pl.col(UNTIL) > self.watermark_ms)

    def _remember(self, entries: pl.DataFrame, known: pl.DataFrame | None) -> Runs:
        if known is not None and known.height:
            # Another id may share the 64-bit code: it goes back with the new one.
            others = known.join(entries, on=CODE, how="semi")
            others = others.join(entries, on=[CODE, REST], how="anti")
            entries = pl.concat([entries, others.select(entries.columns)])
        return self.ids.put(entries, self.watermark_ms)

    def _one_by_one(
        self, rows: _Rows, hard: Int64s, known: pl.DataFrame | None, verdicts: Int8s
    ) -> pl.DataFrame:
        """Judge the few rows whose id comes with several contents or times, in offset order.

        Writes `verdicts` and returns the new entries. A conflict is remembered as an entry of its
        own, under id and content together.
        """
        pairs = rows.pairs()
        paired = self._known(pairs.code[hard])
        seen: dict[tuple[int, int], tuple[int, int]] = {}
        for frame in (known, paired):
            if frame is not None:
                columns = (frame[name].to_list() for name in (CODE, REST, UNTIL, CONTENT))
                seen |= {(c, r): (u, x) for c, r, u, x in zip(*columns, strict=True)}
        new: dict[tuple[int, int], tuple[int, int]] = {}
        for n in hard.tolist():
            key = (int(rows.code[n]), int(rows.rest[n]))
            pair = (int(pairs.code[n]), int(pairs.rest[n]))
            watermark, content = int(rows.watermark[n]), int(rows.content[n])
            until, old_content = seen.get(key, (watermark, 0))
            if until <= watermark:
                verdicts[n] = Verdict.NEW
            elif old_content == content or seen.get(pair, (watermark, 0))[0] > watermark:
                verdicts[n] = Verdict.DUPLICATE
                continue
            else:
                verdicts[n] = Verdict.CONFLICT
                key = pair
            seen[key] = new[key] = (int(rows.until[n]), content)
        return _entries(
            [code for code, _ in new],
            [rest for _, rest in new],
            [until for until, _ in new.values()],
            [content for _, content in new.values()],
        )


@dataclass(frozen=True)
class _Rows:
    """Rows of a batch as arrays: the two halves of the id's hash, the content's, and times."""

    code: Uint64s
    rest: Uint64s
    content: Uint64s
    until: Int64s
    watermark: Int64s

    def pairs(self) -> _Rows:
        """The same rows, known by id and content together."""
        return replace(
            self,
            code=self.code ^ self.content * np.uint64(0x9E3779B97F4A7C15),
            rest=self.rest ^ self.content * np.uint64(0xC2B2AE3D27D4EB4F),
        )

    def entries(self, at: Int64s) -> pl.DataFrame:
        return _entries(self.code[at], self.rest[at], self.until[at], self.content[at])


def _entries(code: Any, rest: Any, until: Any, content: Any) -> pl.DataFrame:
    return pl.DataFrame(
        {CODE: code, REST: rest, UNTIL: until, CONTENT: content},
        schema={CODE: pl.UInt64, REST: pl.UInt64, UNTIL: pl.Int64, CONTENT: pl.UInt64},
    )


def _groups(rows: _Rows) -> tuple[Int64s, Bools]:
    """The first row of every code, and whether all rows of that code say the same."""
    order = np.argsort(rows.code, kind="stable")
    code = rows.code[order]
    starts = np.flatnonzero(np.concatenate([[True], code[1:] != code[:-1]])[: code.size])
    first = order[starts]
    if first.size == order.size:
        return first, np.ones(first.size, dtype=np.bool_)
    leader = np.repeat(first, np.diff(starts, append=order.size))
    differs = (
        (rows.rest[order] != rows.rest[leader])
        | (rows.content[order] != rows.content[leader])
        | (rows.until[order] != rows.until[leader])
    )
    return first, ~np.logical_or.reduceat(differs, starts)


def _matched(known: pl.DataFrame | None, rows: _Rows, first: Int64s) -> tuple[Int64s, Uint64s]:
    """Expiry (`NO_WATERMARK`: none) and content of the entry known for each of these rows."""
    until = np.full(first.size, NO_WATERMARK, dtype=np.int64)
    content = np.zeros(first.size, dtype=np.uint64)
    if known is None or not known.height:
        return until, content
    asked = pl.DataFrame({CODE: rows.code[first], REST: rows.rest[first]}).with_row_index("_n")
    hits = known.join(asked, on=[CODE, REST], how="inner")
    at = hits["_n"].to_numpy()
    until[at] = hits[UNTIL].to_numpy()
    content[at] = hits[CONTENT].to_numpy()
    return until, content
