"""`bench nexmark`: seven queries of Nexmark on Headrace, Flink and Kafka Streams."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def bench(runs: int, records: int | None, only: Collection[str] = ()) -> dict[str, Any]:
    """Run it (`only`: some queries), print tables, write the result file; returns the result."""
    from tests.bench.nexmark import compare  # a contender imports this package too

    return compare.bench(runs, records, only)
