"""Where a code leads: the way of a redirect, without HTTP.

From the cache, or the stores behind it; a link with a limited number of clicks asks its decider,
so that no click more than those is let through, however many come at once. What does not count
(HEAD, and bots by what they say they are) takes none, and is told the way while some are left.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from connectors.asking import Asks, Refused
from connectors.links.cached import Cached
from connectors.links.clicks import ClickLog
from connectors.links.networks import network_of
from connectors.links.target import host_of
from schemas.links.agents import is_bot
from schemas.links.events import COMMANDS, LinkClicked, UseLink

TEXT_CHARS_MAX = 512
UNKNOWN: Final = "ZZ"
"""The country of every click as it is taken; it is found when the click is folded."""


class Link(Protocol):
    """What is asked of a link; `sinks.links.Link` is one."""

    @property
    def url(self) -> str: ...
    @property
    def permanent(self) -> bool: ...
    @property
    def expires_ms(self) -> int | None: ...
    @property
    def clicks_max(self) -> int | None: ...
    @property
    def used(self) -> int: ...
    @property
    def disabled(self) -> bool: ...


class LooksUp(Protocol):
    """A store of links."""

    async def link(self, code: str) -> Link | None:
        """The link; None where there is none. Raises `SinkError`."""
        ...


@dataclass(frozen=True, slots=True)
class Visit:
    """One request for a short link, as it came."""

    code: str
    method: str
    address: str
    referrer: str
    user_agent: str


@dataclass(frozen=True, slots=True)
class Leads:
    """To `url`; `remember_ms` is how long the client may go there without asking again."""

    url: str
    permanent: bool
    remember_ms: int


class Gone(Exception):
    """The link has expired, is used up or was disabled."""


class Redirects:
    """Answers visits and records them. One per process."""

    def __init__(
        self,
        links: LooksUp,
        log: Asks,
        clicks: ClickLog,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._links = Cached(links.link)
        self._log = log
        self._clicks = clicks
        self._now_ms = now_ms

    async def visit(self, visit: Visit) -> Leads | None:
        """Where the link leads; None where there is no such link. Records the visit.

        Raises `Gone`; `SinkError` when no store answers; `NoVerdict` when the clicks are limited
        and the decider does not answer.
        """
        link = await self._links.get(visit.code)
        if link is None:
            return None
        now_ms = self._now_ms()
        left_ms = REMEMBER_MS if link.expires_ms is None else link.expires_ms - now_ms
        if link.disabled or left_ms <= 0:
            raise Gone
        if link.clicks_max is not None:
            await self._take(visit, link)
        self._clicks.record(
            LinkClicked(
                code=visit.code,
                event_time=now_ms,
                method=visit.method,
                country=UNKNOWN,
                referrer=host_of(visit.referrer) if visit.referrer else "",
                user_agent=visit.user_agent[:TEXT_CHARS_MAX],
                network=network_of(visit.address),
            )
        )
        return Leads(link.url, link.permanent, min(left_ms, REMEMBER_MS))

    async def _take(self, visit: Visit, link: Link) -> None:
        """Take one of the clicks that are left; the cache is only right about there being none."""
        if link.clicks_max is not None and link.used >= link.clicks_max:
            raise Gone
        if visit.method == "HEAD" or is_bot(visit.user_agent):
            return
        try:
            await self._log.ask(COMMANDS, UseLink(visit.code))
        except Refused as refusal:
            if refusal.status == 410:
                raise Gone from refusal
            raise


REMEMBER_MS = 24 * 3_600_000
