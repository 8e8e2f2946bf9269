"""Scores for tests: events, logs of them, and the boards they come to in plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from schemas.leaderboard.events import SCORES, PlayerBanned, PlayerReinstated, ScoreSubmitted
from sinks.drivers.memory import MemorySink, MemoryStore
from streams.leaderboard import LATENESS_MS, POINTS_MAX, SYSTEM
from streams.runtime.kafka import partition_of
from streams.runtime.sink import ReadModel, Sink
from streams.runtime.testing import Harness

Event = ScoreSubmitted | PlayerBanned | PlayerReinstated

T = 1_767_571_200_000
"""2026-01-05T00:00:00Z, a Monday."""
HOUR, DAY = 3_600_000, 86_400_000
BOUND = SCORES.out_of_orderness_ms

(PROJECTION,) = SYSTEM.projections


def score(
    name: str, points: int = 1, at: int = 0, player: str = "p", **fields: Any
) -> ScoreSubmitted:
    """A score `at` milliseconds after `T`."""
    made = {"board": "b", "operator": "SUM", **fields}
    return ScoreSubmitted(score_id=name, player_id=player, points=points, event_time=T + at, **made)


def ban(player: str = "p", name: str = "ban", at: int = 0) -> PlayerBanned:
    """A ban."""
    return PlayerBanned(ban_id=name, player_id=player, reason="speed hack", event_time=T + at)


def back(player: str = "p", name: str = "back", at: int = 0) -> PlayerReinstated:
    """A reinstatement."""
    return PlayerReinstated(reinstatement_id=name, player_id=player, event_time=T + at)


def memory(model: ReadModel) -> MemorySink:
    """An empty store."""
    return MemorySink(model, MemoryStore())


def run(*events: Event, cuts: Iterable[int] = ()) -> Harness:
    """The projection over a log of one partition."""
    harness = Harness(PROJECTION, memory(PROJECTION.model))
    harness.send(*events)
    harness.run(cuts)
    return harness


def run_partitions(events: Sequence[Event], sink: Sink, cut: int = 10**9) -> list[Harness]:
    """The projection over the topic's partitions, keyed as producers key, in one store."""
    harnesses = [Harness(PROJECTION, sink, partition=p) for p in range(SCORES.partitions)]
    for event in events:
        harnesses[partition_of(event.player_id, SCORES.partitions)].send(event)
    for harness in harnesses:
        harness.run([cut] * (harness.next_offset // cut + 1))
    return harnesses


Key = tuple[str, str, str, int]
"""Board, operator, period ("all", "day", "week") and the period's start."""
Place = tuple[str, int, int]
"""Player, score, reached_ms."""


def ordered(places: Iterable[Place]) -> list[Place]:
    """Highest score first; of equal scores the one reached first, then by name."""
    return sorted(places, key=lambda p: (-p[1], p[2], p[0]))


def boards(harnesses: Iterable[Harness]) -> dict[Key, list[Place]]:
    """All boards that are stored, in the order of their ranks."""
    found: dict[Key, list[Place]] = {}
    for harness in harnesses:
        for board, operator, *place in harness.rows("all").iter_rows():
            found.setdefault((board, operator, "all", 0), []).append(tuple(place))
        for board, operator, period, start, *place in harness.rows("periods").iter_rows():
            found.setdefault((board, operator, period, start), []).append(tuple(place))
    return {key: ordered(places) for key, places in found.items()}


@dataclass
class Naive:
    """What one partition's log comes to, one event at a time: the scores are kept in a list and
    sorted when somebody looks.
    """

    fates: list[str] = field(default_factory=list)
    kept: list[ScoreSubmitted] = field(default_factory=list)
    _watermark: int = -(2**62)
    _banned: set[str] = field(default_factory=set)
    _told: set[tuple[type, str, str]] = field(default_factory=set)
    _said: dict[str, list[ScoreSubmitted]] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        self.fates.append(self._fate(event))
        self._watermark = max(self._watermark, event.event_time - BOUND)

    def _fate(self, event: Event) -> str:
        if not isinstance(event, ScoreSubmitted):
            banned = isinstance(event, PlayerBanned)
            id_ = event.ban_id if isinstance(event, PlayerBanned) else event.reinstatement_id
            if (type(event), event.player_id, id_) in self._told:
                return "duplicate"
            self._told.add((type(event), event.player_id, id_))
            self._banned -= {event.player_id}
            if banned:
                self._banned |= {event.player_id}
                self.kept = [s for s in self.kept if s.player_id != event.player_id]
            return "applied"
        if event.event_time + LATENESS_MS <= self._watermark:
            return "late"
        said = self._said.setdefault(event.score_id, [])
        if event in said:
            return "duplicate"
        reused = any(one.event_time + LATENESS_MS > self._watermark for one in said)
        said.append(event)
        if reused:
            return "quarantined"
        if abs(event.points) > POINTS_MAX:
            return "quarantined"
        if event.player_id in self._banned:
            return "filtered"
        self.kept.append(event)
        return "applied"

    def boards(self) -> dict[Key, list[Place]]:
        """All boards, in the order of their ranks."""
        scores: dict[Key, dict[str, list[ScoreSubmitted]]] = {}
        for one in self.kept:
            for period, start in _periods(one.event_time):
                key = (one.board, one.operator, period, start)
                scores.setdefault(key, {}).setdefault(one.player_id, []).append(one)
        return {
            key: ordered((player, *_folded(key[1], mine)) for player, mine in players.items())
            for key, players in scores.items()
        }


def _periods(time_ms: int) -> list[tuple[str, int]]:
    midnight = datetime.fromtimestamp(time_ms / 1_000, UTC).replace(
        hour=0, minute=0, second=0, microsecond=0
    )
    monday = midnight - timedelta(days=midnight.weekday())
    starts = {"day": midnight, "week": monday}
    return [("all", 0), *((p, int(s.timestamp() * 1_000)) for p, s in starts.items())]


def _folded(operator: str, scores: list[ScoreSubmitted]) -> tuple[int, int]:
    if operator == "SUM":
        return sum(s.points for s in scores), max(s.event_time for s in scores)
    by = {
        "BEST": lambda s: (s.points, -s.event_time),
        "LAST": lambda s: (s.event_time, s.points),
    }[operator]
    best = max(scores, key=by)
    return best.points, best.event_time


def naive(events: Iterable[Event]) -> Naive:
    """The boards of one partition's log."""
    made = Naive()
    for event in events:
        made.add(event)
    return made
