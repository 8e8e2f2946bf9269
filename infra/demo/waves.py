"""The order of delivery: slices of events, with copies for `--scale` and with repeats.

A copy is the same traffic of other users: ids and, where a copy is somebody else's (ads), users
get a suffix, and times move by some milliseconds inside the same second. All copies of a row come
next to each other, so the traffic keeps its order and gets as much denser. Nothing is held but
one slice.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from infra.demo.sources import RECORD, Traffic

REPEAT = "_repeat"
SLICE_ROWS = 20_000
REPEAT_EVERY = 20
"""One click in this many (5 %) is delivered twice."""
REPEAT_AFTER_ROWS = 5
"""How many rows later, as after a producer's timeout."""
SHIFT_MS = 7
SHIFT_MS_MAX = 1_000
IDS = {
    "ads.events": ("click_id", "impression_id", "user_id"),
    "leaderboard.scores": ("score_id",),
    "telemetry.logs": ("line_id",),
}
"""Which fields get a copy's suffix, by topic. Players stay who they are: they score N times."""


def waves(traffic: Traffic, scale: int = 1, *, repeats: bool = False) -> Iterator[pl.DataFrame]:
    """Slices in delivery order with `_repeat`; with `repeats`, 5 % of the clicks come twice."""
    step = max(1, SLICE_ROWS // scale)
    for at in range(0, traffic.events.height, step):
        rows = copies(traffic.events[at : at + step], scale, IDS[traffic.topic.name])
        rows = rows.with_columns(pl.lit(False).alias(REPEAT))
        yield with_repeats(rows) if repeats else rows


def old_repeats(traffic: Traffic, scale: int = 1) -> Iterator[pl.DataFrame]:
    """The same 5 % of the clicks and nothing else, to be sent when all is over."""
    for rows in waves(traffic, scale):
        yield chosen(rows)


def copies(rows: pl.DataFrame, scale: int, ids: tuple[str, ...]) -> pl.DataFrame:
    """Each row `scale` times; the first is the row itself."""
    if scale == 1:
        return rows
    many = rows.select(pl.all().repeat_by(scale).explode()).with_columns(
        (pl.int_range(pl.len()) % scale).alias("_copy")
    )
    is_copy = pl.col("_copy") > 0
    shift = pl.duration(milliseconds=pl.col("_copy") * SHIFT_MS % SHIFT_MS_MAX)
    return many.with_columns(
        (pl.col("event_time") + shift).alias("event_time"),
        *(
            pl.when(is_copy).then(pl.format("{}~{}", name, "_copy")).otherwise(name).alias(name)
            for name in ids
        ),
    ).drop("_copy")


def chosen(rows: pl.DataFrame) -> pl.DataFrame:
    """Every twentieth click of a slice (or every twentieth score), marked as a repeat."""
    clicks = rows.filter(pl.col(RECORD) != "AdImpressed")
    return clicks.gather_every(REPEAT_EVERY).with_columns(pl.lit(True).alias(REPEAT))


def with_repeats(rows: pl.DataFrame) -> pl.DataFrame:
    """The slice with every twentieth click a second time, a few rows later."""
    numbered = rows.with_columns(pl.int_range(pl.len()).alias("_at"))
    again = chosen(numbered).with_columns(pl.col("_at") + REPEAT_AFTER_ROWS)
    return pl.concat([numbered, again]).sort("_at", REPEAT).drop("_at")


def runs(rows: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """A slice as consecutive rows of one record type, with only that type's fields."""
    kinds = rows[RECORD]
    for _, run in rows.group_by(kinds.rle_id().alias("run"), maintain_order=True):
        name = run[RECORD][0]
        absent = ["click_id", "cost_micros", "user_agent"] if name == "AdImpressed" else []
        yield name, run.drop(absent, RECORD, REPEAT)
