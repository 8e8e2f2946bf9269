"""The ceiling: confluent-kafka's `consume` alone, values untouched. Usage: raw RECORDS"""

from __future__ import annotations

import sys
from collections import Counter

from confluent_kafka import Message, TopicPartition

from streams.runtime import kafka
from streams.runtime.lane.feed import CONSUME_ROWS
from streams.runtime.settings import Settings
from tests.bench.clicks import PARTITIONS, topic
from tests.bench.contenders.finish import Finish, Stopwatch, say


def main(records: int) -> None:
    consumer = kafka.consumer(Settings.read().kafka, "bench-raw")
    consumed: Counter[int] = Counter()
    watch = Stopwatch()
    watch.start()
    consumer.assign([TopicPartition(topic(records).name, p, 0) for p in range(PARTITIONS)])
    while consumed.total() < records:
        consumed.update(map(Message.partition, consumer.consume(CONSUME_ROWS, timeout=0.2)))
    seconds, cpu_s = watch.stop()
    say(Finish(seconds, cpu_s, consumed))
    consumer.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
