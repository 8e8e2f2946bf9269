"""Who may make which ids: worker numbers for spans of time, and ranges of numbers.

An id holds a worker number and a timestamp, so two ids are the same only if one number was given
to two makers for one millisecond. Every lease therefore has a span `[from_ms, until_ms)` of
timestamps that it may use, and of one number no two spans meet: the next begins where the last
ended, whatever any clock says. A holder that sleeps through its lease and wakes up can only use
its own span; a clock that is set back cannot leave it. No fencing of the makers is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import msgspec

from schemas.ids.events import (
    ALLOCATE_RANGE,
    END_LEASE,
    LEASE_CHANGED,
    LEASE_WORKER,
    AllocateRange,
    EndLease,
    LeaseChanged,
    LeaseWorker,
    RangeAllocated,
    RenewLease,
)
from schemas.ids.snowflake import WORKERS
from streams.runtime.decider.rules import Command, Event, Rejected, Reply, State, Timer

TTL_MS_MAX: Final = 600_000
"""A lease that is lost wastes its worker number for so long."""
RANGE_MAX: Final = 1_000_000
NUMBERS_MAX: Final = 2**53
"""Range numbers stay exact in JSON clients."""


class Lease(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The last lease of a worker number; `lease_id` is empty once it has ended."""

    lease_id: str
    holder: str
    from_ms: int
    until_ms: int


class Space(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far a space is: the next number of ranges, and the latest time of the log."""

    next_number: int = 0
    clock_ms: int = 0


class IdRules:
    """Pure; see `streams.runtime.decider.rules.Rules`. Keys are `space` and `(space, worker)`."""

    version = 1
    tables: Mapping[str, Any] = {"spaces": Space, "workers": Lease}

    def decide(self, state: State, command: Command) -> Any:
        space = state["spaces"].get(command.row.space) or Space()
        now_ms = max(command.time_ms, space.clock_ms)
        match command.record:
            case LEASE_WORKER.fullname:
                return _lease(state, command.row, now_ms)
            case ALLOCATE_RANGE.fullname:
                return _allocate(space, command.row, now_ms)
            case END_LEASE.fullname:
                return _end(state, command.row, now_ms)
            case _:
                return _renew(state, command.row, now_ms)

    def expire(self, state: State, timer: Timer) -> Any:
        raise AssertionError(f"no timer is ever set: {timer}")

    def evolve(self, state: State, event: Event) -> None:
        row = event.row
        space = state["spaces"].get(row.space) or Space()
        number = space.next_number
        if event.record == LEASE_CHANGED.fullname:
            held = "" if row.change == "ended" else row.lease_id
            lease = Lease(held, row.holder, row.from_ms, row.until_ms)
            state["workers"][row.space, row.worker] = lease
        else:
            number = row.first + row.size
        state["spaces"][row.space] = Space(number, row.recorded_at)

    def reply(self, event: Event) -> Reply:
        told = asdict(event.row)
        made = event.record != LEASE_CHANGED.fullname or event.row.change == "leased"
        return Reply(201 if made else 200, {**told, "offset": event.offset})


def _lease(state: State, row: LeaseWorker, now_ms: int) -> LeaseChanged:
    """The free number whose last span ended first: the longest out of use."""
    _check_ttl(row.ttl_ms)
    workers = state["workers"]
    ends = ((_free_from(workers.get((row.space, n))), n) for n in range(WORKERS))
    end_ms, worker = min(ends)
    if end_ms > now_ms:
        detail = f"all {WORKERS} worker numbers are leased; the next is free at {end_ms} ms"
        raise Rejected("no_worker", detail, status=503)
    return LeaseChanged(
        space=row.space,
        worker=worker,
        lease_id=row.lease_id,
        holder=row.holder,
        change="leased",
        from_ms=now_ms,
        until_ms=now_ms + row.ttl_ms,
        recorded_at=now_ms,
    )


def _free_from(lease: Lease | None) -> int:
    return lease.until_ms if lease else 0


def _renew(state: State, row: RenewLease, now_ms: int) -> LeaseChanged:
    """Longer, also when it had run out, as long as nobody else has the number."""
    _check_ttl(row.ttl_ms)
    lease = _held(state, row)
    until_ms = max(lease.until_ms, now_ms + row.ttl_ms)
    return _changed(row, lease, "renewed", until_ms, now_ms)


def _end(state: State, row: EndLease, now_ms: int) -> LeaseChanged:
    """What was not used of the span is free again."""
    lease = _held(state, row)
    until_ms = min(lease.until_ms, max(row.last_ms + 1, lease.from_ms))
    return _changed(row, lease, "ended", until_ms, now_ms)


def _held(state: State, row: RenewLease | EndLease) -> Lease:
    lease: Lease | None = state["workers"].get((row.space, row.worker))
    if lease is None or not lease.lease_id or lease.lease_id != row.lease_id:
        raise Rejected("lease_lost", f"worker {row.worker} is not held under that lease")
    return lease


def _changed(
    row: RenewLease | EndLease, lease: Lease, change: Any, until_ms: int, now_ms: int
) -> LeaseChanged:
    return LeaseChanged(
        space=row.space,
        worker=row.worker,
        lease_id=row.lease_id,
        holder=lease.holder,
        change=change,
        from_ms=lease.from_ms,
        until_ms=until_ms,
        recorded_at=now_ms,
    )


def _allocate(space: Space, row: AllocateRange, now_ms: int) -> RangeAllocated:
    if not 0 < row.size <= RANGE_MAX:
        raise Rejected("bad_size", f"size must be 1 to {RANGE_MAX}", status=422)
    if space.next_number + row.size > NUMBERS_MAX:
        raise Rejected("space_full", "the numbers of this space are used up")
    return RangeAllocated(row.space, row.holder, space.next_number, row.size, now_ms)


def _check_ttl(ttl_ms: int) -> None:
    if not 0 < ttl_ms <= TTL_MS_MAX:
        raise Rejected("bad_ttl", f"ttl_ms must be 1 to {TTL_MS_MAX}", status=422)
