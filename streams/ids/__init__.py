"""Unique ids: worker numbers leased through the log, and ranges of numbers (`rules`).

The makers of ids are in `connectors.ids`: they ask once a minute and make millions in between.
"""

from __future__ import annotations

from schemas.ids.events import COMMANDS, EVENTS
from sinks.ids import MODEL
from streams.ids.fold import KeepLeases
from streams.ids.rules import IdRules
from streams.runtime.decider.rules import Decider
from streams.runtime.projection import Projection, System

SYSTEM = System(
    name="ids",
    title="Unique ids",
    deciders=(Decider("ids", COMMANDS, EVENTS, IdRules()),),
    projections=(Projection("ids-leases", EVENTS, KeepLeases(), MODEL, store="redis"),),
)
