"""The counters in Redis: one script decides a request by all its rules, with Redis' own clock.

A counter's key is `limiter:{whose}:<rule>:<shape>`; with `{whose}` as hash tag all rules about one
principal are in one slot. On one server a request is always one call, all or nothing. On a Cluster
it is one call a slot, at once; where one refuses, the others give back, so in between other
requests may find less than there is: never more is admitted, for a moment less may be.

**Split budgets.** A budget in `split` counters has its limit divided among them exactly, so it is
never exceeded. Each process sends a key's requests to the counter it has charged least, so that
counters differ by at most one request's units a process: of a full budget at most
`split x processes x units` (the largest request's) stay unused while somebody is refused.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Self

import redis.asyncio
from redis.asyncio.cluster import RedisCluster
from redis.exceptions import NoScriptError

from schemas.limiter.rules import Rule
from sinks.drivers.redis.scripts import Script

DECIDE = Script(files(__package__).joinpath("decide.lua").read_text())
GIVE_BACK = Script(files(__package__).joinpath("give_back.lua").read_text())
RESTORE = Script(files(__package__).joinpath("restore.lua").read_text())
CONNECTIONS_MAX = 32
"""Calls of a process at once; more wait for one to end."""
SPREADS_MAX = 10_000
"""Keys of split rules whose counters a process balances; past them the oldest begin anew."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Units of one budget. `want` above `units` takes as many as are there: a lease."""

    rule: Rule
    key: str
    units: int
    want: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one rule says by itself, and what was really charged. `retry_ms` is -1 where the units
    could never be had; `left` and `reset_ms` are of the counter asked.
    """

    admits: bool
    charged: int
    left: int
    retry_ms: int
    reset_ms: int


@dataclass(frozen=True, slots=True)
class Taken:
    """What was decided, and when by the clock of the counters. Verdicts are in the order asked."""

    now_ms: int
    admitted: bool
    verdicts: tuple[Verdict, ...]


def counter(rule: Rule, key: str, part: int = 0) -> str:
    """The Redis key of a counter. Parts of a split budget lie in slots of their own."""
    whose = key.replace("}", "%7D") + (f"\n{part}" if rule.split > 1 else "")
    return f"limiter:{{{whose or '*'}}}:{rule.rule_id}:{rule.shape}"


class Counters:
    """Takes units. Raises what redis-py raises; how long to wait is the caller's to bound."""

    def __init__(self, client: Any, slot: Callable[[str], Any] | None = None) -> None:
        """`slot` tells which counters go together; None: all, as on one server."""
        self._client = client
        self._slot = slot
        self._spreads: OrderedDict[tuple[str, str], list[int]] = OrderedDict()

    @classmethod
    def connect(cls, url: str, timeout_s: float, *, cluster: bool = False) -> Self:
        """Counters of the server, or Cluster, at `url`; connects at the first call."""
        options: dict[str, Any] = {
            "socket_timeout": timeout_s,
            "socket_connect_timeout": timeout_s,
        }
        if not cluster:
            pool = redis.asyncio.BlockingConnectionPool.from_url(
                url, max_connections=CONNECTIONS_MAX, **options
            )
            return cls(redis.asyncio.Redis.from_pool(pool))
        client = RedisCluster.from_url(url, **options)
        return cls(client, client.keyslot)

    async def close(self) -> None:
        """Release the connections."""
        await self._client.aclose()

    async def take(self, asks: Sequence[Ask], now_ms: int | None = None) -> Taken:
        """Decide: the units of all asks, or of none; a shadow rule's never stand in the way.

        `now_ms` stands in for the server's clock, in tests.
        """
        parts = [self._part(ask) for ask in asks]
        names = [counter(ask.rule, ask.key, at) for ask, at in zip(asks, parts, strict=True)]
        groups: dict[Any, list[int]] = {}
        for index, name in enumerate(names):
            groups.setdefault(self._slot(name) if self._slot else None, []).append(index)
        clock = "" if now_ms is None else str(now_ms)

        async def ask_group(members: list[int]) -> Taken:
            args: list[str | int] = [clock]
            for index in members:
                args += _arguments(asks[index], parts[index])
            raw = await self._run(DECIDE, [names[index] for index in members], args)
            return _taken(raw)

        found = await asyncio.gather(*(ask_group(members) for members in groups.values()))
        admitted = all(one.admitted for one in found)
        verdicts: dict[int, Verdict] = {}
        for members, one in zip(groups.values(), found, strict=True):
            verdicts.update(zip(members, one.verdicts, strict=True))
        if not admitted:
            await self._give_back(asks, parts, groups, found)
            verdicts = {i: _uncharged(verdict) for i, verdict in verdicts.items()}
        for index, verdict in verdicts.items():
            self._spread(asks[index], parts[index], verdict.charged)
        ordered = tuple(verdicts[index] for index in range(len(asks)))
        return Taken(max((one.now_ms for one in found), default=0), admitted, ordered)

    async def restore(self, counters: Mapping[str, tuple[int, Mapping[str, int]]]) -> int:
        """Put lost counters back: key → time to live in milliseconds, and fields. Those that are
        there are left alone. Returns how many were put back.
        """
        put = 0
        for name, (ttl_ms, fields) in counters.items():
            args: list[str | int] = [max(1, ttl_ms), json.dumps(dict(fields))]
            put += await self._run(RESTORE, [name], args)
        return put

    async def now_ms(self) -> int:
        """The server's clock."""
        seconds, micros = await self._client.time()
        return int(seconds) * 1_000 + int(micros) // 1_000

    async def _give_back(
        self,
        asks: Sequence[Ask],
        parts: Sequence[int],
        groups: Mapping[Any, list[int]],
        found: Sequence[Taken],
    ) -> None:
        """Undo what was charged before another slot refused."""
        for members, one in zip(groups.values(), found, strict=True):
            names: list[str] = []
            args: list[str | int] = [one.now_ms]
            for index, verdict in zip(members, one.verdicts, strict=True):
                if verdict.charged:
                    rule = asks[index].rule
                    _, capacity = rule.share(parts[index])
                    kind = "B" if rule.algorithm == "TOKEN_BUCKET" else "W"
                    names.append(counter(rule, asks[index].key, parts[index]))
                    args += [kind, capacity, rule.window_ms, rule.slots, verdict.charged]
            if names:
                await self._run(GIVE_BACK, names, args)

    async def _run(self, script: Script, names: list[str], args: list[str | int]) -> Any:
        try:
            return await self._client.evalsha(script.sha, len(names), *names, *args)
        except NoScriptError:
            return await self._client.eval(script.source, len(names), *names, *args)

    def _part(self, ask: Ask) -> int:
        """The counter of a split budget that this process has sent the fewest units."""
        if ask.rule.split == 1:
            return 0
        spread = self._spreads.get((ask.rule.rule_id, ask.key))
        if spread is None or len(spread) != ask.rule.split:
            spread = self._spreads[ask.rule.rule_id, ask.key] = [0] * ask.rule.split
            if len(self._spreads) > SPREADS_MAX:
                self._spreads.popitem(last=False)
        part = spread.index(min(spread))
        spread[part] += ask.units
        return part

    def _spread(self, ask: Ask, part: int, charged: int) -> None:
        """Note a lease: it took more than was asked."""
        spread = self._spreads.get((ask.rule.rule_id, ask.key))
        if ask.rule.split > 1 and spread is not None and charged > ask.units:
            spread[part] += charged - ask.units


def _arguments(ask: Ask, part: int) -> list[str | int]:
    rule = ask.rule
    limit, capacity = rule.share(part)
    kind = "B" if rule.algorithm == "TOKEN_BUCKET" else "W"
    want = max(ask.units, ask.want)
    shadow = int(rule.shadow)
    return [kind, limit, capacity, rule.window_ms, rule.slots, ask.units, want, shadow]


def _taken(raw: Sequence[int]) -> Taken:
    verdicts = tuple(
        Verdict(raw[at] == 1, raw[at + 1], raw[at + 2], raw[at + 3], raw[at + 4])
        for at in range(2, len(raw), 5)
    )
    return Taken(raw[0], raw[1] == 1, verdicts)


def _uncharged(verdict: Verdict) -> Verdict:
    left = verdict.left + verdict.charged
    return Verdict(verdict.admits, 0, left, verdict.retry_ms, verdict.reset_ms)
