"""The benchmark's own check: every campaign and window in the store, against the generator.

Headrace keeps its read model. The others keep one hash a window, `{bench-ysb-<engine>}:<start_ms>`:
campaign → `count,updated_ms`. An engine that counts by partition has a field for each of them,
`<campaign>/<partition>`, and a reader adds them up, as Headrace's readers do.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sinks.drivers.redis import connect
from sinks.open import open_sink
from streams.runtime.settings import Settings
from tests.bench.turns import WrongTotals
from tests.bench.ysb.events import Variant, topic
from tests.bench.ysb.rule import projection

HEADRACE = "headrace"
_PAGE = 1_000
_SCHEMA = {"campaign": pl.String, "start_ms": pl.Int64, "seen": pl.Int64, "updated_ms": pl.Int64}


def model(engine: str, variant: Variant) -> str:
    """What the keys of an engine's result begin with (in braces)."""
    return f"bench-ysb-{variant}" if engine == HEADRACE else f"bench-ysb-{engine}"


def stored(settings: Settings, engine: str, variant: Variant) -> pl.DataFrame:
    """What is in the store: `campaign`, `start_ms`, `seen`, `updated_ms` (the last one)."""
    if engine == HEADRACE:
        query = projection(topic(variant, "any"))
        sink = open_sink(query.store, query.model, settings)
        parts = [frame.select(*_SCHEMA) for frame in sink.rows(sink.live_version(), "windows")]
        sink.close()
    else:
        parts = list(_hashes(settings, model(engine, variant)))
    rows = pl.concat([pl.DataFrame(schema=_SCHEMA), *parts])
    return rows.group_by("campaign", "start_ms").agg(
        pl.col("seen").sum(), pl.col("updated_ms").max()
    )


def compare(title: str, found: pl.DataFrame, wanted: pl.DataFrame) -> int:
    """Raise `WrongTotals` unless every count is the generator's, none is missing and none is too
    many; returns how many were compared.
    """
    both = wanted.join(
        found.select("campaign", "start_ms", pl.col("seen").alias("found")),
        on=["campaign", "start_ms"],
        how="full",
        coalesce=True,
    ).fill_null(0)
    wrong = both.filter(pl.col("seen") != pl.col("found"))
    if wrong.height:
        first = wrong.sort("start_ms", "campaign").row(0, named=True)
        raise WrongTotals(
            f"{title}: {wrong.height} of {both.height} counts are wrong; campaign "
            f"{first['campaign']} at {first['start_ms']} has {first['found']}, the generator made "
            f"{first['seen']}"
        )
    return both.height


def _hashes(settings: Settings, prefix: str) -> Iterator[pl.DataFrame]:
    client = connect(settings.redis.url.get_secret_value())
    names: list[bytes] = list(client.scan_iter(match=f"{{{prefix}}}:*", count=_PAGE))
    for at in range(0, len(names), _PAGE):
        page = names[at : at + _PAGE]
        with client.pipeline(transaction=False) as pipe:
            for name in page:
                pipe.hgetall(name)
            found = pipe.execute()
        rows = [
            (field.decode().partition("/")[0], int(name.rpartition(b":")[2]), *_numbers(value))
            for name, fields in zip(page, found, strict=True)
            for field, value in fields.items()
        ]
        yield pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    client.close()


def _numbers(value: bytes) -> tuple[int, int]:
    seen, _, updated_ms = value.partition(b",")
    return int(seen), int(updated_ms)
