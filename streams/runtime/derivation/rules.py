"""What a derivation is made of: a pure function from one topic to another (research rules B1–B9).

It repartitions or fans out: each source row leads to any number of rows of the target topic. What
a source record leads to is frozen for the life of the target topic; a change is a new topic
version and a rebuild.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from streams.runtime.batch import Batch
from streams.runtime.topic import Topic

Derive = Callable[[Batch], Mapping[str, pl.DataFrame]]
"""Rows of the target by record full name: the record's fields and `_offset`, the offset of the
source row. Several rows of one source row are in a fixed order. Pure, row by row: any cut of the
source into batches gives the same rows.
"""


@dataclass(frozen=True)
class Derivation:
    """One agent: source topic → target topic. The partition of a row follows from the target's key.

    `name` is agent, consumer group and the name readers of the target know this source by;
    `version` is that of `derive`. Neither may change while the target lives: a changed derivation
    has another name and another target, and read models are rebuilt from that.

    Event time of the target is told by its sources: the least of their watermarks, once every
    source partition has had an event. A partition that stays empty or silent holds it back; then
    windows show early, as for any idle partition, and nothing becomes late by lag.
    """

    name: str
    source: Topic
    target: Topic
    derive: Derive
    columns: Mapping[str, tuple[str, ...]] | None = None
    version: int = 1
