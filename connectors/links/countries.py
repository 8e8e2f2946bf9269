"""Countries of networks, from a table that is given: lines of `network,country`.

No table is bundled: those that are kept up to date have licences of their own. The address itself
is looked up and forgotten.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterable
from ipaddress import ip_address, ip_network
from itertools import pairwise
from pathlib import Path
from typing import Final

UNKNOWN: Final = "ZZ"
_V4_IN_V6: Final = 0xFFFF << 32


class Countries:
    """Ranges of addresses that do not overlap, and the country of each."""

    def __init__(self, networks: Iterable[tuple[str, str]] = ()) -> None:
        """Raises `ValueError` for what is no network, no country, or overlaps another."""
        ranges = sorted(_range(network, country) for network, country in networks)
        for (_, last, _), (first, _, _) in pairwise(ranges):
            if first <= last:
                raise ValueError("two networks overlap")
        self._firsts = [first for first, _, _ in ranges]
        self._ranges = ranges

    @classmethod
    def read(cls, file: Path | None) -> Countries:
        """The table of a CSV file without header; none knows no country."""
        if file is None:
            return cls()
        with file.open(newline="") as lines:
            return cls((row[0], row[1]) for row in csv.reader(lines) if row)

    def of(self, address: str) -> str:
        """The country of an address; `ZZ` where it is not known."""
        try:
            number = _number(address)
        except ValueError:
            return UNKNOWN
        at = bisect_right(self._firsts, number) - 1
        if at < 0 or self._ranges[at][1] < number:
            return UNKNOWN
        return self._ranges[at][2]


def _number(address: str) -> int:
    parsed = ip_address(address)
    return int(parsed) + (_V4_IN_V6 if parsed.version == 4 else 0)


def _range(network: str, country: str) -> tuple[int, int, str]:
    parsed = ip_network(network.strip())
    code = country.strip().upper()
    if len(code) != 2 or not code.isascii() or not code.isalpha():
        raise ValueError(f"{country!r} is not an ISO 3166-1 code")
    first = _number(str(parsed.network_address))
    return first, first + parsed.num_addresses - 1, code
