"""What is read of one partition and not handed over yet."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import Message

from streams.runtime.lane.span import Seat, Span, offset_of, since

ATTEND_S = 5.0
"""How often a partition that stays silent is attended to again."""


class Pending:
    """The records of one seat in offset order, from `begins` on, without a hole.

    A hole cannot be told from a gap in the log, and a client may still give records that it read
    before the seat began. So the first record has to be the one asked for; else the partition is
    read again from `begins`, and if the same record comes first again, the log has a gap there.
    """

    def __init__(self, seat: Seat, begins: int) -> None:
        self.seat = seat
        self.begins = begins
        self.messages: Sequence[Message] = []
        self.since = 0.0
        self.handed = time.monotonic()
        self.attended = 0.0
        self._follows = begins
        self._settled = False
        self._doubted = -1

    def take(self, messages: Sequence[Message], now: float) -> bool:
        """Take consecutive records; False when the partition has to be read from `begins` again.

        Records that were taken before are left out.
        """
        if offset_of(messages, 0) < self._follows:
            messages = since(messages, self._follows)
            if not messages:
                return True
        first = offset_of(messages, 0)
        if not self._settled and first not in (self.begins, self._doubted):
            self._doubted = first
            return False
        self._settled = True
        if self.messages:
            self.messages += messages  # type: ignore[operator]  # lists and columns both grow
        else:
            self.messages, self.since = messages, now
        self._follows = offset_of(messages, -1) + 1
        self.attended = 0.0
        return True

    def cut(self, rows: int, now: float) -> Span:
        """Take out a span of at most so many records."""
        span = Span(self.seat, self.messages[:rows], begins=self.begins)
        self.messages = self.messages[rows:]
        self.begins = span.next_offset
        self.handed = self.since = now
        return span

    def forgotten(self, now: float, idle_s: float) -> bool:
        """Whether it has been silent for so long that it should be attended to."""
        if self.attended:
            return now - self.attended >= ATTEND_S
        return now - self.handed >= idle_s
