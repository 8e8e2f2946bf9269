"""Fan-out and read model: the same rows however the log is cut into batches."""

from __future__ import annotations

from typing import Any

import polars as pl

from schemas.webhooks import events
from sinks.drivers.memory import MemorySink, MemoryStore
from streams.runtime.batch import OFFSET
from streams.runtime.testing import assert_replay_deterministic
from streams.webhooks import SYSTEM
from streams.webhooks.fanout import fan_out
from tests.webhooks.test_rules import NEW, harness, publish, report, save
from tests.webhooks.world import batch


def log() -> list[Any]:
    h = harness(save(ordered=True), save("e2", event_types=["a.*"]))
    for n in range(6):
        h.send(publish(f"m{n}", order_key="k"))
        h.advance(1_000)
    head = next(e for e in h.events if isinstance(e, events.MessagePublished)).deliveries
    h.send(report(head[0], "failed", final=False))
    h.send(report(head[0]))
    h.send(report(head[1], "gone"))
    h.advance(1)
    h.send(events.RotateSecret("t", "e1", NEW, 1_000))
    h.send(events.RecoverMessages("t", "e1", "r", 0))
    h.send(events.DeleteEndpoint("t", "e2"))
    return h.events


def test_every_planned_delivery_becomes_one_record_with_its_body_if_it_is_new() -> None:
    rows = log()
    whole = fan_out(batch(rows, 0, len(rows)))
    requested = whole[events.DELIVERY_REQUESTED.fullname].to_dicts()
    planned = [
        (n, one["delivery_id"], getattr(row, "body", None))
        for n, row in enumerate(rows)
        for one in getattr(row, "deliveries", ())
    ]
    assert [(r[OFFSET], r["delivery_id"], r["body"]) for r in requested] == planned
    (step,) = whole[events.RECOVERY_STEPPED.fullname].to_dicts()
    assert (step["request_id"], step["next_sequence"], step["until_sequence"]) == ("r", 0, 6)
    cut = [fan_out(batch(rows, n, n + 1)) for n in range(len(rows))]
    for name, frame in whole.items():
        assert pl.concat([one[name] for one in cut]).equals(frame)


def test_the_read_model_is_the_same_however_it_is_folded() -> None:
    (projection,) = SYSTEM.projections
    rows = log()
    for seed in range(3):
        assert_replay_deterministic(
            projection, rows, seed, lambda model: MemorySink(model, MemoryStore())
        )
