"""Read your writes: positions in headers, and the bounded wait for a read model to reach them.

    Headrace-Position  (answer to a write)  where the events are: `topic/partition/offset, ...`
    Headrace-Applied   (answer to a read)   every event up to these is in the answer
    Headrace-After     (request of a read)  answer only when these are applied
    Prefer: wait=5     (request of a read)  for at most so many seconds (RFC 7240); 2 by default

All three have one form, so what a write or a read answered can be sent back as it is: the former
gives read-your-writes, the latter reads that never go back in time. When the wait is over the
answer is 504 with `Retry-After`, never older data.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Protocol

from fastapi import Header

from api.problem import InputError, Problem, busy, invalid
from connectors.producer import RecordMetadata
from streams.runtime.ending import end

POSITION = "Headrace-Position"
APPLIED = "Headrace-Applied"
AFTER = "Headrace-After"

WAIT_MS = 2_000
WAIT_MS_MAX = 10_000
LOOK_MS = 5
"""Pause between two looks at a read model's position while reads wait for it."""
POSITIONS_MAX = 64
_ONE = re.compile(r"([a-zA-Z0-9._-]{1,249})/(\d{1,9})/(\d{1,18})", re.ASCII)
_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,6})\"?\s*(?:$|[,;])", re.ASCII)

Partition = tuple[str, int]
"""Topic name and partition."""


class AppliedSource(Protocol):
    """How far a read model is folded."""

    async def applied(self) -> Mapping[Partition, int]:
        """The first offset *not* folded yet, of every partition that has a position."""
        ...


@dataclass(frozen=True)
class After:
    """The positions a read must have passed, and how long it may wait."""

    offsets: Mapping[Partition, int]
    wait_ms: int = WAIT_MS

    def passed(self, applied: Mapping[Partition, int]) -> bool:
        """Whether a read model with these next offsets has folded all that is wanted."""
        return all(applied.get(place, 0) > offset for place, offset in self.offsets.items())


class Looks:
    """One look at a read model's position for all reads that wait for it, however many."""

    def __init__(self, source: AppliedSource) -> None:
        self._source = source
        self._next: asyncio.Task[Mapping[Partition, int]] | None = None

    async def next(self) -> Mapping[Partition, int]:
        """What the next look finds; raises what it raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._look())
            # The reads may be gone by then; its failure is theirs to tell, not the loop's.
            self._next.add_done_callback(lambda look: look.cancelled() or look.exception())
        return await asyncio.shield(self._next)

    async def close(self) -> None:
        """End a look whose reads have gone, before its source is closed under it."""
        if self._next is not None:
            await end(self._next)

    async def _look(self) -> Mapping[Partition, int]:
        try:
            await asyncio.sleep(LOOK_MS / 1_000)
            return await self._source.applied()
        finally:
            self._next = None


class Waiting:
    """Bounds the reads that wait at once, so that they cannot take all places of the server."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._looks: dict[int, Looks] = {}

    def looks(self, source: AppliedSource) -> Looks:
        """The looks that all waiting reads of a source share; sources live as long as the app."""
        return self._looks.setdefault(id(source), Looks(source))

    async def close(self) -> None:
        """End all looks."""
        for looks in self._looks.values():
            await looks.close()

    def __enter__(self) -> None:
        if self._free <= 0:
            raise busy("as many reads as may already wait for their position")
        self._free -= 1

    def __exit__(self, *_: object) -> None:
        self._free += 1


def header(written: Iterable[RecordMetadata]) -> str:
    """The header value of written records: the last offset of each partition."""
    last: dict[Partition, int] = {}
    for record in written:
        place = (record.topic, record.partition)
        last[place] = max(record.offset, last.get(place, -1))
    return _text(last)


def _text(offsets: Mapping[Partition, int]) -> str:
    return ", ".join(f"{topic}/{part}/{at}" for (topic, part), at in sorted(offsets.items()))


def parse(text: str) -> dict[Partition, int]:
    """The inverse of `header`; raises the 422 problem. Of one partition twice, the later wins."""
    found: dict[Partition, int] = {}
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts[: POSITIONS_MAX + 1]:
        match = _ONE.fullmatch(part)
        if match is None:
            raise _bad("not a list of topic/partition/offset")
        place = (match[1], int(match[2]))
        found[place] = max(int(match[3]), found.get(place, -1))
    if len(parts) > POSITIONS_MAX:
        raise _bad(f"more than {POSITIONS_MAX} positions")
    return found


def _bad(detail: str) -> Problem:
    return invalid(f"{AFTER}: {detail}", InputError(detail=detail, parameter=AFTER))


async def after(
    positions: Annotated[
        str | None,
        Header(
            alias=AFTER,
            max_length=8_192,
            description="Answer only when these positions are applied: `topic/partition/offset`, "
            "comma separated, as a write or an earlier read answered them.",
            examples=["ads.events/2/1041"],
        ),
    ] = None,
    prefer: Annotated[
        str | None,
        Header(
            alias="Prefer",
            max_length=256,
            description=f"`wait=N` seconds for {AFTER}, at most {WAIT_MS_MAX // 1_000}.",
            examples=["wait=5"],
        ),
    ] = None,
) -> After:
    """Dependency: what the request asks to wait for."""
    return After(parse(positions or ""), preferred_wait_ms(prefer, WAIT_MS, WAIT_MS_MAX))


def preferred_wait_ms(prefer: str | None, default_ms: int, most_ms: int) -> int:
    """How long a request may wait, by `wait=N` of its `Prefer` header (RFC 7240)."""
    wait = _WAIT.search(prefer.lower()) if prefer else None
    return default_ms if wait is None else min(int(wait[1]) * 1_000, most_ms)


async def wait_for(
    wanted: After, source: AppliedSource, topics: Iterable[str], waiting: Waiting
) -> str:
    """Wait until the source has passed what is wanted; returns the `Headrace-Applied` value.

    Call it before the read: positions only grow, so the answer then holds at least that much.
    Raises 422 for a topic the read model does not fold (waiting for it would never end), 503
    when too many wait already, and 504 when the time is over.
    """
    known = frozenset(topics)
    foreign = sorted({topic for topic, _ in wanted.offsets if topic not in known})
    if foreign:
        raise _bad(f"this read model folds {', '.join(sorted(known))}, not {foreign[0]}")
    applied = await source.applied()
    if not wanted.passed(applied):
        with waiting:
            applied = await _wait(wanted, applied, waiting.looks(source))
    return _text({place: at - 1 for place, at in applied.items() if at > 0})


async def _wait(
    wanted: After, applied: Mapping[Partition, int], looks: Looks
) -> Mapping[Partition, int]:
    try:
        async with asyncio.timeout(wanted.wait_ms / 1_000):
            while not wanted.passed(applied):
                applied = await looks.next()
    except TimeoutError:
        raise _not_yet(wanted, applied) from None
    return applied


def _not_yet(wanted: After, applied: Mapping[Partition, int]) -> Problem:
    behind = {p: at for p, at in wanted.offsets.items() if applied.get(p, 0) <= at}
    reached = _text({place: at - 1 for place, at in applied.items() if at > 0})
    return Problem(
        HTTPStatus.GATEWAY_TIMEOUT,
        "not-applied-yet",
        f"after {wanted.wait_ms} ms the read model has not passed {_text(behind)}",
        headers={"Retry-After": "1", APPLIED: reached},
    )
