"""One process's ids: leased late, renewed early, refused rather than made twice."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from connectors.asking import NoVerdict, Refused
from connectors.ids.generator import Behind
from connectors.ids.issuer import WAIT_MS_MAX, Issuer, Numbers
from schemas.ids.snowflake import parts
from streams.runtime.settings import Ids
from tests.ids.desk import Desk

SETTINGS = Ids()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_nothing_is_leased_before_the_first_id_and_then_once() -> None:
    desk = Desk()
    async with Issuer(desk, SETTINGS) as issuer:
        assert not desk.asked
        for count in (1, 10_000, 1):
            made, _ = await issuer.take(count)
            assert made.size == count
        assert desk.named("LeaseWorker") == 1
    assert desk.named("EndLease") == 1


async def test_restarts_and_neighbours_never_repeat_an_id() -> None:
    """The desk's clock stands still, so that each life begins in the millisecond of the last."""
    desk, made = Desk(), []
    for _ in range(5):
        async with Issuer(desk, SETTINGS) as one, Issuer(desk, SETTINGS) as other:
            made += [(await issuer.take(5_000))[0] for issuer in (one, other, one)]
    together = np.concatenate(made)
    assert together.size == np.unique(together).size == 75_000


async def test_a_renewal_comes_before_the_lease_runs_out_and_costs_no_request() -> None:
    desk = Desk()
    async with Issuer(desk, SETTINGS) as issuer:
        _, held = await issuer.take(1)
        held.clock.set(held.generator.until_ms - SETTINGS.ttl_ms // 3)
        desk.harness.advance(SETTINGS.ttl_ms)
        await issuer.take(1)
        await settled()
        assert desk.named("RenewLease") == 1
        assert held.generator.until_ms == desk.harness.now_ms + SETTINGS.ttl_ms


async def test_while_the_log_is_down_ids_are_made_until_the_lease_ends_and_then_refused() -> None:
    desk = Desk()
    async with Issuer(desk, SETTINGS) as issuer:
        _, held = await issuer.take(1)
        desk.down = True
        held.clock.set(held.generator.until_ms - 1_000)
        made, _ = await issuer.take(100)
        await settled()
        held.clock.set(held.generator.until_ms)
        with pytest.raises(NoVerdict):
            await issuer.take(1)
        desk.down = False
        desk.harness.advance(SETTINGS.ttl_ms)
        again, _ = await issuer.take(1)
        assert again[0] > made[-1]
        assert desk.named("LeaseWorker") == 1


async def test_a_lease_that_was_lost_is_replaced_by_another() -> None:
    desk = Desk()
    async with Issuer(desk, SETTINGS) as issuer:
        _, held = await issuer.take(1)
        held.lease_id = "not mine"
        held.clock.set(held.generator.until_ms)
        made, other = await issuer.take(1)
        assert other.generator.worker != held.generator.worker
        assert parts(int(made[0])).worker == other.generator.worker


async def test_a_clock_a_little_behind_is_waited_for_and_one_far_behind_is_refused() -> None:
    desk = Desk()
    async with Issuer(desk, SETTINGS) as issuer:
        first, held = await issuer.take(1)
        held.clock.set(held.generator.last_ms - WAIT_MS_MAX // 4)
        second, _ = await issuer.take(1)
        assert second[0] > first[0]
        held.clock.set(held.generator.last_ms - 3_600_000)
        with pytest.raises(Behind):
            await issuer.take(1)


async def test_all_numbers_leased_is_told() -> None:
    desk = Desk()
    issuers = [Issuer(desk, SETTINGS) for _ in range(1_024)]
    for one in issuers:
        await one.take(1)
    with pytest.raises(Refused, match="no_worker"):
        await Issuer(desk, SETTINGS).take(1)


async def test_numbers_come_from_ranges_and_a_restart_wastes_the_rest_of_one() -> None:
    desk = Desk()
    one, other = (Numbers(desk, "codes", name, 100) for name in "ab")
    assert [await one.take() for _ in range(3)] == [0, 1, 2]
    assert await other.take() == 100
    desk.down = True
    assert [await one.take() for _ in range(97)] == list(range(3, 100))
    with pytest.raises(NoVerdict):
        await one.take()
    desk.down = False
    assert await Numbers(desk, "codes", "a", 100).take() == 200
    assert desk.named("AllocateRange") == 4
