"""Clicks and cost by campaign and window of ten seconds on Quix Streams.

Usage: quix BROKER TOPIC AVSC TAKE WINDOW_MS dict|window. `dict` adds up in a dict of our own, the
cheapest there is; `window` uses the engine's tumbling window in RocksDB, without a changelog. Reads
the first TAKE records and no registry.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from quixstreams import Application, message_context
from quixstreams.dataframe.windows import Count, Sum
from quixstreams.models import Deserializer

from tests.bench.peers.tally import Clicks, Tally

CONSUMER = {"fetch.queue.backoff.ms": 5}
"""librdkafka's default (1,000) stalls a partition for a second whenever its queue is full."""


class Decoded(Deserializer):
    """Clicks by our decoder."""

    def __init__(self, avsc: str) -> None:
        super().__init__()
        self._clicks = Clicks(avsc)

    def __call__(self, value: bytes, ctx: Any) -> Any:
        return self._clicks(value)


def _time_ms(click: Any, headers: Any, timestamp: float, kind: Any) -> int:
    return int(click["event_time"])


def main(
    broker: str, topic: str, avsc: str, take: int, window_ms: int, way: str, folder: str
) -> None:
    tally = Tally(take, window_ms)
    app = Application(
        broker_address=broker,
        consumer_group=f"bench-quix-{uuid4().hex[:8]}",
        auto_offset_reset="earliest",
        consumer_extra_config=CONSUMER,
        loglevel="ERROR",
        state_dir=folder,
        use_changelog_topics=False,
    )
    clicks = app.dataframe(
        app.topic(
            topic,
            value_deserializer=Decoded(avsc),
            key_deserializer="bytes",
            timestamp_extractor=_time_ms,
        )
    )
    if way == "dict":
        clicks.update(lambda click: tally.add(message_context().partition, click))
    else:
        clicks = clicks.update(lambda _: tally.seen(message_context().partition))
        window = clicks.tumbling_window(timedelta(milliseconds=window_ms))
        totals = window.agg(count=Count(), cost=Sum("cost_micros")).current()
        totals.update(
            lambda at, key, _, __: tally.put(int(key), at["start"], at["count"], at["cost"]),
            metadata=True,
        )
    app.run()


if __name__ == "__main__":
    broker, topic, avsc, take, window_ms, way = sys.argv[1:]
    with TemporaryDirectory() as folder:
        main(broker, topic, avsc, int(take), int(window_ms), way, folder)
