"""From decisions to lanes: every message once, in its own lane, in order, however it is cut."""

from __future__ import annotations

import random
from typing import Any

import polars as pl

from schemas.notifications.events import DELIVERY_REQUESTED, EVENTS
from streams.notifications.lanes import DERIVATIONS, LANES, messages
from streams.runtime.batch import OFFSET, WATERMARK, Batch
from tests.notifications.desk import DAY, HOUR, T, desk, send


def log() -> list[Any]:
    at = desk(quiet_scope="marketing")
    for n, priority in enumerate(("otp", "marketing", "transactional") * 4):
        at.ask(send(f"n-{n}", priority=priority, channels=["push", "email", "sms"],
                    expires_at=T + HOUR), T + 20 * HOUR + n * HOUR // 2)  # fmt: skip
    at.ask(send("d-1", digest_key="d", digest_window_ms=HOUR))
    at.ask(send("s-1", send_at=at.now + HOUR))
    at.pass_to(T + 3 * DAY)
    return [event.row for event in at.log]


def batch(rows: list[Any], first: int, stop: int) -> Batch:
    frames: dict[str, pl.DataFrame] = {}
    for record in EVENTS.records:
        own = [(n, row) for n, row in enumerate(rows[first:stop], first) if type(row) is record.row]
        if not own:
            continue
        columns = {name: [getattr(row, name) for _, row in own] for name in record.columns}
        frames[record.fullname] = pl.DataFrame(columns, schema=dict(record.dtypes)).with_columns(
            pl.Series(OFFSET, [n for n, _ in own], dtype=pl.Int64),
            pl.lit(0, pl.Int64).alias(WATERMARK),
        )
    return Batch(EVENTS, 0, first, stop, frames)


def derived(priority: str, *batches: Batch) -> list[dict[str, Any]]:
    return [
        row for one in batches for row in messages(priority, one)[DELIVERY_REQUESTED.fullname]
        .to_dicts()
    ]  # fmt: skip


def test_every_message_takes_the_lane_of_its_priority_once_and_in_order() -> None:
    rows = log()
    whole = batch(rows, 0, len(rows))
    expected = [
        (row.priority, n, one["delivery_id"], one["channel"], one["address"])
        for n, row in enumerate(rows)
        for one in getattr(row, "deliveries", ())
    ]
    assert {priority for priority, *_ in expected} == set(LANES)
    for lane in LANES:
        found = derived(lane, whole)
        assert [
            (row["priority"], row[OFFSET], row["delivery_id"], row["channel"], row["address"])
            for row in found
        ] == [one for one in expected if one[0] == lane]
        assert list(found[0]) == [*DELIVERY_REQUESTED.columns, OFFSET]


def test_any_cut_gives_the_same_messages() -> None:
    rows = log()
    for seed in range(20):
        cuts = sorted(random.Random(seed).sample(range(1, len(rows)), 5))
        pieces = [batch(rows, a, b) for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
        for lane in LANES:
            assert derived(lane, *pieces) == derived(lane, batch(rows, 0, len(rows)))


def test_an_empty_batch_leads_to_nothing() -> None:
    for one in DERIVATIONS:
        frames = one.derive(Batch(EVENTS, 0, 0, 0))
        assert all(not frame.height for frame in frames.values())
