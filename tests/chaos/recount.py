"""What the read models must hold, from the log alone and without any code of the product.

`python tests/chaos/recount.py --bootstrap … --registry … --topic … --rules ads|scores --out DIR`
reads the whole topic with a consumer of its own, decodes with fastavro and counts with plain
dictionaries, one record at a time. Only schema text is shared. Records with a header `poison` are
not to be counted: whoever wrote them says so.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import struct
import urllib.request
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fastavro
import polars as pl
from confluent_kafka import Consumer, TopicPartition

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
BOUND = 5_000
LONG_AGO = -(2**62)


def records(bootstrap: str, topic: str) -> dict[int, list[Any]]:
    """Every record of the topic up to its end now, by partition, in offset order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos-recount",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": False,
        }
    )
    found: dict[int, list[Any]] = {}
    for partition in sorted(consumer.list_topics(topic, 10).topics[topic].partitions):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)
        found[partition] = []
        consumer.assign([TopicPartition(topic, partition, low)])
        while high > low and (not found[partition] or found[partition][-1].offset() < high - 1):
            for message in consumer.consume(5_000, 1.0):
                if message.error():
                    raise RuntimeError(message.error())
                found[partition].append(message)
    consumer.close()
    return found


class Decoder:
    """Schemas by id from the registry, as text."""

    def __init__(self, registry: str) -> None:
        self.registry = registry
        self.schemas: dict[int, Any] = {}

    def __call__(self, value: bytes) -> tuple[str, dict[str, Any]]:
        (number,) = struct.unpack(">I", value[1:5])
        if number not in self.schemas:
            with urllib.request.urlopen(f"{self.registry}/schemas/ids/{number}") as answer:
                self.schemas[number] = fastavro.parse_schema(
                    json.loads(json.load(answer)["schema"])
                )
        schema = self.schemas[number]
        return schema["name"], fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)


def poison(message: Any) -> bool:
    return any(name == "poison" for name, _ in message.headers() or [])


def ms(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


class Seen:
    """Ids with what they said, until the watermark has passed."""

    def __init__(self) -> None:
        self.ids: dict[str, tuple[int, Any]] = {}
        self.conflicts: dict[Any, int] = {}

    def verdict(self, key: str, until: int, content: Any, watermark: int) -> str:
        known = self.ids.get(key)
        if known is None or known[0] <= watermark:
            self.ids[key] = (until, content)
            return "new"
        if known[1] == content or self.conflicts.get((key, content), LONG_AGO) > watermark:
            return "duplicate"
        self.conflicts[key, content] = until
        return "conflict"


BOTS = re.compile(r"bot\b|crawl|spider|slurp|curl/|wget/|python-requests|headless", re.I)


def ads(partition: int, messages: list[Any], decode: Decoder) -> dict[str, Any]:
    """A bot's, then late, then repeated, then one too many, else applied."""
    fates: dict[str, int] = defaultdict(int)
    minutes: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0])
    hours: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0])
    clicks: dict[Any, int] = defaultdict(int)
    events, seen, watermark = [], Seen(), LONG_AGO
    for message in messages:
        if message.value() is None or poison(message):
            fates["quarantined" if poison(message) else "filtered"] += 1
            continue
        name, row = decode(message.value())
        click = name.endswith("AdClicked")
        key = row["click_id"] if click else row["impression_id"]
        time = ms(row["event_time"])
        minute = time // MINUTE * MINUTE
        content = (time, click, *(str(v) for k, v in sorted(row.items()) if k != "event_time"))
        fate = "applied"
        if click and not 0 <= row["cost_micros"] <= 10**12:
            fate = "quarantined"
        elif click and BOTS.search(row["user_agent"] or ""):
            fate = "filtered"
        elif minute + MINUTE + HOUR <= watermark:
            fate = "late"
        else:
            verdict = seen.verdict((click, key), time + MINUTE + HOUR, content, watermark)
            if verdict == "duplicate":
                fate = "duplicate"
            elif click:
                hand = (row["user_id"], row["ad_id"], minute)
                clicks[hand] += 1
                fate = "filtered" if clicks[hand] > 10 else "applied"
            if verdict == "conflict":
                key = f"{key}~{message.offset()}"
        if fate == "applied":
            add = [0 if click else 1, 1 if click else 0, row["cost_micros"] if click else 0]
            hour = minute // HOUR * HOUR
            for table, at in (
                (minutes, (row["campaign_id"], hour, minute, row["ad_id"])),
                (hours, (hour, row["campaign_id"])),
            ):
                table[at] = [a + b for a, b in zip(table[at], add, strict=True)]
        fates[fate] += 1
        events.append((message.offset(), key, fate, partition))
        watermark = max(watermark, time - BOUND)
    return {
        "fates": dict(fates),
        "minutes": [(*k, *v, partition) for k, v in minutes.items()],
        "hours": [(*k, *v, partition) for k, v in hours.items()],
        "events": events,
    }


