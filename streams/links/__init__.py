"""Short links: each decided by one writer, followed without waiting, and counted over if need be.

A link is decided (`rules`) and folded into two tables of the same rows: Redis answers, Cassandra
answers when Redis does not. Clicks go to a topic of their own as they come, bots and all; which of
them count is decided in the fold, so a new rule counts the past anew and touches no link.
"""

from __future__ import annotations

from functools import cache

from schemas.links.codes import CODE_CHARS
from schemas.links.events import CLICKS, COMMANDS, EVENTS
from sinks import links as store
from streams.links.fold import KeepClicks, KeepLinks
from streams.links.rules import LinkRules
from streams.runtime.decider.rules import Decider
from streams.runtime.permutation import Codes
from streams.runtime.projection import Projection, System
from streams.runtime.settings import Settings


@cache
def _codes() -> Codes:
    return Codes(Settings.read().codes.secret.get_secret_value(), CODE_CHARS, "links")


SYSTEM = System(
    name="links",
    title="URL shortener",
    deciders=(Decider("links", COMMANDS, EVENTS, LinkRules(_codes)),),
    projections=(
        Projection("links-table", EVENTS, KeepLinks(store.LINKS), store.TABLE, store="redis"),
        Projection("links-copy", EVENTS, KeepLinks(store.LINKS), store.COPY, store="cassandra"),
        Projection(
            "links-clicks",
            CLICKS,
            KeepClicks(),
            store.HISTORY,
            store="clickhouse",
            linger_ms=1_000,
        ),
    ),
)
