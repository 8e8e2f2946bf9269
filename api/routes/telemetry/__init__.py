"""Logs and metrics: ways in (`ingest`), lines (`logs`), PromQL (`metrics`), `alerts`."""

from __future__ import annotations

from fastapi import APIRouter

from api.routes.telemetry import alerts, logs, metrics
from api.routes.telemetry.ingest import ENCODED, reports
from api.routes.telemetry.ingest import router as writes

router = APIRouter()
for _part in (reports, logs.router, metrics.router, metrics.engine, alerts.router):
    router.include_router(_part)

__all__ = ["ENCODED", "router", "writes"]
