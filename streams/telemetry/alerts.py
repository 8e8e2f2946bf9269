"""Alerts as they stand: each fingerprint's newest change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from sinks import telemetry as store
from streams.runtime.batch import OFFSET, Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.sink import Changes, Upsert
from streams.runtime.watermark import milliseconds


@dataclass(frozen=True)
class Standing:
    """Fingerprint → time of its newest change, and what that was."""

    newest: Mapping[str, tuple[int, str]]


class KeepAlerts:
    """Changes in the order of event time. One that says nothing new (another evaluator found the
    same, or an evaluator found it again after a crash) is a duplicate.
    """

    def start(self, stored: Mapping[str, pl.DataFrame]) -> Standing:
        rows = stored.get(store.ALERTS.name)
        if rows is None:
            return Standing({})
        columns = (rows[c].to_list() for c in ("fingerprint", "changed_ms", "state"))
        return Standing({f: (at, state) for f, at, state in zip(*columns, strict=True)})

    def fold(self, state: Standing, batch: Batch) -> tuple[Standing, Outcome]:
        rows = batch.frame
        newest = dict(state.newest)
        times = milliseconds(rows["event_time"]).to_list()
        fresh: list[int] = []
        offsets, marks, states = (rows[name].to_list() for name in (OFFSET, "fingerprint", "state"))
        for offset, mark, at, said in zip(offsets, marks, times, states, strict=True):
            known = newest.get(mark)
            if known is None or at > known[0]:
                newest[mark] = (at, said)
                fresh.append(offset)
        applied = rows.filter(pl.col(OFFSET).is_in(fresh)).with_columns(
            milliseconds(rows.filter(pl.col(OFFSET).is_in(fresh))["event_time"]).alias(
                "changed_ms"
            ),
            milliseconds(rows.filter(pl.col(OFFSET).is_in(fresh))["started_at"]).alias(
                "started_ms"
            ),
        )
        latest = applied.unique("fingerprint", keep="last", maintain_order=True)
        counts = {
            Fate.APPLIED.value: len(fresh), Fate.DUPLICATE.value: rows.height - len(fresh)
        }  # fmt: skip
        changes = [Upsert(store.ALERTS, latest.select(*store.ALERTS.columns))] if fresh else []
        return Standing(newest), Outcome(changes=changes, counts=counts)

    def provisional(self, state: Standing) -> list[Changes]:
        return []
