"""Plain Faust: its own consumer (aiokafka), one event at a time, counts in a dict.

Usage: plain_faust VARIANT RECORDS TAKE. Counts the first TAKE records it gets and writes what
changed every second; no commit, no watermark: what is cheapest for Faust. orjson, fastavro, and
the fastest settings found: large polls and buffers.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import fastavro
import faust
import orjson

from sinks.drivers.redis import connect
from streams.runtime.avro.container import HEADER_BYTES
from streams.runtime.settings import Settings
from tests.bench.contenders.finish import Finish, Stopwatch, say
from tests.bench.ysb.check import model
from tests.bench.ysb.events import (
    AD_EVENT,
    AD_IDS,
    CAMPAIGN_IDS,
    CAMPAIGN_OF,
    PARTITIONS,
    VIEW,
    WINDOW_MS,
    Variant,
    topic,
)

FLUSH_S = 1.0
Counts = dict[tuple[str, int], int]


def reader(variant: Variant) -> Callable[[bytes], tuple[str, str, int]]:
    """From a value to its ad, its type and its time in milliseconds."""
    schema = fastavro.parse_schema(AD_EVENT.schema)

    def from_json(value: bytes) -> tuple[str, str, int]:
        event = orjson.loads(value)
        return event["ad_id"], event["event_type"], int(event["event_time"])

    def from_avro(value: bytes) -> tuple[str, str, int]:
        body = io.BytesIO(value[HEADER_BYTES:])
        event: Any = fastavro.schemaless_reader(body, schema, None)
        return event["ad_id"], event["event_type"], int(event["event_time"].timestamp() * 1_000)

    return from_json if variant == "json" else from_avro


class Store:
    """One hash a window, written every second."""

    def __init__(self, variant: Variant) -> None:
        self._client = connect(Settings.read().redis.url.get_secret_value())
        self._prefix = f"{{{model('faust', variant)}}}"
        self._written_s = time.monotonic()
        self.due: Counts = {}

    def write(self, *, soon: bool = False) -> None:
        """Write what is due, once a second or now."""
        if not soon and time.monotonic() - self._written_s < FLUSH_S:
            return
        windows: defaultdict[int, dict[Any, Any]] = defaultdict(dict)
        now_ms = time.time_ns() // 1_000_000
        for (campaign, start_ms), seen in self.due.items():
            windows[start_ms][campaign] = f"{seen},{now_ms}"
        with self._client.pipeline(transaction=False) as pipe:
            for start_ms, fields in windows.items():
                pipe.hset(f"{self._prefix}:{start_ms}", mapping=fields)
            pipe.execute()
        self.due.clear()
        self._written_s = time.monotonic()


def build(variant: Variant, records: int, take: int, folder: str) -> faust.App:
    """The app; its process ends when `take` records are counted."""
    app = faust.App(
        f"bench-ysb-faust-{uuid4().hex[:8]}",
        broker=f"kafka://{Settings.read().kafka.bootstrap_servers}",
        store="memory://",
        datadir=folder,
        topic_partitions=PARTITIONS,
        topic_disable_leader=True,
        stream_buffer_maxsize=16_384,
        broker_max_poll_records=5_000,
        consumer_auto_offset_reset="earliest",
        logging_config=None,
        web_enabled=False,
    )
    name = topic(variant, str(records)).name
    events = app.topic(name, value_serializer="raw", key_serializer="raw")
    read, store = reader(variant), Store(variant)
    campaigns = [CAMPAIGN_IDS[n] for n in CAMPAIGN_OF]
    side = dict(zip(AD_IDS, campaigns, strict=True))

    @app.agent(events)  # type: ignore[untyped-decorator]
    async def count(stream: Any) -> None:
        counts: Counts = defaultdict(int)
        consumed: Counter[int] = Counter()
        watch = Stopwatch()
        async for event in stream.events():
            if not consumed:
                watch.start()
            ad, kind, time_ms = read(event.value)
            if kind == VIEW and (campaign := side.get(ad)) is not None:
                key = campaign, time_ms // WINDOW_MS * WINDOW_MS
                counts[key] += 1
                store.due[key] = counts[key]
            consumed[event.message.partition] += 1
            total = consumed.total()
            store.write(soon=total == take)
            if total == take:
                say(Finish(*watch.stop(), consumed))
                os._exit(0)  # an orderly stop takes seconds, and nothing is kept

    return app


def main(variant: Variant, records: int, take: int) -> None:
    logging.getLogger().setLevel(logging.ERROR)
    with TemporaryDirectory() as folder:
        app = build(variant, records, take, folder)
        sys.argv = [sys.argv[0], "--datadir", folder, "worker", "--without-web", "-l", "error"]
        app.main()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))  # type: ignore[arg-type]
