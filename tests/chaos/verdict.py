"""How a read model differs from the recount."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl


@dataclass
class Verdict:
    """What was found; all zero and empty is right."""

    records: int = 0
    lost: int = 0
    duplicated: int = 0
    wrong: list[str] = field(default_factory=list)
    fates: Counter[str] = field(default_factory=Counter)

    def compare(self, table: str, stored: pl.DataFrame, out: Path) -> None:
        """Rows that should be there and are not are lost; rows that should not be there, and
        rows that count too much, are duplicated.
        """
        wanted = pl.read_parquet(out / f"{table}.parquet")
        stored = stored.select(
            pl.col(name).dt.epoch("ms") if isinstance(stored.schema[name], pl.Datetime) else name
            for name in wanted.columns
        ).cast(dict(wanted.schema))
        missing = wanted.join(stored, on=wanted.columns, how="anti", nulls_equal=True)
        extra = stored.join(wanted, on=wanted.columns, how="anti", nulls_equal=True)
        self.lost += missing.height
        self.duplicated += extra.height + (stored.height - stored.unique().height)
        if missing.height or extra.height:
            self.wrong.append(f"{table}: missing {missing.head(3)}, too many {extra.head(3)}")
