"""Clicks and cost by campaign and window of ten seconds on Bytewax, in a dict of our own.

Usage: bytewax BROKER TOPIC AVSC TAKE WINDOW_MS. Reads the first TAKE records, a batch at a time
and without recovery: the cheapest there is.
"""

from __future__ import annotations

import sys
from typing import Any

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSource
from bytewax.connectors.stdio import StdOutSink
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main

from tests.bench.peers.tally import Clicks, Tally

BATCH = 5_000
CONSUMER = {"fetch.queue.backoff.ms": "5"}
"""librdkafka's default (1,000) stalls a partition for a second whenever its queue is full."""


def flow(broker: str, topic: str, avsc: str, take: int, window_ms: int) -> Dataflow:
    """The program; it ends its process after `take` records."""
    clicks, tally = Clicks(avsc), Tally(take, window_ms)

    def count(messages: list[Any]) -> list[str]:
        for message in messages:
            tally.add(message.partition, clicks(message.value))
        return []

    whole = Dataflow("bench")
    source = KafkaSource([broker], [topic], tail=True, batch_size=BATCH, add_config=CONSUMER)
    messages = op.input("clicks", whole, source)
    op.output("none", op.flat_map_batch("count", messages, count), StdOutSink())
    return whole


if __name__ == "__main__":
    broker, topic, avsc, take, window_ms = sys.argv[1:]
    run_main(flow(broker, topic, avsc, int(take), int(window_ms)))
