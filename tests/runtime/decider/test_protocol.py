"""The protocol on the real owner: random worlds keep the promises, and each rule is needed.

The mutants are the counterexamples of the model-checked protocol (section 3) that concern deciders:
each takes one rule away, and a walk must find out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from streams.runtime.decider import filter as reader_rule
from streams.runtime.decider import owner as owners
from streams.runtime.decider.filter import Accepted, Verdict, claimed
from streams.runtime.decider.owner import Owner
from streams.runtime.decider.ports import Phase
from streams.runtime.decider.wire import Decision
from streams.runtime.position import FilterState
from tests.runtime.decider import canon as canons
from tests.runtime.decider import world as worlds
from tests.runtime.decider.counting import DEADLINE_MS, TIMER_MS, Violation
from tests.runtime.decider.walks import Chances, walk
from tests.runtime.decider.world import World

SLOTS = st.integers(0, 2)


class Protocol(RuleBasedStateMachine):
    """A world step by step; it judges itself after each."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(0)

    @rule(name=st.sampled_from("ab"), arm=st.integers(0, 1), key=st.sampled_from(["", "k"]))
    def command(self, name: str, arm: int, key: str) -> None:
        self.world.command(name, arm, key)

    @rule(slot=SLOTS)
    def start(self, slot: int) -> None:
        self.world.start(slot)

    @rule(slot=SLOTS, count=st.integers(1, 5))
    def read(self, slot: int, count: int) -> None:
        self.world.read(slot, count)

    @rule(slot=SLOTS, count=st.integers(1, 5))
    def decide(self, slot: int, count: int) -> None:
        self.world.decide(slot, count)

    @rule(slot=SLOTS, ms=st.sampled_from([0, 200, TIMER_MS, DEADLINE_MS + 1]))
    def tick(self, slot: int, ms: int) -> None:
        self.world.wait(ms)
        self.world.tick(slot)

    @rule(slot=SLOTS)
    def save(self, slot: int) -> None:
        self.world.save(slot)

    @precondition(lambda self: self.world.flying)
    @rule(data=st.data(), how=st.sampled_from(["append"] * 6 + ["reorder", "repeat", "lose"]))
    def land(self, data: st.DataObject, how: str) -> None:
        world = self.world
        nonce = data.draw(st.sampled_from(sorted(world.flying)))
        at = data.draw(st.integers(0, len(world.flying[nonce]) - 1))
        match how:
            case "append":
                world.append(nonce)
            case "reorder":
                world.append(nonce, at)
            case "repeat":
                world.append(nonce, keep=True)
            case _:
                world.lose(nonce, at, reported=data.draw(st.booleans()))

    @rule()
    def truncate(self) -> None:
        self.world.truncate()

    @rule()
    def retain(self) -> None:
        self.world.retain()

    def teardown(self) -> None:
        self.world.calm("late")


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_random_worlds_keep_the_promises() -> None:
    seen: Counter[str] = Counter()
    refused: Counter[Verdict] = Counter()
    for seed in range(200):
        world = walk(seed, chances=Chances(retain=0.02 * (seed % 4 == 0), reorder=0.6))
        seen += world.seen
        refused += world.canon.refused
    needed = ("answer", "replay", "lost", "repeated", "reordered", "truncated", "snapshot used")
    assert all(seen[one] for one in (*needed, "re-claim", "halted")), seen
    assert refused[Verdict.EPOCH]
    assert refused[Verdict.SEQ]


# -- mutants ----------------------------------------------------------------------------------

Judge = Callable[..., tuple[FilterState, Verdict]]


def _judge(epoch: str = "both", chain: str = "seq") -> Judge:
    """The reader rule with one part of it taken away."""

    def judge(state: FilterState, decision: Decision | None, *, timer: bool) -> Any:
        if decision is None or state.claim_offset < 0:
            return state, Verdict.EPOCH
        same = {
            "both": (decision.claim_offset, decision.nonce) == (state.claim_offset, state.nonce),
            "nonce": decision.nonce == state.nonce,
            "offset": decision.claim_offset == state.claim_offset,
            "none": True,
        }[epoch]
        if not same:
            return state, Verdict.EPOCH
        follows = {
            "seq": decision.seq == state.seq + 1,
            "gap": decision.seq > state.seq,
            "source": decision.source_offset > state.source_offset,
        }[chain]
        if not follows:
            return state, Verdict.SEQ
        after = FilterState(state.claim_offset, state.nonce, decision.seq, decision.source_offset)
        return after, Verdict.ACCEPTED

    return judge


