"""The rules in force, in every process that needs them: a fold of `limiter.rules` in memory
(`connectors.compacted`). While the log is away the rules stay as they were last read, and a rule
that cannot be read stays as it was, since no rule is worse than an old one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.compacted import Book
from schemas.limiter.events import RULE_REMOVED
from schemas.limiter.rules import BadRule, Request, Rule


class Rulebook(Book):
    """Rules by id."""

    def __init__(self) -> None:
        super().__init__()
        self.rules: Mapping[str, Rule] = {}

    def fold(self, record: str, fields: Mapping[str, Any]) -> None:
        if record == RULE_REMOVED.fullname:
            self.rules = {k: v for k, v in self.rules.items() if k != fields["rule_id"]}
            return
        try:
            rule = Rule.of(fields)
        except BadRule as error:
            self.skip(str(error))
        else:
            self.rules = {**self.rules, rule.rule_id: rule}

    def about(self, request: Request) -> list[Rule]:
        """The rules for a request, by id."""
        if not self.rules:
            return []
        found = [rule for rule in self.rules.values() if rule.counts(request)]
        return sorted(found, key=lambda rule: rule.rule_id)
