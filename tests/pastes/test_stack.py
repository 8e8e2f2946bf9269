"""Pastes through the whole product: made, read, burned, expired, purged, rebuilt."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from connectors.pastes.highlighting import languages
from schemas.pastes.contents import CONTENT_BYTES_MAX
from streams.runtime.settings import Settings
from tests import stack
from tests.pastes.desk import AGENTS
from tests.pastes.shop import Shop

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with stack.worker(tmp_path_factory.mktemp("worker"), *AGENTS):
        yield


@pytest.fixture
async def shop(worker: None, tmp_path: Path) -> AsyncIterator[Shop]:
    async with stack.api(tmp_path) as opened:
        yield Shop(opened)


async def test_made_and_read_small_and_large(shop: Shop) -> None:
    small, large = "x = 1\n", f"# {uuid.uuid4()}\n" + "y = 'ü'\n" * 10_000
    for content in (small, large):
        paste = await shop.made(content, language="python")
        answer = await shop.read(paste)
        assert (answer.status_code, answer.json()["content"]) == (200, content)
        assert (await shop.read(paste, "/raw")).content == content.encode()
        assert answer.headers["Cache-Control"] == "public, max-age=60"
