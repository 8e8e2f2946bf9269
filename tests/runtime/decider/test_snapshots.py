"""Snapshots come back as they were written, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.runtime.decider import snapshot
from streams.runtime.decider.archive import KEPT, Archive, Logs
from streams.runtime.decider.folded import CLOCK, KEYS, Known
from streams.runtime.decider.ports import Last
from streams.runtime.decider.snapshot import FORMAT, BadSnapshot, Heading, Identity, read, write
from streams.runtime.decider.snapshot_store import (
    LocalStore,
    MemoryStore,
    NoSnapshot,
    S3Store,
    SnapshotStore,
    StoreUnavailable,
)
from streams.runtime.decider.state import Image, PartitionState
from streams.runtime.decider.testing import DeciderHarness, LogRecord
from streams.runtime.position import FilterState
from streams.runtime.settings import S3, Settings
from tests.runtime.decider.bank import Account, Bank, Deposit, Hold, bank

KEYS_OF_TABLES = (
    st.text(max_size=5)
    | st.integers(-(2**40), 2**40)
    | st.tuples(st.text(max_size=3), st.integers(0, 9))
)
IMAGES = st.builds(
    lambda accounts, known, timers: Image(
        {"accounts": accounts, "holds": {}, KEYS: known, CLOCK: {"": 7}}, timers
    ),
    st.dictionaries(KEYS_OF_TABLES, st.builds(Account, st.integers(0, 9)), max_size=40),
    st.dictionaries(st.text(max_size=5), st.just(Known("f", 1, 2, 201, b"{}")), max_size=5),
    st.dictionaries(st.text(max_size=5), st.integers(0, 9), max_size=5),
)
HEADING = Heading(
    *(FORMAT, "bank", 0, 1, 10, FilterState(1, "0" * 32, 2, 3), Identity(9, 5), "c", "e")
)


@settings(max_examples=60, deadline=None)
@given(IMAGES, st.integers(1, 50), st.integers(1, 64))
def test_it_comes_back_however_it_is_cut(image: Image, rows: int, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot, "CHUNK_ROWS", rows)
        raw = b"".join(write(HEADING, image))
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    back = read(pieces, Bank.tables)
    assert (back.heading, back.image) == (HEADING, image)
    assert back.image.digest() == image.digest()


@settings(max_examples=80, deadline=None)
@given(IMAGES, st.data())
def test_a_damaged_one_is_no_state(image: Image, data: st.DataObject) -> None:
    raw = bytearray(b"".join(write(HEADING, image)))
    at = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        raw[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del raw[at:]
    with pytest.raises(BadSnapshot):
        read([bytes(raw)], Bank.tables)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_undo_restores_what_was(data: st.DataObject) -> None:
    """Decisions in flight are undone in a copy for a snapshot, and in place."""
    state = PartitionState(Image({"t": {}}, {}))
    steps, images = [], [state.image()]
    keys, times = st.sampled_from("abc"), st.integers(0, 5)
    for _ in range(data.draw(st.integers(1, 12))):
        steps.append(state.begin())
        for _ in range(data.draw(st.integers(0, 3))):
            key = data.draw(keys)
            match data.draw(st.sampled_from(["set", "del", "schedule", "cancel"])):
                case "set":
                    state["t"][key] = data.draw(times)
                case "del" if key in state["t"]:
                    del state["t"][key]
                case "schedule":
                    state.schedule(key, data.draw(times))
                case _:
                    state.cancel(key)
        images.append(state.image())
    ahead = data.draw(st.integers(0, len(steps)))
    newest_first = steps[::-1][:ahead]
    assert state.image(newest_first) == images[len(steps) - ahead]
    state.due(3)  # forgets heap entries that are outdated now and may not be after undoing
    state.roll_back(newest_first)
    expected = images[len(steps) - ahead]
    assert state.image() == expected
    assert state.next_due_ms == min(expected.timers.values(), default=None)


# -- stores -----------------------------------------------------------------------------------


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.stack)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SnapshotStore]:
    if request.param == "local":
        yield LocalStore(tmp_path)
    elif request.param == "memory":
        yield MemoryStore()
    else:
        made = S3Store(Settings.read().s3, f"headrace-test-{uuid4().hex[:8]}")
        yield made
        for name in made.list(""):
            made.delete(name)
        made._client.remove_bucket(made._bucket)


def test_a_store_keeps_objects_by_name(store: SnapshotStore) -> None:
    assert store.list("a/") == []
    with pytest.raises(NoSnapshot):
        list(store.get("a/1"))
    assert store.put("a/1", iter([b"one", b"two"])) == 6
    store.put("a/2", iter([b"x" * 3_000_000]))
    store.put("b/1", iter([b"other"]))
    store.put("a/1", iter([b"again"]))
    assert b"".join(store.get("a/1")) == b"again"
    assert len(b"".join(store.get("a/2"))) == 3_000_000
    assert store.list("a/") == ["a/1", "a/2"]
    store.delete("a/1")
    store.delete("a/1")
    assert store.list("a/") == ["a/2"]


def test_a_put_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise OSError("disk full")

    store = LocalStore(tmp_path)
    with pytest.raises(StoreUnavailable):
        store.put("a/1", broken())
    assert list(tmp_path.rglob("*.*")) == []
    assert store.list("") == []


def test_a_store_that_is_away_is_told_from_an_empty_one() -> None:
    store = S3Store(S3(url="http://127.0.0.1:9"), "nowhere")
    store._client._http.connection_pool_kw["retries"] = False
    with pytest.raises(StoreUnavailable):
        store.list("a/")


# -- which one is used ------------------------------------------------------------------------

LOGS = Logs("commands", "events", 0, 1_000)


class Kept:
    """A harness's log, and an archive with a snapshot of it."""

    def __init__(self) -> None:
        self.harness = harness = DeciderHarness(bank())
        self.store = MemoryStore()
        self.archive = Archive(harness.decider, self.store)
        harness.send(Deposit("a", 5), idempotency_key="k")
        harness.send(Hold("a", 5, "h"))
        self.keep()

    def keep(self) -> None:
        at = len(self.harness.log) - 1
        owner = self.harness.owner
        last = self.record(at)
        assert last is not None
        self.archive.keep(0, owner.folded.image(), owner.folded.filter, last, LOGS)

    def record(self, offset: int) -> Last | None:
        if offset >= len(self.harness.log):
            return None
        found: LogRecord = self.harness.log[offset]
        return Last(offset, found.value, found.headers)

    def begins(self, logs: Logs = LOGS) -> int:
        return self.archive.newest(0, logs, self.record).next_offset


