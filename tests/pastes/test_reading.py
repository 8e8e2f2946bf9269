"""Reading without HTTP: what is served, what is burned, and what is not."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from typing import Any

import pytest

from connectors.asking import NoVerdict
from connectors.pastes.highlighting import BYTES_MAX, Highlighter
from connectors.pastes.making import Making, TooLarge, Wanted, new_id
from connectors.pastes.passwords import Passwords
from connectors.pastes.reading import Absent, Gone, NotYet, Read, Reading, WrongPassword
from infra.pastes.reconcile import reconcile
from schemas.pastes.contents import CONTENT_BYTES_MAX, parts_of
from schemas.pastes.events import COMMANDS, ObjectDropped, PasteChanged
from streams.pastes.rules import ORPHAN_MS_MIN
from streams.runtime.decider.testing import START_MS
from streams.runtime.kafka import partition_of
from streams.runtime.sink import SinkUnavailable
from tests.pastes.desk import Desk, create, told, upload
from tests.pastes.test_purge import Store


class Shop:
    """A desk, a store and a table that shows the desk's events, all in memory."""

    def __init__(self) -> None:
        self.desk, self.store, self.late_ms = Desk(), Store(), 0
        self.passwords = Passwords()
        self.reading = Reading(self, self.store, self.desk, self.passwords, lambda: self.now_ms)
        self.making = Making(self.store, self.passwords, 100, lambda: self.now_ms)
        self.behind: list[PasteChanged] | None = None

    @property
    def now_ms(self) -> int:
        return self.desk.partitions[0].now_ms + self.late_ms

    async def paste(self, name: str) -> PasteChanged | None:
        rows = self.desk.changes() if self.behind is None else self.behind
        return {row.id: row for row in rows}.get(name)

    async def content(self, sha256: str) -> str | None:
        rows = [one for one in self.desk.changes() if one.sha256 == sha256]
        return next((one.content for one in rows if one.content), None)

    async def needed(self, names: dict[str, str]) -> set[str]:
        last = {row.sha256: row for row in self.desk.changes()}
        return {row.object for row in last.values() if row.references} & names.keys()

    async def make(self, content: str = "hello", **more: Any) -> str:
        asked: dict[str, Any] = {
            "owner": "alice", "visibility": "unlisted", "language": "text", "ttl_ms": None,
            "burn": False, "password": "",
        }  # fmt: skip
        row = await self.making.command(Wanted(content, **{**asked, **more}))
        return str(told(self.desk.send(row))["id"])

    async def read(self, paste: str, viewer: str = "", password: str = "") -> Read[PasteChanged]:
        return await self.reading.read(paste, viewer, password)