def better(operator: str, old: tuple[int, int] | None, points: int, time: int) -> tuple[int, int]:
    if old is None:
        return points, time
    score, reached = old
    if operator == "SUM":
        return score + points, max(reached, time)
    if operator == "BEST":
        take = points > score or (points == score and time < reached)
    else:
        take = time > reached or (time == reached and points > score)
    return (points, time) if take else old


def scores(partition: int, messages: list[Any], decode: Decoder) -> dict[str, Any]:
    """Late, then repeated, then banned, else on the boards."""
    fates: dict[str, int] = defaultdict(int)
    boards: dict[str, dict[Any, tuple[int, int]]] = defaultdict(dict)
    periods: dict[str, dict[Any, tuple[int, int]]] = defaultdict(dict)
    banned: dict[str, bool] = {}
    decided: set[Any] = set()
    seen, watermark = Seen(), LONG_AGO
    for message in messages:
        if message.value() is None or poison(message):
            fates["quarantined" if poison(message) else "filtered"] += 1
            continue
        name, row = decode(message.value())
        time, player = ms(row["event_time"]), row["player_id"]
        if name.endswith("ScoreSubmitted"):
            board = (row["board"], row["operator"])
            content = (time, *board, player, row["points"])
            if time + 7 * DAY <= watermark:
                fate = "late"
            else:
                verdict = seen.verdict(row["score_id"], time + 7 * DAY, content, watermark)
                fate = {"new": "applied", "conflict": "quarantined"}.get(verdict, verdict)
                if fate == "applied" and banned.get(player):
                    fate = "filtered"
            if fate == "applied":
                day, week = time // DAY * DAY, (time + 3 * DAY) // (7 * DAY) * 7 * DAY - 3 * DAY
                mine, times = boards[player], periods[player]
                mine[board] = better(board[1], mine.get(board), row["points"], time)
                for place in ((*board, "day", day), (*board, "week", week)):
                    times[place] = better(board[1], times.get(place), row["points"], time)
        else:
            ban = name.endswith("PlayerBanned")
            decision = (player, ban, row["ban_id"] if ban else row["reinstatement_id"])
            fate = "duplicate" if decision in decided else "applied"
            if fate == "applied":
                decided.add(decision)
                banned[player] = ban
            if fate == "applied" and ban:
                boards.pop(player, None)
                periods.pop(player, None)
        fates[fate] += 1
        watermark = max(watermark, time - BOUND)
    return {
        "fates": dict(fates),
        "all": [(*k, p, *v, partition) for p, mine in boards.items() for k, v in mine.items()],
        "periods": [(*k, p, *v, partition) for p, mine in periods.items() for k, v in mine.items()],
    }


COLUMNS = {
    "minutes": "campaign_id hour_ms minute_ms ad_id impressions clicks cost_micros _partition",
    "hours": "hour_ms campaign_id impressions clicks cost_micros _partition",
    "events": "offset event_id fate _partition",
    "all": "board operator player_id score reached_ms _partition",
    "periods": "board operator period start_ms player_id score reached_ms _partition",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "registry", "topic", "rules", "out"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    count, decode = {"ads": ads, "scores": scores}[arguments.rules], Decoder(arguments.registry)
    tables: dict[str, list[Any]] = defaultdict(list)
    fates: dict[int, Any] = {}
    for partition, messages in records(arguments.bootstrap, arguments.topic).items():
        counted = count(partition, messages, decode)
        fates[partition] = {"records": len(messages), "fates": counted.pop("fates")}
        for name, rows in counted.items():
            tables[name] += rows
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        columns = COLUMNS[name].split()
        pl.DataFrame(rows, schema=columns, orient="row").write_parquet(out / f"{name}.parquet")
    (out / "fates.json").write_text(json.dumps(fates))


if __name__ == "__main__":
    main()
