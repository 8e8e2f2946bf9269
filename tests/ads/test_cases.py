"""Logs in files (one event a line) and the read models they come to, checked by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.ads import events
from streams.runtime.projection import Projection
from tests.ads.log import HISTORY, WINDOWS, Event, run

CASES = sorted((Path(__file__).parent / "cases").glob("*.jsonl"))


def log(file: Path) -> list[Event]:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [getattr(events, row.pop("type"))(**row) for row in rows]


def found(file: Path, cuts: list[int]) -> dict[str, Any]:
    """The read models, with what a reader of the file wants to see of them."""

    def of(projection: Projection, table: str) -> list[dict[str, Any]]:
        return run(projection, *log(file), cuts=cuts).rows(table).to_dicts()

    windows = run(WINDOWS, *log(file), cuts=cuts)
    return {
        "counts": windows.counts,
        "minutes": of(WINDOWS, "minutes"),
        "hours": of(WINDOWS, "hours"),
        "events": [
            f"{row['offset']} {row['kind']} {row['event_id']}: {row['fate']}"
            for row in of(HISTORY, "events")
        ],
        "late": [offset for offset, _ in windows.late],
        "dead": {str(offset): reason for offset, reason in windows.dead.items()},
    }


def test_there_are_cases() -> None:
    assert len(CASES) >= 3


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
@pytest.mark.parametrize("cuts", [[], [1] * 50], ids=["one batch", "row by row"])
def test_a_log_comes_to_its_golden_read_model(file: Path, cuts: list[int]) -> None:
    assert found(file, cuts) == json.loads(file.with_suffix(".golden.json").read_text())
