"""Anomalies in a history of appends and reads, found as Elle finds them.

Every value is appended once, so a list tells the order of the appends to it, and a read tells
which of them it saw. Dependencies between transactions follow:

- ww: an append comes behind the one before it in a list;
- wr: a read saw an append;
- rw: a read did not see an append, which therefore comes after it;
- so: what a client did in a group after something else (a read only where it asked for that).

A cycle is an anomaly: of ww alone G0, with wr and so G1c, with rw G2 (which counts G-single).
Source: Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations",
VLDB 2020; Tarjan, "Depth-first search and linear graph algorithms", 1972.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Node = tuple[str, int]
"""An append by its value, or a read by its number."""
Edges = dict[Node, set[Node]]
Lists = Mapping[tuple[str, str], Sequence[int]]
"""Group and name → values."""


@dataclass(frozen=True)
class Append:
    """One append, as its client saw it. `began` and `ended` count events of the whole history."""

    client: int
    group: str
    lists: tuple[str, ...]
    value: int
    accepted: bool
    began: int
    ended: int


@dataclass(frozen=True)
class Read:
    """One read of a whole group. `after`: its client asked for all that it knew of already."""

    client: int
    group: str
    lists: Mapping[str, Sequence[int]]
    after: bool
    began: int
    ended: int


@dataclass
class History:
    """All that clients did and saw, in the order of their ends."""

    appends: list[Append] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)


ANOMALIES = (
    "lost", "twice", "aborted seen", "invented", "no prefix", "stale after own write",
    "back in time", "real time", "G0", "G1c", "G2",
)  # fmt: skip


def anomalies(history: History, final: Lists) -> Counter[str]:
    """How often each class of anomaly occurs; every name of `ANOMALIES` is there."""
    found = Counter(dict.fromkeys(ANOMALIES, 0))
    found.update(_values(history, final))
    found.update(_sessions(history))
    found["real time"] = _real_time(history, final)
    ww, wr, rw = _dependencies(history, final)
    found["G0"] = cycles(ww)
    so = _session_order(history)
    found["G1c"] = cycles(_union(ww, wr, so)) - found["G0"]
    found["G2"] = cycles(_union(ww, wr, so, rw)) - found["G0"] - found["G1c"]
    return found


def staleness(history: History) -> list[int]:
    """For each read that did not ask for more: how many accepted appends that had ended before it
    began it did not see. No promise is broken by that.
    """
    by_group: dict[str, list[Append]] = defaultdict(list)
    for one in history.appends:
        if one.accepted:
            by_group[one.group].append(one)
    counts = []
    for read in history.reads:
        if not read.after:
            seen = {value for values in read.lists.values() for value in values}
            older = (one for one in by_group[read.group] if one.ended < read.began)
            counts.append(sum(1 for one in older if one.value not in seen))
    return counts


def _values(history: History, final: Lists) -> Counter[str]:
    found: Counter[str] = Counter()
    known = {one.value: one for one in history.appends}
    for one in history.appends:
        for name in one.lists:
            times = list(final.get((one.group, name), ())).count(one.value)
            found["lost"] += one.accepted and times == 0
            found["twice"] += times > 1
    views = [(key, values) for key, values in final.items()]
    views += [((r.group, name), values) for r in history.reads for name, values in r.lists.items()]
    for (group, name), values in views:
        whole = list(final.get((group, name), ()))
        found["no prefix"] += list(values) != whole[: len(values)]
        for value in values:
            one = known.get(value)
            found["invented"] += one is None or one.group != group or name not in one.lists
            found["aborted seen"] += one is not None and not one.accepted
    return found


def _sessions(history: History) -> Counter[str]:
    """A client that asks for what it knows never sees less."""
    found: Counter[str] = Counter()
    written: dict[tuple[int, str], list[Append]] = defaultdict(list)
    seen: dict[tuple[int, str], Mapping[str, Sequence[int]]] = {}
    done: list[Append | Read] = [*history.appends, *history.reads]
    for one in sorted(done, key=lambda one: one.ended):
        key = (one.client, one.group)
        if isinstance(one, Append):
            if one.accepted:
                written[key].append(one)
            continue
        if one.after:
            found["stale after own write"] += any(
                own.value not in one.lists.get(name, ())
                for own in written[key]
                for name in own.lists
            )
            found["back in time"] += any(
                len(one.lists.get(name, ())) < len(values)
                for name, values in seen.get(key, {}).items()
            )
        seen[key] = one.lists
    return found


def _real_time(history: History, final: Lists) -> int:
    """Appends that had ended before another began, and come behind it in a list."""
    known = {one.value: one for one in history.appends}
    wrong = 0
    for values in final.values():
        latest_began = -1
        for value in values:
            if (one := known.get(value)) is not None:
                wrong += one.ended < latest_began
                latest_began = max(latest_began, one.began)
    return wrong


def _dependencies(history: History, final: Lists) -> tuple[Edges, Edges, Edges]:
    ww, wr, rw = (defaultdict(set) for _ in range(3))
    for values in final.values():
        for one, following in pairwise(values):
            ww["append", one].add(("append", following))
    for number, read in enumerate(history.reads):
        node = ("read", number)
        for (group, name), whole in final.items():
            if group != read.group:
                continue
            values = read.lists.get(name, ())
            if values:
                wr["append", values[-1]].add(node)
            if len(values) < len(whole):
                rw[node].add(("append", whole[len(values)]))
    return ww, wr, rw


def _session_order(history: History) -> Edges:
    so: Edges = defaultdict(set)
    before: dict[tuple[int, str], list[Node]] = defaultdict(list)
    nodes: list[tuple[int, Append | Read, Node]]
    nodes = [(one.ended, one, ("append", one.value)) for one in history.appends if one.accepted]
    nodes += [(one.ended, one, ("read", number)) for number, one in enumerate(history.reads)]
    for _, one, node in sorted(nodes, key=lambda item: item[0]):
        known = before[one.client, one.group]
        if isinstance(one, Append) or one.after:
            for earlier in known:
                so[earlier].add(node)
            known.clear()
        known.append(node)
    return so


def _union(*parts: Edges) -> Edges:
    whole: Edges = defaultdict(set)
    for part in parts:
        for node, following in part.items():
            whole[node] |= following
    return whole


def cycles(edges: Edges) -> int:
    """How many strongly connected components have a cycle."""
    return sum(1 for one in components(edges) if len(one) > 1 or one[0] in edges.get(one[0], ()))


def components(edges: Edges) -> Iterable[list[Node]]:
    """Tarjan's, without recursion."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    stack: list[Node] = []
    on_stack: set[Node] = set()
    for root in list(edges):
        if root in index:
            continue
        work = [(root, iter(edges.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, following = work[-1]
            for other in following:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(edges.get(other, ()))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    component, stack[at:] = stack[at:], []
                    on_stack.difference_update(component)
                    yield component
