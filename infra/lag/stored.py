"""Positions read from the stores themselves: the truth, also for agents that do not run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from infra.lag import Place, Source
from sinks.open import open_sink
from streams import catalog
from streams.runtime.projection import Projection
from streams.runtime.settings import Settings
from streams.runtime.sink import Sink, SinkError

REASON_MAX = 120
"""Characters of a store's error that are kept: drivers write paragraphs."""

Open = Callable[[Projection], Sink]


@dataclass
class Stored:
    """Positions by place; `silent` says, by agent, why its store could not be asked."""

    positions: dict[Place, tuple[Source, int]] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)


def agents() -> list[str]:
    """The names of all agents of the catalogue."""
    systems = map(catalog.load, catalog.SYSTEMS)
    return [agent.name for system in systems for agent in catalog.agents(system)]


def opener(settings: Settings) -> Open:
    """Opens real stores."""
    return lambda projection: open_sink(projection.store, projection.model, settings)


def stored(names: Iterable[str], open_store: Open) -> Stored:
    """Positions of the live versions. A store that does not answer is noted, never raised;
    agents that are no projections of the catalogue have nothing stored.
    """
    found = Stored()
    systems = map(catalog.load, catalog.SYSTEMS)
    projections = {one.name: one for system in systems for one in system.projections}
    for name in names:
        projection = projections.get(name)
        if projection is None:
            continue
        try:
            sink = open_store(projection)
            try:
                positions = sink.positions(sink.live_version())
            finally:
                sink.close()
        except SinkError as error:
            found.silent[name] = f"{projection.store}: {str(error)[:REASON_MAX]}"
            continue
        for (topic, partition), position in positions.items():
            place = Place(name, topic, partition)
            found.positions[place] = (Source.SINK, position.next_offset)
    return found
