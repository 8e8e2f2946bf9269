"""Ad traffic for tests: events, logs of them, and a recount in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from schemas.ads.events import EVENTS, AdClicked, AdImpressed
from sinks.drivers.memory import MemorySink, MemoryStore
from streams.ads import CLICKS_MAX, SYSTEM
from streams.runtime.kafka import partition_of
from streams.runtime.projection import Projection
from streams.runtime.sink import ReadModel
from streams.runtime.testing import Harness

Event = AdClicked | AdImpressed

T = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""
MINUTE, HOUR = 60_000, 3_600_000
BOUND = EVENTS.out_of_orderness_ms
CLOSED = MINUTE + HOUR + BOUND
"""An event this much later than a minute's start closes it."""
GOOGLEBOT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"

WINDOWS, HISTORY = SYSTEM.projections


def click(name: str = "k", at: int = 0, **fields: Any) -> AdClicked:
    """A click `at` milliseconds after `T`."""
    made = {"impression_id": None, "user_id": "u", "campaign_id": "c", "ad_id": "a"}
    return AdClicked(click_id=name, event_time=T + at, **{**made, "cost_micros": 5, **fields})


def shown(name: str = "i", at: int = 0, **fields: Any) -> AdImpressed:
    """An impression `at` milliseconds after `T`."""
    made = {"user_id": "u", "campaign_id": "c", "ad_id": "a"}
    return AdImpressed(impression_id=name, event_time=T + at, **{**made, **fields})


def memory(model: ReadModel) -> MemorySink:
    """An empty store."""
    return MemorySink(model, MemoryStore())


def run(projection: Projection, *events: Event, cuts: Iterable[int] = ()) -> Harness:
    """The projection over a log of one partition."""
    harness = Harness(projection, memory(projection.model))
    harness.send(*events)
    harness.run(cuts)
    return harness


def run_partitions(projection: Projection, events: Sequence[Event]) -> list[Harness]:
    """The projection over the topic's partitions, keyed as producers key, in one store."""
    sink = memory(projection.model)
    harnesses = [Harness(projection, sink, partition=p) for p in range(EVENTS.partitions)]
    for event in events:
        harnesses[partition_of(event.user_id, EVENTS.partitions)].send(event)
    for harness in harnesses:
        harness.run()
    return harnesses


def totals(harnesses: Iterable[Harness], table: str, *by: str) -> dict[Any, tuple[int, int, int]]:
    """Impressions, clicks and cost of a table by these columns, over all partitions."""
    found: dict[Any, tuple[int, int, int]] = {}
    for harness in harnesses:
        columns = [*by, "impressions", "clicks", "cost_micros"]
        for *key, impressions, clicks, cost in harness.rows(table).select(columns).iter_rows():
            i, c, m = found.get(tuple(key), (0, 0, 0))
            found[tuple(key)] = (i + impressions, c + clicks, m + cost)
    return found


@dataclass
class Recount:
    """What one partition's log comes to, one event at a time, with dictionaries."""

    fates: list[str] = field(default_factory=list)
    minutes: dict[tuple[str, str, int], tuple[int, int, int]] = field(default_factory=dict)
    _watermark: int = -(2**62)
    _said: dict[tuple[type, str], list[tuple[int, Any]]] = field(default_factory=dict)
    _clicks: Counter[tuple[str, str, int]] = field(default_factory=Counter)

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(self.fates))

    def add(self, event: Event) -> None:
        fate = self._fate(event)
        self.fates.append(fate)
        self._watermark = max(self._watermark, event.event_time - BOUND)
        if fate == "applied":
            key = (event.campaign_id, event.ad_id, event.event_time // MINUTE * MINUTE)
            shows, clicks, cost = self.minutes.get(key, (0, 0, 0))
            is_click = isinstance(event, AdClicked)
            paid = event.cost_micros if isinstance(event, AdClicked) else 0
            self.minutes[key] = (shows + (not is_click), clicks + is_click, cost + paid)

    def _fate(self, event: Event) -> str:
        minute = event.event_time // MINUTE * MINUTE
        if isinstance(event, AdClicked):
            if event.cost_micros < 0:
                return "quarantined"
            if "Googlebot" in (event.user_agent or ""):
                return "filtered"
        if minute + MINUTE + HOUR <= self._watermark:
            return "late"
        said = self._said.setdefault((type(event), astuple(event)[0]), [])
        if (event.event_time, event) in said:
            return "duplicate"
        said.append((event.event_time, event))
        if isinstance(event, AdClicked):
            self._clicks[event.user_id, event.ad_id, minute] += 1
            if self._clicks[event.user_id, event.ad_id, minute] > CLICKS_MAX:
                return "filtered"
        return "applied"


def recount(events: Iterable[Event]) -> Recount:
    """The recount of one partition's log."""
    made = Recount()
    for event in events:
        made.add(event)
    return made
