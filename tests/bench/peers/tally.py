"""What the engines that go row by row do with a click, in the cheapest way: totals in a dict.

Runs in their environments, which have msgspec and fastavro and none of our other packages.
"""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from typing import Any

import fastavro

from tests.bench.contenders.finish import Finish, Stopwatch, say

HEADER_BYTES = 5
"""Confluent's framing: a zero byte, four of the schema's id."""


class Clicks:
    """Decodes clicks with fastavro; times stay milliseconds, which is half again as fast."""

    def __init__(self, avsc: str) -> None:
        schema = json.loads(avsc)
        for field in schema["fields"]:
            if isinstance(field["type"], dict):
                field["type"] = field["type"]["type"]
        self._schema = fastavro.parse_schema(schema)

    def __call__(self, value: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(value[HEADER_BYTES:]), self._schema, None)


class Tally:
    """Count and cost by campaign and window. The clock runs from the first record on; after `take`
    records it says what it found and ends the process: an orderly stop takes seconds, and nothing
    is kept.
    """

    def __init__(self, take: int, window_ms: int) -> None:
        self._left = take
        self._window_ms = window_ms
        self._totals: dict[tuple[int, int], list[int]] = {}
        self._consumed: Counter[int] = Counter()
        self._watch = Stopwatch()

    def add(self, partition: int, click: Any) -> None:
        """Add a click to its window."""
        self.seen(partition)
        key = click["campaign_id"], click["event_time"] // self._window_ms
        total = self._totals.get(key)
        if total is None:
            total = self._totals[key] = [0, 0]
        total[0] += 1
        total[1] += click["cost_micros"]
        self.end()

    def seen(self, partition: int) -> None:
        """Count a record."""
        if not self._consumed:
            self._watch.start()
        self._consumed[partition] += 1
        self._left -= 1

    def put(self, campaign: int, start_ms: int, count: int, cost: int) -> None:
        """Note the newest total of a window that the engine itself keeps."""
        self._totals[campaign, start_ms] = [count, cost]
        self.end()

    def end(self) -> None:
        """Finish if that was the last record."""
        if not self._left:
            seconds, cpu_s = self._watch.stop()
            count, cost = (sum(total) for total in zip(*self._totals.values(), strict=True))
            say(Finish(seconds, cpu_s, self._consumed, count, cost, results=len(self._totals)))
            os._exit(0)
