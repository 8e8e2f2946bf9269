"""The decider as a worker runs it. Usage: decider RECORDS

From the first decision to the last event read back: command reader, guarded decode, rules, events
with their headers through the idempotent producer, reading back, metrics.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from schemas.registry import schema_ids
from streams.runtime import metrics
from streams.runtime.avro import RegistrySource
from streams.runtime.decider.service import DeciderWiring, Deciding
from streams.runtime.decider.snapshot_store import LocalStore
from streams.runtime.lane.service import LaneApp, build_app
from streams.runtime.settings import Settings
from tests.bench.contenders.finish import Finish, Stopwatch, say
from tests.bench.contenders.lane import free_port
from tests.bench.transfers import decider

LOOK_S = 0.002


async def run(records: int, folder: Path) -> Finish:
    """Decide the whole topic once."""
    settings, one = Settings.read(), decider(records)
    registry = RegistrySource(settings.registry.url)
    wiring = DeciderWiring(
        system="bench",
        kafka=settings.kafka,
        schemas=registry,
        schema_ids={t.name: schema_ids(t, settings.registry) for t in (one.commands, one.events)},
        redis_url=settings.redis.url.get_secret_value(),
        snapshots=LocalStore(folder / "snapshots"),
        metrics=metrics.default(),
        journals=folder,
    )
    made: list[Deciding] = []

    def make(app: LaneApp) -> Deciding:
        made.append(Deciding(app, one, wiring))
        return made[0]

    app = await build_app("bench-decider", settings.kafka, [make], free_port(), folder)
    await app.start()
    took = await _watch(made[0], records)
    app.end()
    error = await app.ended
    owner = made[0].pump.desks[0].owner
    count = 0 if owner is None else owner.tally.decided["accepted"]
    await app.stop()
    registry.close()
    if error is not None:
        raise error
    return Finish(*took, {0: records}, count)


async def _watch(deciding: Deciding, records: int) -> tuple[float, float]:
    watch = Stopwatch()
    until_s = time.monotonic() + 240
    while time.monotonic() < until_s:
        desk = deciding.pump.desks.get(0)
        if desk is not None and desk.owner is not None:
            if not watch.wall_s and desk.owner.tally.decided:
                watch.start()
            if desk.owner.folded.filter.source_offset >= records - 1:
                return watch.stop()
        await asyncio.sleep(LOOK_S)
    raise TimeoutError("the topic was not decided")


def main(records: int) -> None:
    with TemporaryDirectory() as folder:
        say(asyncio.run(run(records, Path(folder))))


if __name__ == "__main__":
    main(int(sys.argv[1]))
