"""Snapshots: built beside, swapped at once, and the stale one where a build fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from sinks.drivers.s3.errors import Changed
from sinks.typeahead.index import BadSnapshot, build
from sinks.typeahead.snapshots import Pointer, Refused, Snapshots
from tests.typeahead.searches import Bucket, terms


def publish(snapshots: Snapshots, count: int, *, force: bool = False, first: str = "t") -> Pointer:
    scores = {f"{first}{n}": n + 1 for n in range(count)}
    return snapshots.publish(
        build(terms(scores)),
        terms=count,
        as_of_ms=0,
        positions={"typeahead.queries/0": count},
        over=snapshots.live(),
        force=force,
    )


def test_a_snapshot_answers_once_its_pointer_is_moved(tmp_path: Path) -> None:
    snapshots = Snapshots(Bucket())
    assert snapshots.live() is None
    made = publish(snapshots, 10)
    found = snapshots.live()
    assert found is not None
    assert found[0] == made
    index = snapshots.open(made, tmp_path)
    assert [index.term(row) for row in index.best("t", 2)] == ["t9", "t8"]


def test_a_build_that_dies_before_the_swap_changes_nothing(tmp_path: Path) -> None:
    bucket = Bucket()
    snapshots = Snapshots(bucket)
    made = publish(snapshots, 10)
    bucket.put("typeahead-snapshots/half.arrow", b"half of it")
    found = snapshots.live()
    assert found is not None
    assert found[0] == made
    assert len(snapshots.open(made, tmp_path)) == 10
    publish(snapshots, 11)
    assert "typeahead-snapshots/half.arrow" not in bucket.objects


@pytest.mark.parametrize("count", [0, 4])
def test_a_snapshot_that_lost_most_of_its_terms_is_refused(count: int) -> None:
    snapshots = Snapshots(Bucket())
    made = publish(snapshots, 10)
    with pytest.raises(Refused):
        publish(snapshots, count)
    found = snapshots.live()
    assert found is not None
    assert found[0] == made
    if count:
        assert publish(snapshots, count, force=True).terms == count


def test_of_two_builds_at_once_one_is_refused() -> None:
    snapshots = Snapshots(Bucket())
    publish(snapshots, 10)
    seen = snapshots.live()
    second = publish(snapshots, 11)
    with pytest.raises(Changed):
        snapshots.publish(build(terms({})), terms=12, as_of_ms=0, positions={}, over=seen)
    found = snapshots.live()
    assert found is not None
    assert found[0] == second


def test_the_one_before_stays_for_who_is_at_it_and_older_ones_go(tmp_path: Path) -> None:
    bucket = Bucket()
    snapshots = Snapshots(bucket)
    first, second, third = (publish(snapshots, count) for count in (10, 11, 12))
    stored = {key.removeprefix("typeahead-snapshots/") for key in bucket.objects}
    assert stored == {"live.json", f"{second.id}.arrow", f"{third.id}.arrow"}
    assert len(snapshots.open(second, tmp_path)) == 11
    assert first.id not in {second.id, third.id}


def test_processes_of_a_machine_share_one_file(tmp_path: Path) -> None:
    bucket = Bucket()
    snapshots = Snapshots(bucket)
    made = publish(snapshots, 10)
    one = snapshots.open(made, tmp_path)
    two = snapshots.open(made, tmp_path)
    assert bucket.gets == 1
    newer = publish(snapshots, 20)
    snapshots.open(newer, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [f"{newer.digest}.arrow"]
    assert len(one) == len(two) == 10
    assert one.best("t9", 1) == two.best("t9", 1) != []


def test_an_object_that_is_not_what_was_written_is_refused(tmp_path: Path) -> None:
    bucket = Bucket()
    snapshots = Snapshots(bucket)
    made = publish(snapshots, 10)
    bucket.put(f"typeahead-snapshots/{made.id}.arrow", build(terms({"other": 1})))
    with pytest.raises(BadSnapshot):
        snapshots.open(made, tmp_path)
    assert list(tmp_path.iterdir()) == []
