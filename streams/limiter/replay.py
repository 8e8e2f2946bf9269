"""What a rule would have done: logged decisions through the pure rule. And counters from the log.

Time, clients and costs are those of the log, in the order in which they were decided, so trying
the rule that was in force gives what was decided (without leases and a split, which trade
exactness for calls).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import polars as pl

from schemas.limiter.rules import Request, Rule
from streams.limiter.algorithms import Level, State, charge, decide
from streams.runtime.watermark import milliseconds

REQUEST = ("request_id", "principal", "client", "method", "route", "cost")


@dataclass(frozen=True)
class Tried:
    """What became of the requests that a rule is for."""

    ids: list[str] = field(default_factory=list)
    """All of them, in order."""
    admitted: list[bool] = field(default_factory=list)
    refused_by_key: dict[str, int] = field(default_factory=dict)
    changed: int = 0
    """Requests that were decided otherwise."""

    @property
    def refused(self) -> int:
        """How many would have been refused."""
        return len(self.admitted) - sum(self.admitted)


def ordered(decisions: pl.DataFrame) -> pl.DataFrame:
    """Each request once, in the order of time; within a millisecond by partition and offset."""
    ties = [name for name in ("_partition", "_offset") if name in decisions.columns]
    found = decisions.sort("event_time", *ties, maintain_order=True)
    return found.unique("request_id", keep="first", maintain_order=True)


def tried(rule: Rule, decisions: pl.DataFrame) -> Tried:
    """Replay decisions (the columns of `RequestDecided`, ordered) under one rule.

    About half a million requests a second. A split budget is tried as one.
    """
    outcome = Tried()
    states: dict[str, State] = {}
    refused: defaultdict[str, int] = defaultdict(int)
    changed = 0
    whole = _whole(rule)
    times = milliseconds(decisions["event_time"]).to_list()
    was = decisions["admitted"].to_list()
    columns = (decisions[name].to_list() for name in REQUEST)
    for time_ms, before, id_, *parts in zip(times, was, *columns, strict=True):
        request = Request(*parts)
        if not rule.counts(request):
            continue
        key = rule.key(request)
        verdict, states[key] = decide(whole, states.get(key), time_ms, rule.units(request))
        outcome.ids.append(id_)
        outcome.admitted.append(verdict.admits)
        changed += verdict.admits != before
        if not verdict.admits:
            refused[key] += 1
    return Tried(outcome.ids, outcome.admitted, dict(refused), changed)


def _whole(rule: Rule) -> Rule:
    return Rule.of({**rule.row(), "split": 1})


def spent(rules: Mapping[str, Rule], decisions: pl.DataFrame) -> Iterator[tuple[Rule, str, State]]:
    """The counters (rule, key, state) that the decisions of the log have left behind, whatever
    the rules say of them now. Of rules that are no longer in force there are none.
    """
    states: dict[tuple[str, str], State] = {}
    times = milliseconds(decisions["event_time"]).to_list()
    for time_ms, verdicts in zip(times, decisions["verdicts"].to_list(), strict=True):
        for one in verdicts:
            rule = rules.get(one["rule_id"])
            if rule is not None and one["charged"]:
                at = (rule.rule_id, one["key"])
                states[at] = charge(rule, states.get(at), time_ms, one["units"])
    for (rule_id, key), state in states.items():
        yield rules[rule_id], key, state


def stored(rule: Rule, state: State, now_ms: int) -> Iterator[tuple[int, int, Mapping[str, int]]]:
    """A counter as it is stored: for each part of the budget its number, time to live and fields;
    nothing where the budget is whole again by now. Parts get equal shares of what was used.
    """
    for part in range(rule.split):
        limit, capacity = rule.share(part)
        if isinstance(state, Level):
            level = state.level * capacity // rule.capacity
            full = capacity * rule.window_ms
            ttl_ms = -((level - full) // limit) - (now_ms - state.at_ms)
            fields: dict[str, int] = {"level": level, "at": state.at_ms}
        else:
            size = rule.window_ms // rule.slots
            slots = _shares((state or {}).items(), rule.split, part)
            fields = {str(slot): units for slot, units in slots}
            newest = max((slot for slot, _ in slots), default=0)
            ttl_ms = (newest + rule.slots + 1) * size - now_ms
        if fields and ttl_ms > 0:
            yield part, ttl_ms, fields


def _shares(slots: Iterable[tuple[int, int]], split: int, part: int) -> list[tuple[int, int]]:
    """What one part bears of the units of each slot."""
    shares = ((slot, units // split + (part < units % split)) for slot, units in slots)
    return [(slot, units) for slot, units in shares if units]
