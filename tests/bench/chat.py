"""`bench chat`: ten thousand sockets on one process of the API, and what each of them costs.

Groups of 500; every socket follows one. In each group somebody speaks as soon as what was said
before has come back: with all groups at once that is the most that gets through, and with a pause
between, it is the time from saying to hearing. Every socket must have been told every entry. All
of it shares this machine: sockets of both sides, log, decider, history.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import httpx
import numpy as np
import psutil

from api.auth import READ, WRITE
from api.issuer import DevIssuer
from schemas.apply import apply
from schemas.chat.events import COMMANDS, EVENTS
from streams.runtime.settings import Settings, home
from tests.bench import report
from tests.bench.serving import servers, settings_of_api

SOCKETS: Final = 10_000
GROUP: Final = 500
SECONDS: Final = 10.0
OPENING: Final = 100
"""Sockets that are being opened at once."""
PATIENCE_S: Final = 120.0
PAUSE_S: Final = 2.0
"""Between two things said in a group, where the time to hear them is taken."""
BEAT_S: Final = 15.0
LISTENERS: Final = 20
"""One socket of so many takes the time."""
AGENTS: Final = ("chat", "chat-history")
_ENTRY: Final = b'"type":"entry"'
_SAID: Final = re.compile(rb'"body":"said (\d+)"')
_LIVE: Final = b'"type":"live"'


class Socket(asyncio.Protocol):
    """A client that counts what it is told without taking it apart."""

    def __init__(self, listens: bool, delays_ms: list[float]) -> None:
        self.entries = 0
        self.live = asyncio.get_running_loop().create_future()
        self.heard = asyncio.Event()
        self.gone = False
        self._listens, self._delays_ms = listens, delays_ms
        self._rest = b""
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        if not self.live.done():
            self.live.set_exception(ConnectionError("the server closed"))

    def open(self, host: str, token: str, room: str) -> None:
        """Ask for the socket and, without waiting, for the room."""
        key = base64.b64encode(os.urandom(16)).decode()
        self._transport.write(
            f"GET /v1/chat/socket HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
            f"Sec-WebSocket-Protocol: headrace.chat, bearer.{token}\r\n\r\n".encode()
        )
        self._room = room

    def close(self) -> None:
        """Hang up."""
        self._transport.abort()

    def send(self, **frame: Any) -> None:
        """One masked text frame (RFC 6455, 5.2); the mask is zero."""
        text = json.dumps(frame).encode()
        size = bytes([0x80 | len(text)]) if len(text) < 126 else b"\xfe" + len(text).to_bytes(2)
        self._transport.write(b"\x81" + size + bytes(4) + text)

    def data_received(self, data: bytes) -> None:
        if self.live.done():
            whole = self._rest + data
            told = whole.count(_ENTRY)
            self.entries += told
            if told:
                self.heard.set()
            if self._listens:
                now = time.perf_counter_ns()
                for said in _SAID.findall(whole):
                    self._delays_ms.append((now - int(said)) / 1e6)
            # Neither pattern fits into what is kept, so nothing is counted twice.
            self._rest = whole[-(len(_ENTRY) - 1) :]
            return
        self._rest += data
        if b'"type":"welcome"' in self._rest:
            self._rest = b""
            self.send(type="open", conversationId=self._room)
        elif _LIVE in self._rest:
            self._rest = b""
            self.live.set_result(None)
            self._beat()

    def _beat(self) -> None:
        """As the client of the page does: who is not heard of is cut."""
        if not self.gone:
            self.send(type="ping")
            asyncio.get_running_loop().call_later(BEAT_S, self._beat)


@dataclass
class Hall:
    """All sockets, by group."""

    groups: list[list[Socket]]
    rooms: Sequence[str]
    delays_ms: list[float]
    said: int = 0

    @property
    def entries(self) -> int:
        return sum(one.entries for group in self.groups for one in group)

    async def talk(self, seconds: float, pause_s: float) -> float:
        """Somebody speaks in each group until the time is over; entries told a second."""
        before, began = self.entries, time.perf_counter()
        until_s = began + seconds
        await asyncio.gather(*(self._speak(n, until_s, pause_s) for n in range(len(self.groups))))
        await self.settled()
        return (self.entries - before) / (time.perf_counter() - began)

    async def _speak(self, n: int, until_s: float, pause_s: float) -> None:
        speaker = self.groups[n][n % len(self.groups[n])]
        await asyncio.sleep(pause_s * n / len(self.groups))
        while time.perf_counter() < until_s:
            speaker.heard.clear()
            said, ref = f"said {time.perf_counter_ns()}", os.urandom(8).hex()
            speaker.send(type="send", conversationId=self.rooms[n], clientMsgId=ref, body=said)
            self.said += 1
            await asyncio.wait_for(speaker.heard.wait(), PATIENCE_S)
            await asyncio.sleep(pause_s)

    async def settled(self) -> None:
        """Until every socket was told every entry. Raises `TimeoutError`."""
        wanted = self.said * len(self.groups[0])
        until_s = time.monotonic() + PATIENCE_S
        while True:
            if self.entries >= wanted:
                return
            if time.monotonic() > until_s:
                raise TimeoutError(f"{self.entries} of {wanted} were told")
            await asyncio.sleep(0.02)

    def close(self) -> None:
        """Hang up."""
        for group in self.groups:
            for one in group:
                one.close()

    def check(self) -> None:
        """Nothing twice, nothing left out, nobody cut. Raises `AssertionError`."""
        told = [{one.entries for one in group} for group in self.groups]
        if any(len(counts) != 1 for counts in told) or any(
            one.gone for group in self.groups for one in group
        ):
            raise AssertionError(f"not every socket was told every entry: {told}")


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; `records` is the number of sockets. About two
    minutes with three runs.
    """
    settings = Settings.read()
    apply(settings, [COMMANDS, EVENTS])
    sockets = records or SOCKETS
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with servers(settings, AGENTS) as running:
        found = asyncio.run(_measure(settings, running.base, running.processes, sockets, runs))
    result = {"sockets": sockets, "group": min(GROUP, sockets), **settings_of_api(), **found}
    rows = [
        ("sockets open", float(sockets)),
        ("opened and live a second", found["opened_per_s"]),
        ("memory a socket in the API, KiB", found["kib_a_socket"]),
        ("entries told a second, at most", found["told_per_s"]),
        ("said → heard, p50 ms", found["heard_ms"]["p50"]),
        ("said → heard, p99 ms", found["heard_ms"]["p99"]),
    ]
    report.table("Sockets of chat on one process", ("", ""), rows)
    report.save("chat", result)
    return result


