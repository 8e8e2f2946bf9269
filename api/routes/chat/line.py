"""One socket's outgoing side: a bounded queue, so that a slow client costs nobody but itself."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

FRAMES_MAX: Final = 512
CHARS_MAX: Final = 1 << 20
"""More than either waiting for one client, and it is cut: it resumes at the entry it has."""
TOGETHER_CHARS: Final = 1 << 15
"""Frames that wait are sent as lines of one message, up to about so much."""

SLOW, AGAIN, SILENT, ENDING = 4008, 4009, 4010, 1012
"""Why a line is cut: the client is slow; what it follows has to be taken up again; nothing was
heard of it; the server ends. Close codes (RFC 6455, 7.4); after any of them a client comes back.
"""


class Line:
    """What is to be sent to one session. Used from one event loop; `next` has one caller."""

    __slots__ = ("_chars", "_code", "_empty", "_frames", "_on_cut", "_wake", "heard_s", "session",
                 "user")  # fmt: skip

    def __init__(
        self, user: str, session: str, heard_s: float, on_cut: Callable[[], object]
    ) -> None:
        self.user = user
        self.session = session
        self.heard_s = heard_s
        self._on_cut = on_cut
        self._frames: deque[str] = deque()
        self._chars = 0
        self._code = 0
        self._wake: asyncio.Future[None] | None = None
        self._empty: asyncio.Future[None] | None = None

    @property
    def code(self) -> int:
        """Why it was cut; 0: it was not."""
        return self._code

    def offer(self, frame: str) -> None:
        """Queue a frame, or cut the line if too much waits."""
        if self._code:
            return
        if len(self._frames) >= FRAMES_MAX or self._chars + len(frame) > CHARS_MAX:
            self.cut(SLOW)
            return
        self._frames.append(frame)
        self._chars += len(frame)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def cut(self, code: int) -> None:
        """End the line; what waits is not sent."""
        if not self._code:
            self._code = code
            self._frames.clear()
            self._on_cut()

    async def next(self) -> str:
        """What to send next: as many frames as wait, one a line."""
        if not self._frames:
            if self._empty is not None and not self._empty.done():
                self._empty.set_result(None)
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
            self._wake = None
        taken = [self._frames.popleft()]
        size = len(taken[0])
        while self._frames and size < TOGETHER_CHARS:
            taken.append(self._frames.popleft())
            size += len(taken[-1])
        self._chars -= size
        return taken[0] if len(taken) == 1 else "\n".join(taken)

    async def sent(self) -> None:
        """Returns when nothing waits: history goes out at the pace of its reader. For one caller
        at a time.
        """
        if self._frames:
            self._empty = asyncio.get_running_loop().create_future()
            await self._empty
            self._empty = None
