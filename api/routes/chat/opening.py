"""What the sockets of one process are made of, over the real log and stores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import Any

from api.routes.chat.hub import Hub
from connectors.asking import Asks
from connectors.chat.typing import Typing
from connectors.tail import Decided, Tail
from schemas.chat.events import EVENTS
from sinks.chat.presence import Presence
from sinks.chat.reader import ChatReader
from streams.runtime.avro import RegistrySource
from streams.runtime.metrics import Metrics
from streams.runtime.settings import Settings


@asynccontextmanager
async def open_chat(
    settings: Settings,
    history: ChatReader,
    asking: Asks,
    schema_ids: Mapping[str, int],
    metrics: Metrics,
) -> AsyncIterator[dict[str, Any]]:
    """By the names that the routes ask for. Connects when the first socket comes."""
    url = settings.redis.url.get_secret_value()
    async with AsyncExitStack() as opened:
        schemas = opened.enter_context(closing(RegistrySource(settings.registry.url)))
        presence = await opened.enter_async_context(Presence.open(settings))

        def tail(hand: Callable[[Decided], None], failed: Callable[[BaseException], None]) -> Tail:
            return Tail(settings.kafka, EVENTS, schemas, schema_ids, hand=hand, failed=failed)

        hub = Hub(
            history,
            presence,
            tail=tail,
            typing=lambda hear: Typing(url, hear),
            metrics=metrics.chat,
        )
        opened.push_async_callback(hub.close)
        yield {"chat-hub": hub, "chat-presence": presence, "chat-asking": asking}
