"""The demo of typeahead: an hour of searches for what is written most, suggested and recounted.

Pairs of English words are searched for as often as they are written, by two thousand people, some
of whom type slowly, find nothing or cannot stop. What is suggested for many beginnings is compared
with a recount in plain Python; then a spike, a blocked word, a mistyped word and a rebuild.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
from rich.console import Console

from api.auth import MODERATE, READ, WRITE
from api.issuer import DevIssuer
from connectors.datasets import DATASETS, fetch
from infra.cli import rebuild
from infra.demo import processes
from infra.demo.compare import Check, opened
from infra.error import StackError
from infra.local import Stack
from infra.local.home import Home
from infra.typeahead import Build, Options, build, publish
from schemas.apply import apply
from streams import catalog
from streams.runtime.settings import Settings

SEARCHES = 20_000
PEOPLE = 2_000
PEOPLE_MIN, HALF_LIFE_HOURS, ONE = 3, 168, 2**20
BATCH = 1_000
LIMIT = 5
SPIKE = 40
SPIKE_S = 60.0
PATIENCE_S = 90.0
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
SINCE_MS, UNTIL_MS = 50 * MINUTE_MS, 12 * MINUTE_MS
"""Searches are of so long ago: in time for their hours, and too old to be a trend."""


@dataclass
class Searched:
    """The searches, and what they should come to."""

    tag: str
    """Begins all queries of this run, so that runs do not meet."""
    events: list[dict[str, Any]]
    half: set[str] = field(default_factory=set)
    """What was typed on the way to a query and never searched for."""
    voices: set[tuple[str, int, str]] = field(default_factory=set)
    """Person, hour and query, of all that count."""

    def scores(self, newest_ms: int) -> dict[str, int]:
        """What enough people searched for, with its rank; counted anew."""
        people = Counter(query for _, _, query in self.voices)
        found: Counter[str] = Counter()
        for _, hour_ms, query in self.voices:
            age_hours = (newest_ms - hour_ms) // HOUR_MS
            found[query] += ONE - ONE * age_hours // (2 * HALF_LIFE_HOURS)
        return {query: score for query, score in found.items() if people[query] >= PEOPLE_MIN}


def run(console: Console, home: Home) -> list[Check]:
    """Run it on the local stack; returns what was compared. Raises `StackError`."""
    console.rule("[bold]Typeahead[/]", align="left")
    source = DATASETS["word-pairs"]
    (content,) = fetch(source, home.root / "datasets").values()
    searched = searches(content.decode(), time.time_ns() // 1_000_000)
    console.print(f"{len(searched.events):,} searches ({source.title}, {source.licence})")
    settings = Stack(home=home).up(("kafka", "registry", "redis", "s3"))
    apply(settings)
    with (
        processes.product(home, settings, "typeahead") as url,
        _client(home, settings, url) as client,
    ):
        positions = _send(client, searched.events)
        _settle(settings, positions)
        built = _swap(client, settings)
        console.print(
            f"a snapshot of {built.terms:,} terms in {len(built.file) / 2**20:.1f} MiB answers; "
            f"for “th”: {', '.join(_ask(client, searched, 'th'))}"
        )
        return [
            *_answers(client, searched, built),
            *_mistyped(client, searched, built),
            *_spike(client, searched, settings, console),
            *_blocked(client, searched, settings, built),
            *_rebuilt(settings),
        ]


def searches(pairs: str, now_ms: int) -> Searched:
    """Searches for the pairs, as often as they are written, in the order of their time."""
    chance = random.Random(10)  # noqa: S311 - a choice that is the same each time
    tag = f"demo{now_ms % 10**8:08}"
    lines = [line.rsplit(" ", 1) for line in pairs.splitlines()]
    drawn = chance.choices([pair for pair, _ in lines], [int(n) for _, n in lines], k=SEARCHES)
    made = Searched(tag, [])
    wanted = set(drawn)
    for n, pair in enumerate(drawn):
        user, at_ms = chance.randrange(PEOPLE), now_ms - SINCE_MS
        at_ms += (SINCE_MS - UNTIL_MS) * n // SEARCHES
        event: dict[str, Any] = {
            "type": "QuerySearched",
            "query_id": f"{tag}-{n}",
            "user_id": f"{tag}-{user}",
            "query": f"{tag} {pair}",
            "finished": True,
            "hits": chance.randrange(1, 99),
            "event_time": at_ms,
        }
        if n % 10 == 0:  # somebody types slowly, and the client tells
            half = pair[:-1]
            made.half |= {half} - wanted
            typing = {"query_id": f"{tag}-{n}-half", "query": f"{tag} {half}", "finished": False}
            made.events.append(event | typing)
        if n % 20 == 7:
            event["hits"] = 0
        else:
            made.voices.add((event["user_id"], at_ms // HOUR_MS * HOUR_MS, pair))
        made.events.append(event)
        if n % 25 == 3:  # sent again
            made.events.append(event)
    return made


def _client(home: Home, settings: Settings, url: str) -> httpx.Client:
    issuer = DevIssuer(home.root / "keys", settings.api.issuer, settings.api.audience)
    token = issuer.token("demo", [READ, WRITE, MODERATE], 3_600)
    headers = {"Authorization": f"Bearer {token}", "Prefer": "wait=10"}
    return httpx.Client(base_url=url, headers=headers, timeout=60)


def _send(client: httpx.Client, events: list[dict[str, Any]]) -> dict[str, int]:
    """Send all; returns the last offset in each partition."""
    last: dict[str, int] = {}
    for start in range(0, len(events), BATCH):
        body = {"events": events[start : start + BATCH]}
        answer = client.post("/v1/typeahead/events:batch", json=body).raise_for_status()
        for place in answer.headers["Headrace-Position"].split(", "):
            partition, offset = place.rsplit("/", 1)
            last[partition] = int(offset)
    return last


def _settle(settings: Settings, last: dict[str, int]) -> None:
    """Wait until the counts have all that was sent."""
    until_s = time.monotonic() + PATIENCE_S
    with opened("typeahead-counts", settings) as (_, sink):
        while True:
            stored = sink.positions(sink.live_version())
            folded = {f"{topic}/{at}": one.next_offset for (topic, at), one in stored.items()}
            if all(folded.get(partition, 0) > offset for partition, offset in last.items()):
                return
            if time.monotonic() > until_s:
                raise StackError(f"the counts are at {folded}, sent is {last}")
            time.sleep(0.2)


def _swap(client: httpx.Client, settings: Settings) -> Build:
    """Build a snapshot, and wait until the API answers from it."""
    built, pointer = publish(settings, Options(HALF_LIFE_HOURS, PEOPLE_MIN, force=True))
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        answer = client.get("/v1/typeahead/snapshot")
        if answer.is_success and answer.json()["id"] == pointer.id:
            return built
        time.sleep(0.1)
    raise StackError(f"the API does not take up snapshot {pointer.id}")


def _ask(client: httpx.Client, searched: Searched, typed: str, limit: int = LIMIT) -> list[str]:
    """What is suggested behind the tag."""
    params: dict[str, str | int] = {"q": f"{searched.tag} {typed}", "limit": limit}
    found = client.get("/v1/suggest", params=params).raise_for_status().json()["suggestions"]
    return [one["text"].removeprefix(f"{searched.tag} ") for one in found]


def _answers(client: httpx.Client, searched: Searched, built: Build) -> Iterator[Check]:
    scores = searched.scores(built.as_of_ms)
    ranked = sorted(scores, key=lambda pair: (-scores[pair], f"{searched.tag} {pair}"))
    typed = sorted({pair[:length] for pair in ranked for length in (1, 2, 3, 5)})
    different = compared = suggested = 0
    with ThreadPoolExecutor(4) as pool:
        for prefix, found in zip(
            typed, pool.map(lambda one: _ask(client, searched, one), typed), strict=True
        ):
            wanted = [pair for pair in ranked if pair.startswith(prefix)][:LIMIT]
            compared += 1
            different += found[: len(wanted)] != wanted
            suggested += len(searched.half & set(found))
    yield Check("suggest", "beginnings, the best of each in order", len(typed), compared, different)
    yield Check("suggest", "half words among them", 0, suggested)


def _mistyped(client: httpx.Client, searched: Searched, built: Build) -> Iterator[Check]:
    scores = searched.scores(built.as_of_ms)
    best = [pair for pair in sorted(scores, key=lambda one: (-scores[one], one)) if len(pair) > 5]
    wrong = {pair: f"{pair[:2]}{pair[3]}{pair[2]}{pair[4:]}" for pair in best[:100]}
    found = sum(pair in _ask(client, searched, typed, 20) for pair, typed in wrong.items())
    yield Check("suggest", "mistyped by one edit, found all the same", len(wrong), found)


def _spike(
    client: httpx.Client, searched: Searched, settings: Settings, console: Console
) -> Iterator[Check]:
    """Something nobody has searched for is all at once searched for."""
    now_ms = time.time_ns() // 1_000_000
    event = {"type": "QuerySearched", "query": f"{searched.tag} zeppelin over town"}
    who = [
        {**event, "user_id": f"s-{n}", "finished": True, "hits": 1, "event_time": now_ms}
        for n in range(SPIKE)
    ]
    began = time.monotonic()
    positions = _send(client, who)
    while not (seen := "zeppelin over town" in _ask(client, searched, "z", 1)):
        if time.monotonic() > began + SPIKE_S:
            break
        time.sleep(0.05)
    console.print(
        f"a spike of {SPIKE} searches was suggested after {time.monotonic() - began:.1f} s"
    )
    yield Check("trend", f"seen within {SPIKE_S:.0f} s", 1, int(seen))
    _settle(settings, positions)


def _blocked(
    client: httpx.Client, searched: Searched, settings: Settings, built: Build
) -> Iterator[Check]:
    """Block the first word of what is most popular, and look for it from then on, while a snapshot
    is built and swapped.
    """
    scores = searched.scores(built.as_of_ms)
    word = max(scores, key=lambda pair: (scores[pair], pair)).split(" ")[0]
    path = f"/v1/typeahead/blocklist/{searched.tag} {word}"
    answer = client.put(path, json={"reason": "the demo"}).raise_for_status()
    after = {"Headrace-After": answer.headers["Headrace-Position"]}
    client.get("/v1/typeahead/blocklist", headers=after).raise_for_status()
    seen = empty = 0
    with ThreadPoolExecutor(1) as pool:
        swap = pool.submit(_swap, client, settings)
        while not swap.done():
            found = _ask(client, searched, "", 20)
            seen += sum(one.split(" ")[0] == word for one in found)
            empty += not found
        left_out = swap.result().blocked - built.blocked
    client.delete(path).raise_for_status()
    yield Check("blocklist", f"“{word} …” suggested once it was blocked", 0, seen)
    yield Check("blocklist", "empty answers while a snapshot was swapped", 0, empty)
    wanted = sum(pair.split(" ")[0] == word for pair in scores)
    yield Check("blocklist", "terms left out of the next snapshot", wanted, left_out)


def _rebuilt(settings: Settings) -> Iterator[Check]:
    """Both read models from the log; the snapshot built of them is the same."""
    options = Options(HALF_LIFE_HOURS, PEOPLE_MIN)
    before = build(settings, options)
    system = catalog.load("typeahead")
    for projection in system.projections:
        with opened(projection.name, settings) as (_, sink):
            report = rebuild.run(system, projection, sink, settings, verify=True)
        yield Check("rebuild", projection.name, 1, int(bool(report.comparison)))
    after = build(settings, options)
    same = before.digest == after.digest
    yield Check(
        "rebuild", "snapshot of the rebuilt counts", before.terms, after.terms, int(not same)
    )
