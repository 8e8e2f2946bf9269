"""Ids through the whole product, and of 16 processes that die and come back an hour earlier."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from schemas.ids.snowflake import parts
from tests import stack

pytestmark = pytest.mark.stack
PROCESSES = 16


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with stack.worker(tmp_path_factory.mktemp("worker"), "ids", "ids-leases"):
        yield


@pytest.fixture
async def api(worker: None, tmp_path: Any) -> AsyncIterator[stack.Api]:
    async with stack.api(tmp_path) as opened:
        yield opened


def life(folder: Path, count: int, *, shift_s: int, end: str) -> None:
    subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.ids.maker",
            folder,
            *map(str, (PROCESSES, count, shift_s)),
            end,
        ],
        check=True,
        timeout=120,
    )


def test_16_processes_an_hour_back_across_a_restart_repeat_nothing(
    worker: None, tmp_path: Path
) -> None:
    """T: 16 processes, a million ids each, killed half way; then the wall clock is set back."""
    life(tmp_path, 500_000, shift_s=0, end="kill")
    life(tmp_path, 500_000, shift_s=-3_600, end="clean")
    files = list(tmp_path.glob("*.npy"))
    made = np.concatenate([np.load(file) for file in files])
    assert (len(files), made.size) == (2 * PROCESSES, 16_000_000)
    assert np.unique(made).size == made.size
    assert made.min() > 0


async def test_ids_are_made_taken_apart_and_told_whose_they_are(api: stack.Api) -> None:
    made = await api.client.post("/v1/ids", json={"count": 1_000})
    assert made.status_code == 201, made.text
    body = made.json()
    numbers = [int(one) for one in body["ids"]]
    assert numbers == sorted(set(numbers))
    shown = (await api.client.get(f"/v1/ids/{numbers[0]}")).json()
    assert shown["worker"] == body["worker"] == parts(numbers[0]).worker
    back = (await api.client.get(f"/v1/ids/{shown['public']}")).json()
    assert (back["kind"], back["id"]) == ("public", body["ids"][0])

    allocated = await api.client.post(
        "/v1/id-ranges", json={"space": "main", "size": 10}, headers={"Prefer": "wait=30"}
    )
    api.written |= stack.offsets(allocated.headers["Headrace-Position"])
    leases = (await api.read(f"/v1/id-workers/{body['worker']}/leases")).json()
    held = leases[0]
    assert held["from_ms"] <= shown["time_ms"] < held["until_ms"]


async def test_a_range_is_nobody_elses_and_a_repeat_of_the_question_is_the_same(
    api: stack.Api,
) -> None:
    async def ask(key: str) -> Any:
        headers = {"Idempotency-Key": key, "Prefer": "wait=30"}
        return await api.client.post(
            "/v1/id-ranges", json={"space": "test", "size": 1_000}, headers=headers
        )

    keys = [uuid.uuid4().hex for _ in range(3)]
    answers = [await ask(key) for key in (*keys, keys[0])]
    firsts = [one.json()["first"] for one in answers]
    assert len({*firsts}) == 3
    assert firsts[3] == firsts[0]
    assert answers[3].headers["Idempotent-Replay"] == "true"
    assert all(
        b - a >= 1_000 for a, b in zip(sorted(firsts[:3]), sorted(firsts[:3])[1:], strict=False)
    )
