"""Opens what suggestions need: the blocklist from the log, snapshots, and the last searches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import Any

from connectors.compacted import Feed
from connectors.typeahead.blocklist import Blocklist
from schemas.typeahead.events import BLOCKLIST
from sinks.drivers import s3
from sinks.open import open_redis_reader
from sinks.typeahead import RECENT
from sinks.typeahead.snapshots import Snapshots
from sinks.typeahead.suggester import Suggester
from streams.runtime.avro import RegistrySource
from streams.runtime.metrics import Metrics
from streams.runtime.settings import Settings, home


@asynccontextmanager
async def open_suggester(settings: Settings, metrics: Metrics) -> AsyncIterator[dict[str, Any]]:
    """The readers of typeahead, by the names its routes ask for, kept new until the end."""
    async with AsyncExitStack() as opened:
        schemas = opened.enter_context(closing(RegistrySource(settings.registry.url)))
        feed = Feed(BLOCKLIST, settings.kafka, schemas, Blocklist())
        blocklist = (await opened.enter_async_context(feed)).book
        bucket = opened.enter_context(closing(s3.connect(settings.s3)))
        recent = open_redis_reader(RECENT, settings)
        suggester = Suggester(
            recent, Snapshots(bucket), blocklist, home() / "typeahead", metrics.suggestions
        )
        yield {
            "typeahead": await opened.enter_async_context(suggester.running()),
            "typeahead-blocklist": blocklist,
        }
