"""Builds a snapshot of suggestions beside the one that answers: counts less what is blocked.

Nothing is changed before the pointer is moved, in one step and last. A build depends on the counts,
the blocklist and its options alone: made again it has the same digest.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass

import polars as pl

from connectors.compacted import Feed
from connectors.typeahead.blocklist import Blocklist
from infra.error import StackError
from schemas.typeahead.events import BLOCKLIST
from sinks.drivers import s3
from sinks.readers.s3 import S3Reader
from sinks.typeahead import COUNTS, HOURS
from sinks.typeahead.index import build as packed
from sinks.typeahead.snapshots import Pointer, Refused, Snapshots, digest
from streams.runtime.avro import RegistrySource
from streams.runtime.settings import Settings
from streams.runtime.sink import FenceRefused, SinkError
from streams.typeahead.ranking import HALF_LIFE_HOURS, PEOPLE_MIN, ranked, weighed

TIMEOUT_S = 600.0
TEXTS_MAX = 100_000_000


@dataclass(frozen=True)
class Options:
    """What a build depends on beside the log."""

    half_life_hours: int = HALF_LIFE_HOURS
    people_min: int = PEOPLE_MIN
    force: bool = False
    """Also in place of a snapshot with more than twice the terms."""


@dataclass(frozen=True)
class Build:
    """A snapshot that nobody sees yet."""

    file: bytes
    digest: str
    terms: int
    blocked: int
    """Terms that were left out of it."""
    as_of_ms: int
    positions: dict[str, int]


def publish(settings: Settings, options: Options) -> tuple[Build, Pointer]:
    """Build a snapshot and let it answer. Raises `StackError`, and then the one that answered goes
    on.
    """
    with closing(s3.connect(settings.s3)) as bucket:
        snapshots = Snapshots(bucket)
        try:
            over = snapshots.live()
            made = build(settings, options)
            pointer = snapshots.publish(
                made.file,
                terms=made.terms,
                as_of_ms=made.as_of_ms,
                positions=made.positions,
                over=over,
                force=options.force,
            )
        except (FenceRefused, Refused) as error:
            raise StackError(f"the snapshot is not put in place: {error}") from error
        except SinkError as error:
            raise StackError(f"nothing is swapped: {error}") from error
    return made, pointer


def build(settings: Settings, options: Options) -> Build:
    """Build a snapshot and keep it here. Raises `StackError`."""
    try:
        return asyncio.run(_build(settings, options))
    except SinkError as error:
        raise StackError(f"nothing is built: {error}") from error


async def _build(settings: Settings, options: Options) -> Build:
    blocklist = await _blocklist(settings)
    reader = S3Reader(COUNTS, settings.s3, timeout_s=TIMEOUT_S, rows_max=TEXTS_MAX)
    try:
        positions = await reader.positions()
        counts = await reader.scan(HOURS.name)
        newest = (await reader.collect(counts.select(pl.col("hour_ms").max()))).item()
        now_ms = 0 if newest is None else int(newest)
        texts = await reader.collect(weighed(counts, now_ms, options.half_life_hours))
    finally:
        await reader.close()
    terms = ranked(texts, options.people_min)
    blocked = pl.Series([blocklist.blocks(term) for term in terms["term"]], dtype=pl.Boolean)
    shown = terms.filter(~blocked)
    file = packed(shown)
    return Build(
        file=file,
        digest=digest(file),
        terms=shown.height,
        blocked=terms.height - shown.height,
        as_of_ms=now_ms,
        positions={f"{topic}/{at}": one.next_offset for (topic, at), one in positions.items()},
    )


async def _blocklist(settings: Settings) -> Blocklist:
    with closing(RegistrySource(settings.registry.url)) as schemas:
        async with Feed(BLOCKLIST, settings.kafka, schemas, Blocklist()) as feed:
            if not feed.book.complete:
                raise StackError("nothing is built: the blocklist cannot be read")
            return feed.book
