"""What a rule is, which requests it is for, and what they cost. Pure.

A rule's budget is kept per **key**: the values of what `per` names, of one request. All numbers
are integers, and small enough that a double holds every product exactly: the counters (Lua) and
the replay (Python) then agree to the unit.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

Algorithm = Literal["TOKEN_BUCKET", "SLIDING_WINDOW"]
Mode = Literal["ENFORCE", "SHADOW"]
Part = Literal["PRINCIPAL", "CLIENT", "ROUTE"]
WhenDown = Literal["OPEN", "CLOSED"]

EXACT: Final = 2**52
"""Products up to here are exact in a double, with a bit to spare."""
WINDOW_MS_MAX: Final = 31 * 86_400_000
SLOTS_MAX: Final = 60
SPLIT_MAX: Final = 64
LEASE_MS_MAX: Final = 60_000
NOBODY: Final = "-"
"""The principal of a request that has none."""


class BadRule(ValueError):
    """The rule makes no sense; `field` says where."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Request:
    """What rules look at. `cost` is the caller's, before weights."""

    principal: str = NOBODY
    client: str = ""
    method: str = "GET"
    route: str = "/"
    cost: int = 1


@dataclass(frozen=True)
class Rule:
    """One limit, as `RuleSet` has it. Raises `BadRule` where it makes no sense."""

    rule_id: str
    algorithm: Algorithm
    limit: int
    window_ms: int
    burst: int = 0
    slots: int = 10
    route: str = "/"
    method: str = ""
    per: tuple[Part, ...] = ("PRINCIPAL",)
    mode: Mode = "ENFORCE"
    when_down: WhenDown = "OPEN"
    split: int = 1
    lease_units: int = 0
    lease_ms: int = 1_000
    weights: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what cannot be counted exactly, or could never admit anything."""
        for name, reason in self._wrong():
            raise BadRule(name, reason)

    def _wrong(self) -> Iterator[tuple[str, str]]:
        bounds = {
            "limit": (1, EXACT),
            "window_ms": (1, WINDOW_MS_MAX),
            "burst": (0, EXACT),
            "slots": (1, SLOTS_MAX),
            "split": (1, min(SPLIT_MAX, self.limit)),
            "lease_units": (0, max(0, self.limit // self.split)),
            "lease_ms": (1, LEASE_MS_MAX),
        }
        for name, (low, high) in bounds.items():
            if not low <= getattr(self, name) <= high:
                yield name, f"must be {low} to {high}"
        if self.algorithm == "SLIDING_WINDOW":
            if self.burst:
                yield "burst", "only a token bucket has one"
            if self.window_ms % self.slots:
                yield "slots", f"must divide the window of {self.window_ms} ms"
        elif self.capacity * self.window_ms > EXACT:
            yield "burst", f"times the window must be at most {EXACT}"
        if self.split > self.capacity:
            yield "split", f"must be at most the burst, {self.capacity}"
        if len(set(self.per)) != len(self.per):
            yield "per", "names something twice"
        for name, route in (("route", self.route), *(("weights", route) for route in self.weights)):
            if not route.startswith("/"):
                yield name, "a path begins with /"
        if any(not 0 <= units <= self.share(0)[1] for units in self.weights.values()):
            yield "weights", f"units must be 0 to {self.share(0)[1]}, what one counter holds"

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """The rule of the fields of a `RuleSet`. Raises `BadRule`."""
        known = {name: row[name] for name in cls.__dataclass_fields__ if name in row}
        weights = {one["route"]: one["units"] for one in known.get("weights") or ()}
        return cls(**{**known, "per": tuple(known.get("per", ("PRINCIPAL",))), "weights": weights})

    def row(self) -> dict[str, Any]:
        """The fields of a `RuleSet` that are the rule's: the inverse of `of`."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        weights = [{"route": route, "units": units} for route, units in self.weights.items()]
        return {**fields, "per": list(self.per), "weights": weights}

    @property
    def capacity(self) -> int:
        """Units that one key can have at once."""
        return (self.burst or self.limit) if self.algorithm == "TOKEN_BUCKET" else self.limit

    @property
    def shadow(self) -> bool:
        """Whether the rule only counts."""
        return self.mode == "SHADOW"

    def share(self, part: int) -> tuple[int, int]:
        """Limit and capacity of one of the `split` counters; over all they add up exactly."""
        return _share(self.limit, self.split, part), _share(self.capacity, self.split, part)

    def counts(self, request: Request) -> bool:
        """Whether the rule is for this request."""
        return self.method in ("", request.method) and below(request.route, self.route)

    def key(self, request: Request) -> str:
        """Whose budget the request is charged to."""
        parts = {
            "PRINCIPAL": request.principal,
            "CLIENT": request.client,
            "ROUTE": request.route,
        }
        return "\n".join(parts[name] for name in self.per)

    def units(self, request: Request) -> int:
        """Cost times the weight of the longest path that fits."""
        fits = [route for route in self.weights if below(request.route, route)]
        return request.cost * (self.weights[max(fits, key=len)] if fits else 1)

    @property
    def shape(self) -> str:
        """Names what stored counters mean: with another shape they begin anew."""
        parts = (self.algorithm[0], self.window_ms, self.slots, self.split)
        return format(zlib.crc32(repr(parts).encode()), "x")


def below(path: str, prefix: str) -> bool:
    """Whether a path is `prefix` or lies below it, by whole segments."""
    if not path.startswith(prefix):
        return False
    return prefix.endswith("/") or len(path) == len(prefix) or path[len(prefix)] == "/"


def _share(whole: int, parts: int, part: int) -> int:
    return whole // parts + (part < whole % parts)
