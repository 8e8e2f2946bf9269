"""The API in this process, over the topics and stores of a run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import APIRouter

from api.app import create_app
from api.auth import LEDGER, READ, WRITE, Verifier
from api.issuer import DevIssuer
from api.keys import KeyFile
from api.services import Services
from connectors.encode import Encoder
from connectors.producer import EventProducer, Headers, LogProducer, RecordMetadata
from connectors.replies import RedisReplies
from schemas.registry import schema_ids
from streams.runtime.topic import Topic
from tests.chaos.rig import Rig

SUBJECT = "tester"


class Renamed:
    """A producer that writes to the run's topics what routes send to the product's."""

    def __init__(self, producer: EventProducer, names: Mapping[str, str]) -> None:
        self._producer = producer
        self._names = names

    async def send(
        self, topic: str, record_name: str, row: Any, headers: Headers = ()
    ) -> RecordMetadata:
        """As the producer's."""
        return await self._producer.send(self._names.get(topic, topic), record_name, row, headers)

    async def send_many(
        self, topic: str, rows: Sequence[tuple[str, Any]], headers: Headers = ()
    ) -> list[RecordMetadata]:
        """As the producer's."""
        return await self._producer.send_many(self._names.get(topic, topic), rows, headers)


@asynccontextmanager
async def api(
    rig: Rig,
    commands: Topic,
    *,
    instead_of: str = "",
    routers: Sequence[APIRouter] = (),
    readers: Mapping[str, Any] | None = None,
) -> AsyncIterator[httpx.AsyncClient]:
    """A client with all scopes. `commands` is a topic of the run, `instead_of` that of the product
    whose routes write to it; `routers` are more routes.
    """
    issuer = DevIssuer(rig.folder / "keys", "chaos", "chaos")
    token = issuer.token(SUBJECT, [READ, WRITE, LEDGER], 3_600)
    ids = schema_ids(commands, rig.settings.registry)
    encoders = {commands.name: Encoder(commands, ids)}
    redis_url = f"redis://127.0.0.1:{rig.servers['redis'].port}/0"

    @asynccontextmanager
    async def services() -> AsyncIterator[Services]:
        async with (
            LogProducer.open(rig.settings.kafka, encoders) as producer,
            RedisReplies(redis_url) as replies,
        ):
            yield Services(
                producer=Renamed(producer, {instead_of: commands.name}),
                verifier=Verifier(KeyFile(issuer.folder / "jwks.json"), "chaos", "chaos"),
                replies=replies,
                readers=readers or {},
            )

    app = create_app(services)
    for router in routers:
        app.include_router(router)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://test",
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
        ) as client,
    ):
        yield client
