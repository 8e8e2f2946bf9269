"""A new system end to end, in memory: written over HTTP, folded, stored, read over HTTP.

Put into a copy of the project as a test of the system `tryouts`, so nothing here is imported from
it by name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl

from api.app import create_app, open_readers
from api.auth import READ, WRITE, Verifier
from api.issuer import DevIssuer
from api.keys import KeyFile
from api.services import Services
from sinks.drivers.memory import MemorySink, MemoryStore
from streams import catalog
from streams.runtime.kafka import partition_of
from streams.runtime.position import Position
from streams.runtime.settings import Settings
from streams.runtime.testing import Harness
from tests.api.conftest import AUDIENCE, ISSUER, MemoryProducer, client_of

SYSTEM = catalog.load("tryouts")
(COUNTS,) = SYSTEM.projections


class MemoryReader:
    """What `RedisReader` answers, from a memory sink."""

    def __init__(self, sink: MemorySink) -> None:
        self.sink = sink

    async def positions(self) -> dict[tuple[str, int], Position]:
        return self.sink.positions(1)

    async def bucket(self, table: str, bucket: Mapping[str, Any]) -> pl.DataFrame:
        columns = COUNTS.model.table(table).columns
        empty = pl.DataFrame(schema={**columns, "_partition": pl.Int32})
        return pl.concat([empty, *self.sink.rows(1, table)]).filter(**bucket)


async def test_what_is_written_is_folded_and_read(tmp_path: Path) -> None:
    issuer = DevIssuer(tmp_path, ISSUER, AUDIENCE)
    token = issuer.token("tester", (READ, WRITE), 600)
    producer, store = MemoryProducer(), MemoryStore()
    sink = MemorySink(COUNTS.model, store)
    reader = import_module("sinks.tryouts").TryoutsReader(MemoryReader(sink))

    @asynccontextmanager
    async def opener() -> AsyncIterator[Services]:
        verifier = Verifier(KeyFile(tmp_path / "jwks.json"), ISSUER, AUDIENCE)
        yield Services(producer=producer, verifier=verifier, readers={"tryouts": reader})

    app = create_app(opener)
    async with opener() as app.state.services, client_of(app) as client:
        client.headers["Authorization"] = f"Bearer {token}"
        events = [
            {"type": "TryoutHeld", "subject_id": s, "event_time": 1_767_225_600_000 + n}
            for n, s in enumerate("abcab")
        ]
        written = await client.post("/v1/tryouts/events:batch", json={"events": events})
        assert written.status_code == 202, written.text

        partitions = COUNTS.topic.partitions
        harnesses = [Harness(COUNTS, sink, partition) for partition in range(partitions)]
        for _, _, row in producer.sent:
            harnesses[partition_of(row["subject_id"], partitions)].send(row)
        for harness in harnesses:
            harness.run()

        after = {"Headrace-After": written.headers["Headrace-Position"]}
        for subject, count in (("a", 2), ("b", 2), ("c", 1), ("nobody", 0)):
            answer = await client.get(f"/v1/tryouts/counts/{subject}", headers=after)
            assert answer.json() == {"subject_id": subject, "events": count}
            assert answer.headers["Headrace-Applied"]
        refused = await client.post("/v1/tryouts/events", json={"type": "TryoutHeld"})
        assert refused.status_code == 422


async def test_the_api_opens_its_reader() -> None:
    async with open_readers(Settings.read()) as readers:
        assert isinstance(readers["tryouts"], import_module("sinks.tryouts").TryoutsReader)
