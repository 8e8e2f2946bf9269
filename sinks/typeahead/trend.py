"""What is searched for just now: a small layer above the snapshot, made anew every second."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from schemas.typeahead.folding import folded
from sinks.typeahead.index import ONE

MINUTES = 10
PEOPLE_MIN = 3
"""Fewer are no trend, but a few people who had the same thought."""
WEIGHT = ONE * 24 * 60 // MINUTES
"""Of one search: as if it went on at this rate for a day. So a term that is as popular as ever
keeps its place, and one that was not known yesterday gets one."""


@dataclass(frozen=True, slots=True)
class Rising:
    """A term, how it is shown, and what its searches of the last minutes weigh."""

    term: str
    text: str
    score: int


class Trend:
    """The rising terms, by prefix. Immutable."""

    def __init__(self, searches: Iterable[tuple[str, int]] = ()) -> None:
        """Of texts with the number of people; texts that fold alike are one."""
        texts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for text, people in searches:
            texts[folded(text)][text] += people
        found = []
        for term, counted in texts.items():
            people = sum(counted.values())
            if term and people >= PEOPLE_MIN:
                shown = min(counted, key=lambda text: (-counted[text], text))
                found.append(Rising(term, shown, people * WEIGHT))
        self._rising = sorted(found, key=attrgetter("term"))

    def __len__(self) -> int:
        return len(self._rising)

    def starting(self, prefix: str) -> Iterator[Rising]:
        """The rising terms that begin with `prefix`."""
        at = bisect_left(self._rising, prefix, key=attrgetter("term"))
        while at < len(self._rising) and self._rising[at].term.startswith(prefix):
            yield self._rising[at]
            at += 1
