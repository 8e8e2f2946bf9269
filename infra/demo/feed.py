"""The demo of the news feed: aircraft post their departures, airports follow those that they know.

The flights are real. An airport follows every aircraft that left for it on the first day; on the
next two days these post each of their departures. Some airports unfollow or mute one, some posts
are removed, and all feeds are read, by airports that by the log's clock were away for years. Then
the store of feeds is emptied, and the aircraft post what they did a month later. Every feed is
compared with a recount of the flights in plain Python.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import httpx
import polars as pl
from rich.console import Console

from api.auth import READ, WRITE
from api.issuer import DevIssuer
from connectors.datasets import DATASETS
from infra.cli import rebuild
from infra.demo import processes
from infra.demo.compare import Check, opened
from infra.demo.scenarios import load
from infra.error import StackError
from infra.local import Stack
from infra.local.home import Home
from schemas.apply import apply
from sinks.drivers.redis import connect
from streams.feed import SYSTEM
from streams.runtime.rebuild import Differs
from streams.runtime.settings import Settings

FIRST = date(2013, 1, 1)
LATER = date(2013, 2, 10)
LATER_POSTS = 150
AT_ONCE = 8
PAGE = 50
PATIENCE_S = 60.0
EMPTY = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('UNLINK', key) end"


@dataclass(frozen=True)
class Flight:
    """One departure."""

    aircraft: str
    airport: str
    text: str
    at_ms: int


@dataclass
class Recount:
    """What everybody must see: plain sets, in the order of what was done."""

    follows: dict[str, set[str]] = field(default_factory=dict)
    muted: set[tuple[str, str]] = field(default_factory=set)
    posts: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Id → aircraft and time."""

    def feed(self, airport: str) -> set[str]:
        """The ids in an airport's feed."""
        shown = {a for a in self.follows[airport] if (airport, a) not in self.muted}
        return {one for one, (aircraft, _) in self.posts.items() if aircraft in shown}


def departures(flights: pl.DataFrame, day: date, days: int = 1) -> list[Flight]:
    """The flights that left on these days, in the order of the timetable."""
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    left = flights.filter(
        pl.col("dep_delay").is_not_null() & pl.col("tailnum").is_not_null(),
        pl.col("scheduled").is_between(begin, begin + timedelta(days=days), closed="left"),
    ).sort("scheduled", "carrier", "flight", "origin")
    return [
        Flight(
            row["tailnum"],
            row["dest"],
            f"{row['carrier']} {row['flight']} left {row['origin']} for {row['dest']}, "
            f"{row['dep_delay']} minutes late",
            int(row["scheduled"].timestamp()) * 1_000,
        )
        for row in left.iter_rows(named=True)
    ]


def run(console: Console, home: Home) -> list[Check]:
    """Run it on the local stack; returns what was compared. Raises `StackError`."""
    console.rule("[bold]News feed[/]", align="left")
    flights = load("flights", home.root / "datasets")
    source = DATASETS["flights"]
    known = departures(flights, FIRST)
    console.print(f"{len(known):,} flights of the first day ({source.title}, {source.licence})")
    settings = Stack(home=home).up(("kafka", "registry", "redis", "cassandra"))
    apply(settings)
    with processes.product(home, settings, "feed") as url, closing(Sky(home, settings, url)) as sky:
        sky.each(sky.follow, sorted({(one.airport, one.aircraft) for one in known}))
        posted = sky.known(departures(flights, FIRST + timedelta(days=1), 2))
        sky.each(sky.post, posted)
        sky.change()
        airports, follows = len(sky.recount.follows), sum(map(len, sky.recount.follows.values()))
        console.print(f"{airports} airports, {follows:,} follows, {len(posted):,} posts")
        checks = [*sky.checks("feeds")]
        _empty(settings)
        sky.each(sky.post, sky.known(departures(flights, LATER))[:LATER_POSTS])
        return [*checks, *sky.checks("emptied"), *_rebuilt(settings)]


