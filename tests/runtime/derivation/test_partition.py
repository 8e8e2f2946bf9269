"""The partitions of many keys are those of each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.runtime import kafka
from streams.runtime.derivation.partition import murmur2, partitions_of


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_many_at_once_are_as_one_by_one(keys: list[bytes]) -> None:
    assert murmur2(keys).tolist() == [kafka.murmur2(key) for key in keys]


@given(st.lists(st.text(max_size=20), min_size=1, max_size=20), st.integers(1, 50))
def test_partitions(keys: list[str], partitions: int) -> None:
    found = partitions_of([key.encode() for key in keys], partitions)
    assert found.tolist() == [kafka.partition_of(key, partitions) for key in keys]
