"""Where leaderboards are stored and how they are read: rankings in Redis, and who was banned."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from streams.runtime.sink import Ranking, ReadModel, Table

if TYPE_CHECKING:
    from sinks.readers.redis import Ranked, RedisReader

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
"""Every ban and reinstatement, by the log offset it takes effect at; `decision_id` is the id that
the ban or reinstatement came with."""

BOARDS = ReadModel("leaderboard", (ALL_TIME, PERIODS, BANS))

Operator = Literal["SUM", "BEST", "LAST"]
Period = Literal["all", "day", "week"]


@dataclass(frozen=True)
class Board:
    """One ranking: a board, how it folds scores, and the day or week that `at` lies in
    (UTC; weeks start on Monday). `at` is None for all time, and only then.
    """

    name: str
    operator: Operator = "SUM"
    period: Period = "all"
    at: date | None = None

    def __post_init__(self) -> None:
        """Refuse a day or week without a date, and all time with one."""
        if (self.period == "all") != (self.at is None):
            raise ValueError(f"period {self.period} does not go with {self.at}")

    @property
    def ranking(self) -> str:
        """The name of the ranking that holds it."""
        return ALL_TIME.name if self.at is None else PERIODS.name

    @property
    def key(self) -> dict[str, Any]:
        """The ranking's board columns."""
        key = {"board": self.name, "operator": self.operator}
        if self.at is None:
            return key
        first = self.at - timedelta(days=self.at.weekday() if self.period == "week" else 0)
        since = datetime(first.year, first.month, first.day, tzinfo=UTC) - datetime(
            1970, 1, 1, tzinfo=UTC
        )
        return {**key, "period": self.period, "start_ms": since // timedelta(milliseconds=1)}


@dataclass(frozen=True)
class Standing:
    """One player's place on a board; `rank` 1 is best, and no two players share one."""

    rank: int
    player_id: str
    score: int
    reached_ms: int


@dataclass(frozen=True)
class Percentile:
    """How a player compares: the percent of the other players that stand behind."""

    player_id: str
    rank: int
    players: int
    percentile: float


class LeaderboardReader:
    """The boards, merged over all log partitions.

    Every number is exact, also in the tail: a rank is one logarithmic look-up a partition. Of
    reads that need two looks (around, percentile) the second may see a score that the first did
    not, while the board moves.
    """

    def __init__(self, boards: RedisReader) -> None:
        self._boards = boards

    async def close(self) -> None:
        """Release the connections."""
        await self._boards.close()

    async def applied(self) -> dict[tuple[str, int], int]:
        """The first offset not folded yet, by topic and partition."""
        return await self._boards.applied()

    async def top(self, board: Board, k: int) -> list[Standing]:
        """The first `k`, best first."""
        found = await self._boards.top(board.ranking, board.key, k)
        return [_standing(ranked) for ranked in found]

    async def rank(self, board: Board, player_id: str) -> Standing | None:
        """The player's place; None where the player is not on the board."""
        found = await self._boards.rank(board.ranking, board.key, player_id)
        return None if found is None else _standing(found)

    async def around(self, board: Board, player_id: str, span: int) -> list[Standing]:
        """Up to `span` places above the player, the player, up to `span` below; empty where
        the player is not on the board.
        """
        found = await self._boards.around(board.ranking, board.key, player_id, span)
        return [_standing(ranked) for ranked in found]

    async def count(self, board: Board) -> int:
        """Players on the board."""
        return await self._boards.count(board.ranking, board.key)

    async def percentile(self, board: Board, player_id: str) -> Percentile | None:
        """How the player compares; None where the player is not on the board. The first stands
        at 100, the last at 0, and a player who is alone at 100.
        """
        found = await self.rank(board, player_id)
        if found is None:
            return None
        players = max(await self.count(board), found.rank)
        behind = (players - found.rank) / (players - 1) if players > 1 else 1.0
        return Percentile(player_id, found.rank, players, 100.0 * behind)


def _standing(found: Ranked) -> Standing:
    return Standing(found.rank, found.member, found.score, found.reached_ms)
