"""Pastes: kept where their content is, gone when they should be, and provably so.

A paste is decided by the owner of its content's partition (`rules`): who may read it once, when it
expires, and when nobody needs its content any more. Small contents that are not to vanish are in
the events; the others are in the object store before anything is decided, and are deleted there
(`reactors`) after an event says that no paste needs them. `fold` makes the table that is read.
"""

from __future__ import annotations

from schemas.pastes.events import COMMANDS, EVENTS
from sinks.pastes import TABLE
from streams.pastes.fold import KeepPastes
from streams.pastes.reactors import open_purge
from streams.pastes.rules import PasteRules
from streams.runtime.decider.rules import Decider
from streams.runtime.projection import Projection, System
from streams.runtime.reactor.rules import Reactor, RetryPolicy

RETRIES = RetryPolicy((5_000, 60_000, *(900_000,) * 96))
"""For a day: an object store that is away longer than usual leaves no content behind."""

SYSTEM = System(
    name="pastes",
    title="Pastebin",
    deciders=(Decider("pastes", COMMANDS, EVENTS, PasteRules()),),
    projections=(Projection("pastes-table", EVENTS, KeepPastes(), TABLE, store="cassandra"),),
    reactors=(
        Reactor(
            name="pastes-purge",
            topic=EVENTS,
            open=open_purge,
            outcomes=COMMANDS,
            retry=RETRIES,
        ),
    ),
)
