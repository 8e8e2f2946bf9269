"""The explicit list of systems. A worker loads only the ones it runs."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module

from streams.runtime.projection import Projection, System

SYSTEMS = ("ads", "leaderboard", "telemetry")


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
