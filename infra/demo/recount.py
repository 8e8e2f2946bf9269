"""What must come out, counted from the source once more and as plainly as possible.

Nothing of the product is used here: no fold, no watermark, no window, no partitioner, no sink.
The rules are written down again from their descriptions, for one row after the other:

- A row belongs to partition murmur2(key) mod the number of partitions (Apache Kafka's
  `org.apache.kafka.common.utils.Utils.murmur2`).
- A partition's watermark is the greatest event time of its rows so far less the bound on
  disorder. A row is judged by the watermark before it.
- An ad event is, in this order: quarantined when its cost is not 0 to 10**12; filtered when its
  user agent says that it is a bot; late when its minute ended an allowed lateness or more before
  the watermark; a duplicate when it repeats another; filtered when it is a user's eleventh or
  further click on an ad in a minute; else applied.
- A score is late when its own time lies an allowed lateness or more before the watermark, a
  duplicate when it repeats another, else applied.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import polars as pl

PARTITIONS = 4
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
DISORDER = 5_000
AD_LATENESS = HOUR
SCORE_LATENESS = 7 * DAY
BOT = re.compile(
    r"(^|[^u])bot\b|crawl|spider|slurp|curl/|wget/|python-requests|headless", re.IGNORECASE
)
CLICKS_MAX = 10
COST_MAX = 10**12
PRUNE_EVERY = 500_000

TOTALS = ("impressions", "clicks", "cost_micros")


class Log:
    """Partitions and their watermarks; row by row."""

    def __init__(self) -> None:
        self._partitions: dict[str, int] = {}
        self._greatest = [-(2**62)] * PARTITIONS

    def append(self, key: str, time: int) -> int:
        """Put a row at the end of its partition; returns the watermark before it."""
        partition = self._partitions.get(key)
        if partition is None:
            partition = (murmur2(key.encode()) & 0x7FFFFFFF) % PARTITIONS
            self._partitions[key] = partition
        before = self._greatest[partition]
        self._greatest[partition] = max(before, time)
        return before - DISORDER

    @property
    def slowest(self) -> int:
        """The lowest watermark of all partitions."""
        return min(self._greatest) - DISORDER


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, following the Java text line by line."""
    m, h = 0x5BD1E995, 0x9747B28C ^ len(data)
    for i in range(len(data) // 4):
        k = data[4 * i] | data[4 * i + 1] << 8 | data[4 * i + 2] << 16 | data[4 * i + 3] << 24
        k = k * m % 2**32
        k ^= k >> 24
        k = k * m % 2**32
        h = h * m % 2**32
        h ^= k
    rest = data[len(data) // 4 * 4 :]
    if len(rest) == 3:
        h ^= rest[2] << 16
    if len(rest) >= 2:
        h ^= rest[1] << 8
    if len(rest) >= 1:
        h ^= rest[0]
        h = h * m % 2**32
    h ^= h >> 13
    h = h * m % 2**32
    return h ^ h >> 15


class Ads:
    """The recount of `ads.events`."""

    def __init__(self) -> None:
        self._log = Log()
        self._clicks: Counter[tuple[str, str, int]] = Counter()
        self._rows = 0
        self._minutes: list[pl.DataFrame] = []
        self._too_late: list[pl.DataFrame] = []
        self._fates: Counter[tuple[str, str]] = Counter()

    def add(self, rows: pl.DataFrame) -> Counter[str]:
        """Rows in the order of delivery; returns them by fate."""
        times = rows["event_time"].dt.epoch("ms")
        kinds = rows["_record"].replace_strict({"AdImpressed": "impression", "AdClicked": "click"})
        about = zip(rows["user_id"], rows["ad_id"], rows["user_agent"], strict=True)
        columns = zip(times, kinds, rows["_repeat"], rows["cost_micros"], about, strict=True)
        fates = [self._fate(*row) for row in columns]
        self._fates.update(zip(kinds, fates, strict=True))
        click = pl.col("kind") == "click"
        judged = rows.with_columns(
            times.alias("time"), kinds.alias("kind"), pl.Series("fate", fates, pl.String)
        ).select(
            "campaign_id",
            "ad_id",
            "fate",
            "_repeat",
            (pl.col("time") // MINUTE * MINUTE).alias("minute_ms"),
            (~click).cast(pl.Int64).alias("impressions"),
            click.cast(pl.Int64).alias("clicks"),
            pl.when(click).then("cost_micros").otherwise(0).alias("cost_micros"),
        )
        applied = judged.filter(pl.col("fate") == "applied")
        late = judged.filter((pl.col("fate") == "late") & ~pl.col("_repeat"))
        self._minutes.append(_summed(applied, "campaign_id", "ad_id", "minute_ms"))
        self._too_late.append(_summed(late, "campaign_id", "minute_ms"))
        if len(self._minutes) > 50:
            self._minutes, self._too_late = [self.minutes], [self.too_late]
        return Counter(fates)

    def _fate(
        self, time: int, kind: str, repeat: bool, cost: int, about: tuple[str, str, str | None]
    ) -> str:
        user, ad, agent = about
        watermark = self._log.append(user, time)
        minute = time - time % MINUTE
        if kind == "click" and not 0 <= cost <= COST_MAX:
            return "quarantined"
        if kind == "click" and agent is not None and BOT.search(agent):
            return "filtered"
        if minute + MINUTE + AD_LATENESS <= watermark:
            return "late"
        if repeat:
            return "duplicate"
        if kind != "click":
            return "applied"
        self._prune()
        self._clicks[user, ad, minute] += 1
        return "applied" if self._clicks[user, ad, minute] <= CLICKS_MAX else "filtered"

    def _prune(self) -> None:
        """Forget clicks of minutes that nothing can come into any more."""
        self._rows += 1
        if self._rows % PRUNE_EVERY == 0:
            closed = self._log.slowest - MINUTE - AD_LATENESS
            kept = {key: n for key, n in self._clicks.items() if key[2] > closed}
            self._clicks = Counter(kept)

    @property
    def minutes(self) -> pl.DataFrame:
        """Totals by campaign, ad and minute."""
        return _summed(pl.concat(self._minutes), "campaign_id", "ad_id", "minute_ms")

    @property
    def too_late(self) -> pl.DataFrame:
        """What came too late for its minute and is no repeat, by campaign and minute."""
        return _summed(pl.concat(self._too_late), "campaign_id", "minute_ms")

    @property
    def hours(self) -> pl.DataFrame:
        """Totals by campaign and hour."""
        hour = (pl.col("minute_ms") // HOUR * HOUR).alias("hour_ms")
        return _summed(self.minutes.with_columns(hour), "campaign_id", "hour_ms")

    @property
    def fates(self) -> Counter[str]:
        """All rows by fate."""
        total: Counter[str] = Counter()
        for (_, fate), rows in self._fates.items():
            total[fate] += rows
        return total

    @property
    def kinds(self) -> pl.DataFrame:
        """All rows by kind and fate."""
        rows = [(kind, fate, count) for (kind, fate), count in self._fates.items()]
        return pl.DataFrame(rows, ["kind", "fate", "rows"], orient="row")


class Scores:
    """The recount of `leaderboard.scores` (there are no bans in it)."""

    def __init__(self) -> None:
        self._log = Log()
        self.fates: Counter[str] = Counter()
        self._boards: list[pl.DataFrame] = []
        self._periods: list[pl.DataFrame] = []

    def add(self, rows: pl.DataFrame) -> Counter[str]:
        """Rows in the order of delivery; returns them by fate."""
        times = rows["event_time"].dt.epoch("ms")
        columns = (rows["player_id"], rows["_repeat"])
        fates = [self._fate(*row) for row in zip(times, *columns, strict=True)]
        scores = rows.select("board", "operator", "player_id", "points").with_columns(
            times.alias("time"), pl.Series("fate", fates, pl.String)
        )
        applied = scores.filter(pl.col("fate") == "applied")
        day = pl.col("time") // DAY * DAY
        # 1970-01-01 was a Thursday: weeks from Monday begin three days before a multiple of 7.
        week = (pl.col("time") + 3 * DAY) // (7 * DAY) * (7 * DAY) - 3 * DAY
        periods = [
            applied.with_columns(pl.lit(name).alias("period"), start.alias("start_ms"))
            for name, start in (("day", day), ("week", week))
        ]
        self._boards.append(_standings(applied, *BOARD))
        self._periods.append(_standings(pl.concat(periods), *PERIOD))
        if len(self._boards) > 50:
            self._boards, self._periods = [self.boards], [self.periods]
        found = Counter(fates)
        self.fates.update(found)
        return found

    def _fate(self, time: int, player: str, repeat: bool) -> str:
        watermark = self._log.append(player, time)
        if time + SCORE_LATENESS <= watermark:
            return "late"
        return "duplicate" if repeat else "applied"

    @property
    def boards(self) -> pl.DataFrame:
        """Standings of all time."""
        return _merged(self._boards, *BOARD)

    @property
    def periods(self) -> pl.DataFrame:
        """Standings by day and by week."""
        return _merged(self._periods, *PERIOD)


BOARD = ("board", "operator", "player_id")
PERIOD = ("board", "operator", "period", "start_ms", "player_id")


def _standings(scores: pl.DataFrame, *key: str) -> pl.DataFrame:
    """Score and the time it was reached: sums at their last score, bests at their first."""
    best = pl.col("operator") == "BEST"
    named = scores.rename({"points": "score", "time": "reached_ms"})
    return pl.concat([_sums(named.filter(~best), key), _bests(named.filter(best), key)])


def _merged(parts: Iterable[pl.DataFrame], *key: str) -> pl.DataFrame:
    whole = pl.concat(parts)
    best = pl.col("operator") == "BEST"
    return pl.concat([_sums(whole.filter(~best), key), _bests(whole.filter(best), key)])


def _sums(rows: pl.DataFrame, key: tuple[str, ...]) -> pl.DataFrame:
    return rows.group_by(key).agg(pl.col("score").sum(), pl.col("reached_ms").max())


def _bests(rows: pl.DataFrame, key: tuple[str, ...]) -> pl.DataFrame:
    ordered = rows.select(*key, "score", "reached_ms").sort(
        "score", "reached_ms", descending=[True, False]
    )
    return ordered.unique(key, keep="first", maintain_order=True)


def _summed(rows: pl.DataFrame, *key: str) -> pl.DataFrame:
    return rows.group_by(key).agg(pl.col(name).sum() for name in TOTALS)


Recount = Ads | Scores


def for_topic(topic: str) -> Any:
    """A fresh recount of a topic."""
    return {"ads.events": Ads, "leaderboard.scores": Scores}[topic]()
