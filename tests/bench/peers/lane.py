"""The peers of `bench lane`: what runs, with which settings, and how many records it gets.

Every engine has the fastest honest settings that were found for it; they are published with the
figures. The slow ones take the first records of the same topic, as many as make a run of some
seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.bench.clicks import AD_CLICK, WINDOW_MS
from tests.bench.measure import python
from tests.bench.peers import java
from tests.bench.peers.environments import BYTEWAX, QUIX

PARALLEL_GC = "-XX:+UseParallelGC"
FLINK = {
    "parallelism.default": "1",
    "pipeline.object-reuse": "true",
    "execution.checkpointing.interval": "10 s",
}
"""One task fills two cores with its fetcher; state on the heap, the default."""
FLINK_JVM = {"state": "heap", "max.poll.records": 5_000, "heap": "3g", "jvm": PARALLEL_GC}
FLINK_GUARANTEE = "exactly once in its state: checkpoints every 10 s; results thrown away"
STREAMS = {"num.stream.threads": "2"}
STREAMS_TUNED = {
    **STREAMS,
    "commit.interval.ms": "1000",
    "max.poll.records": "5000",
    "statestore.cache.max.bytes": str(64 * 1024 * 1024),
}


@dataclass(frozen=True)
class Ground:
    """Where all meet: the broker's address, and a topic of so many clicks."""

    broker: str
    topic: str
    records: int


@dataclass(frozen=True)
class Peer:
    """One engine. `takes` bounds the records it gets; `guarantee` says what survives a crash."""

    title: str
    guarantee: str
    command: Callable[[Ground, int], list[str]]
    settings: Mapping[str, object] = field(default_factory=dict)
    takes: int | None = None
    missing: Callable[[], str] = lambda: ""

    def share(self, ground: Ground) -> int:
        """How many of the topic's records it takes."""
        return min(self.takes or ground.records, ground.records)


def _flink(decoded: str) -> Callable[[Ground, int], list[str]]:
    def command(ground: Ground, _: int) -> list[str]:
        given = (ground.broker, ground.topic, AD_CLICK.avsc, decoded, *_pairs(FLINK))
        return java.command("LaneFlink", *given, jvm=(PARALLEL_GC,), engine="flink")

    return command


def _streams(
    store: str, settings: Mapping[str, str], jvm: tuple[str, ...] = ()
) -> Callable[[Ground, int], list[str]]:
    def command(ground: Ground, take: int) -> list[str]:
        given = (ground.broker, ground.topic, take, AD_CLICK.avsc, store, *_pairs(settings))
        return java.command("LaneStreams", *given, jvm=jvm, engine="streams")

    return command


def _quix(way: str) -> Callable[[Ground, int], list[str]]:
    return lambda ground, take: QUIX.command(
        ground.broker, ground.topic, AD_CLICK.avsc, take, WINDOW_MS, way
    )


def _bytewax(ground: Ground, take: int) -> list[str]:
    return BYTEWAX.command(ground.broker, ground.topic, AD_CLICK.avsc, take, WINDOW_MS)


def _pairs(settings: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]


_EXACTLY_ONCE = {**STREAMS_TUNED, "processing.guarantee": "exactly_once_v2"}

PEERS = {
    "faust": Peer(
        "plain Faust",
        "none: totals in a dict, no commits",
        lambda ground, take: python("plain_faust", ground.records, take),
        {"stream_buffer_maxsize": 16_384, "broker_max_poll_records": 5_000},
        takes=100_000,
    ),
    "quix": Peer(
        "Quix Streams, totals in a dict",
        "none: totals in a dict",
        _quix("dict"),
        {"use_changelog_topics": False, "fetch.queue.backoff.ms": 5},
        takes=600_000,
        missing=QUIX.missing,
    ),
    "quix_window": Peer(
        "Quix Streams, its tumbling window",
        "at least once, while the disk lives: RocksDB without changelog",
        _quix("window"),
        {"use_changelog_topics": False, "fetch.queue.backoff.ms": 5},
        takes=200_000,
        missing=QUIX.missing,
    ),
    "bytewax": Peer(
        "Bytewax, totals in a dict",
        "none: totals in a dict, no recovery store",
        _bytewax,
        {"batch_size": 5_000, "fetch.queue.backoff.ms": 5},
        takes=2_000_000,
        missing=BYTEWAX.missing,
    ),
    "streams": Peer(
        "Kafka Streams, 2 threads, defaults",
        "at least once: RocksDB and changelog → topic",
        _streams("rocksdb", STREAMS),
        {**STREAMS, "store": "RocksDB, timestamped", "heap": "3g"},
        missing=java.missing,
    ),
    "streams_tuned": Peer(
        "Kafka Streams, 2 threads, tuned",
        "at least once: memory and changelog → topic",
        _streams("memory", STREAMS_TUNED, (PARALLEL_GC,)),
        {**STREAMS_TUNED, "store": "memory", "heap": "3g", "jvm": PARALLEL_GC},
        missing=java.missing,
    ),
    "streams_eos": Peer(
        "Kafka Streams, tuned, exactly once",
        "exactly once: memory, changelog and transactions → topic",
        _streams("memory", _EXACTLY_ONCE, (PARALLEL_GC,)),
        {**_EXACTLY_ONCE, "store": "memory", "heap": "3g", "jvm": PARALLEL_GC},
        missing=java.missing,
    ),
    "flink": Peer(
        "Flink, needed fields decoded",
        FLINK_GUARANTEE,
        _flink("needed"),
        {**FLINK, **FLINK_JVM, "decodes": "three fields of seven"},
        missing=java.missing,
    ),
    "flink_whole": Peer(
        "Flink, whole records decoded",
        FLINK_GUARANTEE,
        _flink("whole"),
        {**FLINK, **FLINK_JVM, "decodes": "all fields"},
        missing=java.missing,
    ),
}
