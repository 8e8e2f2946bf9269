"""The journal: each death narrows the suspicion, and no kill from outside convicts a record."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.runtime.lane.journal import PIECE_ROWS, Journal, Suspect, pieces
from streams.runtime.lane.span import Seat, Span
from tests.runtime.lane.bed import message, span

pytestmark = pytest.mark.usefixtures("either_reader")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agent.journal"


def records(first: int, stop: int) -> Span:
    return span(Seat("test.clicks", 0), *map(message, range(first, stop)))


def death(file: Path, first: int, stop: int, *, crashed: bool) -> Journal:
    """The journal of the start after a death in these offsets."""
    Journal(file, crashed=crashed).working_on(records(first, stop))
    return Journal(file, crashed=crashed)


def test_no_death_no_suspect(file: Path) -> None:
    journal = Journal(file)
    journal.working_on(records(0, 10))
    journal.finished()
    assert Journal(file).suspects == []


def test_a_record_that_ends_the_process_is_guilty_on_the_third_start(file: Path) -> None:
    (first,) = death(file, 0, 10, crashed=True).suspects
    assert (first.first, first.stop, first.guilty) == (0, 10, False)
    (second,) = death(file, 4, 5, crashed=True).suspects
    assert (second.first, second.stop, second.guilty) == (4, 5, True)


def test_a_single_record_is_guilty_on_the_third_start(file: Path) -> None:
    assert not death(file, 4, 5, crashed=True).suspects[0].guilty
    assert death(file, 4, 5, crashed=True).suspects[0].guilty


def test_kills_from_outside_have_to_hit_the_same_record_alone_twice(file: Path) -> None:
    assert not death(file, 0, 10, crashed=False).suspects[0].guilty
    assert not death(file, 4, 5, crashed=False).suspects[0].guilty
    assert not death(file, 3, 4, crashed=False).suspects[-1].guilty
    assert death(file, 3, 4, crashed=False).suspects[-1].guilty


def test_innocence_clears(file: Path) -> None:
    journal = death(file, 0, 10, crashed=True)
    journal.passed(records(0, 9), low_offset=0)
    assert journal.suspects
    journal.passed(records(9, 12), low_offset=0)
    assert journal.suspects == []
    assert Journal(file).suspects == []


def test_the_guilty_is_remembered_as_long_as_a_replay_can_meet_it(file: Path) -> None:
    death(file, 4, 5, crashed=True)
    journal = death(file, 4, 5, crashed=True)
    journal.passed(records(0, 10), low_offset=4)
    assert Journal(file).suspects == journal.suspects != []
    journal.passed(records(10, 20), low_offset=5)
    assert journal.suspects == []


@pytest.mark.parametrize("torn", [b'{"topic":"t","part', b"\xff\xff", b'{"other": 1}'])
def test_a_torn_file_does_not_keep_the_process_from_starting(file: Path, torn: bytes) -> None:
    Journal(file)
    file.write_bytes(torn)
    file.with_suffix(".suspects.json").write_bytes(torn)
    assert Journal(file).suspects == []


def test_a_large_suspect_is_worked_on_in_pieces() -> None:
    whole = records(0, 3 * PIECE_ROWS)
    suspect = Suspect("test.clicks", 0, 10, 10 + 2 * PIECE_ROWS)
    cut = [(len(piece), owner) for piece, owner in pieces(whole, [suspect])]
    assert cut == [
        (10, None),
        (PIECE_ROWS, suspect),
        (PIECE_ROWS, suspect),
        (PIECE_ROWS - 10, None),
    ]


def test_the_narrowest_suspect_decides() -> None:
    wide, narrow = Suspect("test.clicks", 0, 0, 3), Suspect("test.clicks", 0, 1, 2, deaths=2)
    assert [owner for _, owner in pieces(records(0, 3), [wide, narrow])] == [wide, narrow, wide]
