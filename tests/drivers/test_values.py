"""What goes in comes out: awkward strings, the largest integers, empty lists, many rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams.runtime.sink import Upsert
from tests.drivers.model import EVENTS, WINDOWS, at, span, stored
from tests.drivers.rigs import Rig

AWKWARD = [
    "",
    " ",
    "a,b",
    'q"uo"te',
    "back\\slash",
    "{tag}:1",
    "]",
    "null",
    "\x00",
    "\x1f\x7f\n\r\t",
    "é",
    "e\u0301",
    "日本語",
    "😀",
    "\u2028",
    "\ufeff",
    "'; DROP TABLE x; --",
    "%s{x:Int8}",
    "\uffff",
]
INTEGERS = [0, -1, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]


def instant(at_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)


def test_awkward_strings_and_large_integers(rig: Rig) -> None:
    sink = rig.sink()
    sink.prepare(1)
    rows = pl.DataFrame(
        [(n, text, n, 2**64 - 1, text) for n in INTEGERS for text in AWKWARD]
        + [(5, "null", 1, 0, None)],
        schema=WINDOWS.columns, orient="row",
    )  # fmt: skip
    sink.write(1, span(None, 1, Upsert(WINDOWS, rows)))
    assert stored(sink) == sorted(((*row, 0) for row in rows.iter_rows()), key=repr)


def test_every_kind_of_value(rig: Rig) -> None:
    sink = rig.sink()
    sink.prepare(1)
    rows = pl.DataFrame(
        [
            (1, b"", [], 0.0, True, None),
            (2, bytes(range(256)), [2**31 - 1, -(2**31)], 5e-324, False, instant(0)),
            (3, b"\xff\xfe", [0], 1.7976931348623157e308, None, instant(-1)),
            (2**63 - 1, b"x", [1, 1], 0.1 + 0.2, True, instant(4_000_000_000_001)),
        ],
        schema=EVENTS.columns, orient="row",
    )  # fmt: skip
    sink.write(1, span(None, 1, Upsert(EVENTS, rows)))
    assert stored(sink, "events") == sorted(((*row, 0) for row in rows.iter_rows()), key=repr)


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1),
            st.text(st.characters(codec="utf-8"), max_size=8),
            st.integers(-(2**63), 2**63 - 1),
            st.integers(0, 2**64 - 1),
            st.none() | st.text(st.characters(codec="utf-8"), max_size=8),
        ),
        max_size=8,
        unique_by=lambda row: row[:2],
    )
)
def test_any_row_comes_back(rig: Rig, rows: list[tuple[int, str, int, int, str | None]]) -> None:
    sink = rig.sink()
    sink.prepare(2)
    frame = pl.DataFrame(rows, schema=WINDOWS.columns, orient="row")
    sink.write(2, span(None, 1, Upsert(WINDOWS, frame)))
    assert stored(sink, version=2) == sorted(((*row, 0) for row in rows), key=repr)
    sink.drop(2)


def test_a_large_write(rig: Rig) -> None:
    sink = rig.sink()
    sink.prepare(1)
    n = 200_000
    rows = pl.DataFrame(
        {
            "start_ms": pl.int_range(n, eager=True) % 3,
            "campaign": pl.int_range(n, eager=True).cast(pl.String),
            "clicks": pl.int_range(n, eager=True),
            "spend": pl.int_range(n, eager=True).cast(pl.UInt64),
            "note": pl.repeat("n", n, eager=True),
        }
    )
    sink.write(1, span(None, n, Upsert(WINDOWS, rows)))
    found = pl.concat(sink.rows(1, "windows")).drop("_partition")
    assert found.sort("clicks").equals(rows)
    assert sink.positions(1).popitem()[1] == at(n)
