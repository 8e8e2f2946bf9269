"""Read your writes: positions out, positions in, and the wait in between."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from api.positions import POSITIONS_MAX, Waiting, header, parse
from connectors.producer import RecordMetadata
from tests.api.conftest import SCORE, FakeReads, problem_of

TOTALS = "/v1/ads/totals?from=0&to=3600000"
names = st.text("abc.-_09", min_size=1, max_size=20)
records = st.builds(RecordMetadata, names, st.integers(0, 10**9 - 1), st.integers(0, 10**18 - 1))


@given(st.lists(records, max_size=POSITIONS_MAX))
def test_what_is_written_can_be_sent_back(written: list[RecordMetadata]) -> None:
    parsed = parse(header(written))

    assert parsed.keys() == {(r.topic, r.partition) for r in written}
    assert all(parsed[r.topic, r.partition] >= r.offset for r in written)


async def test_a_read_says_what_it_is_true_for(client: httpx.AsyncClient, reads: FakeReads) -> None:
    reads.positions = {("ads.events", 1): 8, ("ads.events", 0): 5, ("ads.events", 2): 0}

    answer = await client.get(TOTALS)

    assert answer.status_code == 200
    assert answer.headers["headrace-applied"] == "ads.events/0/4, ads.events/1/7"


async def test_a_read_waits_until_the_write_is_applied(
    client: httpx.AsyncClient, reads: FakeReads
) -> None:
    sent = await client.post("/v1/scores", json=SCORE)
    place = sent.json()["position"]
    at = (place["topic"], place["partition"])
    reads.advance = lambda looks: {} if looks < 4 else {at: place["offset"] + 1}

    answer = await client.get(
        "/v1/leaderboards/weekly/rank/p",
        headers={"Headrace-After": sent.headers["headrace-position"]},
    )

    assert answer.status_code == 200
    assert answer.headers["headrace-applied"] == sent.headers["headrace-position"]
    assert reads.looks == 4


async def test_a_read_that_waits_in_vain_is_504_and_gives_no_older_data(
    client: httpx.AsyncClient, reads: FakeReads
) -> None:
    reads.positions = {("ads.events", 0): 5}  # offset 5 itself is not folded yet

    answer = await client.get(
        TOTALS, headers={"Headrace-After": "ads.events/0/5", "Prefer": "wait=0"}
    )

    assert problem_of(answer, 504)["type"] == "urn:headrace:problem:not-applied-yet"
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["headrace-applied"] == "ads.events/0/4"


@pytest.mark.parametrize(
    "value",
    [
        "nonsense",
        "ads.events/0",
        "ads.events/0/-1",
        "ads.events/0/1/2",
        "ads.events/0/" + "9" * 30,
        "ads.events/٣/1",
        "a b/0/1",
        "../etc/0/1",
        ", ".join(f"ads.events/{i}/1" for i in range(65)),
        "x" * 9_000,
        "leaderboard.scores/0/1",  # this read model never folds that topic
    ],
    ids=lambda text: text[:24].encode("ascii", "replace").decode(),
)
async def test_position_is_refused_with_422(
    client: httpx.AsyncClient, reads: FakeReads, value: str
) -> None:
    answer = await client.get(TOTALS, headers={"Headrace-After": value.encode()})

    problem_of(answer, 422)


@pytest.mark.parametrize(
    "prefer", ["wait=0", "respond-async, wait=0", 'wait="0"; x', "WAIT = 0, return=minimal"]
)
async def test_the_client_says_how_long(
    client: httpx.AsyncClient, reads: FakeReads, prefer: str
) -> None:
    answer = await client.get(
        TOTALS, headers={"Headrace-After": "ads.events/0/5", "Prefer": prefer}
    )

    assert "after 0 ms" in problem_of(answer, 504)["detail"]


@pytest.mark.parametrize("prefer", ["wait=999999", "wait=11"])
async def test_the_wait_is_bounded(
    client: httpx.AsyncClient,
    reads: FakeReads,
    prefer: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("api.positions.WAIT_MS_MAX", 20)

    answer = await client.get(
        TOTALS, headers={"Headrace-After": "ads.events/0/5", "Prefer": prefer}
    )

    assert "after 20 ms" in problem_of(answer, 504)["detail"]


async def test_a_preference_that_is_no_wait_changes_nothing(
    client: httpx.AsyncClient, reads: FakeReads
) -> None:
    answer = await client.get(TOTALS, headers={"Prefer": "wait=soon, nowait=3"})

    assert answer.status_code == 200


async def test_reads_that_wait_leave_places_for_others(
    app: FastAPI, client: httpx.AsyncClient, reads: FakeReads
) -> None:
    app.state.waiting = Waiting(2)
    gate = asyncio.Event()
    place = ("ads.events", 0)
    reads.advance = lambda _looks: {place: 6} if gate.is_set() else {}
    after = {"Headrace-After": "ads.events/0/5", "Prefer": "wait=10"}
    first = [asyncio.create_task(client.get(TOTALS, headers=after)) for _ in range(2)]
    while reads.looks < 4:  # noqa: ASYNC110 - each has looked twice, so each waits
        await asyncio.sleep(0)

    third = await client.get(TOTALS, headers=after)

    problem_of(third, 503)
    assert (await client.get(TOTALS)).status_code == 200  # who need not wait is not affected
    gate.set()
    assert [(await task).status_code for task in first] == [200, 200]
    assert (await client.get(TOTALS, headers=after)).status_code == 200
