"""The sockets of one process, and what they follow: one reader of the log for all of them.

**Without a gap or a repeat.** Whoever takes up a conversation is registered first, so that from
that moment everything the log brings is kept for it; then the history is waited for until it has
all that the log had brought before, and told from the entry that is asked for; then what was kept
follows. Entries are numbered without gaps, so what was in both is told once, and a missing one
cannot go unnoticed: the line is cut, and the client takes up again where it is.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

import structlog

from api.positions import Looks, Partition
from api.routes.chat import frames
from api.routes.chat.follow import Follow
from api.routes.chat.line import AGAIN, ENDING, SILENT, Line
from api.routes.chat.ports import Follows, History, Sessions, Tells
from connectors.asking import Refused
from connectors.tail import Decided
from schemas.chat.events import EVENTS, ConversationChanged, ReceiptMoved
from sinks.chat.reader import Conversation
from streams.runtime.ending import end
from streams.runtime.kafka import partition_of
from streams.runtime.metrics.edge import Chat
from streams.runtime.sink import SinkError, SinkUnavailable

SILENT_S: Final = 45.0
"""A socket that was not heard of for so long is cut."""
HEARTBEAT_MS: Final = 15_000
BEAT_S: Final = 5.0
"""How often heartbeats are passed on to presence, all of a process in one call."""
PAGE_ROWS: Final = 256
PART_S: Final = 1.0
HISTORY_WAIT_S: Final = 10.0
RECEIPTS_TO_MAX: Final = 100
"""Receipts of a conversation with more sockets here are stored and not pushed: that everybody
hears how far everybody is grows with the square of a group.
"""
LINES_MAX: Final = 32
"""Sockets of one user in one process."""

log = structlog.get_logger()


class Hub:
    """Lines, and who follows what. One event loop; nothing is opened before the first line.

    `tail(hand, failed)` makes a follower of the log, `typing(hear)` a channel that is entered.
    """

    def __init__(
        self,
        history: History,
        sessions: Sessions,
        *,
        tail: Callable[[Callable[[Decided], None], Callable[[BaseException], None]], Follows],
        typing: Callable[[Callable[[str, str], None]], Any],
        metrics: Chat,
    ) -> None:
        self._history = history
        self._looks = Looks(history)
        self._sessions = sessions
        self._tail_of, self._typing_of = tail, typing
        self._metrics = metrics
        self._server = uuid.uuid4().hex
        self._log = ""
        """Kafka's id of the topic, where it is known: numbers of another one mean nothing here."""
        self._lines: dict[str, set[Line]] = {}
        self._places: dict[Line, dict[str, Follow]] = {}
        self._follows: dict[str, dict[Line, Follow]] = {}
        self._next: dict[int, int] = {}
        self._tail: Follows | None = None
        self._typing: Tells | None = None
        self._opened = AsyncExitStack()
        self._starting = asyncio.Lock()
        self._empty = asyncio.Event()
        self._empty.set()

    async def close(self) -> None:
        """Cut all lines, wait for them to part, and end."""
        for line in list(self._places):
            line.cut(ENDING)
        with suppress(TimeoutError):
            async with asyncio.timeout(PART_S):
                await self._empty.wait()
        if self._tail is not None:
            await self._tail.stop()
        await self._opened.aclose()
        await self._looks.close()

    # -- lines ----------------------------------------------------------------------------------

    async def join(self, user: str, on_cut: Callable[[], object]) -> Line:
        """A line for a new socket. Raises `SinkUnavailable` while there is no history to tell, and
        `Refused` past `LINES_MAX`.
        """
        await self._start()
        line = Line(user, uuid.uuid4().hex, time.monotonic(), on_cut)
        await self._try(self._sessions.heard([(user, line.session)], self._server))
        await self._start()  # meanwhile the log may have been lost; from here on nothing is
        if len(self._lines.get(user, ())) >= LINES_MAX:
            raise Refused(429, "too_many_sockets", f"a user has at most {LINES_MAX} sockets here")
        self._lines.setdefault(user, set()).add(line)
        self._places[line] = {}
        self._empty.clear()
        self._metrics.sockets.set(len(self._places))
        line.offer(frames.welcome(user, line.session, HEARTBEAT_MS, self._log))
        return line

    async def part(self, line: Line) -> None:
        """The socket has ended."""
        for conversation_id in list(self._places.get(line, ())):
            self.leave(line, conversation_id)
        self._places.pop(line, None)
        own = self._lines.get(line.user, set())
        own.discard(line)
        if not own:
            self._lines.pop(line.user, None)
        if not self._places:
            self._empty.set()
        self._metrics.sockets.set(len(self._places))
        if line.code:
            self._metrics.cuts.labels(str(line.code)).inc()
        await self._try(self._sessions.left([(line.user, line.session)]))

    # -- conversations --------------------------------------------------------------------------

    async def open(
        self, line: Line, conversation_id: str, after: int | None, written: Mapping[Partition, int]
    ) -> None:
        """Tell a line the entries behind `after` (None: none of them) and then all that come, once
        the history has what was `written`.

        Raises `Refused`, `SinkError`, and `SinkUnavailable` where the history does not get there.
        """
        self.leave(line, conversation_id)
        follow = Follow(line)
        self._places[line][conversation_id] = follow
        self._follows.setdefault(conversation_id, {})[line] = follow
        try:
            found = await self._caught_up(line.user, conversation_id, after or 0, written)
            at = found.last_seq if after is None else after
            at = await self._tell(follow, conversation_id, at) if after is not None else at
            marks = await self._history.marks(conversation_id)
        except BaseException:
            self._forget(follow, conversation_id)
            raise
        if not follow.ended:
            line.offer(frames.live(conversation_id, at, marks))
            follow.live(at + 1)

    def leave(self, line: Line, conversation_id: str) -> None:
        """A line follows a conversation no longer."""
        follow = self._places.get(line, {}).get(conversation_id)
        if follow is not None:
            self._forget(follow, conversation_id)

    async def typing(self, line: Line, conversation_id: str) -> None:
        """Tell the others that this one writes."""
        follow = self._places[line].get(conversation_id)
        if follow is not None and follow.held is None and self._typing is not None:
            await self._typing.tell(conversation_id, line.user)

    def _forget(self, follow: Follow, conversation_id: str) -> None:
        follow.ended = True
        line, others = follow.line, self._follows.get(conversation_id, {})
        if others.get(line) is follow:
            del others[line]
            self._places[line].pop(conversation_id, None)
            if not others:
                del self._follows[conversation_id]

    async def _caught_up(
        self, user: str, conversation_id: str, after: int, written: Mapping[Partition, int]
    ) -> Conversation:
        """The conversation, once the history has all that the log had brought when this began,
        what the client has written, and the entry that it has.
        """
        partition = partition_of(conversation_id, EVENTS.partitions)
        place = (EVENTS.name, partition)
        behind = max(self._next[partition], written.get(place, -1) + 1)
        until_s = time.monotonic() + HISTORY_WAIT_S
        while (await self._looks.next()).get(place, 0) < behind:
            if time.monotonic() > until_s:
                raise SinkUnavailable(f"{EVENTS.name}: the history is behind {behind}")
        while True:
            found = await self._history.conversation(conversation_id)
            if found is None or user not in found.members:
                raise Refused(404, "no_conversation", "there is no such conversation")
            if found.last_seq >= after:
                return found
            if time.monotonic() > until_s:
                raise Refused(409, "no_such_entry", f"there is no entry {after}")
            await self._looks.next()  # another process may have been ahead of this one

    async def _tell(self, follow: Follow, conversation_id: str, at: int) -> int:
        """Tell what is behind `at`; returns the number of the last one told."""
        while not follow.ended:
            await follow.line.sent()
            page = await self._history.entries(conversation_id, at, PAGE_ROWS)
            for one in page:
                follow.line.offer(frames.entry(conversation_id, one))
            self._metrics.frames.labels("history").inc(len(page))
            at += len(page)
            if len(page) < PAGE_ROWS:
                break
        return at

    # -- what the log brings --------------------------------------------------------------------

    def take(self, decided: Decided) -> None:
        """Pass on what was decided."""
        for _, row in decided.rows:
            match row:
                case ConversationChanged():
                    self._entry(row)
                case ReceiptMoved():
                    if len(self._follows.get(row.conversation_id, ())) <= RECEIPTS_TO_MAX:
                        self._signal(row.conversation_id, frames.receipt(row), "receipt")
        if decided.rows:
            self._next[decided.partition] = decided.rows[-1][0] + 1

    def _entry(self, row: ConversationChanged) -> None:
        followers = self._follows.get(row.conversation_id)
        if followers:
            frame = frames.entry(row.conversation_id, row)
            for follow in followers.values():
                follow.entry(row.seq, frame)
            self._metrics.frames.labels("entry").inc(len(followers))
        for user in row.added:
            for line in self._lines.get(user, ()):
                if row.conversation_id not in self._places[line]:
                    line.offer(frames.joined(row))
        for user in row.removed:
            for line in self._lines.get(user, ()):
                if row.conversation_id in self._places[line]:
                    line.offer(frames.left(row.conversation_id))
                    self.leave(line, row.conversation_id)

    def _signal(self, conversation_id: str, frame: str, kind: str, but: str = "") -> None:
        followers = self._follows.get(conversation_id, {})
        told = [one for line, one in followers.items() if not but or line.user != but]
        for follow in told:
            follow.signal(frame)
        self._metrics.frames.labels(kind).inc(len(told))

    def _typed(self, conversation_id: str, user: str) -> None:
        self._signal(conversation_id, frames.typing(conversation_id, user), "typing", user)

    # -- what runs beside -----------------------------------------------------------------------

    async def _start(self) -> None:
        async with self._starting:
            if self._tail is None:
                positions = await self._history.positions()
                tail = self._tail_of(self.take, self._lost)
                self._next = tail.start(positions)
                self._tail = tail
                self._log = next((one.topic_id for one in positions.values()), "")
            if self._typing is None:
                beats = asyncio.create_task(self._beat())
                self._opened.push_async_callback(end, beats)
                self._typing = await self._opened.enter_async_context(self._typing_of(self._typed))

    def _lost(self, error: BaseException) -> None:
        """The log cannot be followed on: everybody takes up again, from the history."""
        log.error("the log of chat is followed anew", error=str(error))
        self._tail = None
        for line in list(self._places):
            line.cut(AGAIN)

    async def _beat(self) -> None:
        while True:
            since_s = time.monotonic()
            await asyncio.sleep(BEAT_S)
            heard = []
            for line in list(self._places):
                if line.heard_s >= since_s:
                    heard.append((line.user, line.session))
                elif time.monotonic() - line.heard_s > SILENT_S:
                    line.cut(SILENT)
            await self._try(self._sessions.heard(heard, self._server))

    async def _try(self, presence: Awaitable[None]) -> None:
        """Presence is not needed for delivery."""
        try:
            await presence
        except SinkError as error:
            log.warning("presence is not told", error=str(error))
