"""Where clicks come from: tables of networks, and another table over the same clicks."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from mmdb_writer import MMDBWriter
from netaddr import IPSet

from streams.links.countries import Countries
from streams.links.fold import KeepClicks
from streams.runtime.testing import assert_replay_deterministic
from tests.links.desk import CLICKS, click
from tests.links.test_fold import folded, memory

ASSIGNED = {
    "8.8.8.0/24": "US",
    "133.11.0.0/24": "JP",
    "193.0.6.0/24": "NL",
    "2001:67c:2e8::/48": "NL",
    "2001:200::/48": "JP",
    "10.0.0.0/24": "ZZ",
    "127.0.0.0/24": "ZZ",
    "2001:db8::/48": "ZZ",
    "nonsense": "ZZ",
}
"""To whom the registries gave them: Google, Tokyo University, RIPE NCC, the WIDE project; nobody.
"""
GIVEN = {
    "192.0.2.0/23": {"country": {"iso_code": "NL", "names": {"en": "Netherlands"}}},
    "198.51.100.0/24": {"country": "DE"},
    "2001:db8::/32": {"country_code": "FR"},
    "203.0.113.0/24": {"continent": {"code": "EU"}},
}


def of(countries: Countries, *networks: str) -> list[str]:
    return countries.of(pl.Series(networks, dtype=pl.String)).to_list()


def written(file: Path, entries: dict[str, Any], ip_version: int = 6) -> Path:
    """A MaxMind DB."""
    table = MMDBWriter(ip_version, "Test", ipv4_compatible=ip_version == 6)
    for network, entry in entries.items():
        table.insert_network(IPSet([network]), entry)
    table.to_db_file(str(file))
    return file


def test_the_bundled_table_knows_whom_networks_were_assigned_to() -> None:
    assert dict(zip(ASSIGNED, of(Countries.read(None), *ASSIGNED), strict=True)) == ASSIGNED


def test_a_table_of_maxminds_format(tmp_path: Path) -> None:
    countries = Countries.read(written(tmp_path / "c.mmdb", GIVEN))
    asked = ("192.0.3.0/24", "198.51.100.0/24", "2001:db8:7::/48", "203.0.113.0/24", "8.8.8.0/24")
    assert of(countries, *asked, "nonsense") == ["NL", "DE", "FR", "ZZ", "ZZ", "ZZ"]


def test_a_table_of_ipv4_alone(tmp_path: Path) -> None:
    four = {network: entry for network, entry in GIVEN.items() if ":" not in network}
    countries = Countries.read(written(tmp_path / "c.mmdb", four, ip_version=4))
    assert of(countries, "192.0.2.0/24", "2001:db8::/48") == ["NL", "ZZ"]


def test_a_file_that_is_no_table_ends_the_worker_at_its_start(tmp_path: Path) -> None:
    file = tmp_path / "c.mmdb"
    fold = KeepClicks(countries=lambda: Countries.read(file))
    with pytest.raises(OSError, match=r"c\.mmdb"):
        fold.start({})
    file.write_text("192.0.2.0/24,NL")
    with pytest.raises(ValueError, match=r"c\.mmdb is no MaxMind DB"):
        fold.start({})


def clicks(seed: int) -> list[Any]:
    """With networks, known and not known, and of the time before networks were kept."""
    chance = random.Random(seed)
    networks = [*ASSIGNED, "192.0.2.0/24", "198.51.100.0/24", ""]
    return [
        click(
            f"link-{chance.randrange(4)}", n * 60_000,
            network=chance.choice(networks), country=chance.choice(["ZZ", "NO"]),
        )
        for n in range(120)
    ]  # fmt: skip


def test_another_table_changes_the_countries_of_the_past_and_nothing_else(tmp_path: Path) -> None:
    """T of countries: the same log under both tables."""
    table = Countries.read(written(tmp_path / "c.mmdb", GIVEN))
    projection = replace(CLICKS, fold=KeepClicks(countries=lambda: table))
    assert_replay_deterministic(projection, clicks(1), 1, memory)
    before, after = (folded(one, clicks(1)) for one in (CLICKS, projection))
    assert before.counts == after.counts
    first, second = (one.rows("clicks").sort("offset", "code") for one in (before, after))
    assert first.drop("country").equals(second.drop("country"))
    assert set(first["country"]) == {"US", "JP", "NL", "NO", "ZZ"}
    assert set(second["country"]) == {"NL", "DE", "FR", "NO", "ZZ"}


def test_clicks_without_network_keep_the_country_they_were_told_with() -> None:
    old, new = click(country="NO"), click(country="NO", network="133.11.0.0/24")
    assert folded(CLICKS, [old, new]).rows("clicks")["country"].to_list() == ["NO", "JP"]
    assert folded(CLICKS, [old]).rows("clicks")["country"].to_list() == ["NO"]
