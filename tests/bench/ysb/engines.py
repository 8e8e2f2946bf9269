"""Every engine that takes turns: its command and the settings it was given, for the result file.

All get the same topic, side table and store, and write absolute counts (a repeat changes nothing).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen

from infra.local.home import CHECKOUT
from streams.runtime.settings import Settings
from tests.bench.peers import java
from tests.bench.ysb.check import HEADRACE
from tests.bench.ysb.events import AD_EVENT, AD_IDS, CAMPAIGN_IDS, CAMPAIGN_OF, Variant, topic

FLUSH_MS = 1_000
"""The benchmark: what changed is written every second."""
SOON_MS = 20
"""For latencies: as often as pays."""
FAUST_RECORDS = 20_000
JVM = ("-XX:+UseParallelGC",)
FLINK = {
    "parallelism.default": "1",
    "pipeline.object-reuse": "true",
    "state.backend.type": "hashmap",
    "execution.checkpointing.interval": "10 s",
}
STREAMS = {
    "num.stream.threads": "2",
    "statestore.cache.max.bytes": "67108864",
    "max.poll.records": "5000",
    "commit.interval.ms": "1000",
}
EXACTLY_ONCE = {"processing.guarantee": "exactly_once_v2"}
STREAMS_OF = {
    "streams": {**STREAMS, **EXACTLY_ONCE},
    "streams-alo": STREAMS,
    "streams-repartition": STREAMS,
}

TITLES = {
    HEADRACE: "Headrace, exactly once",
    "flink": "Flink, exactly once",
    "streams": "Kafka Streams, by partition, exactly once",
    "streams-alo": "Kafka Streams, by partition, at least once",
    "streams-repartition": "Kafka Streams, repartitioned, at least once",
    "faust": "plain Faust, no guarantee",
}
NOTES = {
    HEADRACE: "one process; a state by partition, added up by the reader; whole JSON is checked",
    "flink": "mini-cluster, connector's watermarks by partition; in the catch-up a window is "
    "written once, at its end, which is less than the benchmark asks for",
    "streams": "no hook before a commit: after a crash the counts of the last flush interval may "
    "be missing in the store until they change again",
    "streams-repartition": "grace of a day: the repartition topic mixes the partitions' times",
    "faust": f"counts the first {FAUST_RECORDS:,} records; no commit, no watermark",
}


@dataclass(frozen=True)
class Engines:
    """Makes commands. `folder` holds the side table that the JVM engines read."""

    settings: Settings
    folder: Path

    def __post_init__(self) -> None:
        """Write the side table."""
        lines = (f"{ad},{CAMPAIGN_IDS[n]}\n" for ad, n in zip(AD_IDS, CAMPAIGN_OF, strict=True))
        self._side.write_text("".join(lines))

    def catch_up(self, engine: str, variant: Variant, records: int) -> list[str]:
        """Reads a topic of so many records to its end and prints a `Finish`."""
        name = str(records)
        match engine:
            case "headrace":
                return _python("headrace", variant, name, records)
            case "faust":
                return _python("plain_faust", variant, records, min(FAUST_RECORDS, records))
            case "flink":
                return self.flink(variant, name, 0, FLINK)
        return self.streams(engine, variant, name, FLUSH_MS, records)

    def live(self, engine: str, variant: Variant, name: str) -> list[str]:
        """Reads a topic until it is ended, and writes what changed as soon as pays."""
        match engine:
            case "headrace":
                return _python("headrace", variant, name, 0)
            case "flink":
                return self.flink(variant, name, SOON_MS, FLINK)
        return self.streams(engine, variant, name, SOON_MS, 0)

    def flink(
        self, variant: Variant, name: str, every_ms: int, given: Mapping[str, str]
    ) -> list[str]:
        """Flink with these settings."""
        args = [*self._shared("flink", variant, name), every_ms, *_pairs(given)]
        return java.command("YsbFlink", *args, heap="3g", jvm=JVM, engine="flink")

    def streams(
        self, engine: str, variant: Variant, name: str, every_ms: int, records: int
    ) -> list[str]:
        """One of the Kafka Streams variants."""
        how = "repartition" if engine == "streams-repartition" else "local"
        args = [*self._shared(engine, variant, name), every_ms, how, records]
        args += _pairs(STREAMS_OF[engine])
        return java.command("YsbStreams", *args, heap="2g", jvm=JVM, engine="streams")

    def _shared(self, engine: str, variant: Variant, name: str) -> list[object]:
        """Broker, topic, variant, schema, side table, store, prefix."""
        broker = self.settings.kafka.bootstrap_servers
        store = self.settings.redis.url.get_secret_value()
        read = topic(variant, name).name
        return [broker, read, variant, AD_EVENT.avsc, self._side, store, f"bench-ysb-{engine}"]

    @property
    def _side(self) -> Path:
        return self.folder / "side-table.csv"


@contextmanager
def running(command: Sequence[str]) -> Iterator[None]:
    """An engine that runs until the block ends, and is then killed. Raises `RuntimeError` if it
    ended by itself.
    """
    process = Popen(command, cwd=CHECKOUT, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True)
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError(f"the engine ended with {process.returncode}")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def published() -> dict[str, object]:
    """Settings of every engine, for the result file."""
    jvm = {"heap": "least = most", "jvm": " ".join(JVM)}
    return {
        "flink": {**jvm, "heap": "3g", **FLINK},
        **{name: {**jvm, "heap": "2g", **given} for name, given in STREAMS_OF.items()},
        "flush_ms": {"catch-up": FLUSH_MS, "latency": SOON_MS, "headrace": "as it comes"},
        "notes": NOTES,
    }


def _python(module: str, *args: object) -> list[str]:
    return [sys.executable, "-m", f"tests.bench.ysb.{module}", *map(str, args)]


def _pairs(given: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in given.items()]
