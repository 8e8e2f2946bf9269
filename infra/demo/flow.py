"""Traffic into the log while the agents fold it: what is sent, what is folded, and when it is all.

Folded rows are those that the stored positions count, so this looks at what readers see and not
at what a worker believes.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import polars as pl
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from connectors.files import open_bulk
from infra.demo.compare import counts
from infra.demo.waves import runs
from infra.error import StackError
from sinks.open import open_sink
from streams.runtime.projection import Projection
from streams.runtime.settings import Settings
from streams.runtime.sink import Sink, SinkUnavailable
from streams.runtime.topic import Topic

LOOK_S = 0.5
STALL_S = 120.0
LINE_EVERY_S = 5.0
FATES = ("applied", "duplicate", "late", "filtered", "quarantined")

Extra = Callable[[], RenderableType]
"""Something more to show, drawn anew at every look."""


@dataclass
class Flow:
    """Sends traffic and watches the agents that fold it."""

    settings: Settings
    projections: Sequence[Projection]
    console: Console
    sent: Counter[str] = field(default_factory=Counter)
    """Rows in the log by topic, over the whole demo."""
    _ended: threading.Event = field(default_factory=threading.Event)

    def deliver(
        self,
        traffic: Sequence[tuple[Topic, int, Iterable[pl.DataFrame]]],
        extra: Extra = lambda: "",
    ) -> float:
        """Send waves (topic, expected rows, frames) one topic after the other, and return, with
        the seconds it took, when every agent has folded every row. Raises `StackError` when
        nothing moves for long, and whatever the sender raises.
        """
        began = time.monotonic()
        expected = self.sent.copy()
        for topic, rows, _ in traffic:
            expected[topic.name] += rows
        with ThreadPoolExecutor(1) as pool, self._opened() as sinks, self._screen() as show:
            sending = pool.submit(self._send, traffic)
            try:
                self._watch(sending, sinks, lambda found: show(found, expected, extra))
            finally:
                self._ended.set()
        self._ended.clear()
        return time.monotonic() - began

    def _send(self, traffic: Sequence[tuple[Topic, int, Iterable[pl.DataFrame]]]) -> None:
        for topic, _, waves in traffic:
            with open_bulk(topic, self.settings) as bulk:
                for wave in waves:
                    if self._ended.is_set():
                        return
                    for record, rows in runs(wave):
                        self.sent[topic.name] += bulk.send(record, rows)

    def _watch(
        self,
        sending: Future[None],
        sinks: dict[str, Sink],
        show: Callable[[dict[str, Counter[str]]], None],
    ) -> None:
        moved, last = time.monotonic(), -1
        while True:
            if sending.done():
                sending.result()
            found = {name: _counts(sink) for name, sink in sinks.items()}
            show(found)
            total = sum(map(Counter.total, found.values())) + self.sent.total()
            if total != last:
                moved, last = time.monotonic(), total
            elif time.monotonic() - moved > STALL_S:
                raise StackError(f"no agent has folded anything for {STALL_S:.0f} s")
            if sending.done() and all(
                found[one.name].total() >= self.sent[one.topic.name] for one in self.projections
            ):
                return
            time.sleep(LOOK_S)

    @contextmanager
    def _opened(self) -> Iterator[dict[str, Sink]]:
        sinks = {
            one.name: open_sink(one.store, one.model, self.settings) for one in self.projections
        }
        try:
            yield sinks
        finally:
            for sink in sinks.values():
                sink.close()

    @contextmanager
    def _screen(self) -> Iterator[Callable[[dict[str, Counter[str]], Counter[str], Extra], None]]:
        """Tables that renew themselves on a terminal; elsewhere a line every few seconds."""
        if self.console.is_terminal:
            with Live(console=self.console, auto_refresh=False) as live:
                yield lambda found, expected, extra: live.update(
                    Group(self._table(found, expected), extra()), refresh=True
                )
            return
        printed = [time.monotonic()]
        last: list[RenderableType] = []

        def line(found: dict[str, Counter[str]], expected: Counter[str], _: Extra) -> None:
            last[:] = [self._table(found, expected)]
            if time.monotonic() - printed[0] >= LINE_EVERY_S:
                printed[0] = time.monotonic()
                folded = ", ".join(f"{name} {rows.total():,}" for name, rows in found.items())
                self.console.print(f"sent {self.sent.total():,}; folded: {folded}")

        yield line
        self.console.print(*last)

    def _table(self, found: dict[str, Counter[str]], expected: Counter[str]) -> RenderableType:
        sent = Table.grid(padding=(0, 2))
        for topic, total in expected.items():
            bar = ProgressBar(total=max(1, total), completed=self.sent[topic], width=30)
            sent.add_row(topic, bar, f"{self.sent[topic]:,} sent")
        table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
        table.add_column("agent", no_wrap=True)
        for name in ("folded", "behind", *FATES):
            table.add_column(name, justify="right", overflow="fold")
        for one in self.projections:
            rows = found[one.name]
            behind = max(0, self.sent[one.topic.name] - rows.total())
            numbers = [rows.total(), behind, *(rows[fate] for fate in FATES)]
            table.add_row(one.name, *(f"{number:,}" for number in numbers))
        return Group(sent, table)


def _counts(sink: Sink) -> Counter[str]:
    """Rows by fate; nothing yet where the store is just busy."""
    try:
        return counts(sink)
    except SinkUnavailable:
        return Counter()
