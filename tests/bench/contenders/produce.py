"""The ceiling of `bench ingest`: records that are encoded already, through librdkafka, acks=all.
Usage: produce RECORDS
"""

from __future__ import annotations

import sys
from typing import Any

from connectors.encode import Encoder
from connectors.producer import LINGER_MS
from schemas.registry import schema_ids
from streams.runtime import kafka
from streams.runtime.settings import Settings
from tests.bench.contenders.finish import Finish, Stopwatch, say
from tests.bench.ingest import score, topic

DISTINCT = 10_000


def main(records: int) -> None:
    settings, into = Settings.read(), topic()
    write = Encoder(into, schema_ids(into, settings.registry)).writer("ScoreSubmitted")
    made = [write({**score(n), "score_id": f"bench-{n}"}) for n in range(DISTINCT)]
    producer = kafka.producer(settings.kafka, **{"linger.ms": LINGER_MS})
    confirmed = 0

    def told(error: Any, _: Any) -> None:
        nonlocal confirmed
        confirmed += error is None

    watch = Stopwatch()
    watch.start()
    for n in range(records):
        key, value = made[n % DISTINCT]
        while True:
            try:
                producer.produce(into.name, value, key, on_delivery=told)
                break
            except BufferError:
                producer.poll(0.05)
        if not n % 1_000:
            producer.poll(0)
    producer.flush()
    say(Finish(*watch.stop(), {0: confirmed}, confirmed))


if __name__ == "__main__":
    main(int(sys.argv[1]))
