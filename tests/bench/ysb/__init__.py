"""`bench ysb`: the Yahoo Streaming Benchmark beside Flink, Kafka Streams and plain Faust.

Source: `yahoo/streaming-benchmarks`; Chintapalli et al., "Benchmarking Streaming Computation
Engines", 2016. Ad events, 100 campaigns: parse, keep views, join the ad's campaign, count by
campaign and window of ten seconds, write what changed to Redis. Every count of every engine is
compared with the generator's. The catch-up keeps the original's 10 ms between events, so there are
1,000 events to a window of all campaigns and 500,000 windows to five million events: the store has
its share of the work. Every event is read as the original writes it
(JSON), and as Avro.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it all; see `whole.bench`. Engines are programs of this package and do not import it."""
    result: dict[str, Any] = import_module("tests.bench.ysb.whole").bench(runs, records)
    return result
