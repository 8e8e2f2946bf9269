"""Questions for the read API, with the answers that the recount gives.

Where several rows share a count, which of them comes first is the API's choice: then only the
counts are compared.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

import httpx
import polars as pl

from infra.demo.recount import DAY, HOUR, TOTALS, Ads, Scores

TIMEOUT_S = 30.0
BUSY_DAY = "2013-07-03"
MONTH_MS = 31 * DAY


@dataclass(frozen=True)
class Question:
    """A GET, and what must come back; `seen` takes from an answer what is compared."""

    about: str
    path: str
    query: Mapping[str, str | int]
    expected: Any
    seen: Callable[[Any], Any]

    @property
    def target(self) -> str:
        """Path and query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


@dataclass(frozen=True)
class Answer:
    """What came back, and whether it is what was expected."""

    question: Question
    status: int
    body: str
    ok: bool


def ask(questions: Sequence[Question], url: str, token: str) -> list[Answer]:
    """Ask them all."""
    with httpx.Client(
        base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT_S
    ) as client:
        return [_asked(client, question) for question in questions]


def curl(question: Question, url: str) -> str:
    """The same question for a shell; $TOKEN is from `headrace token`."""
    return f'curl -sH "Authorization: Bearer $TOKEN" {shlex.quote(url + question.target)}'


def _asked(client: httpx.Client, question: Question) -> Answer:
    answer = client.get(question.target)
    try:
        ok = answer.is_success and question.seen(answer.json()) == question.expected
    except (KeyError, TypeError, ValueError):
        ok = False
    return Answer(question, answer.status_code, answer.text, ok)


