"""A few flights, impressions and requests, in the shape of the data sets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl

from connectors import access_log
from connectors.datasets import flights, open_bandit

START = datetime(2013, 1, 1, 10, tzinfo=UTC)


def flights_of(*rows: tuple[str, int, int, int | None, int | None]) -> pl.DataFrame:
    """(carrier, number, minutes after START scheduled, departure delay, arrival delay)."""
    made = [
        {
            "carrier": carrier,
            "flight": number,
            "tailnum": None if number == 13 else f"N{number}",
            "origin": "JFK",
            "dest": "LAX",
            "dep_delay": left,
            "arr_delay": landed,
            "air_time": None if landed is None else 300,
            "distance": 2475,
            "scheduled": START + timedelta(minutes=minute),
        }
        for carrier, number, minute, left, landed in rows
    ]
    return pl.DataFrame(made, schema=flights.SCHEMA)


def many_flights(count: int) -> pl.DataFrame:
    """Flights every two minutes, of which every seventh is hours late."""
    return flights_of(
        *(
            ("UA" if n % 3 else "B6", n % 40, 2 * n, 150 if n % 7 == 0 else n % 9, n % 90 - 20)
            for n in range(count)
        )
    )


def impressions(*clicked: int) -> pl.DataFrame:
    """One impression a second on one page."""
    rows = [
        {
            "campaign": "random/all",
            "row": n,
            "timestamp": datetime(2019, 11, 24, tzinfo=UTC) + timedelta(seconds=n),
            "item_id": n % 3,
            "click": click,
            **dict.fromkeys(open_bandit.FEATURES, f"{n % 5}bcdefgh"),
        }
        for n, click in enumerate(clicked)
    ]
    return pl.DataFrame(rows, schema=open_bandit.SCHEMA)


def requests(*paths: str, agent: str = "Mozilla/5.0", host: str = "h") -> pl.DataFrame:
    """One request a second."""
    lines = [
        f'{host} - - [22/Apr/2009:06:00:{n:02} +0000] "GET {path} HTTP/1.1" 302 1 "-" "{agent}"'
        for n, path in enumerate(paths)
    ]
    good, bad = access_log.parse("\n".join(lines))
    assert bad.is_empty()
    return good