async def test_small_and_lasting_contents_are_in_the_log_and_no_others() -> None:
    shop = Shop()
    pastes = [
        await shop.make("small"),
        await shop.make("small, but brief", ttl_ms=1_000),
        await shop.make("small, but burns", burn=True),
        await shop.make("l" * 101),
    ]
    in_log = [one.content for one in shop.desk.changes() if one.content]
    assert (in_log, len(shop.store.objects)) == (["small"], 3)
    assert [(await shop.read(one)).content[:5] for one in pastes] == [b"small"] * 3 + [b"lllll"]
    with pytest.raises(TooLarge):
        await shop.make("é" * (CONTENT_BYTES_MAX // 2) + "x")


async def test_nothing_expired_is_read_though_nobody_decides_its_end() -> None:
    shop = Shop()
    paste = await shop.make(ttl_ms=5_000)
    shop.late_ms = 4_000
    assert (await shop.read(paste)).left_ms == 1_000
    shop.late_ms = 5_000
    with pytest.raises(Gone, match="expired"):
        await shop.read(paste)
    assert [one.change for one in shop.desk.changes()] == ["created"]


async def test_one_of_fifty_reads_what_burns() -> None:
    shop = Shop()
    paste = await shop.make(burn=True)
    shop.behind = shop.desk.changes()
    answers = await asyncio.gather(*(shop.read(paste) for _ in range(50)), return_exceptions=True)
    assert Counter(type(one) for one in answers) == {Read: 1, Gone: 49}


async def test_a_wrong_password_or_a_store_that_is_away_burns_nothing() -> None:
    shop = Shop()
    paste = await shop.make(burn=True, password="pass")
    for wrong in ("", "Pass", "pass "):
        with pytest.raises(WrongPassword):
            await shop.read(paste, password=wrong)
    kept, shop.store.objects = shop.store.objects, {}
    with pytest.raises(NotYet):
        await shop.read(paste, password="pass")
    shop.store.objects = kept
    shop.desk.down = True
    with pytest.raises(NoVerdict):
        await shop.read(paste, password="pass")
    shop.desk.down = False
    assert (await shop.read(paste, password="pass")).content == b"hello"


async def test_no_password_is_in_the_log() -> None:
    shop = Shop()
    await shop.make(password="correct horse")
    (row,) = shop.desk.changes()
    assert "correct horse" not in repr(row)
    assert hashlib.sha256(b"correct horse").hexdigest() not in row.lock


async def test_a_private_paste_is_its_owners() -> None:
    shop = Shop()
    paste = await shop.make(visibility="private")
    assert (await shop.read(paste, "alice")).content == b"hello"
    for viewer in ("bob", ""):
        with pytest.raises(Absent):
            await shop.read(paste, viewer)
        with pytest.raises(Absent):
            await shop.reading.known(paste, viewer)


def test_ids_are_random_and_lie_where_their_content_does() -> None:
    shas = [hashlib.sha256(bytes([n])).hexdigest() for n in range(50)]
    ids = [new_id(sha) for sha in shas]
    assert len(set(ids)) == 50
    at = [partition_of(one, COMMANDS.partitions) for one in ids]
    assert at == [partition_of(one, COMMANDS.partitions) for one in shas]


async def test_the_reconciler_drops_what_no_paste_needs_and_nothing_else() -> None:
    shop = Shop()
    needed = create()
    orphan, young = upload(needed.id), upload(needed.id, START_MS + ORPHAN_MS_MIN)
    hidden = create("not in the table yet")
    for row in (needed, hidden):
        shop.desk.send(row)
    await shop.store.put("somebody/else's", b"x")
    for name in (needed.object, hidden.object, orphan, young):
        await shop.store.put(name, b"x")
    shop.desk.advance(ORPHAN_MS_MIN)

    class Behind:
        async def needed(self, names: dict[str, str]) -> set[str]:
            return await shop.needed(names) - {hidden.object}

    asked = [len(shop.desk.events())]
    for dry_run in (True, False, False):
        found = await reconcile(shop.store, Behind(), shop.desk, shop.now_ms, dry_run=dry_run)
        asked.append(len(shop.desk.events()))
        assert (found.stored, found.young, found.unknown) == (5, 1, 1)
        assert (found.needed, found.dropped) == ((1, 2) if dry_run else (2, 1))
    assert asked == [2, 2, 3, 4]
    dropped = [one for one in shop.desk.events() if isinstance(one, ObjectDropped)]
    assert {one.object for one in dropped} == {orphan}


async def test_a_text_that_cannot_be_highlighted_is_shown_plain() -> None:
    text = b"<b>&</b>"
    for highlighter, language, content in (
        (Highlighter(timeout_s=0), "python", text),
        (Highlighter(), "gone", text),
        (Highlighter(), "python", text * (BYTES_MAX // len(text) + 1)),
    ):
        page = await highlighter.page(content, language)
        assert "<pre>&lt;b&gt;&amp;&lt;/b&gt;" in page


async def test_a_store_that_does_not_answer_makes_no_paste() -> None:
    class Away(Store):
        async def put(self, name: str, content: bytes) -> None:
            raise SinkUnavailable("down")

    shop = Shop()
    making = Making(Away(), shop.passwords, 0)
    wanted = Wanted("x", "alice", "public", "text", None, burn=False, password="")
    with pytest.raises(SinkUnavailable):
        await making.command(wanted)
    assert parts_of("x") is None
