"""Panels of deciders: what they decide, how fast, and how ownership moves."""

from __future__ import annotations

from typing import Any

from infra.grafana.panels import BYTES, COUNT, RATE, SECONDS, lines
from infra.grafana.queries import mean, quantile, rate


def decisions(s: str) -> list[Any]:
    """What becomes of commands, and whether their writers are well."""
    return [
        lines("Decisions", RATE, (rate("headrace_decisions_total", "code", s), "{{code}}")),
        lines(
            "Time of one piece of work, p99",
            SECONDS,
            (quantile(0.99, "headrace_decide_seconds", "agent", s), "{{agent}}"),
            about="A span of commands decided, or of events read back.",
        ),
        lines(
            "Decisions in flight",
            COUNT,
            (f"sum by (agent) (headrace_decisions_in_flight{{{s}}})", "{{agent}}"),
            about="Sent and not read back yet; at its limit the log is what is slow.",
        ),
        lines(
            "Claims and epochs given up",
            RATE,
            (rate("headrace_claims_total", "agent", s), "{{agent}} claims"),
            (
                rate("headrace_epochs_abandoned_total", "agent, reason", s),
                "{{agent}} gave up: {{reason}}",
            ),
            about="A few at a rebalance; steady means two writers, or a log that fails.",
        ),
        lines(
            "Stale records",
            RATE,
            (rate("headrace_stale_records_total", "agent, reason", s), "{{agent}} {{reason}}"),
            about="Refused by every reader alike: written by a deposed owner.",
        ),
        lines(
            "Replies dropped",
            RATE,
            (rate("headrace_replies_dropped_total", "agent", s), "{{agent}}"),
            about="Redis was away; the senders ask later.",
        ),
        lines(
            "Recovery and snapshots, mean",
            SECONDS,
            (mean("headrace_recovery_seconds", "agent", s), "{{agent}} recovery"),
            (mean("headrace_snapshot_seconds", "agent", s), "{{agent}} snapshot"),
        ),
        lines(
            "Age of the newest snapshot",
            SECONDS,
            (
                f"time() - max by (agent, partition) (headrace_snapshot_timestamp_seconds{{{s}}})",
                "{{agent}}/{{partition}}",
            ),
        ),
        lines(
            "Size of the newest snapshot",
            BYTES,
            (
                f"max by (agent, partition) (headrace_snapshot_bytes{{{s}}})",
                "{{agent}}/{{partition}}",
            ),
        ),
    ]
