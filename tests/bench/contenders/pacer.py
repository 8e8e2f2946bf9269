"""Sends clicks on time. Usage: pacer TOPIC RECORDS RATE; a rate of 0 is as fast as it can.

Event n is due at n / RATE after the start, whatever became of those before it. Everything is
encoded before the start. The last line says when that was (`CLOCK_MONOTONIC`, which all processes
of the machine share), how long sending took, and how late the latest event was handed over.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import msgspec

from connectors.columnar import FrameEncoder
from connectors.encode import Encoder
from schemas.registry import schema_ids
from streams.runtime import kafka
from streams.runtime.settings import Settings
from tests.bench import clicks

TICK_S = 0.0005
LINGER_MS = 1


class Sent(msgspec.Struct, frozen=True):
    """What the pacer did."""

    start_s: float
    seconds: float
    late_ms_max: float


def main(name: str, records: int, rate: int) -> None:
    settings = Settings.read()
    topic = replace(clicks.topic(records), name=name)
    encoder = FrameEncoder(Encoder(topic, schema_ids(topic, settings.registry)))
    frames = clicks.frames(records)
    rows = [row for frame in frames for row in encoder.encode(clicks.AD_CLICK.name, frame)]
    producer = kafka.producer(
        settings.kafka,
        **{"linger.ms": LINGER_MS, "queue.buffering.max.messages": 1_000_000},
    )
    producer.list_topics(name, timeout=10.0)
    start_s, sent, late_s = time.monotonic() + 0.05, 0, 0.0
    while sent < records:
        elapsed_s = time.monotonic() - start_s
        due = records if not rate else min(records, int(elapsed_s * rate))
        if due > sent:
            if rate:
                late_s = max(late_s, elapsed_s - sent / rate)
            for key, value in rows[sent:due]:
                while True:
                    try:
                        producer.produce(name, value, key)
                        break
                    except BufferError:
                        producer.poll(0.001)
            sent = due
        producer.poll(0)
        time.sleep(TICK_S)
    producer.flush()
    done = Sent(start_s, time.monotonic() - start_s, late_s * 1_000)
    print(msgspec.json.encode(done).decode())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
