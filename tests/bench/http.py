"""A load generator for HTTP/1.1 that costs a few dozen microseconds a request.

On a machine of two cores the client is part of the load: aiohttp's costs as much as the server.
One keep-alive connection carries one request at a time; answers must have a Content-Length. What
the generator itself used and how late it sent are part of every result.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Self
from urllib.parse import urlsplit

import numpy as np

NO_ANSWER = 0
PERCENTILES = (50, 90, 99, 99.9)
_END = b"\r\n\r\n"
_LENGTH = b"content-length:"

Heard = Callable[[int, bytes, bytes], None]
"""Is told status, head and body of an answer; status 0: the connection broke."""


@dataclass
class Taken:
    """What one load took: milliseconds of each good answer, and what else was answered."""

    ms: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)
    """How long after its time each request was sent; a busy machine makes this grow."""
    refused: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0
    cores: dict[str, float] = field(default_factory=dict)
    """Processor seconds a second, by process."""


class _Connection(asyncio.Protocol):
    def __init__(self, free: deque[_Connection]) -> None:
        self._free = free
        self._got = bytearray()
        self._heard: Heard | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self, request: bytes, heard: Heard) -> None:
        assert self._transport is not None
        self._heard = heard
        self._transport.write(request)

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._got += data
        end = self._got.find(_END)
        if end < 0:
            return
        head = bytes(self._got[:end]).lower()
        at = head.index(_LENGTH) + len(_LENGTH)
        size = int(head[at : head.find(b"\r", at) if b"\r" in head[at:] else None])
        stop = end + len(_END) + size
        if len(self._got) < stop:
            return
        body = bytes(self._got[stop - size : stop])
        del self._got[:stop]
        self._tell(int(head[9:12]), head, body)

    def connection_lost(self, error: Exception | None) -> None:
        self._tell(NO_ANSWER, b"", b"")

    def _tell(self, status: int, head: bytes, body: bytes) -> None:
        heard, self._heard = self._heard, None
        if status != NO_ANSWER:
            self._free.append(self)
        if heard is not None:
            heard(status, head, body)


class Client:
    """Requests to one server, with one token. An async context manager."""

    def __init__(self, base: str, token: str) -> None:
        url = urlsplit(base)
        self._host, self._port = str(url.hostname), int(url.port or 80)
        self._common = f"Host: {url.netloc}\r\nAuthorization: Bearer {token}\r\n"
        self._free: deque[_Connection] = deque()
        self._all: list[_Connection] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for one in self._all:
            one.close()

    def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> bytes:
        """The bytes of a request."""
        more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        if body:
            more += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return f"{method} {path} HTTP/1.1\r\n{self._common}{more}\r\n".encode() + body

    async def connect(self, connections: int) -> None:
        """Have so many connections open."""
        await asyncio.gather(*(self._connect() for _ in range(connections - len(self._all))))

    async def ask(self, request: bytes) -> tuple[int, bytes, bytes]:
        """One request; status, head (lower case) and body of its answer."""
        answer: asyncio.Future[tuple[int, bytes, bytes]] = asyncio.Future()

        def heard(status: int, head: bytes, body: bytes) -> None:
            if not answer.done():
                answer.set_result((status, head, body))

        self.send(request, heard)
        return await answer

    def send(self, request: bytes, heard: Heard) -> None:
        """Send on a free connection, or on a new one."""
        while self._free:
            connection = self._free.popleft()
            if connection.open:
                connection.send(request, heard)
                return
        task = asyncio.ensure_future(self._connect())
        task.add_done_callback(
            lambda done: (
                heard(NO_ANSWER, b"", b"") if done.exception() else self.send(request, heard)
            )
        )

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        made = _Connection(self._free)
        await loop.create_connection(lambda: made, self._host, self._port)
        self._all.append(made)
        self._free.append(made)


async def open_loop(
    client: Client, rate: float, seconds: float, request: Callable[[int], bytes], good: int
) -> Taken:
    """Send request n at `n / rate`, whatever became of those before it; its clock starts then.

    `good` is the status of an answer that counts; others are counted by status.
    """
    taken, count = Taken(), int(rate * seconds)
    over = asyncio.get_running_loop().create_future()
    start = time.perf_counter()
    left = count

    def heard_of(due_s: float) -> Heard:
        def heard(status: int, _head: bytes, _body: bytes) -> None:
            nonlocal left
            left -= 1
            _note(taken, status, good, due_s)
            if not left:
                over.set_result(None)

        return heard

    for number in range(count):
        due_s = start + number / rate
        early_s = due_s - time.perf_counter()
        if early_s > 0 or not number % 64:  # a generator that is behind must still hear answers
            await asyncio.sleep(max(0.0, early_s))
        taken.late_ms.append((time.perf_counter() - due_s) * 1_000)
        client.send(request(number), heard_of(due_s))
    await over
    taken.seconds = time.perf_counter() - start
    return taken


async def closed_loop(
    client: Client,
    connections: int,
    seconds: float,
    request: Callable[[int], bytes],
    good: int,
) -> Taken:
    """As many requests as `connections` clients make that each wait for their answer."""
    taken, number, open_ = Taken(), 0, connections
    over = asyncio.get_running_loop().create_future()
    await client.connect(connections)
    start = time.perf_counter()

    def go() -> None:
        nonlocal number, open_
        sent_s = time.perf_counter()
        if sent_s - start >= seconds:
            open_ -= 1
            if not open_:
                over.set_result(None)
            return

        def heard(status: int, _head: bytes, _body: bytes) -> None:
            _note(taken, status, good, sent_s)
            go()

        client.send(request(number), heard)
        number += 1

    for _ in range(connections):
        go()
    await over
    taken.seconds = time.perf_counter() - start
    return taken


def _note(taken: Taken, status: int, good: int, since_s: float) -> None:
    if status == good:
        taken.ms.append((time.perf_counter() - since_s) * 1_000)
    else:
        taken.refused[status] += 1


def percentiles(runs: Iterable[Sequence[float]]) -> dict[str, float | None]:
    """The median over the runs of each run's exact percentiles."""
    found = [np.percentile(one, [*PERCENTILES, 100], method="higher") for one in runs if one]
    names = [*(f"p{p}" for p in PERCENTILES), "max"]
    if not found:
        return dict.fromkeys(names)
    return dict(zip(names, np.median(found, axis=0).round(2).tolist(), strict=True))


def figures(runs: Sequence[Taken], per_request: int = 1) -> dict[str, Any]:
    """What the runs of one load took; `per_request` things are in each request."""
    return {
        "answers_per_s": round(median(len(one.ms) / one.seconds for one in runs), 1),
        "per_s": round(median(per_request * len(one.ms) / one.seconds for one in runs)),
        "ms": percentiles([one.ms for one in runs]),
        "sent_late_ms": percentiles([one.late_ms for one in runs]),
        "cores": {n: round(median(one.cores[n] for one in runs), 2) for n in runs[0].cores},
        "answers": sum(len(one.ms) for one in runs),
        "refused": sum(one.refused.total() for one in runs),
        "refused_by_status": dict(sum((one.refused for one in runs), Counter())),
    }
