from __future__ import annotations

import pytest

from sinks import feed as store
from tests.feed.few import FEEDS, OUTBOX


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fold fills and trims the small timelines."""
    monkeypatch.setattr(store, "FEEDS", FEEDS)
    monkeypatch.setattr(store, "OUTBOX", OUTBOX)
    monkeypatch.setattr("streams.feed.fold._SLACK", 10)
