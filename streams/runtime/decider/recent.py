"""What another owner decided just before this one: it may have died before it could tell (A9)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from streams.runtime.decider.folded import Told
from streams.runtime.decider.rules import Envelope

YOUNGER_MS = 60_000
"""What is not older is answered again."""
MOST = 20_000
"""So many verdicts at most, the newest."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A verdict that was read from the log: when its event was appended, what to tell whom, and the
    source offset of its command.
    """

    append_ms: int
    told: Told
    envelope: Envelope
    source_offset: int


class Recent:
    """The newest verdicts of others, until they are told again."""

    def __init__(self) -> None:
        self._heard: deque[Heard] = deque(maxlen=MOST)

    def add(self, heard: Heard) -> None:
        """Remember a verdict, in log order."""
        self._heard.append(heard)

    def take(self, now_ms: int) -> Iterator[Heard]:
        """Those young enough by the wall clock, each once; the others are forgotten."""
        while self._heard:
            one = self._heard.popleft()
            if one.append_ms >= now_ms - YOUNGER_MS:
                yield one
