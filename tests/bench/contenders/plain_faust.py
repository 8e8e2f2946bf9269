"""Plain Faust: its own consumer (aiokafka), one record at a time, fastavro, totals in a dict.

Usage: plain_faust RECORDS TAKE. Reads the first TAKE records; no store, no commit, no watermark:
what is cheapest for Faust. Settings are the fastest found: large polls and buffers.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections import Counter
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import fastavro
import faust

from streams.runtime.avro.container import HEADER_BYTES
from streams.runtime.settings import Settings
from tests.bench.clicks import AD_CLICK, PARTITIONS, WINDOW_MS, topic
from tests.bench.contenders.finish import Finish, Stopwatch, say

WINDOW_S = WINDOW_MS // 1_000


def build(records: int, take: int, folder: str) -> faust.App:
    """The app; its process ends when `take` records are counted."""
    app = faust.App(
        f"bench-faust-{uuid4().hex[:8]}",
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
    clicks = app.topic(topic(records).name, value_serializer="raw", key_serializer="raw")
    schema = fastavro.parse_schema(AD_CLICK.schema)

    @app.agent(clicks)
    async def count(stream: Any) -> None:
        windows: dict[tuple[int, int], list[int]] = {}
        consumed: Counter[int] = Counter()
        watch = Stopwatch()
        async for event in stream.events():
            if not consumed:
                watch.start()
            body = io.BytesIO(event.value[HEADER_BYTES:])
            click: Any = fastavro.schemaless_reader(body, schema, None)
            key = click["campaign_id"], int(click["event_time"].timestamp()) // WINDOW_S
            total = windows.setdefault(key, [0, 0])
            total[0] += 1
            total[1] += click["cost_micros"]
            consumed[event.message.partition] += 1
            if consumed.total() == take:
                seconds, cpu_s = watch.stop()
                found = [sum(total) for total in zip(*windows.values(), strict=True)]
                say(Finish(seconds, cpu_s, consumed, *found))
                os._exit(0)  # an orderly stop takes seconds, and nothing is kept

    return app


def main(records: int, take: int) -> None:
    logging.getLogger().setLevel(logging.ERROR)
    with TemporaryDirectory() as folder:
        app = build(records, take, folder)
        sys.argv = [sys.argv[0], "--datadir", folder, "worker", "--without-web", "-l", "error"]
        app.main()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
