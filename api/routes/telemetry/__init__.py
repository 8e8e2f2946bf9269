"""Logs and metrics: ways in (`ingest`), lines (`logs`), PromQL (`metrics`), `alerts`."""

from __future__ import annotations

from api.routes.telemetry import alerts, ingest, logs, metrics
from api.routes.telemetry.ingest import ENCODED

ROUTERS = (
    ingest.router,
    ingest.reports,
    logs.router,
    metrics.router,
    metrics.engine,
    alerts.router,
)

__all__ = ["ENCODED", "ROUTERS"]
