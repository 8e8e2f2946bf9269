from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.drivers.rigs import PARAMS, RANKED, RIGS, Rig, stop_servers


@pytest.fixture(scope="session", autouse=True)
def servers() -> Iterator[None]:
    """What rigs started for the whole run ends with it."""
    yield
    stop_servers()


@pytest.fixture(params=PARAMS)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Every store in turn, with the tables that all of them can hold."""
    opened = RIGS[request.param](rankings=False)
    yield opened
    opened.close()


@pytest.fixture(params=[p for p in PARAMS if p.values[0] in RANKED])
def ranking_rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Every store that holds rankings in turn."""
    opened = RIGS[request.param](rankings=True)
    yield opened
    opened.close()
