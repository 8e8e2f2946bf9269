"""That a difference is seen, whatever it is."""

from __future__ import annotations

import io

import httpx
import polars as pl
import pytest
from data import flights_of, many_flights, requests
from rich.console import Console

from connectors.datasets import Unavailable
from infra.demo import questions, sources, steps
from infra.demo.compare import Check, tables_of
from infra.demo.questions import Question, _asked
from infra.demo.recount import Ads, Scores
from infra.demo.steps import Demo, checked
from infra.demo.waves import waves
from infra.error import StackError

RIGHT = pl.DataFrame({"key": ["a", "b"], "value": [1, 2], "at_ms": [5, 6]})


def verdicts(stored: pl.DataFrame) -> list[Check]:
    return list(tables_of("t", RIGHT, stored, ("key",), ("value", "at_ms")))


def test_equal_tables_in_any_order_are_equal() -> None:
    checks = verdicts(RIGHT.reverse())
    assert [(c.what, c.recounted, c.stored, c.ok) for c in checks] == [
        ("rows", 2, 2, True),
        ("value", 3, 3, True),
    ]


@pytest.mark.parametrize(
    ("wrong", "different"),
    [
        (RIGHT.with_columns(pl.Series("value", [2, 1])), 2),
        (RIGHT.with_columns(pl.Series("at_ms", [5, 7])), 1),
        (RIGHT.head(1), 1),
        (RIGHT.head(0), 2),
        (pl.concat([RIGHT, RIGHT.head(1).with_columns(key=pl.lit("c"))]), 1),
        (RIGHT.with_columns(pl.Series("key", ["a", "c"])), 2),
    ],
    ids=["swapped", "time", "missing", "empty", "more", "other key"],
)
def test_a_difference_is_counted(wrong: pl.DataFrame, different: int) -> None:
    rows = verdicts(wrong)[0]
    assert not rows.ok
    assert rows.different == different


def test_what_differs_is_said() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(checked([Check("t", "rows", 2, 3), Check("t", "value", 1, 1)]))
    text = console.export_text()
    assert text.count("DIFFERENT") == 1
    assert text.count("OK") == 1


def answering(body: str, status: int = 200) -> httpx.Client:
    answer = httpx.MockTransport(lambda _: httpx.Response(status, text=body))
    return httpx.Client(base_url="http://api", transport=answer)


COUNTS = Question("q", "/v1/x", {"n": 2}, [3, 2], lambda rows: [row["count"] for row in rows])


@pytest.mark.parametrize(
    ("body", "status", "ok"),
    [
        ('[{"count": 3}, {"count": 2}]', 200, True),
        ('[{"count": 2}, {"count": 3}]', 200, False),
        ('[{"count": 3}, {"count": 2}]', 503, False),
        ('[{"other": 3}]', 200, False),
        ("no json", 200, False),
        ("null", 200, False),
    ],
)
def test_an_answer_is_right_or_not(body: str, status: int, ok: bool) -> None:
    with answering(body, status) as client:
        assert _asked(client, COUNTS).ok is ok


def test_curl_asks_the_same() -> None:
    command = questions.curl(COUNTS, "http://api")
    assert command.endswith("'http://api/v1/x?n=2'")


def test_questions_know_their_answers() -> None:
    ads, scores = Ads(), Scores()
    flights = many_flights(300).vstack(
        flights_of(("UA", 1, 60 * 24 * 183, 0, 0), ("B6", 2, 60 * 24 * 183, 0, 5))
    )
    for recount, traffic in (
        (ads, sources.from_flights(flights)),
        (scores, sources.scores_from_flights(flights)),
    ):
        for wave in waves(traffic):
            recount.add(wave)
    totals, best, busiest, day_best, late = questions.about_ads(ads)
    assert totals.expected["stream"]["clicks"] > 100
    assert best.expected == sorted(best.expected, reverse=True)
    assert len(busiest.expected) > 1
    assert sum(day_best.expected) > 0
    assert 0 < sum(row["clicks"] for row in late.expected) <= ads.fates["late"]
    year, day, arrivals, compared = questions.about_leaderboard(scores)
    assert [name for name, _, _ in year.expected] == ["UA", "B6"]
    assert [(name, score) for name, score, _ in day.expected] == [("UA", 60), ("B6", 55)]
    assert arrivals.expected[0] == 80
    assert compared.expected["players"] > 2


def test_it_goes_on_without_a_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, _: object) -> pl.DataFrame:
        if name != "access-log":
            raise Unavailable(f"no way to {name}")
        return requests("/adclick.php?c=A")

    monkeypatch.setattr(steps, "load", load)
    console = Console(width=120, record=True, file=io.StringIO())
    demo = Demo(["ads", "leaderboard"], 1, console)
    demo.data()
    text = console.export_text()
    assert "no way to flights" in text
    assert demo.names == ["ads"]
    assert [one.name for one in demo.projections] == ["ads-windows", "ads-events"]

    with pytest.raises(StackError, match="no data set"):
        Demo(["leaderboard"], 1, console).data()


def test_a_system_without_a_demo_is_named() -> None:
    with pytest.raises(StackError, match="no demo of nosuch; there is one of ads, leaderboard"):
        Demo(["nosuch"], 1, Console(quiet=True))
