"""The demo of chat: four mailing lists of 2002 as groups, and somebody in each whose line is cut.

Every mail is a message of its sender, an answer where it answers a mail of the same list, in the
order of their dates; every tenth is sent twice. Somebody of each group follows it over a socket
that is cut again and again meanwhile. What the sockets told, what the history has, and what is in
the mails are compared. Texts and names are not taken out of the mails.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import httpx
from rich.console import Console

from api.auth import READ, WRITE
from api.issuer import DevIssuer
from connectors.datasets import DATASETS, Unavailable, fetch
from connectors.datasets.mails import Mail, mails
from infra.cli import rebuild
from infra.demo import processes
from infra.demo.compare import Check
from infra.error import StackError
from infra.local import Stack
from infra.local.home import Home
from schemas.apply import apply
from sinks.open import open_sink
from streams import catalog
from streams.runtime.settings import Settings

ROOMS: Final = 4
MAILS: Final = 120
"""Of each list."""
CUTS: Final = 25
"""Of each follower."""
TWICE: Final = 10
PATIENCE_S: Final = 60.0


@dataclass
class Room:
    """A list as a group."""

    name: str
    mails: Sequence[Mail]
    id: str = ""
    seqs: dict[str, int] = field(default_factory=dict)
    """Mail → number of its entry."""
    repeats: int = 0
    """Mails that got the same number when they were sent again."""

    @property
    def people(self) -> list[str]:
        return list(dict.fromkeys(one.person for one in self.mails))

    @property
    def answers(self) -> dict[str, str]:
        """Mail → mail before it that it answers, by the mails alone."""
        before: set[str] = set()
        found = {}
        for one in self.mails:
            if one.parent in before:
                found[one.id] = one.parent
            before.add(one.id)
        return found


def run(console: Console, home: Home) -> list[Check]:
    """Run it on the local stack; returns what was compared. Raises `StackError`."""
    console.rule("[bold]Chat[/]", align="left")
    source = DATASETS["mails"]
    try:
        (archive,) = fetch(source, home.root / "datasets").values()
    except Unavailable as error:
        raise StackError(f"the mails cannot be had: {error}") from error
    rooms = lists(mails(archive))
    console.print(f"{source.title} ({source.licence}): {ROOMS} lists, {MAILS} mails of each")
    settings = Stack(home=home).up(("kafka", "registry", "redis", "cassandra"))
    apply(settings)
    with processes.product(home, settings, "chat") as url:
        checks = asyncio.run(Evening(url, settings, home, rooms, console).run())
        _rebuild(settings)
        console.print(f"to chat yourself: headrace api, then {url}/v1/chat/page/page.html")
    return checks


def lists(found: Sequence[Mail]) -> list[Room]:
    """The lists with the most mails, each with its first ones."""
    most = Counter(one.room for one in found).most_common(ROOMS)
    return [Room(name, [one for one in found if one.room == name][:MAILS]) for name, _ in most]


class Evening:
    """Everybody says what they wrote, while the followers' lines are cut."""

    def __init__(
        self, url: str, settings: Settings, home: Home, rooms: Sequence[Room], console: Console
    ) -> None:
        self._url, self._rooms, self._console = url, rooms, console
        self._issuer = DevIssuer(home.root / "keys", settings.api.issuer, settings.api.audience)
        self._chance = random.Random(2002)  # noqa: S311 - a plan of cuts, not a secret
        self._client = httpx.AsyncClient(base_url=url, timeout=60)

    async def run(self) -> list[Check]:
        """All of it; what was compared."""
        async with self._client, aiohttp.ClientSession() as sockets:
            for room in self._rooms:
                await self._start(room)
            followers = [Follower(self._url, self._token(r.people[0]), r.id) for r in self._rooms]
            following = [asyncio.create_task(one.follow(sockets)) for one in followers]
            began = time.monotonic()
            await asyncio.gather(
                *(self._say(room) for room in self._rooms),
                *(self._cut(one) for one in followers),
            )
            said = sum(len(room.mails) for room in self._rooms)
            self._console.print(f"{said} messages in {time.monotonic() - began:.1f} s")
            histories = [await self._entries(room) for room in self._rooms]
            for one, entries in zip(followers, histories, strict=True):
                await one.until(len(entries))
            for task in following:
                task.cancel()
            await asyncio.wait(following)
        cuts = sum(one.connections - 1 for one in followers)
        self._console.print(f"{ROOMS} sockets, cut {cuts} times")
        return [
            check
            for room, entries, one in zip(self._rooms, histories, followers, strict=True)
            for check in _checks(room, entries, one)
        ]

    def _token(self, person: str) -> str:
        return self._issuer.token(person, [READ, WRITE], 3_600)

    async def _post(self, person: str, path: str, body: Mapping[str, Any]) -> Any:
        headers = {"Authorization": f"Bearer {self._token(person)}", "Prefer": "wait=30"}
        answer = await self._client.post(path, json=body, headers=headers)
        return answer.raise_for_status().json()

    async def _start(self, room: Room) -> None:
        first, *others = room.people
        body = {"title": room.name, "members": others}
        room.id = (await self._post(first, "/v1/conversations", body))["conversationId"]

    async def _say(self, room: Room) -> None:
        path = f"/v1/conversations/{room.id}/messages"
        for n, mail in enumerate(room.mails):
            body = {
                "clientMsgId": mail.id[:128],
                "body": f"{mail.chars:,} characters",
                "replyTo": room.seqs.get(mail.parent, 0),
            }
            told = await self._post(mail.person, path, body)
            room.seqs[mail.id] = told["seq"]
            if n % TWICE == 0:
                room.repeats += told == await self._post(mail.person, path, body)

    async def _cut(self, follower: Follower) -> None:
        for _ in range(CUTS):
            await asyncio.sleep(self._chance.random() / 4)
            follower.cut()

    async def _entries(self, room: Room) -> list[dict[str, Any]]:
        """The history, once it has everything that was said."""
        headers = {"Authorization": f"Bearer {self._token(room.people[0])}"}
        path, wanted = f"/v1/conversations/{room.id}/entries", max(room.seqs.values())
        found: list[dict[str, Any]] = []
        until_s = time.monotonic() + PATIENCE_S
        while len(found) < wanted:
            after = {"after": len(found), "limit": 200}
            answer = await self._client.get(path, params=after, headers=headers)
            found += answer.raise_for_status().json()["entries"]
            if time.monotonic() > until_s:
                raise StackError(f"the history of {room.name} does not get to {wanted}")
        return found


