"""A worker process with one derivation. Usage: worker PREFIX FOLDER SCHEMA_ID

`PREFIX` names its topics; `FOLDER` is for its files. It runs until a signal.
"""

from __future__ import annotations

import asyncio
import io
import signal
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import fastavro
import polars as pl

from infra.local.ports import free_port
from streams.runtime import metrics
from streams.runtime.avro import RegistrySource
from streams.runtime.derivation.fold import Encode
from streams.runtime.derivation.rules import Derivation
from streams.runtime.derivation.service import deriving
from streams.runtime.lane.service import Wiring, build_app
from streams.runtime.lane.store import WriteSide
from streams.runtime.projection import Projection
from streams.runtime.settings import Settings
from streams.runtime.topic import RecordType
from tests.runtime.derivation.scene import DERIVATION, GOT, SOURCE, TARGET


def derivation(prefix: str) -> Derivation:
    """The derivation of the scene, with topics of its own."""
    source = replace(SOURCE, name=f"{prefix}.sent")
    target = replace(TARGET, name=f"{prefix}.got", derived_from=(source.name,))
    return replace(DERIVATION, name=f"{prefix}-fan-out", source=source, target=target)


def encoder(record: RecordType, schema_id: int, key: str) -> Encode:
    """Row by row; what a system injects is faster."""
    schema = fastavro.parse_schema(record.schema)

    def encode(_: str, frame: pl.DataFrame) -> Iterator[tuple[bytes, bytes]]:
        for row in frame.to_dicts():
            out = io.BytesIO()
            out.write(struct.pack(">bI", 0, schema_id))
            fastavro.schemaless_writer(out, schema, row)
            yield str(row[key]).encode(), out.getvalue()

    return encode


def no_sink(_: Projection) -> WriteSide:
    raise AssertionError("the target log is the sink of a derivation")


async def run(prefix: str, folder: Path, schema_id: int) -> None:
    settings = Settings.read()
    # Partitions of a killed worker move as soon as the broker allows.
    short = {**settings.kafka.config, "session.timeout.ms": 6_000}
    brokers = settings.kafka.model_copy(update={"config": short})
    port = free_port()
    wiring = Wiring(
        system="test",
        kafka=brokers,
        schemas=RegistrySource(settings.registry.url),
        open_sink=no_sink,
        metrics=metrics.default(),
        journals=folder,
    )
    encode = encoder(GOT, schema_id, TARGET.key)
    agent = deriving(derivation(prefix), wiring, encode)
    app = await build_app("test-derivation", brokers, [agent], port, folder)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, app.end)
    await app.start()
    error = await app.ended
    await app.stop()
    if error is not None:
        raise error


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
