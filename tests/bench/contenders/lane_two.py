"""The lane in two processes, workers of one consumer group. Usage: lane_two RECORDS

The clock runs from the moment both have joined and share the partitions until the write that
completes the topic. Until then every write is refused as if another worker had been faster, so
that each partition begins anew, with nothing fetched, when the clock does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import structlog
from confluent_kafka import ConsumerGroupState

from sinks.open import open_sink
from streams.runtime import kafka
from streams.runtime.position import Position
from streams.runtime.settings import Settings
from streams.runtime.sink import FenceRefused, Sink, Write
from tests.bench.clicks import PARTITIONS, topic
from tests.bench.contenders.finish import WARM_UP, Finish, say
from tests.bench.contenders.lane import Trace, Watched, steady, with_totals, worked
from tests.bench.rule import projection

WORKERS = 2
STORE = "redis"
REFUSED_S = 0.1
JOIN_TIMEOUT_S = 60.0
_ASK_TIMEOUT_S = 10.0


class Gated(Watched):
    """Refuses the first write of every partition that was located before `open`."""

    def __init__(self, sink: Sink, ends: Sequence[int]) -> None:
        super().__init__(sink, self._all)
        self._ends = ends
        self._opened = threading.Event()
        self._fresh: set[int] = set()
        self._mine: Sequence[int] = ()

    def open(self, partitions: Sequence[int]) -> None:
        """Start the clock; these partitions are this worker's for good."""
        self._mine = partitions
        self.watch.start()
        self._opened.set()

    def load(self, version: int, topic: str, partition: int) -> Position | None:
        if self._opened.is_set():
            self._fresh.add(partition)
        return self._sink.load(version, topic, partition)

    def write(self, version: int, write: Write) -> None:
        if write.partition not in self._fresh:
            self._opened.wait(REFUSED_S)  # briefly: a rebalance waits for the write in hand
            raise FenceRefused("the clock has not started")
        super().write(version, write)

    def _all(self, stored: dict[int, int]) -> bool:
        return all(stored.get(mine, 0) >= self._ends[mine] for mine in self._mine)


async def member(records: int, folder: Path) -> None:
    """One worker: waits for its partitions on standard input, says its `Trace` and its `Finish`,
    and stays in the group until standard input ends.
    """
    given, folded = Settings.read(), projection(topic(records), STORE)
    named = {**given.kafka.config, "client.id": client_id(os.getpid())}
    broker = given.kafka.model_copy(update={"config": named})
    settings = given.model_copy(update={"kafka": broker})
    admin = kafka.admin(settings.kafka)
    ends = [kafka.log_bounds(admin, folded.topic.name, p).end for p in range(PARTITIONS)]
    sink = Gated(open_sink(STORE, folded.model, settings), ends)

    def await_start() -> None:
        sink.open(msgspec.json.decode(sys.stdin.readline(), type=list[int]))

    async def leave(finish: Finish) -> None:
        print(msgspec.json.encode(sink.trace).decode())
        say(finish)
        await asyncio.to_thread(sys.stdin.read)

    threading.Thread(target=await_start, daemon=True).start()
    await worked(settings, folded, sink, folder, leave)


def both(records: int) -> Finish:
    """Start two workers, open the gate when they share the topic, and merge what they say."""
    settings, folded = Settings.read(), projection(topic(records), STORE)
    with ExitStack() as stack:
        workers = [stack.enter_context(_worker(records)) for _ in range(WORKERS)]
        for worker in workers:
            stack.callback(worker.kill)  # before each is waited for
        shares = _shares(settings, folded.name, workers)
        for worker, share in zip(workers, shares, strict=True):
            _pipe(worker.stdin).write(msgspec.json.encode(share).decode() + "\n")
            _pipe(worker.stdin).flush()
        said = [[_pipe(worker.stdout).readline() for _ in range(2)] for worker in workers]
        for worker in workers:
            _pipe(worker.stdin).close()
            worker.wait(JOIN_TIMEOUT_S)
    finish = merged(
        [msgspec.json.decode(finish, type=Finish) for _, finish in said],
        [msgspec.json.decode(trace, type=Trace) for trace, _ in said],
    )
    return with_totals(finish, open_sink(STORE, folded.model, settings))


def merged(parts: Sequence[Finish], traces: Sequence[Trace], warm_up: int = WARM_UP) -> Finish:
    """One finish of workers whose clocks started at the same time."""
    return Finish(
        max(one.seconds for one in parts),
        sum(one.cpu_s for one in parts),
        {partition: n for one in parts for partition, n in one.consumed.items()},
        rss_peak_mib=sum(one.rss_peak_mib for one in parts),
        **steady([write for trace in traces for write in trace], warm_up),
    )


def _worker(records: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.bench.contenders.lane_two", str(records), "member"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _shares(
    settings: Settings, group: str, workers: Sequence[subprocess.Popen[str]]
) -> list[list[int]]:
    """The partitions of each worker, once they share them evenly. The group's order of members is
    arbitrary, so every worker's client is called after its process.
    """
    admin = kafka.admin(settings.kafka)
    wanted = [client_id(worker.pid) for worker in workers]
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    while time.monotonic() < deadline:
        if any(worker.poll() is not None for worker in workers):
            raise RuntimeError("a worker ended before it had joined")
        found = admin.describe_consumer_groups([group])[group].result(_ASK_TIMEOUT_S)
        if found.state == ConsumerGroupState.STABLE:
            held = {
                one.client_id: sorted(p.partition for p in one.assignment.topic_partitions)
                for one in found.members
            }
            shares = [held.get(name, []) for name in wanted]
            if all(len(share) == PARTITIONS // WORKERS for share in shares):
                return shares
        time.sleep(0.1)
    raise TimeoutError(f"{WORKERS} workers did not share {group}")


def client_id(pid: int) -> str:
    return f"bench-{pid}"


def _pipe(pipe: Any) -> Any:
    assert pipe is not None
    return pipe


def main() -> None:
    records = int(sys.argv[1])
    if sys.argv[2:] != ["member"]:
        say(both(records))
        return
    quiet = structlog.make_filtering_bound_logger(logging.ERROR)  # refusals are meant here
    structlog.configure(wrapper_class=quiet)
    with TemporaryDirectory() as folder:
        asyncio.run(member(records, Path(folder)))


if __name__ == "__main__":
    main()
