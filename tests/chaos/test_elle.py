"""The checker of histories finds what is wrong, and nothing where nothing is."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.chaos.elle import ANOMALIES, Append, History, Read, anomalies, cycles, staleness


def append(value: int, at: int = 0, *lists: str, accepted: bool = True, client: int = 0) -> Append:
    return Append(client, "g", lists or ("x",), value, accepted, 10 * at, 10 * at + 5)


def read(at: int, after: bool = True, client: int = 0, **lists: list[int]) -> Read:
    return Read(client, "g", lists, after, 10 * at, 10 * at + 5)


def final(**lists: list[int]) -> dict[tuple[str, str], list[int]]:
    return {("g", name): values for name, values in lists.items()}


def only(**counts: int) -> Counter[str]:
    return Counter({**dict.fromkeys(ANOMALIES, 0), **counts})


def test_a_serial_history_is_right() -> None:
    history = History(
        [append(1, 0, "x", "y"), append(2, 2), append(7, 3, accepted=False)],
        [read(1, x=[1], y=[1]), read(4, x=[1, 2], y=[1]), read(5, after=False, x=[1], y=[1])],
    )
    assert anomalies(history, final(x=[1, 2], y=[1])) == only()
    assert staleness(history) == [1]


BOTH = [append(1, 0, "x", "y"), append(2, 0, "x", "y", client=1)]
WRONG: list[tuple[str, list[Append], list[Read], dict[str, Any]]] = [
    ("lost", [append(1), append(2)], [], {"x": [1]}),
    ("twice", [append(1)], [], {"x": [1, 1]}),
    ("invented", [append(1)], [], {"x": [1, 9]}),
    ("aborted seen", [append(7, accepted=False)], [], {"x": [7]}),
    ("no prefix", [append(1), append(2)], [read(1, False, 9, x=[2])], {"x": [1, 2]}),
    ("stale after own write", [append(1)], [read(1, x=[])], {"x": [1]}),
    ("back in time", [append(1)], [read(1, True, 9, x=[1]), read(2, True, 9)], {"x": [1]}),
    ("real time", [append(1, 0), append(2, 1)], [], {"x": [2, 1]}),
    ("G0", BOTH, [], {"x": [1, 2], "y": [2, 1]}),
    (
        "G1c",
        [append(2, 2, "y", client=0), append(1, 2, "x", client=1)],
        [read(1, False, 0, x=[1]), read(1, False, 1, y=[2])],
        {"x": [1], "y": [2]},
    ),
    (
        "G2",
        [append(1, 0, "x"), append(2, 0, "y", client=1)],
        [read(1, False, 8, x=[1], y=[]), read(1, False, 9, x=[], y=[2])],
        {"x": [1], "y": [2]},
    ),
]


@pytest.mark.parametrize(("name", "appends", "reads", "lists"), WRONG, ids=[w[0] for w in WRONG])
def test_every_anomaly_is_found(
    name: str, appends: list[Append], reads: list[Read], lists: dict[str, Any]
) -> None:
    found = anomalies(History(appends, reads), final(**lists))
    assert found[name] > 0, found


def test_cycles_are_counted_once_each() -> None:
    a, b, c, d = (("append", n) for n in range(4))
    assert cycles({a: {b}, b: {c}, c: {a, d}, d: set()}) == 1
    assert cycles({a: {b}, b: {a}, c: {d}, d: {c}}) == 2
    assert cycles({a: {b}, b: {c}, c: {d}}) == 0
    assert cycles({a: {a}}) == 1
