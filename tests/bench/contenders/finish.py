"""What a contender says when it is done: one line of JSON, the last on its standard output."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec


class Finish(msgspec.Struct, frozen=True):
    """`seconds` and `cpu_s` (all threads) run from the start to the last result; `consumed` are
    records by partition, `count` and `cost_micros` what they added up to.

    `steady_events` and `steady_s` are the part of the run after its first `WARM_UP` records, where
    a just-in-time compiler has done its work. `dropped` are records that an engine took for late;
    `results` how many results it gave, `sums` what their columns add up to.
    """

    seconds: float
    cpu_s: float
    consumed: Mapping[int, int]
    count: int | None = None
    cost_micros: int | None = None
    rss_peak_mib: int = 0
    steady_events: int | None = None
    steady_s: float | None = None
    dropped: int = 0
    results: int | None = None
    sums: Mapping[str, int] = msgspec.field(default_factory=dict)


WARM_UP = 2_000_000
"""Records after which a run counts as steady."""


@dataclass
class Stopwatch:
    """Wall and processor time of this process from `start` on."""

    wall_s: float = 0.0
    cpu_s: float = 0.0

    def start(self) -> None:
        self.wall_s, self.cpu_s = time.perf_counter(), time.process_time()

    def stop(self) -> tuple[float, float]:
        """Wall and processor seconds since the start."""
        return time.perf_counter() - self.wall_s, time.process_time() - self.cpu_s


def say(finish: Finish) -> None:
    """Print it; without a peak of memory it gets that of this process."""
    if not finish.rss_peak_mib:
        finish = msgspec.structs.replace(finish, rss_peak_mib=_peak_kib() // 1024)
    # Faust redirects `sys.stdout` to its log.
    print(msgspec.json.encode(finish).decode(), file=sys.__stdout__, flush=True)


def _peak_kib() -> int:
    """Of this program: `ru_maxrss` would be the peak of the process that started it, if larger."""
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
