"""Metric series: their identity, and how many of them may be.

A label with an id in it makes a series of every value; a metric that does so would fill every
index there is. So the series of one metric are bounded, and a new one past the bound is refused,
while those that are known go on. What is known is what this process declared, and what the read
model had when it was last looked at: `learn`. With several processes the bound can thus be passed
by what they declare between two looks, and no more.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from connectors.telemetry.line import canonical

SERIES_MAX = 10_000
"""Series of one metric."""
DECLARE_EVERY_MS = 3_600_000
KINDS = ("COUNTER", "GAUGE", "HISTOGRAM", "SUMMARY")


@dataclass(frozen=True, slots=True)
class Series:
    """A metric with labels; `labels` are without the name."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()
    kind: str = "UNKNOWN"
    unit: str = ""

    @property
    def text(self) -> str:
        """The labels as the event has them."""
        return canonical(dict(self.labels))

    @property
    def series_id(self) -> str:
        """Hash of name and labels; kind and unit are no part of it."""
        content = f"{self.name}\0{self.text}".encode()
        return hashlib.blake2b(content, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a series; None where the series ended."""

    series: Series
    time_ms: int
    value: float | None


@dataclass(frozen=True)
class Admitted:
    """What goes to the log, in order: `(record name, row)`; and what was refused, by metric."""

    rows: list[tuple[str, dict[str, Any]]]
    samples: int
    refused: Counter[str]


@dataclass(slots=True)
class _Known:
    declared_ms: int
    """Time of the sample it was declared for."""
    used_s: float
    """When it last had a sample here, by this process's clock."""


class Admission:
    """Who may come in; one per process. Not thread-safe."""

    def __init__(self, series_max: int = SERIES_MAX) -> None:
        self._series_max = series_max
        self._known: dict[str, dict[str, _Known]] = defaultdict(dict)

    def learn(self, known: Mapping[str, Mapping[str, int]], now_s: float) -> None:
        """Metric → series → time of its last declaration, from the read model."""
        for name, declared in known.items():
            here = self._known[name]
            for series_id, time_ms in declared.items():
                here.setdefault(series_id, _Known(time_ms, now_s))

    def forget(self, before_s: float) -> None:
        """Give back the places of series that have had no sample here since."""
        for name in list(self._known):
            left = {s: k for s, k in self._known[name].items() if k.used_s >= before_s}
            if left:
                self._known[name] = left
            else:
                del self._known[name]

    def withdraw(self, admitted: Admitted) -> None:
        """These rows may not have reached the log: what they declared is declared again."""
        for record, row in admitted.rows:
            if record == "SeriesDeclared":
                self._known[row["name"]].pop(row["series_id"], None)

    def admit(self, samples: Iterable[Sample], now_s: float) -> Admitted:
        """Samples of known series, and of new ones while there is room; a series is declared
        before its first sample and again every hour of its own time.
        """
        rows: list[tuple[str, dict[str, Any]]] = []
        refused: Counter[str] = Counter()
        count = 0
        for sample in samples:
            series, series_id = sample.series, sample.series.series_id
            known = self._known[series.name]
            seen = known.get(series_id)
            if seen is None and len(known) >= self._series_max:
                refused[series.name] += 1
                continue
            if seen is None or sample.time_ms - seen.declared_ms >= DECLARE_EVERY_MS:
                seen = known[series_id] = _Known(sample.time_ms, now_s)
                rows.append(("SeriesDeclared", _declaration(series, series_id, sample.time_ms)))
            seen.used_s = now_s
            row = {"series_id": series_id, "event_time": sample.time_ms, "value": sample.value}
            rows.append(("Sampled", row))
            count += 1
        return Admitted(rows, count, refused)


def _declaration(series: Series, series_id: str, time_ms: int) -> dict[str, Any]:
    return {
        "series_id": series_id,
        "name": series.name,
        "labels": series.text,
        "kind": series.kind,
        "unit": series.unit,
        "event_time": time_ms,
    }
