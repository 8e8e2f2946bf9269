"""One socket's place in one conversation: first the history, then what comes."""

from __future__ import annotations

from typing import Final

from api.routes.chat.line import AGAIN, Line

HELD_MAX: Final = 10_000
"""Entries that are kept for a client while it is told the history."""


class Follow:
    """One line's place in one conversation. `held` is what came while the history is told."""

    __slots__ = ("ended", "held", "line", "next_seq")

    def __init__(self, line: Line) -> None:
        self.line = line
        self.next_seq = 0
        self.held: list[tuple[int, str]] | None = []
        self.ended = False

    def entry(self, seq: int, frame: str) -> None:
        """An entry that the log brings; those told before are passed over."""
        if self.held is not None:
            self._hold(seq, frame)
        elif seq == self.next_seq:
            self.next_seq += 1
            self.line.offer(frame)
        elif seq > self.next_seq:
            self.line.cut(AGAIN)

    def signal(self, frame: str) -> None:
        """Something without a number."""
        if self.held is not None:
            self._hold(0, frame)
        else:
            self.line.offer(frame)

    def live(self, next_seq: int) -> None:
        """The history is told up to `next_seq`: go on with what was kept."""
        kept, self.held, self.next_seq = self.held or (), None, next_seq
        for seq, frame in kept:
            if seq:
                self.entry(seq, frame)
            else:
                self.line.offer(frame)

    def _hold(self, seq: int, frame: str) -> None:
        assert self.held is not None
        if len(self.held) >= HELD_MAX:
            self.line.cut(AGAIN)
        else:
            self.held.append((seq, frame))
