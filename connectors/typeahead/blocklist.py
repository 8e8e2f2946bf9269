"""What must never be suggested, in every process that suggests: a fold of `typeahead.blocklist` in
memory (`connectors.compacted`).

A phrase blocks every term that has its words in it, one after the other, whatever stands around
them. Whoever suggests asks for each term it is about to show, so neither a snapshot that was built
before nor one that is swapped in can show what is blocked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from connectors.compacted import Book
from schemas.typeahead.events import PHRASE_BLOCKED

_WORDS = re.compile(r"\w+|[^\w\s!-/:-@\[-`{-~\u00a1-\u00bf\u2010-\u206f\u3000-\u303f]")
"""Runs of letters and digits, and each sign that is no punctuation, such as an emoji."""


class Blocklist(Book):
    """The blocked phrases, and why."""

    def __init__(self) -> None:
        super().__init__()
        self.phrases: Mapping[str, str] = {}
        """Folded phrase → reason."""
        self._words: frozenset[tuple[str, ...]] = frozenset()
        self._longest = 0

    def fold(self, record: str, fields: Mapping[str, Any]) -> None:
        phrase = fields["phrase"]
        if record == PHRASE_BLOCKED.fullname:
            self.phrases = {**self.phrases, phrase: fields["reason"]}
            words = words_of(phrase)
            # First it is known how long it is, then that it is blocked: nobody sees half a change.
            self._longest = max(self._longest, len(words))
            self._words |= {words}
        elif phrase in self.phrases:
            self.phrases = {k: v for k, v in self.phrases.items() if k != phrase}
            self._words = frozenset(map(words_of, self.phrases))

    def blocks(self, term: str) -> bool:
        """Whether a folded term has a blocked phrase in it."""
        if not self._words:
            return False
        words = words_of(term)
        return any(
            words[start:stop] in self._words
            for start in range(len(words))
            for stop in range(start + 1, min(start + self._longest, len(words)) + 1)
        )


def words_of(phrase: str) -> tuple[str, ...]:
    """The words of a folded phrase without what is between them; the phrase, where it has none."""
    return tuple(_WORDS.findall(phrase)) or (phrase,)
