"""A TCP proxy that fails on demand: delay, cut, refuse, swallow requests or replies."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field


@dataclass
class Faults:
    """What happens to connections now. All at their defaults: nothing."""

    down: bool = False
    """New connections are refused (closed at once) and open ones are cut."""
    delay_s: float = 0.0
    """Every chunk waits so long, in both directions."""
    hold_requests: bool = False
    """What clients send stays here until this ends, also when they are gone by then."""
    drop_replies: float = 0.0
    """Probability that a reply is lost: the request has arrived, the line dies."""


@dataclass
class Proxy:
    """Forwards `127.0.0.1:port` to another port of this machine; runs in a thread of its own."""

    target: int
    seed: int = 0
    faults: Faults = field(default_factory=Faults)
    seen: Counter[str] = field(default_factory=Counter)
    """How often what has happened: connections, refused, cut, dropped."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._writers: set[asyncio.StreamWriter] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        self.port: int = self._server.sockets[0].getsockname()[1]

    def set(self, **faults: float | bool) -> None:
        """Change what happens from now on."""
        self.faults = Faults(**faults)  # type: ignore[arg-type]
        turn = self._open.clear if self.faults.hold_requests else self._open.set
        self._loop.call_soon_threadsafe(turn)
        if self.faults.down:
            asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(10)

    def cut(self) -> None:
        """Cut one of the open connections, at random; new ones are taken."""
        asyncio.run_coroutine_threadsafe(self._cut_one(), self._loop).result(10)

    def heal(self) -> None:
        """Forward everything."""
        self.set()

    def close(self) -> None:
        """Cut everything and end."""
        self.set(down=True)
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def _end(self) -> None:
        self._server.close()
        await self._server.wait_closed()
        lines = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in lines:
            task.cancel()
        await asyncio.gather(*lines, return_exceptions=True)

    async def _cut(self) -> None:
        for writer in list(self._writers):
            self.seen["cut"] += 1
            writer.transport.abort()

    async def _cut_one(self) -> None:
        if self._writers:
            self.seen["cut"] += 1
            self._random.choice(sorted(self._writers, key=id)).transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.seen["connections"] += 1
        if self.faults.down:
            self.seen["refused"] += 1
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, far_writer}
        self._writers |= pair
        try:
            await asyncio.gather(
                self._pipe(reader, far_writer, pair, reply=False),
                self._pipe(far_reader, writer, pair, reply=True),
            )
        finally:
            self._writers -= pair
            for one in pair:
                one.transport.abort()

    async def _pipe(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        pair: set[asyncio.StreamWriter],
        *,
        reply: bool,
    ) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                if self.faults.delay_s:
                    await asyncio.sleep(self.faults.delay_s)
                if not reply:
                    await self._open.wait()
                if reply and self._random.random() < self.faults.drop_replies:
                    self.seen["dropped"] += 1
                    break
                sink.write(data)
                await sink.drain()
        for one in pair:
            one.transport.abort()
