"""Metrics: the catalogue (`Metrics`), and what the hot path reports through (`AgentMetrics`)."""

from streams.runtime.metrics.agent import AgentMetrics
from streams.runtime.metrics.catalogue import Metrics, default

__all__ = ["AgentMetrics", "Metrics", "default"]
