"""Files: every row is sent or rejected with its line, whatever the file holds."""

from __future__ import annotations

import gzip
import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from connectors.files import DryRun, Pace, produce_file
from connectors.mapping import BadMapping, Field, Mapper
from connectors.readers import LINE, UnreadableFile, read
from infra.cli.produce import app
from schemas.ads import events
from schemas.leaderboard import events as scores

T0 = 1_767_225_600_000
HEADER = "click_id,user_id,campaign_id,ad_id,event_time,cost_micros"
CLICK = Mapper(events.EVENTS, events.AD_CLICKED)


class Kept:
    """A sender that keeps the rows."""

    def __init__(self) -> None:
        self.frames: list[pl.DataFrame] = []

    def send(self, record_name: str, frame: pl.DataFrame) -> int:
        self.frames.append(frame)
        return DryRun(events.EVENTS).send(record_name, frame)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return pl.concat(self.frames).to_dicts() if self.frames else []


def run(path: Path, mapper: Mapper = CLICK, **options: Any) -> tuple[Kept, dict[int, str]]:
    """The rows sent, and the reasons by line."""
    kept = Kept()
    report = produce_file(path, mapper, kept, Pace(None, 0), **options)
    rejects = path.with_name(f"{path.name}.rejected.jsonl")
    found = rejects.read_text().splitlines() if rejects.exists() else []
    reasons = {row["line"]: row["reason"] for row in map(json.loads, found)}
    assert (report.sent, report.rejected) == (len(kept.rows), len(reasons))
    assert report.rejected_file == (rejects if reasons else None)
    return kept, reasons


def csv(tmp_path: Path, *lines: str | bytes, name: str = "f.csv", header: str = HEADER) -> Path:
    path = tmp_path / name
    path.write_bytes(
        b"\n".join(line if isinstance(line, bytes) else line.encode() for line in (header, *lines))
    )
    return path


def test_a_csv_row_becomes_an_event(tmp_path: Path) -> None:
    kept, reasons = run(csv(tmp_path, f'c1,"u,1",k,a,{T0},5', "c2,u2,k,a,2026-01-01T00:00:01Z,"))

    assert reasons == {}
    first, second = kept.rows
    assert first == {
        "click_id": "c1",
        "impression_id": None,
        "user_id": "u,1",
        "campaign_id": "k",
        "ad_id": "a",
        "event_time": T0,
        "country": "ZZ",
        "cost_micros": 5,
        "user_agent": None,
        LINE: 2,
    }
    assert (second["event_time"], second["cost_micros"]) == (T0 + 1_000, 0)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f"c,u,k,a,{T0}", "5 values, but 6 columns"),
        (f"c,u,k,a,{T0},1,2", "7 values, but 6 columns"),
        (f'c,u,k,a,{T0},"1"x', "not CSV"),
        (b"c,u,k,\xff,1,1", "not UTF-8"),
        (f",u,k,a,{T0},1", "click_id: missing"),
        (f"c,,k,a,{T0},1", "user_id: missing"),
        (f"c,{'u' * 1_025},k,a,{T0},1", "user_id: the record key"),
        (f"c,u,k,a,{T0},1.5", "cost_micros: '1.5' is no 64-bit integer"),
        (f"c,u,k,a,{T0},9223372036854775808", "64-bit integer"),
        (f"c,u,k,a,{T0},NaN", "64-bit integer"),
        ("c,u,k,a,2026-01-01T00:00:00,1", "event_time: '2026-01-01T00:00:00' is no time"),
        ("c,u,k,a,yesterday,1", "is no time with a zone"),
        ("c,u,k,a,1767225600000000000,1", "is no time with a zone"),
        ("c,u,k,a,2026-02-30T00:00:00Z,1", "is no time with a zone"),
    ],
)
def test_a_bad_line_costs_itself_only(tmp_path: Path, line: str | bytes, reason: str) -> None:
    good = f"c,u,k,a,{T0},1"

    kept, reasons = run(csv(tmp_path, good, line, good))

    assert [row[LINE] for row in kept.rows] == [2, 4]
    assert list(reasons) == [3]
    assert reason in reasons[3]


def test_lines_are_counted_through_quoted_line_breaks(tmp_path: Path) -> None:
    path = csv(tmp_path, f'"c\n1",u,k,a,{T0},1', "", f"c2,u,k,a,{T0},x", f"c3,u,k,a,{T0},1")

    kept, reasons = run(path)

    assert [(row["click_id"], row[LINE]) for row in kept.rows] == [("c\n1", 2), ("c3", 6)]
    assert list(reasons) == [5]


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path: Path) -> None:
    path = csv(tmp_path, f"c,u,k,a,{T0},1", header="\ufeff" + HEADER)

    assert len(run(path)[0].rows) == 1


