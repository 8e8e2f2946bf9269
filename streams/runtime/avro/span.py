"""Values of one schema id: as one block if they are all good, halved down to the bad ones if not.

A block that does not read is halved until it reads or is small; small ones go row by row, which
also finds the reason. `k` bad values of `n` cost O(k log n) reads; when more than a tenth is bad,
the rest of the span goes row by row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.exceptions import PanicException

from streams.runtime.avro.container import Suspects, Unreadable
from streams.runtime.avro.convert import bad_rows, cast, default_column
from streams.runtime.avro.flat import layout
from streams.runtime.avro.plan import Plan, raw_name
from streams.runtime.avro.rows import RowReader
from streams.runtime.native.columns import Values

ROW = "_row"
_SMALL = 8
_BAD_SHARE = 10

Rows = npt.NDArray[np.int64]


@dataclass
class Result:
    """What is decided so far: `parts` of frames by record, with the rows they are; the dead."""

    parts: defaultdict[str, list[tuple[Rows, pl.DataFrame]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    dead: dict[int, str] = field(default_factory=dict)

    def add(self, record: str, rows: Rows, frame: pl.DataFrame) -> None:
        """Rows that decoded."""
        if len(rows):
            self.parts[record].append((rows, frame))

    def frames(self) -> dict[str, pl.DataFrame]:
        """One frame per record, `_row` first, in row order."""
        return {record: _joined(parts) for record, parts in self.parts.items()}


def _joined(parts: list[tuple[Rows, pl.DataFrame]]) -> pl.DataFrame:
    framed = [frame.insert_column(0, pl.Series(ROW, rows)) for rows, frame in parts]
    if len(framed) == 1:
        return framed[0]
    return pl.concat(framed).sort(ROW)


def _layout(plan: Plan) -> Any:
    if plan.container is None:
        return None
    return layout(plan.writer.type, {c.position for c in plan.columns if c.position is not None})


class SpanReader:
    """Reads values of one writer schema as one reader record."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._rows = RowReader(plan)
        self._layout = _layout(plan)

    def plain(self, values: Values) -> pl.DataFrame | None:
        """All rows as columns, by the column reader; None where it does not read the schema or
        anything at all is unusual, and nothing is known then.
        """
        if self._layout is None:
            return None
        raw = values.frame(self.plan.header, self._layout)
        if raw is None:
            return None
        try:
            frame, bad = self._converted(raw, None)
        except (Exception, PanicException):
            return None
        return frame if bad is None else None

    def columns(self, values: Sequence[bytes]) -> tuple[pl.DataFrame, Rows | None]:
        """The good rows as columns, and the indexes of the others (None: all are good).

        `Unreadable` where the values do not frame; then nothing is known about any of them.
        """
        if self.plan.container is None:
            raise Unreadable("not columnar")
        raw, bad = self.plan.container.read(values, self.plan.header)
        try:
            return self._converted(raw, bad)
        except (Exception, PanicException) as error:
            raise Unreadable(type(error).__name__) from error

    def _converted(self, raw: pl.DataFrame, bad: Suspects) -> tuple[pl.DataFrame, Rows | None]:
        for c in self.plan.columns:
            mask = None if c.position is None else bad_rows(raw[raw_name(c)], c)
            if mask is not None:
                bad = mask if bad is None else bad | mask
        if bad is not None:
            raw = raw.filter(~bad)
        columns = [
            default_column(c, raw.height) if c.position is None else cast(raw[raw_name(c)], c)
            for c in self.plan.columns
        ]
        return pl.DataFrame(columns), None if bad is None else np.flatnonzero(bad.to_numpy())

    def read(self, values: Sequence[bytes], rows: Sequence[int], result: Result) -> None:
        """Decide every value; `rows` are their indexes in the batch."""
        index = np.asarray(rows, np.int64)
        pending = [(0, len(values))]
        most = max(_SMALL, len(values) // _BAD_SHARE)
        before = len(result.dead)
        while pending:
            start, stop = pending.pop()
            span = values[start:stop]
            if (
                stop - start <= _SMALL
                or len(result.dead) - before > most
                or self.plan.container is None
            ):
                self._row_by_row(span, index[start:stop], result)
                continue
            try:
                frame, bad = self.columns(span)
            except Unreadable:
                middle = (start + stop) // 2
                pending += [(middle, stop), (start, middle)]
                continue
            good = index[start:stop] if bad is None else np.delete(index[start:stop], bad)
            result.add(self.plan.record.fullname, good, frame)
            if bad is not None:
                self._row_by_row([span[i] for i in bad], index[start:stop][bad], result)

    def _row_by_row(self, values: Sequence[bytes], index: Rows, result: Result) -> None:
        frame, kept, dead = self._rows.read(values)
        result.add(self.plan.record.fullname, index[kept], frame)
        result.dead.update({int(index[i]): reason for i, reason in dead.items()})
