"""Appends to lists and reads of them, through API, decider, log and read model, while the processes
are killed: what clients saw is held against the order of the log.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from sinks.open import open_redis_reader
from streams.runtime.settings import Settings
from tests.chaos import lists
from tests.chaos.elle import Append, History, Read, anomalies, staleness
from tests.chaos.processes import until
from tests.chaos.recount import Decoder, records
from tests.chaos.recount_ledger import Found, accepted
from tests.chaos.rig import DRAIN_S, FULL, Rig
from tests.chaos.web import api
from tests.stack import offsets

pytestmark = [pytest.mark.stack, pytest.mark.slow]

OPS, KILLS = (60_000, 12) if FULL else (1_500, 3)
CLIENTS = 8
GROUPS = ("a", "b", "c", "d")
NAMES = ("x", "y", "z")
TRIES_MAX = 60


class Clients:
    """Who appends and reads; `history` is what they saw."""

    def __init__(self, rig: Rig, http: httpx.AsyncClient, progress: Callable[[int], None]) -> None:
        self.rig = rig
        self.http = http
        self.progress = progress
        self.history = History()
        self.clock = count()
        self.values = count(1)
        self.done = 0

    async def work(self, client: int) -> None:
        """Appends and reads, one after the other."""
        chance = random.Random(self.rig.seed * 100 + client)
        known: dict[str, int] = {}
        for _ in range(OPS // CLIENTS):
            group = chance.choice(GROUPS)
            if chance.random() < 0.5:
                names = tuple(chance.sample(NAMES, chance.randrange(1, len(NAMES) + 1)))
                await self._append(client, group, names, known)
            else:
                await self._read(client, group, known, after=chance.random() < 0.6)
            self.done += 1
            self.progress(self.done)

    async def _append(
        self, client: int, group: str, names: tuple[str, ...], known: dict[str, int]
    ) -> None:
        value, began = next(self.values), next(self.clock)
        body = {"lists": names, "value": value}
        headers = {"Idempotency-Key": f"{self.rig.run}-{value}", "Prefer": "wait=3"}
        answer = await self._until_answered("POST", group, json=body, headers=headers)
        assert answer.status_code in (201, 409), answer.text
        _learn(known, answer.headers["Headrace-Position"])
        self.rig.seen["refused"] += answer.status_code == 409
        one = Append(
            client, group, names, value, answer.status_code == 201, began, next(self.clock)
        )
        self.history.appends.append(one)

    async def _read(self, client: int, group: str, known: dict[str, int], *, after: bool) -> None:
        began, headers = next(self.clock), {}
        if after and known:
            wanted = ", ".join(f"{place}/{offset}" for place, offset in known.items())
            headers = {"Headrace-After": wanted, "Prefer": "wait=5"}
        answer = await self._until_answered("GET", group, headers=headers)
        assert answer.status_code == 200, answer.text
        _learn(known, answer.headers["Headrace-Applied"])
        one = Read(client, group, answer.json(), after, began, next(self.clock))
        self.history.reads.append(one)

    async def _until_answered(self, method: str, group: str, **request: Any) -> httpx.Response:
        """Ask again with the same key, or for the same positions, while nobody can say."""
        for _ in range(TRIES_MAX):
            answer = await self.http.request(method, f"/v1/lists/{group}", **request)
            if answer.status_code not in (202, 503, 504):
                return answer
            self.rig.seen[f"answered {answer.status_code}"] += 1
        raise AssertionError(f"no answer: {answer.text}")


def _learn(known: dict[str, int], header: str) -> None:
    for place, offset in (offsets(header) if header else {}).items():
        known[place] = max(offset, known.get(place, -1))


@asynccontextmanager
async def web(rig: Rig) -> AsyncIterator[httpx.AsyncClient]:
    """The API over the run's lists."""
    url = f"redis://127.0.0.1:{rig.servers['redis'].port}/0"
    model = rig.projections["elements"].model
    reader = open_redis_reader(model, Settings(redis={"url": url}))
    commands = rig.deciders["lists"].commands
    routers, readers = [lists.router(rig.run)], {"lists": reader}
    async with api(rig, commands, routers=routers, readers=readers) as http:
        yield http
    await reader.close()


