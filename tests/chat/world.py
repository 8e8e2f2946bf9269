"""A log, a history that is behind it, a follower that is behind both, and sockets: by hand."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from api.routes.chat.hub import Hub
from api.routes.chat.line import Line
from connectors.tail import Decided
from schemas.chat.events import EVENTS, ConversationChanged, ReceiptMoved
from sinks.chat.reader import Conversation, Entry, Mark
from streams.runtime.kafka import partition_of
from streams.runtime.metrics.edge import Chat
from streams.runtime.position import Position
from tests.chat.desk import ROOM, Desk

PARTITION = partition_of(ROOM, EVENTS.partitions)


class World:
    """One partition. `folded` and `brought` are how far history and follower are."""

    def __init__(self, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.desk = Desk()
        self.log: list[Any] = []
        self.folded = self.brought = 0
        self.loose = False
        """Whether the history shows some rows of what it has not folded, out of order."""
        self.told: list[tuple[str, str]] = []
        self.beats: list[tuple[str, str]] = []
        self.tails = 0
        self.hear: Callable[[str, str], None] = lambda *_: None
        self.failed: Callable[[BaseException], None] = lambda _: None
        self.hub = Hub(
            self, self, tail=self._tail, typing=self._typing, metrics=Chat(CollectorRegistry())
        )

    # -- the log ----------------------------------------------------------------------------

    def write(self) -> None:
        """What was decided is in the log now."""
        self.log = self.desk.log.events

    def fold(self, rows: int = 10**9) -> None:
        """The history gets so much further."""
        self.folded = min(len(self.log), self.folded + rows)

    def bring(self, rows: int = 10**9) -> None:
        """The follower gets so much further, if there is one."""
        some = self.log[self.brought : self.brought + rows]
        if self.tails and some:
            first, self.brought = self.brought, self.brought + len(some)
            self.hub.take(Decided(PARTITION, list(enumerate(some, first)), self.brought))

    def catch_up(self) -> None:
        """Everything is everywhere."""
        self.write()
        self.fold()
        self.bring()

    def _tail(
        self, hand: Callable[[Decided], None], failed: Callable[[BaseException], None]
    ) -> World:
        self.tails, self.failed = self.tails + 1, failed
        return self

    def start(self, positions: Mapping[int, Position]) -> dict[int, int]:
        self.brought = positions[PARTITION].next_offset
        return {at: one.next_offset for at, one in positions.items()}

    async def stop(self) -> None:
        """Nothing runs."""

    # -- the history ------------------------------------------------------------------------

    async def positions(self) -> dict[int, Position]:
        return {PARTITION: Position.start("topic", self.folded)}

    async def applied(self) -> dict[tuple[str, int], int]:
        return {(EVENTS.name, PARTITION): self.folded}

    async def conversation(self, conversation_id: str) -> Conversation | None:
        mine = [e for e in self._entries(self.folded) if e.conversation_id == conversation_id]
        named = [e for e in mine if e.members_seq == e.seq]
        if not mine:
            return None
        told = named[-1]
        return Conversation(
            *(conversation_id, told.kind, told.title, told.owner, told.members),
            *(mine[-1].seq, mine[-1].recorded_at),
        )

    async def entries(self, conversation_id: str, after: int, limit: int) -> list[Entry]:
        await asyncio.sleep(0)
        shown = self._entries(self.folded)
        if self.loose:
            shown += [e for e in self._entries(len(self.log)) if self.chance.random() < 0.5]
        seqs = {e.seq: e for e in shown if e.conversation_id == conversation_id}
        found = []
        while after + 1 in seqs and len(found) < limit:
            after += 1
            found.append(_entry(seqs[after]))
        return found

    async def marks(self, conversation_id: str) -> list[Mark]:
        found = {r.user_id: r for r in self.log[: self.folded] if isinstance(r, ReceiptMoved)}
        return [Mark(user, r.delivered, r.read) for user, r in found.items()]

    def _entries(self, stop: int) -> list[ConversationChanged]:
        return [row for row in self.log[:stop] if isinstance(row, ConversationChanged)]

    # -- beside -----------------------------------------------------------------------------

    def _typing(self, hear: Callable[[str, str], None]) -> World:
        self.hear = hear
        return self

    async def __aenter__(self) -> World:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is open."""

    async def tell(self, conversation_id: str, user: str) -> None:
        self.told.append((conversation_id, user))
        self.hear(conversation_id, user)

    async def heard(self, sessions: Sequence[tuple[str, str]], server: str) -> None:
        self.beats += sessions

    async def left(self, sessions: Sequence[tuple[str, str]]) -> None:
        for one in sessions:
            self.beats.remove(one)


class Client:
    """A socket's other end: what it was told, and where it is in the room."""

    def __init__(self, world: World, user: str) -> None:
        self.world, self.user = world, user
        self.seqs: list[int] = []
        self.frames: list[dict[str, Any]] = []
        self.line: Line | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.failure: BaseException | None = None

    async def come(self, after: int | None = -1, written: int = -1) -> Line:
        """A new socket that takes up the room where this client is."""
        self.line = await self.world.hub.join(self.user, lambda: None)
        self._tasks = [asyncio.create_task(self._read(self.line))]
        at = (self.seqs[-1] if self.seqs else 0) if after == -1 else after
        self._tasks.append(asyncio.create_task(self._open(self.line, at, written)))
        return self.line

    async def go(self) -> None:
        """The socket is cut; what was on its way is lost."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self.line is not None:
            await self.world.hub.part(self.line)
        self.line = None

    def stall(self) -> None:
        """Take nothing more off the line."""
        self._tasks[0].cancel()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame["type"] == kind]

    async def _open(self, line: Line, after: int | None, written: int) -> None:
        try:
            await self.world.hub.open(line, ROOM, after, {(EVENTS.name, PARTITION): written})
        except Exception as error:
            self.failure = error

    async def _read(self, line: Line) -> None:
        while True:
            for text in (await line.next()).split("\n"):
                frame = json.loads(text)
                self.frames.append(frame)
                if frame["type"] == "entry":
                    self.seqs.append(frame["seq"])


def _entry(row: ConversationChanged) -> Entry:
    return Entry(
        *(row.seq, row.change, row.by, row.of, row.client_msg_id, row.body, row.reply_to),
        *(row.members, row.recorded_at),
    )


async def until(holds: Callable[[], object]) -> None:
    """Let everything go on until it holds; `TimeoutError` if it never does."""
    async with asyncio.timeout(30):
        while True:
            if holds():
                return
            await asyncio.sleep(0.001)


async def a_while() -> None:
    """Time for what should not happen to happen."""
    await asyncio.sleep(0.05)
