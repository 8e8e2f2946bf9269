"""Where leaderboards are stored: rankings in Redis, and who was banned when."""

from __future__ import annotations

import polars as pl

from streams.runtime.sink import Ranking, ReadModel, Table

ALL_TIME = Ranking(
    name="all",
    board={"board": pl.String, "operator": pl.String},
    member="player_id",
)
PERIODS = Ranking(
    name="periods",
    board={
        "board": pl.String,
        "operator": pl.String,
        "period": pl.String,
        "start_ms": pl.Int64,
    },
    member="player_id",
    time="start_ms",
)
"""Boards per day and week (UTC, weeks begin on Monday); `start_ms` is the period's start."""

BANS = Table(
    name="bans",
    key={"player_id": pl.String, "offset": pl.Int64},
    values={"banned": pl.Boolean, "decision_id": pl.String},
    append=True,
)
"""Every ban and reinstatement, by the log offset it takes effect at; `decision_id` is the
id that the ban or reinstatement came with."""

BOARDS = ReadModel("leaderboard", (ALL_TIME, PERIODS, BANS))