def test_the_newest_usable_one_is_used() -> None:
    kept = Kept()
    first = len(kept.harness.log)
    assert kept.begins() == first
    kept.harness.send(Deposit("a", 5))
    kept.keep()
    assert kept.begins() == first + 1
    folded = kept.archive.newest(0, LOGS, kept.record)
    assert folded.image().digest() == kept.harness.digest()
    assert folded.known("k", kept.harness.now_ms) is not None
    kept.harness.log.pop()  # the tail was lost, and with it the newest snapshot's last record
    assert kept.begins() == first


@pytest.mark.parametrize(
    "logs",
    [
        Logs("other", "events", 0, 1_000),
        Logs("commands", "other", 0, 1_000),
        Logs("commands", "events", 500, 1_000),
        Logs("commands", "events", 0, 2),
    ],
)
def test_one_that_does_not_belong_to_the_log_is_not_used(logs: Logs) -> None:
    assert Kept().begins(logs) == 0


def test_another_record_in_its_place_is_found_out() -> None:
    kept = Kept()
    last = kept.harness.log[-1]
    headers = [(name, value + b"x") for name, value in last.headers]
    kept.harness.log[-1] = LogRecord(last.key, last.value, headers, last.time_ms)
    assert kept.begins() == 0


def test_another_version_of_the_rules_does_not_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    monkeypatch.setattr(Bank, "version", 2)
    assert kept.begins() == 0


def test_a_torn_one_is_passed_over() -> None:
    kept = Kept()
    [name] = kept.store.objects
    kept.store.objects[name] = kept.store.objects[name][:-5]
    assert kept.begins() == 0


def test_only_the_newest_are_kept() -> None:
    kept = Kept()
    for _ in range(KEPT + 2):
        kept.harness.send(Deposit("a", 1))
        kept.keep()
    names = list(kept.store.objects)
    assert len(names) == KEPT
    assert kept.begins() == len(kept.harness.log)
