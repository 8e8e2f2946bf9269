"""Rows packed by columns are, byte for byte, what the Cassandra driver binds."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from cassandra import cqltypes
from cassandra.query import UNSET_VALUE

from sinks.drivers.cassandra.encode import lines

KINDS: dict[str, tuple[Any, list[Any], Any]] = {
    "bigint": (cqltypes.LongType, [0, -1, 2**63 - 1, -(2**63)], pl.Int64),
    "small": (cqltypes.LongType, [0, -7, 127], pl.Int8),
    "int": (cqltypes.Int32Type, [0, -1, 2**31 - 1], pl.Int32),
    "varint": (cqltypes.IntegerType, [0, 2**64 - 1, 127, 128], pl.UInt64),
    "text": (cqltypes.UTF8Type, ["", "a", "ü€\U0001f600", "\x00"], pl.String),
    "blob": (cqltypes.BytesType, [b"", b"\x00\xff"], pl.Binary),
    "boolean": (cqltypes.BooleanType, [True, False], pl.Boolean),
    "double": (cqltypes.DoubleType, [0.1, -1e300], pl.Float64),
    "list": (cqltypes.ListType.apply_parameters([cqltypes.LongType]), [[], [1, 2]], None),
}


def prepared(*kinds: Any) -> Any:
    """What of a prepared statement is looked at."""
    metadata = [SimpleNamespace(type=kind) for kind in kinds]
    return SimpleNamespace(column_metadata=metadata, protocol_version=5)


@pytest.mark.parametrize("name", KINDS)
def test_values_are_the_drivers_own(name: str) -> None:
    kind, values, dtype = KINDS[name]
    series = pl.Series("c", values, dtype or pl.List(pl.Int64))
    made = lines(prepared(kind), [series])
    assert made == [(kind.serialize(value, 5),) for value in values]


@pytest.mark.parametrize("name", KINDS)
def test_nulls_stay_null_or_are_left_unset(name: str) -> None:
    kind, values, dtype = KINDS[name]
    series = pl.Series("c", [None, values[-1], None], dtype or pl.List(pl.Int64))
    there = kind.serialize(values[-1], 5)
    assert lines(prepared(kind), [series]) == [(None,), (there,), (None,)]
    unset = lines(prepared(kind), [series], unset=True)
    assert unset == [(UNSET_VALUE,), (there,), (UNSET_VALUE,)]


def test_an_integer_stands_for_the_same_value_in_all_rows() -> None:
    long, text = cqltypes.LongType, cqltypes.UTF8Type
    made = lines(prepared(long, text, long), [7, pl.Series(["a", "b"]), 9])
    seven, nine = (long.serialize(one, 5) for one in (7, 9))
    assert made == [(seven, b"a", nine), (seven, b"b", nine)]


def test_instants_are_integers_of_their_unit() -> None:
    at = pl.Series([datetime(2024, 1, 1, tzinfo=UTC)]).cast(pl.Datetime("ms", "UTC"))
    wanted = cqltypes.LongType.serialize(1_704_067_200_000, 5)
    assert lines(prepared(cqltypes.LongType), [at]) == [(wanted,)]
