"""The decider as a worker runs it. Usage: decide RECORDS

From the first decision to the last event read back: command reader, guarded decode, rules, events
with their headers through the idempotent producer, reading back, metrics.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from infra.local.ports import free_port
from schemas.registry import schema_ids
from streams.runtime import metrics
from streams.runtime.avro import RegistrySource
from streams.runtime.decider.owner import Owner
from streams.runtime.decider.rules import Decider
from streams.runtime.decider.service import DeciderWiring, Deciding
from streams.runtime.decider.snapshot_store import LocalStore, SnapshotStore
from streams.runtime.lane.service import LaneApp, build_app
from streams.runtime.settings import Settings
from tests.bench.contenders.finish import Finish, Stopwatch, say
from tests.bench.transfers import decider

LOOK_S = 0.01
PATIENCE_S = 240.0


@asynccontextmanager
async def running(one: Decider, store: SnapshotStore, folder: Path) -> AsyncIterator[Deciding]:
    """A decider in this process, until the block ends; raises what ended it before."""
    settings = Settings.read()
    registry = RegistrySource(settings.registry.url)
    wiring = DeciderWiring(
        system="bench",
        kafka=settings.kafka,
        schemas=registry,
        schema_ids={t.name: schema_ids(t, settings.registry) for t in (one.commands, one.events)},
        redis_url=settings.redis.url.get_secret_value(),
        snapshots=store,
        metrics=metrics.default(),
        journals=folder,
        reader=settings.reader,
    )
    made: list[Deciding] = []

    def make(app: LaneApp) -> Deciding:
        made.append(Deciding(app, one, wiring))
        return made[0]

    app = await build_app("bench-decide", settings.kafka, [make], free_port(), folder)
    await app.start()
    yield made[0]
    app.end()
    error = await app.ended
    await app.stop()
    registry.close()
    if error is not None:
        raise error


def owner_of(deciding: Deciding) -> Owner | None:
    """The owner of the only partition, once there is one."""
    desk = deciding.pump.desks.get(0)
    return None if desk is None else desk.owner


async def run(records: int, folder: Path) -> Finish:
    """Decide the whole topic once."""
    async with running(decider(records), LocalStore(folder / "snapshots"), folder) as deciding:
        took = await _watch(deciding, records)
        owner = owner_of(deciding)
        count = 0 if owner is None else owner.tally.decided["accepted"]
    return Finish(*took, {0: records}, count)


async def _watch(deciding: Deciding, records: int) -> tuple[float, float]:
    watch = Stopwatch()
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        owner = owner_of(deciding)
        if owner is not None:
            if not watch.wall_s and owner.tally.decided:
                watch.start()
            if owner.folded.filter.source_offset >= records - 1:
                return watch.stop()
        await asyncio.sleep(LOOK_S)
    raise TimeoutError("the topic was not decided")


def main(records: int) -> None:
    with TemporaryDirectory() as folder:
        say(asyncio.run(run(records, Path(folder))))


if __name__ == "__main__":
    main(int(sys.argv[1]))
