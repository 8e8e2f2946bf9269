"""Log lines of ten services, as Loki's tests have them: agents, Kafka, Kubernetes, Vault, …"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

import polars as pl

SCHEMA = {"service": pl.String, "line": pl.Int64, "text": pl.String}
"""`line` counts from 1 in each file."""


def frame(files: Mapping[str, bytes]) -> pl.DataFrame:
    """All lines in the order of the files, with the columns of `SCHEMA`."""
    parts = []
    for member, content in files.items():
        texts = content.decode(errors="replace").split("\n")
        service = PurePosixPath(member).stem
        rows = {"service": [service] * len(texts), "line": range(1, len(texts) + 1), "text": texts}
        parts.append(
            pl.DataFrame(rows, schema=SCHEMA).filter(pl.col("text").str.strip_chars() != "")
        )
    return pl.concat(parts)
