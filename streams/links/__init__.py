"""Short links: each decided by one writer, followed without waiting, and counted over if need be.

A link is decided (`rules`) and folded into two tables of the same rows: Redis answers, Cassandra
answers when Redis does not. Clicks go to a topic of their own as they come, bots and all; which of
them count, and from which country they come, is found in the fold, so a new rule counts the past
anew, another table of networks finds its countries anew, and neither touches a link.

A link leads to a URL as the WHATWG standard writes it; all of the standard's own cases are tests.
What the standard takes and a link does not: a user name or a password in it (it reads as another
host), schemes other than http and https, this service itself, and more than 2,048 characters.

Of an address only the network is kept (/24, or /48 of IPv6). Countries are those of the bundled
table: whom the five regional registries assigned a network to (package `iptocc`, MIT or Apache-2.0,
as new as its release in the lock file), which is not always where it is used; for about 95 % of
IPv4 addresses it agrees with MaxMind's (Zander, 2012). Another table is a file in MaxMind's format,
`HEADRACE_LINKS__NETWORKS_FILE`, such as GeoLite2-Country or DB-IP Lite (each with a licence of its
own); it is read when a worker starts. A /24 or /48 of several countries counts as the first of
them. Under another table, or another release of the bundled one, `rebuild links-clicks --verify`
tells other countries from those stored until it has been rebuilt.
"""

from __future__ import annotations

from functools import cache

from schemas.links.codes import CODE_CHARS
from schemas.links.events import CLICKS, COMMANDS, EVENTS
from sinks import links as store
from streams.links.countries import Countries
from streams.links.fold import KeepClicks, KeepLinks
from streams.links.rules import LinkRules
from streams.runtime.decider.rules import Decider
from streams.runtime.permutation import Codes
from streams.runtime.projection import Projection, System
from streams.runtime.settings import Settings


@cache
def _countries() -> Countries:
    return Countries.read(Settings.read().links.networks_file)


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
            KeepClicks(countries=_countries),
            store.HISTORY,
            store="clickhouse",
            linger_ms=1_000,
        ),
    ),
)
