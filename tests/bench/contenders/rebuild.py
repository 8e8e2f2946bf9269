"""One rebuild of a read model that holds nothing yet. Usage: rebuild NAME RECORDS"""

from __future__ import annotations

import sys

from sinks.open import open_sink
from streams.runtime import kafka, metrics
from streams.runtime.avro import Decoder, RegistrySource
from streams.runtime.dead_letters import KafkaOutbox
from streams.runtime.rebuild import Rebuild
from streams.runtime.settings import Settings
from tests.bench.contenders.finish import Finish, Stopwatch, say
from tests.bench.traffic import double


def main(name: str, records: int) -> None:
    settings = Settings.read()
    projection = double(name, records)
    sink = open_sink(projection.store, projection.model, settings)
    admin = kafka.admin(settings.kafka)
    rebuild = Rebuild(
        projection,
        sink,
        Decoder(projection.topic, RegistrySource(settings.registry.url), projection.columns),
        KafkaOutbox(lambda: kafka.producer(settings.kafka)),
        metrics.default().agent(
            projection.name, system="bench", topic=projection.topic.name, store=projection.store
        ),
        kafka.consumer(settings.kafka, projection.name),
        bounds=lambda seat: kafka.log_bounds(admin, seat.topic, seat.partition),
        keep_old=True,
    )
    watch = Stopwatch()
    watch.start()
    report = rebuild.run()
    seconds, cpu_s = watch.stop()
    positions = sink.positions(report.version)
    sink.drop(report.replaced)
    sink.close()
    folded = {partition: at.next_offset for (_, partition), at in positions.items()}
    applied = sum(position.counts.get("applied", 0) for position in positions.values())
    say(Finish(seconds, cpu_s, folded, applied))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
