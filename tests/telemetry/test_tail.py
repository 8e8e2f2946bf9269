"""The log agent: every line at least once, under one id, whatever happens to it and its files."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.producer import Undelivered
from connectors.telemetry.line import Line
from connectors.telemetry.tail import agent, follow
from connectors.telemetry.tail.agent import Reader, Shipper, Source
from connectors.telemetry.tail.spool import Place, Spool, SpoolError, SpoolFull

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Rig:
    """An agent that is stepped by hand, in a folder."""

    folder: Path
    pattern: str = "app.log"
    spool_bytes: int = 1 << 20
    segment_bytes: int = 4_096
    delivered: list[tuple[str, str]] = field(default_factory=list)
    fails: bool = False

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        self.spool = Spool(self.folder / "spool", self.spool_bytes, self.segment_bytes)
        sources = [Source("app", (str(self.folder / self.pattern),), "plain")]
        self.reader = Reader(sources, self.spool)
        self.shipper = Shipper("host", sources, self.spool, self.deliver)

    def crash(self) -> None:
        """Forget everything that is not on disk."""
        self.spool.close()
        self.open()

    async def deliver(self, lines: Sequence[Line]) -> None:
        if self.fails:
            raise Undelivered("no answer")
        self.delivered += [(line.line_id, line.body) for line in lines]

    def write(self, *lines: str, name: str = "app.log") -> None:
        with (self.folder / name).open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def read(self) -> int:
        return self.reader.step(now_ns=1)

    async def ship(self) -> None:
        while await self.shipper.step():
            pass

    async def drain(self) -> None:
        while self.read():
            pass
        await self.ship()

    @property
    def bodies(self) -> list[str]:
        """The distinct lines, by id, in the order of their first delivery."""
        return list(dict(self.delivered).values())


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_lines_are_read_once_and_half_lines_wait(rig: Rig) -> None:
    rig.write("one", "two")
    with (rig.folder / "app.log").open("a") as file:
        file.write("thr")
    await rig.drain()
    assert rig.bodies == ["one", "two"]
    rig.crash()
    rig.write("ee")
    await rig.drain()
    assert rig.bodies == ["one", "two", "three"]
    assert len(rig.delivered) == 3


async def test_a_rotated_file_is_read_to_its_end(rig: Rig) -> None:
    rig.write("a1")
    await rig.drain()
    rig.write("a2")
    (rig.folder / "app.log").rename(rig.folder / "app.log.1")
    rig.write("b1")
    await rig.drain()
    rig.write("a3", name="app.log.1")
    await rig.drain()
    assert rig.bodies == ["a1", "a2", "b1", "a3"]
    assert len(rig.delivered) == 4


async def test_rotations_while_the_agent_was_away_are_caught_up(rig: Rig) -> None:
    rig.write("a1")
    await rig.drain()
    rig.crash()
    rig.write("a2")
    for n in (1, 2):
        older = rig.folder / "app.log.1"
        if older.exists():
            older.rename(rig.folder / "app.log.2")
        (rig.folder / "app.log").rename(older)
        rig.write(f"b{n}")
        at_ns = older.stat().st_mtime_ns + 1_000_000  # files are told apart by their times
        os.utime(rig.folder / "app.log", ns=(at_ns, at_ns))
    (rig.folder / "app.log.3.gz").write_bytes(b"\x1f\x8bpacked\n")
    await rig.drain()
    assert rig.bodies == ["a1", "a2", "b1", "b2"]


async def test_copy_and_truncate(rig: Rig) -> None:
    rig.write("a1")
    await rig.drain()
    rig.write("a2")
    shutil.copy2(rig.folder / "app.log", rig.folder / "app.log.1")
    await rig.drain()
    os.truncate(rig.folder / "app.log", 0)
    rig.write("c")
    await rig.drain()
    assert rig.bodies == ["a1", "a2", "c"]


async def test_what_was_written_just_before_a_truncation_is_in_the_copy(rig: Rig) -> None:
    rig.write("a1")
    await rig.drain()
    rig.write("a2")
    shutil.copy2(rig.folder / "app.log", rig.folder / "app.log.1")
    os.truncate(rig.folder / "app.log", 0)
    await rig.drain()
    rig.write("b1")
    await rig.drain()
    assert rig.bodies == ["a1", "a2", "b1"]


async def test_a_file_that_begins_anew_is_another_one(rig: Rig) -> None:
    rig.write("same", "x")
    await rig.drain()
    os.truncate(rig.folder / "app.log", 0)
    rig.write("same")
    await rig.drain()
    assert [body for _, body in rig.delivered] == ["same", "x", "same"]
    assert len(dict(rig.delivered)) == 3


async def test_long_lines_are_cut_and_odd_bytes_kept(rig: Rig) -> None:
    (rig.folder / "app.log").write_bytes(b"x" * (follow.LINE_BYTES_MAX + 5) + b"\n\xff\x00\n\n")
    await rig.drain()
    assert [len(body) for body in rig.bodies] == [follow.LINE_BYTES_MAX, 5, 2]


async def test_while_nothing_can_be_sent_files_wait(tmp_path: Path) -> None:
    rig = Rig(tmp_path, spool_bytes=10_000)
    rig.fails = True
    lines = [f"{n:06}" + "x" * 100 for n in range(2_000)]
    rig.write(*lines)
    for _ in range(50):
        rig.read()
        with pytest.raises(Undelivered):
            await rig.shipper.step()
    assert rig.spool.full
    assert rig.spool.bytes_held < 10_000 + follow.CHUNK_BYTES * 2
    rig.crash()
    rig.fails = False
    for _ in range(100):
        rig.read()
        await rig.ship()
    assert rig.bodies == lines
    assert len(rig.delivered) == len(lines)


async def test_what_was_sent_but_not_committed_is_sent_again_with_the_same_ids(rig: Rig) -> None:
    rig.write("a", "b")
    rig.read()
    held = list(rig.spool.frames())
    await rig.ship()
    first = list(rig.delivered)
    rig.delivered.clear()
    (rig.folder / "spool" / "done").unlink()
    rig.crash()
    await rig.drain()
    assert rig.delivered == first
    assert len(held) == 2


async def test_cursors_survive_the_segments_they_were_written_in(rig: Rig) -> None:
    rig.write("quiet", name="app.log")
    await rig.drain()
    (rig.folder / "app.log").rename(rig.folder / "app.log.1")
    for n in range(300):
        rig.write(f"{n} " + "y" * 60)
        await rig.drain()
    assert len(list((rig.folder / "spool").glob("*.log"))) <= 2
    rig.crash()
    await rig.drain()
    assert len(rig.delivered) == 301


operations = st.lists(
    st.sampled_from(("append", "roll", "commit", "crash", "tear")), min_size=1, max_size=60
)


@settings(max_examples=60, deadline=None)
@given(operations, st.randoms(use_true_random=False))
def test_a_spool_is_a_queue_across_crashes(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], chance: random.Random
) -> None:
    """Against a list: what was appended comes out, in order, from what was committed on."""
    folder = tmp_path_factory.mktemp("spool")
    spool = Spool(folder, segment_bytes=64)
    model: list[bytes] = []
    done = 0
    for step in steps:
        if step in {"append", "roll"}:
            payload = chance.randbytes(chance.randint(0, 40) + 64 * (step == "roll"))
            spool.append(payload)
            model.append(payload)
        elif step == "commit" and done < len(model):
            frames = list(spool.frames())
            take = chance.randint(1, len(frames))
            spool.commit(frames[take - 1].behind)
            done += take
        else:
            spool.close()
            if step == "tear":
                last = max(folder.glob("*.log"))
                with last.open("ab") as file:
                    file.write(chance.choice((b"\x00", b"\x00\x00\x00\x05abcdefgh", b"\xff" * 9)))
            spool = Spool(folder, segment_bytes=64)
        assert [frame.payload for frame in spool.frames()] == model[done:]
    assert all(int(path.stem) >= spool.done.segment for path in folder.glob("*.log"))
    spool.close()


def test_a_spool_belongs_to_one_process(tmp_path: Path) -> None:
    with Spool(tmp_path, bytes_max=10) as spool:
        with pytest.raises(SpoolError, match="another process"):
            Spool(tmp_path)
        spool.append(b"0123456789")
        with pytest.raises(SpoolFull):
            spool.append(b"x")
        spool.commit(next(spool.frames()).behind)
        assert list(spool.frames()) == []
        assert next(spool.frames(Place(0, 0))).payload == b"0123456789"


def test_an_agent_without_files_does_nothing(rig: Rig) -> None:
    assert rig.read() == 0
    assert agent.recovered(rig.spool) == {}


@pytest.mark.slow
def test_killed_and_rotated_every_line_arrives_under_one_id(tmp_path: Path) -> None:
    """`kill -9` eight times while a writer writes and rotates, nine old files at most."""
    chance = random.Random(3)
    written = 0
    for _ in range(8):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.telemetry.tailing", str(tmp_path)], cwd=ROOT
        )
        until_s = time.monotonic() + chance.uniform(1.5, 3.0)
        while time.monotonic() < until_s:
            with (tmp_path / "app.log").open("a") as file:
                for _ in range(chance.randint(1, 20)):
                    file.write(f"line {written}\n")
                    written += 1
            # What was rotated before the agent first looked is history to it.
            if chance.random() < 0.02 and delivered(tmp_path):
                rotate(tmp_path)
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.telemetry.tailing", str(tmp_path)], cwd=ROOT
    )
    try:
        ids: dict[str, set[str]] = {}
        until_s = time.monotonic() + 60
        while len(ids) < written and time.monotonic() < until_s:
            time.sleep(0.2)
            ids = delivered(tmp_path)
    finally:
        process.kill()
        process.wait()
    assert set(ids) == {f"line {n}" for n in range(written)}
    assert all(len(of_line) == 1 for of_line in ids.values())
    assert written > 2_000


def rotate(folder: Path) -> None:
    """`app.log` → `app.log.1` → … → `app.log.9`."""
    for n in range(8, 0, -1):
        older = folder / f"app.log.{n}"
        if older.exists():
            older.rename(folder / f"app.log.{n + 1}")
    (folder / "app.log").rename(folder / "app.log.1")


def delivered(folder: Path) -> dict[str, set[str]]:
    """Line → ids it was delivered under."""
    ids: dict[str, set[str]] = defaultdict(set)
    file = folder / "delivered"
    for text in file.read_bytes().split(b"\n") if file.exists() else ():
        try:
            line_id, body = json.loads(text)
        except ValueError:
            continue  # the end of a write that was cut off by the kill
        ids[body].add(line_id)
    return ids
