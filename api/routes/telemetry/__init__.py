"""Logs and metrics: ways in (`ingest`)."""

from __future__ import annotations

from api.routes.telemetry.ingest import ENCODED
from api.routes.telemetry.ingest import router as writes

__all__ = ["ENCODED", "writes"]
