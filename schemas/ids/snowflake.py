"""What the 64 bits of an id mean: one zero bit, 41 of time, 10 of worker, 12 of sequence.

The layout of Twitter's Snowflake (2010). Ids are positive, and rise with time to the millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TIME_BITS: Final = 41
WORKER_BITS: Final = 10
SEQUENCE_BITS: Final = 12
WORKERS: Final = 1 << WORKER_BITS
PER_MS: Final = 1 << SEQUENCE_BITS
"""Ids that one worker can make in a millisecond."""
ID_MAX: Final = (1 << 63) - 1
PUBLIC_CHARS: Final = 11
"""Of an id's public form: 62**11 > 2**63, so every id has one, and few other texts are one."""

EPOCH_MS: Final = 1_577_836_800_000
"""2020-01-01; 41 bits of milliseconds last until September 2089."""
TWITTER_EPOCH_MS: Final = 1_288_834_974_657


@dataclass(frozen=True, slots=True)
class Parts:
    """One id, taken apart."""

    time_ms: int
    worker: int
    sequence: int


def first_id(time_ms: int, worker: int, epoch_ms: int = EPOCH_MS) -> int:
    """The id with sequence 0; the next 4,095 follow it. Raises `ValueError` for a time or a worker
    that the bits do not hold.
    """
    since = time_ms - epoch_ms
    if not 0 <= since < 1 << TIME_BITS:
        raise ValueError(f"{time_ms} ms is outside of the 41 bits from {epoch_ms} ms")
    if not 0 <= worker < WORKERS:
        raise ValueError(f"worker {worker} is not in 0..{WORKERS - 1}")
    return since << WORKER_BITS + SEQUENCE_BITS | worker << SEQUENCE_BITS


def parts(id_: int, epoch_ms: int = EPOCH_MS) -> Parts:
    """Take an id apart. Raises `ValueError` outside of 0..2**63 - 1."""
    if not 0 <= id_ <= ID_MAX:
        raise ValueError(f"{id_} is not in 0..2**63 - 1")
    time_ms = (id_ >> WORKER_BITS + SEQUENCE_BITS) + epoch_ms
    return Parts(time_ms, id_ >> SEQUENCE_BITS & WORKERS - 1, id_ & PER_MS - 1)
