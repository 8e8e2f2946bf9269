"""Typeahead: what people search for becomes what is suggested.

Searches fold into hourly counts (S3), which a build ranks and packs into a snapshot
(`headrace typeahead build`, once or `--every` so many minutes); and into what is searched for this
minute, and what each user has searched for (Redis), which are suggested within a second or two.
Counts know no weights, so another half-life is another build and nothing else.
"""

from __future__ import annotations

from schemas.typeahead.events import QUERIES
from sinks import typeahead as store
from streams.runtime.projection import Projection, System
from streams.typeahead.fold import CountByHour, KeepRecent

SYSTEM = System(
    name="typeahead",
    title="Typeahead",
    projections=(
        Projection(
            "typeahead-counts",
            QUERIES,
            CountByHour(),
            store.COUNTS,
            store="s3",
            linger_ms=5_000,
            rows_max=65_536,
        ),
        Projection(
            "typeahead-recent",
            QUERIES,
            KeepRecent(),
            store.RECENT,
            store="redis",
            late_output=False,
        ),
    ),
)
