"""What an owner asks of the world, and what it is given: the border of the core without I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import msgspec

from streams.runtime.decider.replies import Answer
from streams.runtime.decider.state import Image
from streams.runtime.decider.wire import Headers
from streams.runtime.position import FilterState


class CommandsReplaced(RuntimeError):
    """The event log answers the commands of another topic than the one that is there now."""


class Phase(StrEnum):
    WAITING = "waiting"
    CLAIMING = "claiming"
    OWNING = "owning"


class Ports(Protocol):
    """What an owner asks of the world. None of it may block for long or call the owner back."""

    def monotonic_ms(self) -> int: ...

    def wall_ms(self) -> int: ...

    def nonce(self) -> str:
        """128 random bits in hexadecimal."""
        ...

    def spread(self) -> float:
        """A random number between 0 and 1."""
        ...

    @property
    def append(self) -> Callable[[str, bytes, bytes, Headers], None]:
        """Sends a record to the event partition, once: nonce, key, value, headers. If that fails or
        its outcome is unknown, `Owner.failed(nonce)` must be called, unless the process ends.
        """
        ...

    def ask_commands(self, offset: int) -> None:
        """Hand over the commands from `offset` on. Those handed over before are void."""
        ...

    def answer(self, reply_to: str, answer: Answer) -> None: ...

    def snapshot(self, image: Image, filter_state: FilterState, last: Last) -> None:
        """Keep this state; `last` is the record it ends with."""
        ...


class Records(Protocol):
    """Consecutive records of the event partition."""

    offsets: Sequence[int]
    values: Sequence[bytes | None]
    headers: Sequence[Headers | None]
    decisions: Sequence[bytes | None]
    """The decision header of each record, unread; None where its first header is another."""

    def append_ms(self, at: int) -> int:
        """The log's append time of a record, by index."""
        ...


class Last(msgspec.Struct, frozen=True, gc=False):
    """The record that a state ends with, to be found again in the log (A11)."""

    offset: int
    value: bytes | None
    headers: Headers | None


@dataclass
class Tally:
    """What happened since the owner was made, for metrics and tests."""

    decided: Counter[str]
    stale: Counter[str]
    abandoned: Counter[str]
    claims: int = 0
    folded: int = 0
    """Events of other epochs, or before this one, that were folded."""
