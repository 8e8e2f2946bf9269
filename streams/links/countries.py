"""Countries of networks, a column at a time.

From the table that is bundled (package `iptocc`: to which country the five regional registries
assigned a network, which is not always where it is used), or from a MaxMind DB file that is given.
Another table finds the countries of past clicks anew: `headrace rebuild links-clicks`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import iptocc
import maxminddb
import polars as pl

UNKNOWN: Final = "ZZ"

LooksUp = Callable[[Sequence[str]], Sequence[str | None]]
"""Addresses → ISO 3166-1 codes, None where a country is not known."""


class Countries:
    """The countries of networks by a table; immutable."""

    def __init__(self, look_up: LooksUp = iptocc.country_code) -> None:
        self._look_up = look_up

    @classmethod
    def read(cls, file: Path | None) -> Countries:
        """By a MaxMind DB file (`.mmdb`), which is kept open; by the bundled table where there is
        none. Raises `OSError` and `ValueError` for what is no such file.
        """
        if file is None:
            return cls()
        try:
            reader = maxminddb.open_database(file)
        except maxminddb.InvalidDatabaseError as error:
            raise ValueError(f"{file} is no MaxMind DB: {error}") from error
        return cls(lambda addresses: [_looked_up(reader, address) for address in addresses])

    def of(self, networks: pl.Series) -> pl.Series:
        """The country of each network, such as `192.0.2.0/24`, by its first address; `ZZ` where it
        is not known.
        """
        found = self._look_up(networks.str.split("/").list.first().to_list())
        return pl.Series("country", found, dtype=pl.String).fill_null(UNKNOWN)


def _looked_up(reader: maxminddb.Reader, address: str) -> str | None:
    try:
        return _code(reader.get(address))
    except ValueError:  # no address, or one of IPv6 in a table of IPv4
        return None


def _code(entry: Any) -> str | None:
    """The code in an entry: `{country: {iso_code: NL}}` (MaxMind, DB-IP), `{country: NL}` or
    `{country_code: NL}` (IPinfo and others).
    """
    if not isinstance(entry, dict):
        return None
    told = entry.get("country", entry.get("country_code"))
    if isinstance(told, dict):
        told = told.get("iso_code")
    return told if isinstance(told, str) and len(told) == len(UNKNOWN) else None