class Follower:
    """Follows a room over a socket, and takes it up again where it is whenever that is cut."""

    def __init__(self, url: str, token: str, room: str) -> None:
        self._url = url.replace("http", "ws", 1) + "/v1/chat/socket"
        self._headers = {"Authorization": f"Bearer {token}"}
        self._room = room
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self.told: list[dict[str, Any]] = []
        self.connections = 0

    async def follow(self, session: aiohttp.ClientSession) -> None:
        """Until it is cancelled."""
        while True:
            with suppress(aiohttp.ClientError, ConnectionError):
                async with session.ws_connect(self._url, headers=self._headers) as socket:
                    self._socket = socket
                    self.connections += 1
                    last = self.told[-1]["seq"] if self.told else 0
                    opening = {"type": "open", "conversationId": self._room, "after": last}
                    await socket.send_str(json.dumps(opening))
                    async for message in socket:
                        self._take(str(message.data))
            self._socket = None
            await asyncio.sleep(0.02)

    def cut(self) -> None:
        """The line dies; nobody says goodbye."""
        if self._socket is not None:
            transport = self._socket.get_extra_info("socket")
            if transport is not None:
                with suppress(OSError):
                    transport.shutdown(2)

    async def until(self, entries: int) -> None:
        """Until it was told so many. Raises `StackError`."""
        until_s = time.monotonic() + PATIENCE_S
        while True:
            if len(self.told) >= entries:
                return
            if time.monotonic() > until_s:
                raise StackError(f"a follower was told {len(self.told)} of {entries} entries")
            await asyncio.sleep(0.05)

    def _take(self, text: str) -> None:
        for line in text.split("\n"):
            frame = json.loads(line)
            if frame["type"] == "entry":
                self.told.append(frame)


def _checks(
    room: Room, entries: Sequence[Mapping[str, Any]], follower: Follower
) -> Iterator[Check]:
    sent = [one for one in entries if one["change"] == "sent"]
    yield Check("history", f"messages of {room.name}", len(room.mails), len(sent))
    gaps = sum(one["seq"] != n for n, one in enumerate(entries, 1))
    told = [(one["seq"], one["by"], one["body"]) for one in follower.told]
    kept = [(one["seq"], one["by"], one["body"]) for one in entries]
    wrong = gaps + (told != kept)
    yield Check("sockets", f"entries of {room.name}, in order", len(entries), len(told), wrong)
    numbers = {one["client_msg_id"]: one["seq"] for one in sent}
    ids = {one["seq"]: one["client_msg_id"] for one in sent}
    answers = {one["client_msg_id"]: ids[one["reply_to"]] for one in sent if one["reply_to"]}
    wanted = {mail[:128]: parent[:128] for mail, parent in room.answers.items()}
    different = len(answers.items() ^ wanted.items())
    yield Check("history", f"answers in {room.name}", len(wanted), len(answers), different)
    order = [numbers[mail.id[:128]] for mail in room.mails]
    wrong = order != sorted(order)
    yield Check("history", f"order of {room.name}", len(order), len(set(order)), wrong)
    twice = -(-len(room.mails) // TWICE)
    yield Check("repeats", f"the same message again in {room.name}", twice, room.repeats)


def _rebuild(settings: Settings) -> None:
    """The history anew from the log, compared with the one that answers."""
    system = catalog.load("chat")
    for projection in system.projections:
        sink = open_sink(projection.store, projection.model, settings)
        try:
            rebuild.run(system, projection, sink, settings, verify=True)
        finally:
            sink.close()