def _accept(judge: Judge) -> Any:
    def accept(
        state: FilterState,
        offsets: Any,
        decisions: Any,
        claims: Mapping[int, str],
        timer: Callable[[int], bool],
    ) -> Accepted:
        codes = []
        for row, words in enumerate(decisions):
            if row in claims:
                state = claimed(state, int(offsets[row]), claims[row])
                codes.append(Verdict.CLAIM)
                continue
            decision = Decision.unpack(words.astype(">i8").tobytes())
            state, verdict = judge(state, decision, timer=timer(row))
            codes.append(verdict)
        return Accepted(np.array(codes, np.uint8), state)

    return accept


def _rule(**parts: str) -> Callable[[pytest.MonkeyPatch], None]:
    def mutate(patch: pytest.MonkeyPatch) -> None:
        judge = _judge(**parts)
        patch.setattr(owners, "accept", _accept(judge))
        patch.setattr(canons, "judge", judge)

    return mutate


def _same_epoch_again(patch: pytest.MonkeyPatch) -> None:
    """After a failed produce, decide the same commands again under the same epoch."""

    def failed(self: Owner, nonce: str, reason: str = "") -> None:
        if nonce == self._nonce and self.phase is Phase.OWNING:
            self.folded.roll_back([one.steps for one in reversed(self._flying)])
            self._flying.clear()
            self._seq = self.folded.filter.seq
            self._source = self.folded.filter.source_offset
            self._ports.ask_commands(self._source + 1)

    patch.setattr(Owner, "failed", failed)
    # What is reported as failed may land all the same.
    lose = World.lose
    patch.setattr(
        World,
        "lose",
        lambda self, nonce, at=0, *, reported=True: (
            [p.owner.failed(nonce) or self._collect(n) for n, p in enumerate(self.processes) if p]
            if reported
            else lose(self, nonce, at, reported=False)
        ),
    )


def _no_deadline(patch: pytest.MonkeyPatch) -> None:
    tick = Owner.tick

    def patient(self: Owner, **given: Any) -> None:
        since, self._since_ms = self._since_ms, self._ports.monotonic_ms()
        for one in self._flying:
            one.sent_ms = self._since_ms
        if self.phase is Phase.WAITING:
            self._since_ms = since
        tick(self, **given)

    patch.setattr(Owner, "tick", patient)


def _no_new_claim(patch: pytest.MonkeyPatch) -> None:
    tick = Owner.tick
    patch.setattr(
        Owner, "tick", lambda self, **given: self.phase is Phase.WAITING or tick(self, **given)
    )


def _timer_without_number(patch: pytest.MonkeyPatch) -> None:
    send = Owner._send

    def unnumbered(self: Owner, judged: Any, time_ms: int, timer: str, *rest: Any) -> None:
        self._seq -= bool(timer)
        send(self, judged, time_ms, timer, *rest)

    patch.setattr(Owner, "_send", unnumbered)


def _speculative_snapshot(patch: pytest.MonkeyPatch) -> None:
    image = owners.Folded.image
    patch.setattr(
        Owner,
        "save",
        lambda self: (
            self._last and self._ports.snapshot(image(self.folded), self.folded.filter, self._last)
        ),
    )


def _snapshot_without_filter(patch: pytest.MonkeyPatch) -> None:
    def save(self: Owner) -> None:
        if self._last is not None:
            flying = [one.steps for one in reversed(self._flying)]
            self._ports.snapshot(self.folded.image(flying), FilterState(), self._last)

    patch.setattr(Owner, "save", save)


def _any_snapshot(patch: pytest.MonkeyPatch) -> None:
    """A snapshot is used without looking whether the log still holds its last record."""
    patch.setattr(World, "_usable", lambda self, one: one.last.offset < len(self.log))


