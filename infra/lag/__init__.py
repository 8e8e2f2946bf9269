"""How far agents are behind: stored positions against the log, in records and in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Source(StrEnum):
    """Where a position was learned, the most exact first."""

    SINK = "sink"
    """Read from the store itself."""
    WORKER = "worker"
    """Shown by the running worker; moves with the store."""
    COMMITTED = "committed"
    """The group's offset in Kafka, committed after the store's and so never ahead of it."""


class State(StrEnum):
    """What a position means for the partition it is on."""

    OK = "ok"
    EXPIRED = "expired"
    """Retention deleted records before they were folded."""
    AHEAD = "ahead"
    """Past the end of the log: the topic was created again, or the log was restored."""


@dataclass(frozen=True, order=True)
class Place:
    """One partition as one agent reads it."""

    agent: str
    topic: str
    partition: int


@dataclass(frozen=True)
class Lag:
    """One agent on one partition. `position` is the first offset not folded, `log_end` the next
    to be written. `seconds` is the age of the record at `position`: 0 when there is none, None
    when it could not be read in time.
    """

    place: Place
    source: Source
    position: int
    log_start: int
    log_end: int
    seconds: float | None

    @property
    def records(self) -> int:
        """Offsets between position and log end (transaction markers and compacted ones too)."""
        return max(0, self.log_end - self.position)

    @property
    def state(self) -> State:
        """Whether the position still lies in the log."""
        if self.position > self.log_end:
            return State.AHEAD
        return State.EXPIRED if self.position < self.log_start else State.OK


def total(lags: list[Lag]) -> dict[str, int]:
    """Records behind by agent."""
    found: dict[str, int] = {}
    for lag in lags:
        found[lag.place.agent] = found.get(lag.place.agent, 0) + lag.records
    return found
