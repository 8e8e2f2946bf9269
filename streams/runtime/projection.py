"""A projection: the pure fold from events to a read model, and the list of what a system has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import polars as pl

from streams.runtime.batch import Batch
from streams.runtime.decider.rules import Decider
from streams.runtime.derivation.rules import Derivation
from streams.runtime.outcome import Outcome
from streams.runtime.reactor.rules import Reactor
from streams.runtime.sink import Changes, ReadModel, Sink
from streams.runtime.topic import Topic

State = TypeVar("State")


class Fold(Protocol[State]):
    """The rules of one read model. Pure: no clock, no randomness, no I/O, no logging.

    State is per partition and *immutable*: `fold` returns a new one, so that a failed batch can
    be cut and tried again, and a refused write forgotten.
    """

    def start(self, stored: Mapping[str, pl.DataFrame]) -> State:
        """State of a partition from the rows of the `restores` tables (empty at offset 0)."""
        ...

    def fold(self, state: State, batch: Batch) -> tuple[State, Outcome]:
        """Fold a batch. Any cut of the same rows into batches must end in the same state and
        the same stored rows; a test cuts every projection at random.
        """
        ...

    def provisional(self, state: State) -> list[Changes]:
        """What an idle partition should show early; most folds have nothing to add."""
        ...


@dataclass(frozen=True)
class Projection:
    """One agent: topic → fold → sink.

    `restores` are tables whose stored rows are handed to `Fold.start`. `columns` names, per
    record, the fields the fold needs (None: all), so that nothing else is decoded; the runtime
    adds the event time, which it needs itself (`reads`). `ValueError` for a field that the topic
    does not have.
    `linger_ms` is the least time between two writes of a partition: 0 for a store that takes
    small writes well, about 1,000 for ClickHouse. `rows_max` bounds a batch: up to about 30,000
    rows stay in the processor's caches between steps; a store that wants large blocks has more.
    """

    name: str
    topic: Topic
    fold: Fold[Any]
    model: ReadModel
    store: str
    restores: tuple[str, ...] = ()
    columns: Mapping[str, tuple[str, ...]] | None = None
    linger_ms: int = 0
    rows_max: int = 32_768
    idle_ms: int = 1_000
    late_output: bool = True
    """Whether late rows go to the late topic; of several agents on a topic one does it."""

    def __post_init__(self) -> None:
        """Refuse columns of which the topic knows nothing, in memory as on a broker."""
        known = {record.fullname: record.columns for record in self.topic.records}
        for record, fields in (self.columns or {}).items():
            if record not in known:
                raise ValueError(f"{self.name}: topic {self.topic.name} carries no {record}")
            for field in fields:
                if field not in known[record]:
                    raise ValueError(f"{self.name}: {record} has no field {field}")

    @property
    def reads(self) -> Mapping[str, tuple[str, ...]] | None:
        """The fields that are decoded, by record (None: all): `columns` and the event time.

        A record type without event time is no error: it does not move the watermark.
        """
        time = self.topic.event_time
        if self.columns is None or time is None:
            return self.columns
        return {
            record: tuple(
                name for name in self.topic.record(record).columns if name in fields or name == time
            )
            for record, fields in self.columns.items()
        }


@dataclass(frozen=True)
class System:
    """Everything one system runs; the last lines of `streams/<name>.py`."""

    name: str
    title: str
    projections: tuple[Projection, ...] = ()
    deciders: tuple[Decider, ...] = ()
    reactors: tuple[Reactor, ...] = ()
    derivations: tuple[Derivation, ...] = ()


SinkFactory = Callable[[Projection], Sink]
"""Opens the sink of a projection; the worker passes real drivers, tests pass memory ones."""
