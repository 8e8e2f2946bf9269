"""Leaderboards: scores in, standings out, for all time and for each day and week.

Writes go to the log; reads answer from the read models, each with the position it is true for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from http import HTTPStatus
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from api import ingest, positions
from api.auth import MODERATE, READ, WRITE, Principal, requires
from api.json_route import JsonRoute
from api.models import Id, Input, Instant
from api.positions import AppliedSource
from api.problem import InputError, Problem, invalid, responses
from api.reads import fresh
from api.services import ServicesDep
from schemas.leaderboard import events
from sinks import leaderboard as store
from sinks.leaderboard import Board, Operator, Period

TOP_MAX = 1_000
AROUND_MAX = 100
Points = Annotated[int, Field(ge=-(10**12), le=10**12)]
"""A board's sum stays below 2**53, where stores that rank by doubles are still exact."""
T = TypeVar("T")


class Standing(BaseModel):
    """One player's place on a board."""

    rank: int = Field(description="1 is best; equal scores are ranked by who reached them first.")
    player_id: str
    score: int
    reached_ms: int = Field(description="When the score was reached, milliseconds since 1970.")


class Percentile(BaseModel):
    """How a player compares."""

    player_id: str
    rank: int
    players: int = Field(description="Players on the board.")
    percentile: float = Field(
        description="Percent of the other players who stand behind: 100 for the first, 0 for the "
        "last. Exact for the tail, too."
    )


class Size(BaseModel):
    """How large a board is."""

    players: int


class LeaderboardReads(AppliedSource, Protocol):
    """What the read routes ask; `sinks.leaderboard.LeaderboardReader` answers."""

    async def top(self, board: Board, k: int) -> Sequence[store.Standing]:
        """The first `k`, best first."""
        ...

    async def rank(self, board: Board, player_id: str) -> store.Standing | None:
        """The player's place; None where the player is not on the board."""
        ...

    async def around(self, board: Board, player_id: str, span: int) -> Sequence[store.Standing]:
        """Up to `span` places above the player, the player, up to `span` below; empty where
        the player is not on the board.
        """
        ...

    async def count(self, board: Board) -> int:
        """Players on the board."""
        ...

    async def percentile(self, board: Board, player_id: str) -> store.Percentile | None:
        """How the player compares; None where the player is not on the board."""
        ...


async def board(
    board: Annotated[Id, Path(description="The board's name.")],
    operator: Annotated[Operator, Query(description="How the board folds scores.")] = "SUM",
    period: Annotated[Period, Query(description="All time, or one day or week.")] = "all",
    at: Annotated[
        date | None, Query(description="A date in the day or week; today (UTC) by default.")
    ] = None,
) -> Board:
    """Dependency: the ranking that is asked about."""
    if period == "all":
        if at is not None:
            detail = "at goes with period=day or period=week"
            raise invalid(detail, InputError(detail=detail, parameter="at"))
        return Board(board, operator, period, None)
    return Board(board, operator, period, at or datetime.now(UTC).date())


ReadsDep = Annotated[LeaderboardReads, Depends(fresh("leaderboard", events.SCORES))]
BoardDep = Annotated[Board, Depends(board)]
Player = Annotated[Id, Path(description="The player.")]

_EXAMPLES: Mapping[str, Any] = {
    "ScoreSubmitted": {
        "type": "ScoreSubmitted",
        "score_id": "s-01",
        "board": "weekly",
        "operator": "BEST",
        "player_id": "p-9",
        "points": 1250,
        "event_time": "2026-01-01T00:00:00Z",
    },
    "PlayerBanned": {
        "type": "PlayerBanned",
        "ban_id": "b-01",
        "player_id": "p-9",
        "reason": "speed hack",
        "event_time": 1_767_225_660_000,
    },
}
_ACCEPTS = (
    ingest.Accepts(
        events.SCORES,
        events.SCORE_SUBMITTED,
        "score_id",
        narrower={"board": Id, "points": Points},
    ),
    ingest.Accepts(events.SCORES, events.PLAYER_BANNED, "ban_id", scopes=(MODERATE,)),
    ingest.Accepts(events.SCORES, events.PLAYER_REINSTATED, "reinstatement_id", scopes=(MODERATE,)),
)