class Sky:
    """The API, asked by airports and aircraft that only this run knows, and the recount."""

    def __init__(self, home: Home, settings: Settings, url: str) -> None:
        self._issuer = DevIssuer(home.root / "keys", settings.api.issuer, settings.api.audience)
        self._client = httpx.Client(base_url=url, timeout=60)
        self._run = uuid.uuid4().hex[:6]
        self._tokens: dict[str, str] = {}
        self._written: dict[str, int] = {}
        self.recount = Recount()

    def close(self) -> None:
        """Release the connections."""
        self._client.close()

    def known(self, flights: list[Flight]) -> list[Flight]:
        """The flights of aircraft that somebody follows."""
        aircraft = set[str]().union(*self.recount.follows.values())
        return [one for one in flights if one.aircraft in aircraft]

    def each(self, act: Callable[[Any], None], many: list[Any]) -> None:
        """Do it for each, some at a time."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(act, many))

    def follow(self, pair: tuple[str, str]) -> None:
        """An airport follows an aircraft."""
        airport, aircraft = pair
        began = {"eventTime": f"{FIRST.isoformat()}T00:00:00Z"}
        self._ask(airport, "PUT", f"/v1/follows/{self._name(aircraft)}", params=began)
        self.recount.follows.setdefault(airport, set()).add(aircraft)

    def post(self, flight: Flight) -> None:
        """An aircraft posts a departure."""
        body = {"text": flight.text, "eventTime": flight.at_ms}
        made = self._ask(flight.aircraft, "POST", "/v1/posts", json=body).json()
        self.recount.posts[made["postId"]] = (flight.aircraft, flight.at_ms)

    def change(self) -> None:
        """Every fifth airport mutes an aircraft, every seventh unfollows one; every twentieth post
        is removed.
        """
        for number, airport in enumerate(sorted(self.recount.follows)):
            first, *_, last = [*sorted(self.recount.follows[airport])] * 2
            if number % 5 == 0:
                self._ask(airport, "PUT", f"/v1/mutes/{self._name(first)}")
                self.recount.muted.add((airport, first))
            if number % 7 == 0:
                self._ask(airport, "DELETE", f"/v1/follows/{self._name(last)}")
                self.recount.follows[airport].discard(last)
        for post_id in sorted(self.recount.posts)[::20]:
            aircraft, _ = self.recount.posts.pop(post_id)
            self._ask(aircraft, "DELETE", f"/v1/posts/{post_id}")

    def checks(self, where: str) -> Iterator[Check]:
        """Every feed, page by page, against the recount."""
        expected = {airport: self.recount.feed(airport) for airport in self.recount.follows}
        found = {airport: self._feed(airport) for airport in expected}
        different = sum(set(found[airport]) != ids for airport, ids in expected.items())
        told = sum(map(len, found.values()))
        yield Check(where, "posts in all feeds", sum(map(len, expected.values())), told, different)
        times = [[self.recount.posts[one][1] for one in ids] for ids in found.values()]
        ordered = sum(one == sorted(one, reverse=True) for one in times)
        yield Check(where, "feeds with the newest first", len(expected), ordered)

    def _feed(self, airport: str) -> list[str]:
        after = ", ".join(f"{place}/{offset}" for place, offset in self._written.items())
        found: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            query = {"limit": str(PAGE), **cursor}
            page = self._ask(airport, "GET", "/v1/feed", params=query, after=after).json()
            found += [one["postId"] for one in page["posts"]]
            if page["next"] is None:
                return found
            cursor = {"cursor": page["next"]}

    def _ask(
        self, who: str, method: str, path: str, after: str = "", **sent: Any
    ) -> httpx.Response:
        if who not in self._tokens:
            self._tokens[who] = self._issuer.token(self._name(who), [READ, WRITE], 3_600)
        headers = {"Authorization": f"Bearer {self._tokens[who]}", "Prefer": "wait=10"}
        if after:
            headers["Headrace-After"] = after
        until_s = time.monotonic() + PATIENCE_S
        while True:
            answer = self._client.request(method, path, headers=headers, **sent)
            if answer.status_code not in {503, 504} or time.monotonic() > until_s:
                break
        if not answer.is_success:
            raise StackError(f"{method} {path}: {answer.status_code} {answer.text}")
        if "Headrace-Position" in answer.headers:
            place, offset = answer.headers["Headrace-Position"].rsplit("/", 1)
            self._written[place] = max(int(offset), self._written.get(place, -1))
        return answer

    def _name(self, who: str) -> str:
        return f"{who}.{self._run}"


def _empty(settings: Settings) -> None:
    """What FLUSHALL does, to the keys of feeds alone."""
    with closing(connect(settings.redis.url.get_secret_value())) as client:
        client.eval(EMPTY, 0, "{feed-home*")


def _rebuilt(settings: Settings) -> Iterator[Check]:
    for projection in SYSTEM.projections:
        with opened(projection.name, settings) as (_, sink):
            try:
                rebuild.run(SYSTEM, projection, sink, settings, verify=True)
            except Differs:
                yield Check(f"rebuild {projection.name}", "same digest", 1, 0)
            else:
                yield Check(f"rebuild {projection.name}", "same digest", 1, 1)
