"""Deciders on real Kafka: killed, paused, restarted; every command is decided once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.decider.bank import Deposit
from tests.runtime.decider.rig import Rig

pytestmark = pytest.mark.stack


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_commands_are_answered(rig: Rig) -> None:
    rig.start().await_ready()
    asked = rig.send([Deposit("a", 1), Deposit("a", 2), Deposit("b", -1)])
    answers = rig.await_answers(asked)
    assert [one.status for one in answers] == [201, 201, 422]
    assert rig.noted(asked[0]) == answers[0]
    assert rig.folded().folded.state["accounts"]["a"].balance == 3