async def _measure(
    settings: Settings,
    base: str,
    processes: dict[str, psutil.Process],
    sockets: int,
    runs: int,
) -> dict[str, Any]:
    users = [f"bench-{n}" for n in range(min(GROUP, sockets))]
    tokens = _tokens(settings, users)
    groups = max(1, sockets // len(users))
    rooms = [_room(base, tokens[users[0]], users) for _ in range(groups)]
    delays_ms: list[float] = []
    await _open(base, [tokens[users[0]]], rooms[:1], delays_ms)  # what the first socket opens
    before = _resident(processes["api"])
    began = time.perf_counter()
    opened = await _open(base, [tokens[user] for user in users], rooms, delays_ms)
    took_s = time.perf_counter() - began
    await asyncio.sleep(1.0)
    resident = _resident(processes["api"]) - before
    hall = Hall(opened, rooms, delays_ms)
    await hall.talk(SECONDS / 4, 0.0)  # warm
    rates = [await hall.talk(SECONDS, 0.0) for _ in range(runs)]
    delays_ms.clear()
    calm = await hall.talk(SECONDS, PAUSE_S)
    hall.check()
    hall.close()
    count = sum(map(len, opened))
    p50, p99 = np.percentile(delays_ms, (50, 99)).tolist()
    return {
        "opened_per_s": round(count / took_s),
        "kib_a_socket": round(resident / 1024 / count, 1),
        "told_per_s": round(median(rates)),
        "told_per_s_by_run": [round(one) for one in rates],
        "heard_ms": {"p50": round(p50, 1), "p99": round(p99, 1), "told_per_s": round(calm)},
    }


def _tokens(settings: Settings, users: Sequence[str]) -> dict[str, str]:
    issuer = DevIssuer(home() / "keys", settings.api.issuer, settings.api.audience)
    return {user: issuer.token(user, [READ, WRITE], 3_600) for user in users}


def _room(base: str, token: str, users: Sequence[str]) -> str:
    headers = {"Authorization": f"Bearer {token}", "Prefer": "wait=30"}
    with httpx.Client(base_url=base, headers=headers, timeout=60) as client:
        answer = client.post("/v1/conversations", json={"members": list(users[1:]) or ["nobody"]})
        made: str = answer.raise_for_status().json()["conversationId"]
        after = {"Headrace-After": answer.headers["Headrace-Position"], "Prefer": "wait=10"}
        until_s = time.monotonic() + PATIENCE_S
        while not client.get(f"/v1/conversations/{made}", headers=after).is_success:
            if time.monotonic() > until_s:
                raise TimeoutError("the history does not get there")
    return made


async def _open(
    base: str, tokens: Sequence[str], rooms: Sequence[str], delays_ms: list[float]
) -> list[list[Socket]]:
    host, port = base.removeprefix("http://").split(":")
    loop, room_for = asyncio.get_running_loop(), asyncio.Semaphore(OPENING)

    async def one(n: int, token: str, room: str) -> Socket:
        async with room_for:
            _, socket = await loop.create_connection(
                lambda: Socket(n % LISTENERS == 0, delays_ms), host, int(port)
            )
            socket.open(host, token, room)
            await asyncio.wait_for(socket.live, PATIENCE_S)
            return socket

    return [
        await asyncio.gather(*(one(n, token, room) for n, token in enumerate(tokens)))
        for room in rooms
    ]


def _resident(process: psutil.Process) -> int:
    family = (process, *process.children(recursive=True))
    return sum(int(one.memory_info().rss) for one in family)
