"""Logs in files (one event a line) and the boards they come to, checked by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.leaderboard import events
from tests.leaderboard.log import Event, boards, run

CASES = sorted((Path(__file__).parent / "cases").glob("*.jsonl"))


def log(file: Path) -> list[Event]:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [getattr(events, row.pop("type"))(**row) for row in rows]


def found(file: Path, cuts: list[int]) -> dict[str, Any]:
    """The boards, as a reader of the file wants to see them."""
    harness = run(*log(file), cuts=cuts)
    return {
        "counts": harness.counts,
        "boards": {
            " ".join(map(str, key)): [f"{player} {score} @{at}" for player, score, at in places]
            for key, places in sorted(boards([harness]).items())
        },
        "bans": [
            f"{player} {'banned' if banned else 'reinstated'} at {offset} by {decision}"
            for player, offset, banned, decision in harness.rows("bans").iter_rows()
        ],
        "late": [offset for offset, _ in harness.late],
        "dead": {str(offset): reason for offset, reason in harness.dead.items()},
    }


def test_there_are_cases() -> None:
    assert len(CASES) >= 3


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
@pytest.mark.parametrize("cuts", [[], [1] * 50], ids=["one batch", "row by row"])
def test_a_log_comes_to_its_golden_boards(file: Path, cuts: list[int]) -> None:
    assert found(file, cuts) == json.loads(file.with_suffix(".golden.json").read_text())