def _reply_when_sent(patch: pytest.MonkeyPatch) -> None:
    send = Owner._send

    def hasty(self: Owner, judged: Any, *rest: Any) -> None:
        send(self, judged, *rest)
        offset = self.folded.next_offset + len(self._flying) - 1
        if judged.envelope:
            self._reply(owners.Told(200, b"{}", offset), judged.envelope, self._source)

    patch.setattr(Owner, "_send", hasty)


def _earliest(patch: pytest.MonkeyPatch) -> None:
    def ask_commands(self: Any, offset: int) -> None:
        self.commands_from = max(offset, self.world.commands_start)

    patch.setattr(worlds.WorldPorts, "ask_commands", ask_commands)


def _own_claim_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """Recovery stops before the own claim: what others wrote last is not folded."""
    fold = Owner._fold

    def hasty(self: Owner, *given: Any) -> None:
        if self.phase is not Phase.CLAIMING:
            fold(self, *given)

    patch.setattr(Owner, "_fold", hasty)


def _late_claim(world: World) -> None:
    """A claim lands again after another one, and then what was decided under it long ago."""
    world.start(0)
    [first] = world.flying
    world.append(first, keep=True)
    world.read(0, 9)
    for _ in range(3):
        world.command("a", 0)
    world.decide(0, 3)
    world.start(1, snapshot=False)
    [second] = set(world.flying) - {first}
    world.append(second)
    world.read(1, 9)
    world.decide(1, 1)
    world.append(second)
    while first in world.flying:
        world.append(first)


def _vanished_tail(world: World) -> None:
    """A snapshot ends with an event that the log then lost, and another record took its place."""
    world.start(0)
    world.append(*world.flying)
    world.read(0, 9)
    world.command("a", 0)
    world.decide(0, 1)
    world.append(*world.flying)
    world.read(0, 9)
    world.save(0)
    world.truncate()
    world.start(1, snapshot=False)
    world.append(*world.flying)
    world.start(2, snapshot=True)


def _same_offset_again(world: World) -> None:
    """A claim vanishes, and the next one gets its offset, while an event of the first is late."""
    world.start(0)
    [first] = world.flying
    world.append(first)
    world.read(0, 9)
    world.command("a", 0)
    world.decide(0, 1)
    world.truncate()
    world.start(1)
    [second] = set(world.flying) - {first}
    world.append(second)
    world.read(1, 9)
    world.append(first)
    world.read(1, 9)


SCENARIOS = {
    "an epoch is an offset": _same_offset_again,
    "an epoch is a nonce": _late_claim,
    "a snapshot that the log does not know": _vanished_tail,
}
OFTEN = Chances(append=4.0, repeat=0.8, lose=0.8, reorder=0.6, truncate=0.4, save=1.0)
MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a lost middle record is passed over": _rule(chain="gap"),
    "the chain is the source offset": _rule(chain="source"),
    "an epoch is a nonce": _rule(epoch="nonce"),
    "an epoch is an offset": _rule(epoch="offset"),
    "there are no epochs": _rule(epoch="none"),
    "decided again under the same epoch": _same_epoch_again,
    "no deadline": _no_deadline,
    "no new claim": _no_new_claim,
    "a timer takes no number": _timer_without_number,
    "a snapshot of what is ahead": _speculative_snapshot,
    "a snapshot without filter state": _snapshot_without_filter,
    "a snapshot that the log does not know": _any_snapshot,
    "a reply when sent": _reply_when_sent,
    "commands from the earliest": _earliest,
    "recovery stops before the claim": _own_claim_not_awaited,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_every_rule_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    if name in SCENARIOS:
        with pytest.raises(Violation):
            SCENARIOS[name](World(0))
        return
    chances = Chances(retain=0.3) if name == "commands from the earliest" else OFTEN
    for seed in range(600):
        try:
            walk(seed, chances=chances)
        except Violation:
            return
    pytest.fail("no walk found the missing rule")


@pytest.mark.parametrize("scenario", SCENARIOS.values())
@pytest.mark.parametrize("old", ["early", "late", "never"])
def test_scenarios_end_well(scenario: Callable[[World], None], old: str) -> None:
    world = World(0)
    scenario(world)
    world.calm(old)


def test_the_mutants_begin_from_the_rule_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    _rule()(monkeypatch)
    for seed in range(20):
        walk(seed, chances=OFTEN)
    assert reader_rule.accept is not owners.accept  # type: ignore[attr-defined]
