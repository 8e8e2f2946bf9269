"""Admission: limits hold, nobody waits without need, a slow target crowds nobody out."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streams.runtime.reactor.admission import Admission
from streams.runtime.reactor.rules import Limits, Route

LIMITS = Limits(in_flight_max=5, per_tenant=3, per_target=2, waiting_max=4)
ROUTES = st.builds(
    Route, tenant=st.sampled_from(["", "a", "b"]), target=st.sampled_from(["", "x", "y", "z"])
)


class Model(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.admission: Admission[int] = Admission(LIMITS)
        self.routes: dict[int, Route] = {}
        self.running: list[int] = []
        self.waiting: set[int] = set()
        self.parked = 0

    def apply(self, moves):
        for item in moves.start:
            self.waiting.discard(item)
            self.running.append(item)
        for item in moves.park:
            self.waiting.remove(item)
            self.parked += 1

    @rule(route=ROUTES)
    def offer(self, route):
        item = len(self.routes)
        self.routes[item] = route
        self.waiting.add(item)
        self.apply(self.admission.offer(route, item))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def release(self, data):
        item = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.apply(self.admission.release(self.routes[item]))

    @rule(odd=st.booleans())
    def withdraw(self, odd):
        self.admission.withdraw(lambda item: item % 2 == odd)
        self.waiting = {item for item in self.waiting if item % 2 != odd}

    def counts(self):
        by_target = Counter(self.routes[item].target for item in self.running)
        by_tenant = Counter(self.routes[item].tenant for item in self.running)
        return by_target, by_tenant

    @invariant()
    def limits_hold(self):
        by_target, by_tenant = self.counts()
        assert len(self.running) == self.admission.running <= LIMITS.in_flight_max
        assert all(n <= LIMITS.per_target for name, n in by_target.items() if name)
        assert all(n <= LIMITS.per_tenant for name, n in by_tenant.items() if name)
        assert self.admission.waiting <= LIMITS.waiting_max

    @invariant()
    def nobody_waits_without_need(self):
        by_target, by_tenant = self.counts()
        if len(self.running) >= LIMITS.in_flight_max:
            return
        assert not self.admission.saturated
        for item in self.waiting:
            route = self.routes[item]
            full_target = route.target and by_target[route.target] >= LIMITS.per_target
            full_tenant = route.tenant and by_tenant[route.tenant] >= LIMITS.per_tenant
            assert full_target or full_tenant


Model.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestModel = Model.TestCase


def test_the_longest_line_gives_way():
    admission: Admission[str] = Admission(
        Limits(in_flight_max=100, per_tenant=100, per_target=1, waiting_max=3)
    )
    for n in range(4):
        admission.offer(Route(target="slow"), f"slow{n}")
    assert admission.offer(Route(target="good"), "good0").start == ["good0"]
    assert admission.offer(Route(target="good"), "good1").park == ["slow3"]
    assert admission.release(Route(target="good")).start == ["good1"]


def test_first_come_first_served_within_a_target():
    admission: Admission[int] = Admission(Limits(per_target=1))
    for n in range(4):
        admission.offer(Route(target="t"), n)
    assert [admission.release(Route(target="t")).start for _ in range(4)] == [[1], [2], [3], []]


def test_items_without_names_are_only_bound_by_the_whole():
    admission: Admission[int] = Admission(Limits(in_flight_max=3, per_tenant=1, per_target=1))
    started = [admission.offer(Route(), n).start for n in range(4)]
    assert started == [[0], [1], [2], []]
    assert admission.saturated
    assert admission.release(Route()).start == [3]
    assert not admission.saturated
