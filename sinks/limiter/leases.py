"""Leases: a process takes units ahead and hands them out without a call.

A rule with `lease_units` trades exactness for calls. What a process holds was charged when it was
taken, so beyond the limit a window can see at most what was taken before it and handed out within:
`processes x lease_units`. And at most as much may lie unused, held elsewhere, while somebody is
refused; after `lease_ms` it is lost. One call at a time renews a key's lease, and never above
`lease_units`, so that the bound holds at any concurrency.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sinks.limiter.counters import Ask, Counters, Taken, Verdict

LEASES_MAX = 10_000
"""Leases that a process holds; past them the oldest are lost."""


@dataclass
class _Lease:
    """Units in hand. `left` and `reset_ms` are what the counter said when it was renewed."""

    units: int = 0
    until_ms: int = 0
    left: int = 0
    reset_ms: int = 0
    renewing: bool = False


class Leases:
    """`Counters`, with the units of some rules handed out here."""

    def __init__(self, counters: Counters, clock: Callable[[], float] = time.monotonic) -> None:
        self.counters = counters
        self._clock = clock
        self._leases: OrderedDict[tuple[str, str, str], _Lease] = OrderedDict()
        self._ahead_ms = 0
        """What the counters' clock is ahead of ours."""

    async def take(self, asks: Sequence[Ask], now_ms: int | None = None) -> Taken:
        """As `Counters.take`; one call at most, and none where all units are in hand."""
        now = self._now_ms() if now_ms is None else now_ms
        held = [self._reserved(ask, now) for ask in asks]
        called = [index for index, lease in enumerate(held) if lease is None]
        if not called:
            return Taken(now, True, tuple(map(_from_hand, asks, held)))
        renewed = {index: self._renewal(asks[index], now) for index in called}
        wanted = [_wanted(asks[index], renewed[index]) for index in called]
        try:
            taken = await self.counters.take(wanted, now_ms)
        except BaseException:
            self._return(asks, held)
            raise
        finally:
            for lease in renewed.values():
                if lease is not None:
                    lease.renewing = False
        self._ahead_ms = taken.now_ms - round(self._clock() * 1_000)
        if not taken.admitted:
            self._return(asks, held)
        found: dict[int, Verdict] = dict(zip(called, taken.verdicts, strict=True))
        for index, lease in renewed.items():
            if lease is not None and found[index].charged:
                found[index] = _renewed(asks[index], lease, found[index], taken.now_ms)
        verdicts = tuple(
            found[index] if index in found else _from_hand(ask, held[index], taken.admitted)
            for index, ask in enumerate(asks)
        )
        return Taken(taken.now_ms, taken.admitted, verdicts)

    def _now_ms(self) -> int:
        return round(self._clock() * 1_000) + self._ahead_ms

    def _reserved(self, ask: Ask, now_ms: int) -> _Lease | None:
        """The lease that has given the units; None where they have to be asked for."""
        lease = self._leases.get((ask.rule.rule_id, ask.rule.shape, ask.key))
        if lease is None or not ask.rule.lease_units or lease.until_ms <= now_ms:
            return None
        if lease.units < ask.units:
            return None
        lease.units -= ask.units
        return lease

    def _return(self, asks: Sequence[Ask], held: Sequence[_Lease | None]) -> None:
        for ask, lease in zip(asks, held, strict=True):
            if lease is not None:
                lease.units += ask.units

    def _renewal(self, ask: Ask, now_ms: int) -> _Lease | None:
        """The lease to fill by this call; None where there is none, or somebody fills it now."""
        if not ask.rule.lease_units or ask.rule.shadow:
            return None
        at = (ask.rule.rule_id, ask.rule.shape, ask.key)
        lease = self._leases.setdefault(at, _Lease())
        if len(self._leases) > LEASES_MAX:
            self._leases.popitem(last=False)
        if lease.renewing:
            return None
        if lease.until_ms <= now_ms:
            lease.units = 0
        lease.renewing = True
        return lease


def _wanted(ask: Ask, lease: _Lease | None) -> Ask:
    if lease is None:
        return ask
    return Ask(ask.rule, ask.key, ask.units, ask.units + ask.rule.lease_units - lease.units)


def _renewed(ask: Ask, lease: _Lease, verdict: Verdict, now_ms: int) -> Verdict:
    """Put what is above the request into the lease."""
    lease.units = min(ask.rule.lease_units, lease.units + verdict.charged - ask.units)
    lease.until_ms = now_ms + ask.rule.lease_ms
    lease.left, lease.reset_ms = verdict.left, verdict.reset_ms
    return Verdict(True, ask.units, verdict.left + lease.units, 0, verdict.reset_ms)


def _from_hand(ask: Ask, lease: _Lease | None, charged: bool = True) -> Verdict:
    assert lease is not None
    taken = ask.units if charged else 0
    return Verdict(True, taken, lease.left + lease.units, 0, lease.reset_ms)
