"""The explicit list of systems. A worker loads only the ones it runs."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module

from streams.runtime.decider.rules import Decider
from streams.runtime.derivation.rules import Derivation
from streams.runtime.projection import Projection, System
from streams.runtime.reactor.rules import Reactor

SYSTEMS = (
    "ads",
    "chat",
    "feed",
    "ids",
    "leaderboard",
    "limiter",
    "links",
    "notifications",
    "pastes",
    "payments",
    "telemetry",
    "typeahead",
    "webhooks",
)


class UnknownSystem(LookupError):
    """No system of that name; the message names the nearest."""


def load(name: str) -> System:
    """The system of that name."""
    if name not in SYSTEMS:
        near = get_close_matches(name, SYSTEMS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UnknownSystem(f"no system {name}{hint} There are: {', '.join(SYSTEMS)}")
    system: System = import_module(f"streams.{name}").SYSTEM
    return system


def projection(name: str) -> tuple[System, Projection]:
    """The projection (agent, read model) of that name, with its system."""
    for system in map(load, SYSTEMS):
        for one in system.projections:
            if one.name == name:
                return system, one
    known = [p.name for system in map(load, SYSTEMS) for p in system.projections]
    raise UnknownSystem(f"no read model {name}. There are: {', '.join(known)}")


AnyAgent = Projection | Decider | Reactor | Derivation


def agents(system: System) -> tuple[AnyAgent, ...]:
    """All agents of a system."""
    return (*system.projections, *system.deciders, *system.reactors, *system.derivations)


def agent(name: str) -> tuple[System, AnyAgent]:
    """The agent of that name, with its system."""
    for system in map(load, SYSTEMS):
        for one in agents(system):
            if one.name == name:
                return system, one
    known = [one.name for system in map(load, SYSTEMS) for one in agents(system)]
    raise UnknownSystem(f"no agent {name}. There are: {', '.join(known)}")