@pytest.mark.parametrize("header", ["", "a,a", "click_id,\udcff"])
def test_a_csv_needs_a_header(tmp_path: Path, header: str) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes(header.encode(errors="surrogateescape") + b"\n1,2\n")

    with pytest.raises(UnreadableFile, match="line 1"):
        list(read(path))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("5", "not a JSON object"),
        ('{"cost_micros": NaN}', "NaN"),
        ('{"cost_micros": 1, "cost_micros": 2}', "same key twice"),
        ('{"user_id": "\\ud83d"}', "surrogate"),
        ("[" * 100_000, "nested too deeply"),
        ('{"click_id": "c"}', "user_id: missing"),
    ],
)
def test_a_bad_json_line_costs_itself_only(tmp_path: Path, line: str, reason: str) -> None:
    good = {"click_id": "c", "user_id": "u", "campaign_id": "k", "ad_id": "a", "event_time": T0}
    path = tmp_path / "f.jsonl"
    path.write_text("\n".join([json.dumps(good), line, "", json.dumps(good)]))

    kept, reasons = run(path)

    assert [row[LINE] for row in kept.rows] == [1, 4]
    assert list(reasons) == [2]
    assert reason in reasons[2]


def test_a_column_of_mixed_types_loses_nothing(tmp_path: Path) -> None:
    base = {"click_id": "c", "user_id": "u", "campaign_id": "k", "ad_id": "a"}
    times = [T0, "2026-01-01T00:00:00Z", str(T0), 1.5, True]
    path = tmp_path / "f.jsonl"
    path.write_text("\n".join(json.dumps({**base, "event_time": time}) for time in times))

    kept, reasons = run(path)

    assert [row["event_time"] for row in kept.rows] == [T0] * 3
    assert list(reasons) == [4, 5]


def test_parquet_keeps_its_types(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pl.DataFrame(
        {
            "click_id": [1, 2, 3],
            "user_id": ["u"] * 3,
            "campaign_id": ["k"] * 3,
            "ad_id": ["a"] * 3,
            "event_time": [datetime(2026, 1, 1, tzinfo=UTC)] * 3,
            "cost_micros": [5.0, 5.5, math.nan],
        }
    ).write_parquet(path)

    kept, reasons = run(path)

    assert [(row["click_id"], row["event_time"]) for row in kept.rows] == [("1", T0)]
    assert list(reasons) == [2, 3]


@pytest.mark.parametrize(
    ("zone", "time", "instant"),
    [
        (None, "2026-01-01 00:00:00", None),
        ("UTC", "2026-01-01 00:00:00", T0),
        ("UTC", "2026-01-01", T0),
        ("Asia/Shanghai", "2026-01-01T08:00:00", T0),
        ("Europe/London", "2024-10-27T01:30:00", None),  # happens twice
        ("Europe/London", "2024-03-31T01:30:00", None),  # never happens
        ("Asia/Shanghai", "2026-01-01T00:00:00Z", T0),  # an offset wins
    ],
)
def test_a_time_without_a_zone_means_what_is_said(
    tmp_path: Path, zone: str | None, time: str, instant: int | None
) -> None:
    mapper = Mapper(events.EVENTS, events.AD_CLICKED, zone=zone)

    kept, reasons = run(csv(tmp_path, f"c,u,k,a,{time},1"), mapper)

    assert [row["event_time"] for row in kept.rows] == ([] if instant is None else [instant])
    assert (reasons == {}) == (instant is not None)


def test_a_mapping_is_sql_over_the_columns(tmp_path: Path) -> None:
    path = csv(tmp_path, "1767225600,7,x", "soon,8,x", header="seconds,who,what")
    mapper = Mapper(
        scores.SCORES,
        scores.SCORE_SUBMITTED,
        {
            "score_id": "concat('log-', _line)",
            "board": "'weekly'",
            "player_id": "who",
            "points": "length(what)",
            "event_time": "try_cast(seconds as bigint) * 1000",
        },
    )
    good, bad = mapper.apply(next(read(path)).frame)

    assert good.drop(LINE).to_dicts() == [
        {
            "score_id": "log-2",
            "board": "weekly",
            "operator": "SUM",
            "player_id": "7",
            "points": 1,
            "event_time": T0,
        }
    ]
    assert [(r.line, r.reason) for r in bad] == [(3, "event_time: missing")]


def test_an_expression_that_fails_costs_its_row_only(tmp_path: Path) -> None:
    lines = [f"c,u,k,a,{T0 if n != 37 else 'x'},1" for n in range(100)]
    mapper = Mapper(
        events.EVENTS, events.AD_CLICKED, {"event_time": "cast(event_time as bigint) + 0"}
    )

    kept, reasons = run(csv(tmp_path, *lines), mapper)

    assert len(kept.rows) == 99
    assert list(reasons) == [39]
    assert "the mapping fails" in reasons[39]


@pytest.mark.parametrize(
    ("expressions", "reason"),
    [
        ({"colour": "'red'"}, "no field colour"),
        ({"ad_id": "concat("}, "no SQL expression"),
        ({"ad_id": "nothing"}, "no such column"),
        ({}, "no column of that name"),
    ],
)
def test_a_mapping_that_fits_no_row_is_an_error(
    tmp_path: Path, expressions: dict[str, str], reason: str
) -> None:
    path = csv(tmp_path, "1,1", header="click_id,x")
    needed = {"user_id": "x", "campaign_id": "x", "event_time": "x"}
    with pytest.raises(BadMapping, match=reason):
        run(path, Mapper(events.EVENTS, events.AD_CLICKED, {**needed, **expressions}))


def test_a_field_that_no_column_holds_is_an_error() -> None:
    with pytest.raises(BadMapping, match="cannot hold array"):
        Field.of({"name": "items", "type": {"type": "array", "items": "string"}})


@pytest.mark.parametrize("name", ["f.csv.gz", "f.jsonl.gz"])
def test_gzip_is_read_and_a_broken_one_is_an_error(tmp_path: Path, name: str) -> None:
    row = {"click_id": "c", "user_id": "u", "campaign_id": "k", "ad_id": "a", "event_time": T0}
    text = f"{HEADER}\nc,u,k,a,{T0},1\n" * 1 if "csv" in name else json.dumps(row)
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()))
    assert len(run(path)[0].rows) == 1

    path.write_bytes(gzip.compress(text.encode() * 1_000)[:-20])
    with pytest.raises(UnreadableFile):
        list(read(path))


