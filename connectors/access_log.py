"""Web server access logs in the combined format of Apache and nginx, as columns.

    host ident user [time] "request" status bytes "referer" "user agent" …

Quoted fields may hold escaped quotes; anything after the user agent is left alone. A line that
does not fit is returned with its number, never dropped in silence.
Source: Apache HTTP Server documentation, mod_log_config, "combined".
"""

from __future__ import annotations

import polars as pl

_QUOTED = r'(?:[^"\\]|\\.)*'
LINE = (
    r"^(?P<host>\S+) (?P<ident>\S+) (?P<user>\S+) \[(?P<time>[^\]]+)\] "
    rf'"(?P<request>{_QUOTED})" (?P<status>\d{{3}}) (?P<bytes>\d+|-) '
    rf'"(?P<referer>{_QUOTED})" "(?P<agent>{_QUOTED})"'
)
REQUEST = r"^(?P<method>[A-Z]+) (?P<target>\S+)(?: (?P<protocol>HTTP/[\d.]+))?$"
SCHEMA = {
    "line": pl.Int64,
    "host": pl.String,
    "time": pl.Datetime("ms", "UTC"),
    "method": pl.String,
    "path": pl.String,
    "query": pl.String,
    "status": pl.Int64,
    "bytes": pl.Int64,
    "referer": pl.String,
    "agent": pl.String,
}
"""`line` counts from 1; "-" is null; `query` is what follows the path's question mark."""


def parse(text: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The requests with the columns of `SCHEMA`, and the lines that are none (`line`, `text`)."""
    lines = pl.DataFrame({"text": text.split("\n")}, schema={"text": pl.String})
    lines = lines.with_row_index("line", offset=1).cast({"line": pl.Int64})
    lines = lines.filter(pl.col("text").str.strip_chars() != "")
    found = (
        lines.with_columns(pl.col("text").str.extract_groups(LINE).alias("of"))
        .unnest("of")
        .with_columns(pl.col("request").str.extract_groups(REQUEST).alias("asked"))
        .unnest("asked")
        .with_columns(
            pl.col("time")
            .str.to_datetime("%d/%b/%Y:%H:%M:%S %z", time_unit="ms", strict=False)
            .dt.convert_time_zone("UTC"),
            pl.col("target").str.extract(r"^([^?]*)").alias("path"),
            pl.col("target").str.extract(r"\?(.*)$").alias("query"),
            pl.col("status").cast(pl.Int64),
            *(
                pl.when(pl.col(name) != "-").then(pl.col(name)).alias(name)
                for name in ("bytes", "referer", "agent")
            ),
        )
        .with_columns(pl.col("bytes").cast(pl.Int64, strict=False))
    )
    whole = pl.col("time").is_not_null() & pl.col("path").is_not_null()
    return found.filter(whole).select(*SCHEMA), found.filter(~whole).select("line", "text")
