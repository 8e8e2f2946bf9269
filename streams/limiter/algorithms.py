"""Token bucket and sliding window, as the counters in Redis count (`sinks/limiter/decide.lua`).

Pure, on immutable states, with the same integers: a property test holds both to the unit. State
None is a budget that nobody has used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from schemas.limiter.rules import Rule

NEVER: Final = -1


@dataclass(frozen=True, slots=True)
class Level:
    """A token bucket: units times `window_ms`, as of a time; so a millisecond brings `limit`."""

    level: int
    at_ms: int


Slots = dict[int, int]
"""A sliding window: units by slot, never changed in place."""
State = Level | Slots | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one counter says. `retry_ms` is 0 where it admits, -1 where it never could."""

    taken: int
    left: int
    retry_ms: int
    reset_ms: int

    @property
    def admits(self) -> bool:
        """Whether the units are there."""
        return self.retry_ms == 0


def decide(
    rule: Rule, state: State, now_ms: int, units: int, *, want: int = 0, part: int = 0
) -> tuple[Verdict, State]:
    """The verdict of a request by itself, and the state with its units taken. `want` above
    `units` takes as many as are there (a lease); `part` is the counter of a split budget.
    """
    if rule.algorithm == "TOKEN_BUCKET":
        bucket = state if isinstance(state, Level) else None
        return _bucket(rule, bucket, now_ms, (units, max(units, want)), part)
    slots = state if isinstance(state, dict) else {}
    return _window(rule, slots, now_ms, (units, max(units, want)), part)


def _bucket(
    rule: Rule, state: Level | None, now_ms: int, units: tuple[int, int], part: int
) -> tuple[Verdict, Level | None]:
    limit, capacity = rule.share(part)
    full = capacity * rule.window_ms
    level, at_ms = filled(state, now_ms, limit, full)
    cost = units[0] * rule.window_ms
    retry_ms = NEVER if cost > full else max(0, -((level - cost) // limit))
    taken = min(units[1], level // rule.window_ms) if retry_ms == 0 else 0
    left = level - taken * rule.window_ms
    verdict = Verdict(taken, left // rule.window_ms, retry_ms, -((left - full) // limit))
    return verdict, Level(left, at_ms) if retry_ms == 0 else state


def filled(state: Level | None, now_ms: int, limit: int, full: int) -> tuple[int, int]:
    """A bucket's level now, and the time it is of: a clock set back brings nothing."""
    if state is None:
        return full, now_ms
    at_ms = max(now_ms, state.at_ms)
    return min(full, state.level + (at_ms - state.at_ms) * limit), at_ms


def _window(
    rule: Rule, state: Slots, now_ms: int, units: tuple[int, int], part: int
) -> tuple[Verdict, Slots]:
    _, capacity = rule.share(part)
    size = rule.window_ms // rule.slots
    current = now_ms // size
    live = {slot: n for slot, n in state.items() if slot >= current - rule.slots}

    def leaves(slot: int) -> int:
        return (slot + rule.slots + 1) * size - now_ms

    free = capacity - sum(live.values())
    retry_ms = 0 if units[0] <= free else NEVER
    if free < units[0] <= capacity:
        freed = free
        for slot in sorted(live):
            freed += live[slot]
            if units[0] <= freed:
                retry_ms = leaves(slot)
                break
    taken = min(units[1], free) if retry_ms == 0 else 0
    after = {**live, current: live.get(current, 0) + taken} if taken else live
    reset_ms = leaves(max(after)) if after else 0
    verdict = Verdict(taken, max(0, free - taken), retry_ms, reset_ms)
    return verdict, after if retry_ms == 0 else state


def charge(rule: Rule, state: State, now_ms: int, units: int) -> State:
    """The state with units taken that were admitted elsewhere, whether or not they are there."""
    if rule.algorithm == "TOKEN_BUCKET":
        bucket = state if isinstance(state, Level) else None
        level, at_ms = filled(bucket, now_ms, rule.limit, rule.capacity * rule.window_ms)
        return Level(max(0, level - units * rule.window_ms), at_ms)
    size = rule.window_ms // rule.slots
    slots = state if isinstance(state, dict) else {}
    kept = {slot: n for slot, n in slots.items() if slot >= now_ms // size - rule.slots}
    return {**kept, now_ms // size: kept.get(now_ms // size, 0) + units}
