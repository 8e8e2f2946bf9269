"""What is dropped is deleted in the store, and reported once for each paste."""

from __future__ import annotations

from schemas.pastes.events import DeletePaste, ReportPurged, ReviewObject
from streams.pastes.reactors import Purge
from streams.pastes.rules import ORPHAN_MS_MIN
from streams.runtime.reactor.testing import Harness
from streams.runtime.sink import SinkUnavailable
from tests.pastes.desk import PURGE, Desk, create, upload


class Store:
    """Objects in memory; fails while `down`."""

    def __init__(self, *names: str) -> None:
        self.objects = dict.fromkeys(names, b"x")
        self.down = False

    async def put(self, name: str, content: bytes) -> None:
        self.objects[name] = content

    async def get(self, name: str) -> bytes | None:
        return self.objects.get(name)

    async def delete(self, name: str) -> None:
        if self.down:
            raise SinkUnavailable("down")
        self.objects.pop(name, None)

    async def names(self) -> list[str]:
        return list(self.objects)


async def test_the_last_paste_takes_its_content_with_it_and_no_other_does() -> None:
    desk = Desk()
    first, second = create(seed=1), create(seed=2)
    desk.send(first)
    desk.send(second)
    store = Store(first.object, second.object)
    harness = Harness(PURGE, Purge(store))
    await harness.feed(*desk.changes())
    assert (list(store.objects), harness.outcomes) == ([first.object], [])
    desk.send(DeletePaste(first.paste, "alice"))
    await harness.feed(desk.changes()[-1])
    assert (list(store.objects), harness.outcomes) == ([first.object], [])
    desk.send(DeletePaste(second.paste, "alice"))
    await harness.feed(desk.changes()[-1])
    assert store.objects == {}
    assert harness.outcomes == [ReportPurged(second.paste, first.object)]


async def test_a_store_that_is_away_delays_the_proof_and_loses_none() -> None:
    desk, row = Desk(), create(ttl_ms=1_000)
    desk.send(row)
    desk.advance(1_000)
    store = Store(row.object)
    store.down = True
    harness = Harness(PURGE, Purge(store))
    await harness.feed(*desk.changes())
    await harness.crash()
    assert (len(store.objects), harness.outcomes) == (1, [])
    await harness.advance(6 * 3_600_000)
    assert (harness.outcomes, harness.dead) == ([], [])
    store.down = False
    await harness.advance(1_000_000)
    assert (store.objects, harness.outcomes) == ({}, [ReportPurged(row.paste, row.object)])
    for report in harness.outcomes * 2:
        desk.send(report)
    assert [one.change for one in desk.changes()] == ["created", "expired", "purged"]


async def test_an_orphan_is_deleted_without_a_report() -> None:
    desk, row = Desk(), create()
    orphan = upload(row.id)
    desk.advance(ORPHAN_MS_MIN)
    desk.send(ReviewObject(row.id, orphan))
    store = Store(orphan)
    harness = Harness(PURGE, Purge(store))
    await harness.feed(*desk.events())
    assert (store.objects, harness.outcomes, harness.dead) == ({}, [], [])
