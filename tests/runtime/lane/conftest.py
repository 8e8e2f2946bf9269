"""Tests of the lane with records by hand run twice where the column reader is built: with messages
and with columns; those of the pump also with its writer beside it.
"""

from __future__ import annotations

import pytest

from streams.runtime.native import available
from tests.runtime.lane import bed

BUILT = pytest.mark.skipif(not available(), reason="the column reader is not built")


@pytest.fixture(params=["messages", pytest.param("columns", marks=BUILT)])
def either_reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records come as one or the other."""
    monkeypatch.setattr(bed, "IN_COLUMNS", request.param == "columns")


@pytest.fixture(params=["alone", "overlapped"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans are carried one by one, or folded while the write of the one before is out."""
    monkeypatch.setattr(bed, "OVERLAPPED", request.param == "overlapped")
