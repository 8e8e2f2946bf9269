"""Seeded traffic for the fault tests, written with a plain producer and fastavro."""

from __future__ import annotations

import io
import random
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import fastavro
from confluent_kafka import Producer

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
BROWSER = "Mozilla/5.0 (X11; Linux x86_64)"


class Encoder:
    """Confluent framing around fastavro."""

    def __init__(self, topic: Any, ids: dict[str, int]) -> None:
        self._schemas = {r.name: fastavro.parse_schema(r.schema) for r in topic.records}
        self._ids = {r.name: ids[r.fullname] for r in topic.records}

    def __call__(self, name: str, row: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        out.write(struct.pack(">bI", 0, self._ids[name]))
        fastavro.schemaless_writer(out, self._schemas[name], row)
        return out.getvalue()


def clicks(
    seed: int, count: int, span_ms: int = 4 * HOUR_MS, *, hostile: bool = True
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """`(record, key, row)` of ad traffic over `span_ms` of event time that ends now.

    Hostile traffic has 5 % repeats, 3 % late rows, rows out of order, bots, users that hammer, and
    ids used again for something else.
    """
    chance = random.Random(seed)
    start = int(time.time() * 1000) - span_ms
    recent: deque[tuple[str, str, dict[str, Any]]] = deque(maxlen=500)
    for number in range(count):
        dice = chance.random() if hostile else 1.0
        if recent and dice < 0.05:
            yield chance.choice(recent)
            continue
        when = start + number * span_ms // count - chance.randrange(8_000)
        if dice < 0.08:
            when -= 2 * HOUR_MS
        user = f"u{chance.randrange(20)}" if dice < 0.2 else f"u{chance.randrange(50_000)}"
        one = (
            ("AdClicked", "click_id") if chance.random() < 0.5 else ("AdImpressed", "impression_id")
        )
        row: dict[str, Any] = {
            one[1]: f"{one[1][0]}{seed}-{number}",
            "user_id": user,
            "campaign_id": f"c{chance.randrange(20)}",
            "ad_id": f"a{chance.randrange(5)}",
            "event_time": when,
            "country": "DE",
        }
        if one[0] == "AdClicked":
            row |= {
                "impression_id": None,
                "cost_micros": chance.randrange(1_000_000),
                "user_agent": "Googlebot/2.1" if 0.2 < dice < 0.22 else BROWSER,
            }
        if recent and 0.22 < dice < 0.225:
            other = chance.choice(recent)
            if other[0] == one[0]:  # an id used again, for something else
                row |= {one[1]: other[2][one[1]], "user_id": other[1]}
        made = (one[0], str(row["user_id"]), row)
        recent.append(made)
        yield made


def scores(seed: int, count: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """`(record, key, row)` of scores and bans over 20 days that end now."""
    chance = random.Random(seed)
    start = int(time.time() * 1000) - 20 * DAY_MS
    recent: deque[tuple[str, str, dict[str, Any]]] = deque(maxlen=500)
    for number in range(count):
        dice = chance.random()
        if recent and dice < 0.05:
            yield chance.choice(recent)
            continue
        when = start + number * 20 * DAY_MS // count - chance.randrange(8_000)
        player = f"p{chance.randrange(5_000)}"
        if dice < 0.052:
            yield "PlayerBanned", player, {
                "ban_id": f"b{seed}-{number}", "player_id": player, "reason": "r",
                "event_time": when,
            }  # fmt: skip
            continue
        if dice < 0.054:
            yield "PlayerReinstated", player, {
                "reinstatement_id": f"r{seed}-{number}", "player_id": player, "event_time": when,
            }  # fmt: skip
            continue
        row = {
            "score_id": f"s{seed}-{number}",
            "board": f"board{chance.randrange(3)}",
            "operator": chance.choice(("SUM", "BEST", "LAST")),
            "player_id": player,
            "points": chance.randrange(-100, 10_000),
            "event_time": when - (8 * DAY_MS if dice < 0.07 else 0),
        }
        recent.append(("ScoreSubmitted", player, row))
        yield recent[-1]


def producer(bootstrap: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000,
        }
    )


Steady = Callable[[threading.Event], None]
"""Work for `background`."""


class Load:
    """Writes rows to a topic; `sent` counts."""

    def __init__(self, bootstrap: str, topic: Any, ids: dict[str, int]) -> None:
        self.topic = topic
        self.encode = Encoder(topic, ids)
        self.client = producer(bootstrap)
        self.sent = 0

    def send(self, rows: Iterator[tuple[str, str, dict[str, Any]]], per_s: float = 0.0) -> None:
        """All of them, at most `per_s` a second (0: as fast as it goes)."""
        began, first = time.monotonic(), self.sent
        for name, key, row in rows:
            self.raw(key.encode(), self.encode(name, row))
            if self.sent % 500 == 0:
                self.client.poll(0)
                if per_s:
                    ahead_s = (self.sent - first) / per_s - (time.monotonic() - began)
                    time.sleep(max(0.0, ahead_s))

    def steady(self, rows: Iterator[tuple[str, str, dict[str, Any]]], per_s: float) -> Steady:
        """The rows at a steady rate until the test is over, however long its waits take."""

        def work(stop: threading.Event) -> None:
            while not stop.is_set():
                self.send(islice(rows, int(per_s / 4)), per_s)
            self.done()

        return work

    def raw(self, key: bytes | None, value: bytes | None, headers: Any = ()) -> None:
        """Any bytes."""
        while True:
            try:
                self.client.produce(self.topic.name, value, key, headers=list(headers))
            except BufferError:
                self.client.poll(0.1)
            else:
                break
        self.sent += 1

    def done(self) -> None:
        """Wait until all is in the log."""
        assert self.client.flush(60) == 0