@pytest.mark.parametrize("name", ["f.xlsx", "f.parquet", "csv"])
def test_another_kind_of_file_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK")

    with pytest.raises(UnreadableFile):
        list(read(tmp_path / name))


def test_batches_do_not_change_what_is_read(tmp_path: Path) -> None:
    lines = [f"c{n},u,k,a,{T0 if n % 7 else 'x'},{n if n % 5 else '1,2'}" for n in range(200)]
    path = csv(tmp_path, *lines)

    def everything(batch_rows: int) -> tuple[list[Any], list[int]]:
        good, bad = [], []
        for chunk in read(path, batch_rows):
            frame, rejected = CLICK.apply(chunk.frame)
            good += frame.to_dicts()
            bad += [r.line for r in (*chunk.rejected, *rejected)]
        return good, sorted(bad)

    assert everything(1) == everything(7) == everything(1_000)
    assert len(everything(7)[0]) + len(everything(7)[1]) == 200


def test_a_limit_counts_rows_of_the_file(tmp_path: Path) -> None:
    lines = [f"c{n},u,k,a,{T0 if n != 1 else 'x'},1" for n in range(10)]

    kept, reasons = run(csv(tmp_path, *lines), limit=3)

    assert [row["click_id"] for row in kept.rows] == ["c0", "c2"]
    assert list(reasons) == [3]


class TestPace:
    def test_rows_go_when_their_time_comes(self) -> None:
        now = [100.0]
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            now[0] += seconds

        pace = Pace("event_time", 10, clock=lambda: now[0], sleep=sleep)
        times = [T0, T0 + 100, T0 + 20_000, T0 + 19_000, T0 + 40_000]
        pieces = [
            (round(now[0] - 100, 3), piece["event_time"].to_list())
            for part in (times[:3], times[3:])
            for piece in pace.slices(pl.DataFrame({"event_time": part}))
        ]

        assert (
            pieces
            == [
                (0.0, times[:2]),
                (2.0, times[2:3]),
                (2.0, times[3:4]),  # older than one before it: goes with it
                (4.0, times[4:]),
            ]
        )
        assert sum(slept) == pytest.approx(4.0)

    def test_full_speed_never_sleeps(self) -> None:
        pace = Pace(None, 0, sleep=lambda _: pytest.fail("slept"))
        frame = pl.DataFrame({"event_time": range(25_000)})

        assert pl.concat(pace.slices(frame)).equals(frame)

    def test_a_topic_without_event_time_has_no_rhythm(self) -> None:
        with pytest.raises(ValueError, match="no event time"):
            Pace(None, 1)


class TestCommand:
    def test_a_dry_run_checks_and_sends_nothing(self, tmp_path: Path) -> None:
        path = csv(tmp_path, f"c,u,k,a,{T0},1", f"c,u,k,a,{T0},x")

        result = CliRunner().invoke(
            app, [str(path), "-t", "ads.events", "-r", "AdClicked", "--dry-run"]
        )

        assert result.exit_code == 1, result.output
        assert "1 rows would be sent to ads.events" in result.output
        assert "1 rows rejected" in result.output

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            (["-t", "ads.event"], "ads.events"),
            (["-t", "ads.events"], "AdClicked"),
            (["-t", "ads.events", "-r", "AdBought"], "AdClicked"),
            (["-t", "ads.events", "-r", "AdClicked", "--speed", "fast"], "realtime"),
            (["-t", "ads.events", "-r", "AdClicked", "-m", "ad_id"], "field=expression"),
            (["-t", "ads.events", "-r", "AdClicked", "-m", "x=y"], "no field x"),
        ],
    )
    def test_a_wrong_option_says_what_there_is(
        self, tmp_path: Path, options: list[str], told: str
    ) -> None:
        result = CliRunner().invoke(app, [str(csv(tmp_path, "1")), *options, "--dry-run"])

        assert result.exit_code == 2
        assert told in result.output
