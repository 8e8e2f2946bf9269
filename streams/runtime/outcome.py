"""What a fold answers: the changes to store, and the fate of every row.

No row is without a fate: `rows in = counts + late + dead`, checked on every batch with a raise
(not an assert, so that it survives `python -O`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import polars as pl

from streams.runtime.sink import Changes


class Fate(StrEnum):
    """Why a row is where it is; also the `fate` label of the row counter."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    LATE = "late"
    QUARANTINED = "quarantined"
    FILTERED = "filtered"
    """Dropped on purpose by a rule of the system (a bot, a banned player)."""
    STALE = "stale"
    """Refused by the reader rule: written by a deposed decider, or a repeated source."""
    CONTROL = "control"
    """Written by the runtime for the runtime: a claim, a heartbeat."""


class RowsLost(RuntimeError):
    """A fold did not account for every row; the batch is not stored."""


@dataclass(frozen=True)
class Outcome:
    """The answer of one fold.

    `counts` are rows by fate (late and quarantined rows included); their sum must equal the
    rows of the batch. `late` are rows for the late side output, in full, with `_offset`.
    `dead` are offsets to quarantine with a reason. `expire_before_ms` names, per table, the
    event time before which stored buckets may be deleted.
    """

    changes: Sequence[Changes] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    dead: Mapping[int, str] = field(default_factory=dict)
    expire_before_ms: Mapping[str, int] = field(default_factory=dict)
    open_until_ms: int | None = None
    """The batch's rows still matter until the watermark passes this event time; None: they
    are already fully in the store."""
    open_from_offset: int | None = None
    """The lowest offset, of this batch or earlier, whose row is still in open state, where a later
    row can prolong that (a session): then no event time known now bounds it."""

    def check(self, rows_in: int) -> None:
        """Raise `RowsLost` unless every row has a fate."""
        rows_out = sum(self.counts.values())
        if rows_in != rows_out:
            raise RowsLost(f"{rows_in} rows in, {rows_out} accounted for: {dict(self.counts)}")
