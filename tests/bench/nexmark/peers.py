"""Flink and Kafka Streams: how each is started, with its best honest settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from schemas.registry import schema_ids
from streams.runtime.settings import Settings
from tests.bench.nexmark.bids import BID, SIDE_ROWS, side_table, topic
from tests.bench.nexmark.oracle import OUTPUT
from tests.bench.peers import java

SQL = Path(__file__).parent / "sql"
HEAP = "3g"
JVM = ("-XX:+UseParallelGC",)
FLINK: Mapping[str, str] = {
    "pipeline.object-reuse": "true",
    "execution.checkpointing.interval": "10 s",
    "state.backend.type": "hashmap",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
}
STREAMS: Mapping[str, str] = {
    "num.stream.threads": "2",
    "statestore.cache.max.bytes": str(64 << 20),
    "commit.interval.ms": "10000",
    "processing.guarantee": "at_least_once",
    "max.poll.records": "5000",
}


def flink(settings: Settings, records: int, query: str, parallelism: int, side: Path) -> list[str]:
    """The command of a query in Flink SQL; `query` may be a variant, such as `q7-top`."""
    end = "unbounded" if query == "q12" else "bounded"
    given = {**FLINK, "parallelism.default": str(parallelism)}
    return java.command(
        "NexmarkFlink",
        *_topic(settings, records),
        side,
        SQL / f"{query}.sql",
        ",".join(OUTPUT[query.split("-", maxsplit=1)[0]]),
        end,
        *(f"{key}={value}" for key, value in given.items()),
        heap=HEAP,
        jvm=JVM,
        engine="flink",
    )


def streams(
    settings: Settings, records: int, query: str, side: Path, store: str = "memory"
) -> list[str]:
    """The command of a query on Kafka Streams, its stores in `memory` or in `rocksdb`."""
    return java.command(
        "NexmarkStreams",
        *_topic(settings, records),
        side,
        query,
        ",".join(OUTPUT[query]),
        store,
        *(f"{key}={value}" for key, value in STREAMS.items()),
        heap=HEAP,
        jvm=JVM,
        engine="streams",
    )


def _topic(settings: Settings, records: int) -> tuple[object, ...]:
    wanted = topic(records)
    schema_id = schema_ids(wanted, settings.registry)[BID.fullname]
    return settings.kafka.bootstrap_servers, wanted.name, records, schema_id


def write_side(file: Path) -> Path:
    """The side input as Nexmark has it: lines of key and value."""
    lines = (f"{key},{value}\n" for key, value in zip(range(SIDE_ROWS), side_table(), strict=True))
    file.write_text("".join(lines))
    return file