writes = ingest.router("leaderboard", _ACCEPTS, _EXAMPLES)
_ingest = ingest.Ingest(_ACCEPTS)


class Score(Input):
    """One score, as games send it."""

    model_config = ConfigDict(alias_generator=to_camel)

    player_id: Id
    board: Id
    points: Points | None = Field(default=None, description="The points. This or `delta`.")
    delta: Points | None = Field(default=None, description="Points to add; only with SUM.")
    operator: Operator = "SUM"
    score_id: Id | None = Field(
        default=None, description="Give your own, and sending the score again is harmless."
    )
    event_time: Instant | None = Field(default=None, description="Now by default.")

    @model_validator(mode="after")
    def _one_number(self) -> Score:
        if (self.points is None) == (self.delta is None):
            raise ValueError("give points or delta, and only one of them")
        if self.delta is not None and self.operator != "SUM":
            raise ValueError("delta adds, so it goes with operator SUM only")
        return self


scores = APIRouter(
    prefix="/v1", tags=["leaderboard"], route_class=JsonRoute, responses=responses(413, 415)
)


@scores.post("/scores", status_code=202, responses={202: {"headers": ingest.POSITION_HEADER}})
async def send_score(
    score: Score,
    response: Response,
    services: ServicesDep,
    principal: Annotated[Principal, requires(WRITE)],
) -> ingest.Accepted:
    """Send one score: `ScoreSubmitted` in the words of games."""
    event = {
        "type": events.SCORE_SUBMITTED.name,
        "score_id": score.score_id,
        "board": score.board,
        "operator": score.operator,
        "player_id": score.player_id,
        "points": score.delta if score.points is None else score.points,
        "event_time": int(time.time() * 1_000) if score.event_time is None else score.event_time,
    }
    (made,), (sent,) = await _ingest.send(services, principal, [event])
    response.headers[positions.POSITION] = positions.header([sent])
    return ingest.Accepted(id=made, position=ingest.place(sent))


router = APIRouter(
    prefix="/v1/leaderboards/{board}",
    tags=["leaderboard"],
    dependencies=[requires(READ)],
    responses={**responses(504), 200: {"headers": ingest.APPLIED_HEADER}},
)


@router.get("/top", response_model=list[Standing])
async def top(
    which: BoardDep,
    source: ReadsDep,
    k: Annotated[int, Query(ge=1, le=TOP_MAX, description="How many.")] = 100,
) -> Sequence[store.Standing]:
    """The best players."""
    return await source.top(which, k)


@router.get("/count")
async def count(which: BoardDep, source: ReadsDep) -> Size:
    """How many players are on the board."""
    return Size(players=await source.count(which))


@router.get("/rank/{player}", response_model=Standing, responses=responses(404))
async def rank(player: Player, which: BoardDep, source: ReadsDep) -> store.Standing:
    """A player's place."""
    return _there(await source.rank(which, player))


@router.get("/around/{player}", response_model=list[Standing], responses=responses(404))
async def around(
    player: Player,
    which: BoardDep,
    source: ReadsDep,
    span: Annotated[int, Query(ge=1, le=AROUND_MAX, description="Places each way.")] = 5,
) -> Sequence[store.Standing]:
    """A player's place and those around it."""
    return _there(await source.around(which, player, span) or None)


@router.get("/percentile/{player}", response_model=Percentile, responses=responses(404))
async def percentile(player: Player, which: BoardDep, source: ReadsDep) -> store.Percentile:
    """How a player compares with all others."""
    return _there(await source.percentile(which, player))


def _there(found: T | None) -> T:
    if found is None:
        raise Problem(HTTPStatus.NOT_FOUND, "not-on-the-board", "the player is not on this board")
    return found
