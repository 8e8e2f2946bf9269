"""Token buckets: never more than the rate and the burst, and no waiting without end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.runtime.reactor.limits import Rate, TokenBucket
from streams.runtime.reactor.rules import Retry


@given(
    st.integers(1, 50),
    st.integers(1, 10),
    st.lists(st.integers(0, 3_000), min_size=1, max_size=60),
)
def test_in_no_time_span_more_than_burst_and_rate(per_s, burst, gaps_ms):
    bucket, now_ms, used = TokenBucket(per_s, burst), 0, []
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        used.append(now_ms + bucket.take(now_ms))
    for i, first in enumerate(used):
        for n, last in enumerate(used[i:], 1):
            assert n <= burst + (last - first) * per_s / 1_000 + 1e-6


@given(st.integers(1, 50), st.integers(1, 10), st.integers(1, 40))
def test_nobody_waits_longer_than_needed(per_s, burst, calls):
    bucket = TokenBucket(per_s, burst)
    waits = [bucket.take(0) for _ in range(calls)]
    assert waits == pytest.approx([max(0, n + 1 - burst) * 1_000 / per_s for n in range(calls)])


class Clock:
    def __init__(self):
        self.now_s = 100.0
        self.slept = []

    def __call__(self):
        return self.now_s

    async def sleep(self, seconds):
        self.slept.append(seconds)


async def test_a_short_wait_is_waited_and_a_long_one_comes_back_later():
    clock = Clock()
    rate = Rate(per_s=2, burst=2, wait_ms_max=600, clock=clock, sleep=clock.sleep)
    for _ in range(3):
        await rate.acquire("ses")
    assert clock.slept == pytest.approx([0.5])
    with pytest.raises(Retry, match="rate limit of ses") as refused:
        await rate.acquire("ses")
    assert (refused.value.after_ms, refused.value.counts) == (1_000, False)
    await rate.acquire("twilio")
    clock.now_s += 1.0
    await rate.acquire("ses")
    assert len(clock.slept) == 1


@pytest.mark.parametrize(("per_s", "burst"), [(0, 1), (-1, 1), (1, 0)])
def test_buckets_that_cannot_be(per_s, burst):
    with pytest.raises(ValueError, match="token bucket"):
        TokenBucket(per_s, burst)
