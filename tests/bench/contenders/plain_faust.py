"""Plain Faust: its own consumer (aiokafka), one record at a time, fastavro, totals in a dict.

Usage: plain_faust RECORDS TAKE. Reads the first TAKE records; no store, no commit, no watermark:
what is cheapest for Faust. Settings are the fastest found: large polls and buffers.
"""

from __future__ import annotations

import logging
import sys
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import faust

from streams.runtime.settings import Settings
from tests.bench.clicks import AD_CLICK, PARTITIONS, WINDOW_MS, topic
from tests.bench.peers.tally import Clicks, Tally


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
    decoded = Clicks(AD_CLICK.avsc)

    @app.agent(clicks)  # type: ignore[untyped-decorator]
    async def count(stream: Any) -> None:
        tally = Tally(take, WINDOW_MS)
        async for event in stream.events():
            tally.add(event.message.partition, decoded(event.value))

    return app


def main(records: int, take: int) -> None:
    logging.getLogger().setLevel(logging.ERROR)
    with TemporaryDirectory() as folder:
        app = build(records, take, folder)
        sys.argv = [sys.argv[0], "--datadir", folder, "worker", "--without-web", "-l", "error"]
        app.main()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
