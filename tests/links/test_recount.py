"""A new bot rule and a new table of networks on the real stack. The worker ends before the rebuild,
so this has a file.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from infra.cli import rebuild
from schemas.links.agents import BOTS
from sinks import digest
from sinks.open import open_sink
from streams.links import SYSTEM
from streams.links.countries import Countries
from streams.links.fold import KeepClicks
from streams.runtime.settings import Settings
from tests import stack
from tests.links.desk import CLICKS, PERSON
from tests.links.desk import TABLE as LINKS
from tests.links.shop import AGENTS, Shop

pytestmark = pytest.mark.stack

SCANNER = "Mozilla/5.0 (compatible; LinkScanner/2.1)"


async def test_a_new_bot_rule_counts_yesterday_anew_and_touches_no_link(tmp_path: Path) -> None:
    """T, on the real stack: clicks, then a rebuild under the new rule and by the new table."""
    settings = Settings.read()
    (tmp_path / "worker").mkdir()
    with stack.worker(tmp_path / "worker", *AGENTS):
        async with stack.api(tmp_path) as opened:
            shop = Shop(opened)
            code = (await shop.shorten()).json()["code"]
            for n in range(9):
                await shop.follow(code, SCANNER if n % 3 else PERSON)
            before = await shop.clicks(code, "day", 9)
            unknown = await shop.clicks(code, "country", 9)
    assert (sum(before.values()), unknown) == (9, {"ZZ": 9})

    def rebuilt(fold: KeepClicks) -> None:
        projection = replace(CLICKS, fold=fold)
        sink = open_sink(projection.store, projection.model, settings)
        try:
            rebuild.run(SYSTEM, projection, sink, settings, verify=False)
        finally:
            sink.close()

    def links() -> dict[str, digest.TableDigest]:
        sink = open_sink(LINKS.store, LINKS.model, settings)
        try:
            return digest.digest(sink, sink.live_version())
        finally:
            sink.close()

    table = links()
    here = Countries(lambda addresses: ["NL" for _ in addresses])
    await asyncio.to_thread(rebuilt, KeepClicks(BOTS + "|LinkScanner", lambda: here))
    try:
        async with stack.api(tmp_path) as opened:
            after = await Shop(opened).clicks(code, "day", 3)
            found = await Shop(opened).clicks(code, "country", 3)
    finally:
        await asyncio.to_thread(rebuilt, KeepClicks())
    assert (sum(after.values()), found) == (3, {"NL": 3})
    assert links() == table