def logged(rig: Rig) -> dict[tuple[str, str], list[int]]:
    """The lists as the log has them, by an independent reading of it."""
    found, decode = Found(), Decoder(rig.settings.registry.url)
    final: dict[tuple[str, str], list[int]] = {}
    topic = rig.deciders["lists"].events.name
    for messages in records(rig.settings.kafka.bootstrap_servers, topic).values():
        for _, name, row, _ in accepted(messages, decode, found):
            for one in row["lists"] if name == "Appended" else ():
                final.setdefault((row["group"], one), []).append(row["value"])
    assert not found.wrong, found.wrong
    return final


def stored(rig: Rig) -> dict[tuple[str, str], list[int]]:
    """The lists as the read model has them."""
    sink = rig.sink("elements")
    rig.drained("elements", sink)
    final: dict[tuple[str, str], list[int]] = {}
    for frame in sink.rows(sink.live_version(), lists.ELEMENTS.name):
        columns = ("group", "list", "offset", "value")
        for group, name, _, value in sorted(frame.select(*columns).iter_rows()):
            final.setdefault((group, name), []).append(value)
    return final


def spread(rig: Rig) -> dict[tuple[str, str], list[int]]:
    """The lists as decider, derivation and read model of the derived topic have them."""
    sink = rig.sink("places")
    final: dict[tuple[str, str], list[int]] = {}
    for frame in sink.rows(sink.live_version(), lists.PLACES.name):
        for place, _, value in sorted(frame.select("place", "offset", "value").iter_rows()):
            group, _, name = place.partition("/")
            final.setdefault((group, name), []).append(value)
    return final


def killing(rig: Rig) -> Callable[[int], None]:
    """Kills one process after the other while clients wait for answers; told what is done."""
    chance = random.Random(rig.seed)

    def kills(done: int) -> None:
        if done >= (rig.faults["kill"] + 1) * OPS // (KILLS + 1) and rig.faults["kill"] < KILLS:
            victim = chance.choice(rig.workers)
            victim.kill()
            rig.faults["kill"] += 1
            victim.start()

    return kills


@pytest.mark.timeout(3_600 if FULL else 600)
async def test_lists_are_what_clients_saw(rigs: Callable[..., Rig], tmp_path: Path) -> None:
    rig = rigs(34, kafka_config={"session.timeout.ms": "6000"})
    rig.create("lists", "elements", "places")
    rig.ready(*(rig.worker("lists,elements,spread,places") for _ in range(2)))
    async with web(rig) as http:
        clients = Clients(rig, http, killing(rig))
        with capture_logs():  # a line for each request says nothing here
            await asyncio.gather(*(clients.work(number) for number in range(CLIENTS)))
    final = logged(rig)
    found: Counter[str] = anomalies(clients.history, final)
    behind = staleness(clients.history)
    asked_after = sum(read.after for read in clients.history.reads)
    sometimes = ("refused", "answered 202")
    rig.tell(
        f"T23 lists: seed={rig.seed} faults={dict(rig.faults)} "
        f"appends={len(clients.history.appends)} reads={len(clients.history.reads)} "
        f"asked_after={asked_after} stale_unasked={sum(n > 0 for n in behind)} "
        f"behind_at_most={max(behind)} anomalies={dict(found)} "
        f"sometimes={ {name: rig.seen[name] for name in sometimes} }"
    )
    assert not any(found.values()), found
    assert stored(rig) == final
    until(lambda: spread(rig) == final, DRAIN_S, "each element is derived once, and in order")
    elements = sum(len(values) for values in final.values())
    rig.tell(f"T1 kills, decider to derivation to read model: elements={elements} all there, once")
    assert rig.faults["kill"] == KILLS
    never = [name for name in sometimes if not rig.seen[name]]
    assert not never, f"void: {never} never happened"
