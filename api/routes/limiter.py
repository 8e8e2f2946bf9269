"""Limiter: events in, counts out.

Writes go to the log; reads answer from the read model, each with the position it is true for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, Path
from pydantic import BaseModel, Field

from api import ingest
from api.auth import READ, requires
from api.models import Id
from api.positions import AppliedSource
from api.problem import responses
from api.reads import fresh
from schemas.limiter import events


class LimiterCount(BaseModel):
    """How many events a subject has."""

    subject_id: str
    events: int = Field(description="Events applied, of all time.")


class LimiterReads(AppliedSource, Protocol):
    """What the read route asks; `LimiterReader` in the sink answers."""

    async def count(self, subject_id: str) -> int:
        """Events of the subject; 0 for one that has none."""
        ...


ReadsDep = Annotated[LimiterReads, Depends(fresh("limiter", events.EVENTS))]
Subject = Annotated[Id, Path(description="The subject.")]

_EXAMPLES: Mapping[str, Any] = {
    "RequestDecided": {
        "type": "RequestDecided",
        "event_id": "e-01",
        "subject_id": "s-7",
        "event_time": "2026-01-01T00:00:00Z",
    },
}

writes = ingest.router(
    "limiter",
    (ingest.Accepts(events.EVENTS, events.REQUEST_DECIDED, "event_id"),),
    _EXAMPLES,
)

router = APIRouter(
    prefix="/v1/limiter",
    tags=["limiter"],
    dependencies=[requires(READ)],
    responses={**responses(504), 200: {"headers": ingest.APPLIED_HEADER}},
)


@router.get("/counts/{subject_id}")
async def limiter_count(subject_id: Subject, source: ReadsDep) -> LimiterCount:
    """How many events a subject has."""
    return LimiterCount(subject_id=subject_id, events=await source.count(subject_id))
