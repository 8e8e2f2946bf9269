"""Alerts over the log, as they stand. Who is told, when, and who is not, is Alertmanager's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol

import orjson
from fastapi import APIRouter, Depends, Path
from pydantic import BaseModel, Field

from api import ingest
from api.auth import READ, requires
from api.positions import AppliedSource
from api.problem import responses
from api.reads import fresh
from schemas.telemetry.events import ALERTS
from sinks.telemetry.alerts import StandingAlert

router = APIRouter(
    prefix="/v1/telemetry/alerts",
    tags=["telemetry"],
    dependencies=[requires(READ)],
    responses={**responses(504), 200: {"headers": ingest.APPLIED_HEADER}},
)


class AlertReads(AppliedSource, Protocol):
    """What the routes ask of the alerts; `sinks.telemetry.alerts.AlertReader` answers."""

    async def of_rule(self, rule: str) -> Sequence[StandingAlert]:
        """All alerts that a rule ever had."""
        ...


class Alert(BaseModel):
    """An alert as it stands."""

    fingerprint: str
    state: str = Field(examples=["FIRING"])
    labels: dict[str, str]
    value: float = Field(description="What the rule measured when the state changed.")
    started_ms: int = Field(description="When the condition first held, in event time.")
    changed_ms: int = Field(description="When the state changed, in event time.")


AlertsDep = Annotated[AlertReads, Depends(fresh("telemetry-alerts", ALERTS))]


@router.get("/{rule}", response_model=list[Alert])
async def alerts_of_rule(
    rule: Annotated[str, Path(min_length=1, max_length=200)], source: AlertsDep
) -> list[Alert]:
    """All alerts that a rule ever had, each as it stands now."""
    return [
        Alert(
            fingerprint=one.fingerprint,
            state=one.state,
            labels=orjson.loads(one.labels),
            value=one.value,
            started_ms=one.started_ms,
            changed_ms=one.changed_ms,
        )
        for one in await source.of_rule(rule)
    ]
