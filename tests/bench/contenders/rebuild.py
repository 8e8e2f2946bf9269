"""One rebuild of a read model that holds nothing yet. Usage: rebuild NAME RECORDS [check]

With `check` it is rebuilt a second time, from spans that end elsewhere, and both must be equal.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from confluent_kafka.admin import AdminClient

from sinks import digest
from sinks.open import open_sink
from streams.runtime import kafka, metrics
from streams.runtime.avro import Decoder, RegistrySource
from streams.runtime.dead_letters import KafkaOutbox
from streams.runtime.native.feed import opened
from streams.runtime.projection import Projection
from streams.runtime.rebuild import Rebuild
from streams.runtime.settings import Settings
from streams.runtime.sink import Sink
from tests.bench.contenders.finish import Finish, Stopwatch, say
from tests.bench.traffic import double

OTHER_ROWS = 3_001
"""Rows of a span in the second build."""


def main(name: str, records: int, check: bool) -> None:
    settings = Settings.read()
    projection = double(name, records)
    sink = open_sink(projection.store, projection.model, settings)
    admin = kafka.admin(settings.kafka)
    watch = Stopwatch()
    rebuild = made(projection, sink, settings, admin)
    watch.start()
    report = rebuild.run()
    seconds, cpu_s = watch.stop()
    positions = sink.positions(report.version)
    sink.drop(report.replaced)
    if check:
        again(projection, sink, settings, admin, report.version)
    sink.close()
    folded = {partition: at.next_offset for (_, partition), at in positions.items()}
    applied = sum(position.counts.get("applied", 0) for position in positions.values())
    say(Finish(seconds, cpu_s, folded, applied))


def made(projection: Projection, sink: Sink, settings: Settings, admin: AdminClient) -> Rebuild:
    """A rebuild as the command line makes it."""
    topic = projection.topic
    return Rebuild(
        projection,
        sink,
        Decoder(topic, RegistrySource(settings.registry.url), projection.columns),
        KafkaOutbox(lambda: kafka.producer(settings.kafka)),
        metrics.default().agent(
            projection.name, system="bench", topic=topic.name, store=projection.store
        ),
        opened(settings.kafka, projection.name, projection.topic.name, settings.reader),
        bounds=lambda seat: kafka.log_bounds(admin, seat.topic, seat.partition),
        keep_old=True,
    )


def again(
    projection: Projection, sink: Sink, settings: Settings, admin: AdminClient, first: int
) -> None:
    """Build once more from other spans; raises unless the digests are equal."""
    report = made(replace(projection, rows_max=OTHER_ROWS), sink, settings, admin).run()
    one, two = digest.digest(sink, first), digest.digest(sink, report.version)
    if one != two or not any(table.rows for table in one.values()):
        raise AssertionError(f"{projection.name}: {one}, from other spans {two}")
    sink.drop(first)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:] == ["check"])
