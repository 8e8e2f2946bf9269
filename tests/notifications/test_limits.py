"""Token bucket, breaker and failover on a virtual clock."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.notifications.bucket import Breaker, Bucket
from connectors.notifications.failover import WAIT_MS_MAX, Failover, Line, Sent
from connectors.notifications.message import InvalidAddress, Message, Refused, Temporary


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@given(
    st.integers(1, 50),
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3_000)), max_size=80),
)
def test_no_window_passes_more_than_burst_and_rate(
    rate: int, burst: int, asks: list[tuple[int, int]]
) -> None:
    clock = Clock()
    bucket = Bucket(rate, burst, clock)
    passed: list[float] = []
    for pause, wait_max in asks:
        clock.now += pause
        expected = bucket.wait_ms
        wait = bucket.take(wait_max)
        assert (wait is None) is (expected > wait_max)
        if wait is not None:
            assert wait == expected
            passed.append(clock.now + wait)
    assert passed == sorted(passed)
    for i, begin in enumerate(passed):
        for n, end in enumerate(passed[i:], 1):
            assert n <= burst + (end - begin) * rate / 1_000 + 1e-6


def test_a_full_bucket_passes_its_burst_at_once_and_then_its_rate() -> None:
    bucket = Bucket(10, 3, Clock())
    assert [bucket.take(1_000) for _ in range(5)] == [0, 0, 0, 100, 200]
    assert bucket.take(250) is None
    assert bucket.take(300) == 300


def test_a_pause_empties_the_bucket() -> None:
    clock = Clock()
    bucket = Bucket(10, 3, clock)
    bucket.pause(5_000)
    assert bucket.take(4_999) is None
    clock.now = 5_000
    assert [bucket.take(1_000) for _ in range(2)] == [0, 100]


def test_a_breaker_opens_lets_one_try_and_closes_or_opens_again() -> None:
    clock = Clock()
    breaker = Breaker(2, 1_000, clock)
    breaker.failed()
    assert breaker.admit()
    breaker.failed()
    assert not breaker.admit()
    clock.now = 1_000
    assert [breaker.admit(), breaker.admit()] == [True, False]
    breaker.failed()
    clock.now = 1_999
    assert not breaker.admit()
    clock.now = 2_000
    assert breaker.admit()
    breaker.succeeded()
    assert breaker.admit()
    assert breaker.admit()
    breaker.failed()
    assert breaker.admit()


@dataclass
class Scripted:
    """A provider that does what it is told, and notes who asked."""

    name: str
    error: Exception | None = None
    taken: list[str] = field(default_factory=list)

    async def send(self, message: Message) -> str:
        self.taken.append(message.id)
        if self.error is not None:
            raise self.error
        return f"{self.name}-{len(self.taken)}"

    async def close(self) -> None:
        self.taken.append("closed")


class Rig:
    """Two providers, a clock that sleeping moves."""

    def __init__(self, *, rate: float = 1_000, burst: int = 1_000) -> None:
        self.clock = Clock()
        self.slept: list[float] = []
        self.a, self.b = Scripted("a"), Scripted("b")
        lines = [
            Line(p, Bucket(rate, burst, self.clock), Breaker(3, 10_000, self.clock))
            for p in (self.a, self.b)
        ]
        self.failover = Failover(lines, self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.now += seconds * 1_000

    async def send(self, id_: str = "n/sms") -> Sent:
        return await self.failover.send(Message(id_, "sms", "+49", "", "x"))


async def test_the_second_is_asked_only_when_the_first_cannot() -> None:
    rig = Rig()
    assert await rig.send() == Sent("a", "a-1")
    assert not rig.b.taken
    rig.a.error = Temporary("down")
    assert await rig.send() == Sent("b", "b-1")
    assert rig.a.taken == ["n/sms", "n/sms"]
    assert rig.b.taken == ["n/sms"], "under the same id"


@pytest.mark.parametrize("error", [Refused("spam"), InvalidAddress("gone")])
async def test_who_is_refused_is_refused_everywhere(error: Refused) -> None:
    rig = Rig()
    rig.a.error = error
    for _ in range(5):
        with pytest.raises(type(error)):
            await rig.send()
    assert not rig.b.taken
    assert len(rig.a.taken) == 5, "a refusal does not open the breaker"


async def test_a_broken_provider_is_left_alone_and_tried_again() -> None:
    rig = Rig()
    rig.a.error = Temporary("down")
    for _ in range(6):
        assert (await rig.send()).provider == "b"
    assert len(rig.a.taken) == 3
    rig.clock.now += 10_000
    rig.a.error = None
    assert (await rig.send()).provider == "a"


async def test_an_error_nobody_foresaw_counts_against_the_provider() -> None:
    rig = Rig()
    rig.a.error = KeyError("a bug")
    for _ in range(3):
        with pytest.raises(KeyError):
            await rig.send()
    assert (await rig.send()).provider == "b"


async def test_a_busy_provider_is_left_as_long_as_it_asks() -> None:
    rig = Rig()
    rig.a.error = Temporary("429", after_ms=30_000)
    assert (await rig.send()).provider == "b"
    rig.a.error = None
    rig.clock.now = 30_000 - WAIT_MS_MAX - 1
    assert (await rig.send()).provider == "b"
    rig.clock.now = 30_000
    assert (await rig.send()).provider == "a"


async def test_a_short_wait_is_waited_and_a_long_one_goes_to_the_second() -> None:
    rig = Rig(rate=1, burst=1)
    assert [(await rig.send()).provider for _ in range(2)] == ["a", "a"]
    assert rig.slept == [1.0]
    rig.clock.now -= 1_000  # many at the same time
    providers = [rig.failover._lines[0].bucket.take(0), (await rig.send()).provider]
    assert providers == [None, "a"]
    rig.clock.now -= 2_001
    assert (await rig.send()).provider == "b"


async def test_where_all_are_down_the_next_chance_is_told() -> None:
    rig = Rig()
    rig.a.error = Temporary("429", after_ms=7_000)
    rig.b.error = Temporary("429", after_ms=3_000)
    with pytest.raises(Temporary, match="a: 429; b: 429") as caught:
        await rig.send()
    assert caught.value.after_ms == 3_001
    await rig.failover.close()
    assert rig.a.taken[-1] == rig.b.taken[-1] == "closed"


async def test_without_a_provider_it_is_told() -> None:
    with pytest.raises(Temporary, match="no provider of sms"):
        await Failover([]).send(Message("n/sms", "sms", "+49", "", "x"))