def about_ads(recount: Ads) -> list[Question]:
    """A month's totals and best campaigns, the busiest hour, and a day's best ads and its late
    clicks.
    """
    minutes = recount.minutes
    busiest = _busiest(minutes, HOUR)
    month = (busiest.start_ms // DAY * DAY, busiest.start_ms // DAY * DAY + MONTH_MS)
    here = minutes.filter(pl.col("minute_ms").is_between(*month, closed="left"))
    totals = {name: int(here[name].sum()) for name in TOTALS}
    campaigns = here.group_by("campaign_id").agg(pl.col("clicks").sum())
    clicks = campaigns.sort("clicks", descending=True)["clicks"].head(3).to_list()
    return [
        Question(
            "a month's totals: as the stream counted, and counted again from all events",
            "/v1/ads/totals",
            span_of(*month),
            {"stream": totals, "recount": totals, "difference": dict.fromkeys(TOTALS, 0)},
            lambda found: found,
        ),
        Question(
            "its best campaigns",
            "/v1/ads/campaigns/top",
            {**span_of(*month), "n": 3},
            clicks,
            _each("clicks"),
        ),
        Question(
            f"the busiest hour of {busiest.campaign}, by minute",
            f"/v1/ads/campaigns/{busiest.campaign}/minutes",
            span_of(busiest.start_ms, busiest.start_ms + HOUR),
            _by_minute(minutes, busiest.campaign, busiest.start_ms, HOUR),
            _minutes,
        ),
        *_one_day(recount),
    ]


class _Time(NamedTuple):
    campaign: str
    start_ms: int


def _one_day(recount: Ads) -> list[Question]:
    """The day on which a campaign had most late clicks; its busiest day where it had none."""
    found = recount.too_late if recount.too_late.height else recount.minutes
    campaign, start = _busiest(found, DAY)
    here = recount.minutes.filter(
        (pl.col("campaign_id") == campaign)
        & pl.col("minute_ms").is_between(start, start + DAY, closed="left")
    )
    ads = here.group_by("ad_id").agg(pl.col("clicks").sum()).sort("clicks", descending=True)
    return [
        Question(
            f"the best ads of {campaign} on {_instant(start)[:10]}",
            f"/v1/ads/campaigns/{campaign}/ads/top",
            {**span_of(start, start + DAY), "n": 3},
            ads["clicks"].head(3).to_list(),
            _each("clicks"),
        ),
        Question(
            "and what came too late to be counted that day",
            f"/v1/ads/campaigns/{campaign}/adjustments",
            span_of(start, start + DAY),
            _by_minute(recount.too_late, campaign, start, DAY),
            _minutes,
        ),
    ]


def _busiest(minutes: pl.DataFrame, size_ms: int) -> _Time:
    """The campaign and hour or day with most clicks."""
    start = (pl.col("minute_ms") // size_ms * size_ms).alias("start_ms")
    spans = minutes.group_by("campaign_id", start).agg(pl.col("clicks").sum())
    ordered = spans.sort("clicks", "campaign_id", "start_ms", descending=[True, False, False])
    return _Time(ordered["campaign_id"][0], ordered["start_ms"][0])


def _by_minute(
    minutes: pl.DataFrame, campaign: str, start_ms: int, size_ms: int
) -> list[dict[str, int]]:
    here = minutes.filter(
        (pl.col("campaign_id") == campaign)
        & pl.col("minute_ms").is_between(start_ms, start_ms + size_ms, closed="left")
    )
    sums = here.group_by("minute_ms").agg(pl.col(name).sum() for name in TOTALS)
    return sums.sort("minute_ms").rename({"minute_ms": "start_ms"}).to_dicts()


def about_leaderboard(recount: Scores) -> list[Question]:
    """The best airlines of the year and of one day, and a flight's rank at its destination."""
    boards = recount.boards
    airlines = _ranked(boards.filter(pl.col("board") == "airlines"))
    day_ms = int(datetime.fromisoformat(BUSY_DAY).replace(tzinfo=UTC).timestamp()) * 1_000
    assert day_ms % DAY == 0
    on_day = (pl.col("period") == "day") & (pl.col("start_ms") == day_ms)
    day = _ranked(recount.periods.filter(on_day & (pl.col("board") == "airlines")))
    landed = _ranked(boards.filter(pl.col("board") == "airport-LAX"))
    second = landed.row(1, named=True)
    return [
        Question(
            "the most punctual airlines of the year",
            "/v1/leaderboards/airlines/top",
            {"k": 3},
            _standings(airlines.head(3)),
            _placed,
        ),
        Question(
            f"and of {BUSY_DAY}",
            "/v1/leaderboards/airlines/top",
            {"k": 3, "period": "day", "at": BUSY_DAY},
            _standings(day.head(3)),
            _placed,
        ),
        Question(
            "the best single arrivals at Los Angeles",
            "/v1/leaderboards/airport-LAX/top",
            {"k": 3, "operator": "BEST"},
            landed["score"].head(3).to_list(),
            _each("score"),
        ),
        Question(
            f"how flight {second['player_id']} compares there",
            f"/v1/leaderboards/airport-LAX/percentile/{second['player_id']}",
            {"operator": "BEST"},
            {"player_id": second["player_id"], "players": landed.height},
            _only(("player_id", "players")),
        ),
    ]


def _ranked(standings: pl.DataFrame) -> pl.DataFrame:
    """Best first; of equal scores the one reached first."""
    return standings.sort("score", "reached_ms", "player_id", descending=[True, False, False])


def _standings(rows: pl.DataFrame) -> list[tuple[str, int, int]]:
    return rows.select("player_id", "score", "reached_ms").rows()


def _placed(rows: Any) -> list[tuple[str, int, int]]:
    return [(row["player_id"], row["score"], row["reached_ms"]) for row in rows]


def _only(names: Sequence[str]) -> Callable[[Any], Any]:
    return lambda found: {name: found[name] for name in names}


def _each(name: str) -> Callable[[Any], Any]:
    return lambda rows: [row[name] for row in rows]


def _minutes(rows: Any) -> list[dict[str, int]]:
    return [{name: row[name] for name in ("start_ms", *TOTALS)} for row in rows]


def span_of(start_ms: int, stop_ms: int) -> dict[str, str | int]:
    """A span as parameters."""
    return {"from": _instant(start_ms), "to": _instant(stop_ms)}


def _instant(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
