"""Questions for the read API, with the answers that the recount gives.

Where several rows share a count, which of them comes first is the API's choice: then only the
counts are compared.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import httpx
import polars as pl

from infra.demo.recount import DAY, TOTALS, Ads, Scores

TIMEOUT_S = 30.0
BUSY_DAY = "2013-07-03"


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
    """Totals, the best ads, and one campaign's minutes."""
    minutes = recount.minutes
    totals = {name: int(minutes[name].sum()) for name in TOTALS}
    best = _best(minutes, "clicks")
    found = [
        Question("totals of everything", "/v1/ads/totals", {}, totals, _only(TOTALS)),
        Question(
            "the three ads with most clicks",
            "/v1/ads/ads/top",
            {"by": "clicks", "n": 3},
            best["clicks"].to_list(),
            _each("count"),
        ),
    ]
    shown = minutes.group_by("campaign_id").agg(pl.col("impressions").sum())
    campaign = shown.sort("impressions", "campaign_id", descending=[True, False])["campaign_id"][0]
    of_campaign = _best(minutes.filter(pl.col("campaign_id") == campaign), "impressions")
    found.append(
        Question(
            f"what {campaign} showed most",
            f"/v1/ads/campaigns/{campaign}/ads/top",
            {"by": "impressions", "n": 3},
            of_campaign["impressions"].to_list(),
            _each("count"),
        )
    )
    found.append(_busiest_hour(minutes))
    return found


def _busiest_hour(minutes: pl.DataFrame) -> Question:
    hour = (pl.col("minute_ms") // 3_600_000 * 3_600_000).alias("hour_ms")
    hours = minutes.with_columns(hour).group_by("campaign_id", "hour_ms")
    busiest = hours.agg(pl.col("clicks").sum()).sort(
        "clicks", "campaign_id", "hour_ms", descending=[True, False, False]
    )
    campaign, start = busiest["campaign_id"][0], busiest["hour_ms"][0]
    here = minutes.with_columns(hour).filter(
        (pl.col("campaign_id") == campaign) & (pl.col("hour_ms") == start)
    )
    by_minute = here.group_by("minute_ms").agg(pl.col(name).sum() for name in TOTALS)
    expected = by_minute.sort("minute_ms").rename({"minute_ms": "start_ms"}).to_dicts()
    return Question(
        f"the busiest hour of {campaign}, by minute",
        f"/v1/ads/campaigns/{campaign}/minutes",
        {"from": _instant(start), "to": _instant(start + 3_600_000)},
        expected,
        lambda rows: [{name: row[name] for name in ("start_ms", *TOTALS)} for row in rows],
    )


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


def _best(minutes: pl.DataFrame, by: str) -> pl.DataFrame:
    ads = minutes.group_by("campaign_id", "ad_id").agg(pl.col(by).sum())
    return ads.sort(by, descending=True).head(3)


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


def _instant(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
