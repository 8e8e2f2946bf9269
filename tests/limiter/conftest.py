"""Counters on the real store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sinks.limiter.counters import Counters
from streams.runtime.settings import Settings


@pytest.fixture
async def counters() -> AsyncIterator[Counters]:
    """Counters on the local Redis."""
    opened = Counters.connect(Settings.read().redis.url.get_secret_value(), 5.0)
    yield opened
    await opened.close()
