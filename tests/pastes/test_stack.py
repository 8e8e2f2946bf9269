"""Pastes through the whole product: made, read, burned, expired, purged, rebuilt."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from connectors.pastes.highlighting import languages
from schemas.pastes.contents import CONTENT_BYTES_MAX
from tests import stack
from tests.pastes.desk import AGENTS
from tests.pastes.shop import Shop

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with stack.worker(tmp_path_factory.mktemp("worker"), *AGENTS):
        yield


@pytest.fixture
async def shop(worker: None, tmp_path: Path) -> AsyncIterator[Shop]:
    async with stack.api(tmp_path) as opened:
        yield Shop(opened)


async def test_made_and_read_small_and_large(shop: Shop) -> None:
    small, large = "x = 1\n", f"# {uuid.uuid4()}\n" + "y = 'ü'\n" * 10_000
    for content in (small, large):
        paste = await shop.made(content, language="python")
        answer = await shop.read(paste)
        assert (answer.status_code, answer.json()["content"]) == (200, content)
        assert (await shop.read(paste, "/raw")).content == content.encode()
        assert answer.headers["Cache-Control"] == "public, max-age=60"


async def test_an_idempotency_key_stands_for_one_request(shop: Shop) -> None:
    key, content = uuid.uuid4().hex, f"once {uuid.uuid4()}"
    first, again = await shop.make(content, key), await shop.make(content, key)
    other = await shop.make(content + "!", key)
    assert (first.status_code, again.json()) == (201, first.json())
    assert again.headers["Idempotent-Replay"] == "true"
    assert other.status_code == 422
    at_once = await asyncio.gather(*(shop.make(content, f"{key}-2") for _ in range(5)))
    assert len({one.json()["id"] for one in at_once}) == 1


async def test_of_fifty_at_once_exactly_one_reads_what_burns(shop: Shop) -> None:
    content = f"secret {uuid.uuid4()}"
    paste = await shop.made(content, burnAfterRead=True, password="open sesame")
    for password in ("", "wrong"):
        refused = await shop.read(paste, **{"Paste-Password": password} if password else {})
        assert refused.status_code == 403
        assert content not in refused.text
    right = {"Paste-Password": "open sesame"}
    assert (await shop.client.head(f"/v1/pastes/{paste}", headers=right)).status_code == 405
    answers = await asyncio.gather(*(shop.read(paste, "/raw", **right) for _ in range(50)))
    assert Counter(one.status_code for one in answers) == {200: 1, 410: 49}
    (shown,) = (one for one in answers if one.status_code == 200)
    assert (shown.text, shown.headers["Cache-Control"]) == (content, "no-store")
    tombstone = await shop.tombstone(paste, "purged")
    assert (tombstone["ended"], tombstone["content"]) == ("burned", "purged")


async def test_who_may_read_what(shop: Shop, tmp_path: Path) -> None:
    public, unlisted, private = [
        await shop.made(f"{kind} {uuid.uuid4()}", visibility=kind)
        for kind in ("public", "unlisted", "private")
    ]
    await shop.read(private)
    anonymous = {"Authorization": ""}
    del shop.client.headers["Authorization"]
    assert [(await shop.read(one)).status_code for one in (public, unlisted, private)] == [
        200,
        200,
        404,
    ]
    assert (await shop.read(private, "/tombstone")).status_code == 404
    assert (await shop.read(public, **anonymous)).status_code == 401
    assert (await shop.client.get("/v1/pastes/mine")).status_code == 401
    assert (await shop.delete(public)).status_code == 401


async def test_lists_show_what_can_be_found(shop: Shop) -> None:
    kinds = ["public"] * 3 + ["unlisted", "private"]
    made = [await shop.made(f"{n} {uuid.uuid4()}", visibility=v) for n, v in enumerate(kinds)]
    await shop.delete(made[0])

    async def listed(path: str) -> list[str]:
        found: list[str] = []
        cursor = ""
        while True:
            answer = await shop.get(f"{path}?limit=2{cursor}")
            page = answer.json()
            found += [one["id"] for one in page["pastes"]]
            if page["next"] is None or len(found) > 1_000:
                return found
            cursor = f"&cursor={page['next']}"

    everybody, own = [await listed(path) for path in ("/v1/pastes", "/v1/pastes/mine")]
    assert [one for one in everybody if one in made] == [made[2], made[1]]
    assert [one for one in own if one in made] == made[:0:-1]
    assert len(set(own)) == len(own)


async def test_one_object_for_one_content_until_the_last_paste_ends(shop: Shop) -> None:
    content = f"shared {uuid.uuid4()} " * 1_000
    first, second = [await shop.made(content) for _ in range(2)]
    assert (await shop.delete(first)).status_code == 200
    assert (await shop.read(first)).status_code == 410
    assert (await shop.read(second, "/raw")).text == content
    assert (await shop.delete(second)).status_code == 200
    tombstone = await shop.tombstone(second, "purged")
    assert (tombstone["ended"], tombstone["content"]) == ("deleted", "purged")
    assert tombstone["position"].startswith("pastes.events/")


async def test_ten_megabytes_and_not_one_byte_more(shop: Shop) -> None:
    most = "é" * (CONTENT_BYTES_MAX // 2)
    paste = await shop.made(most)
    assert len((await shop.read(paste, "/raw")).content) == CONTENT_BYTES_MAX
    over = await shop.make(most + "x")
    assert (over.status_code, over.json()["type"]) == (
        413,
        "urn:headrace:problem:content-too-large",
    )


async def test_highlighted_and_nothing_in_it_is_html(shop: Shop) -> None:
    text = "def f():\n    return '<script>alert(1)</script>'\n"
    for language in ("python", "text"):
        paste = await shop.made(f"# {uuid.uuid4()}\n{text}", language=language)
        page = await shop.read(paste, "/html")
        assert "<script>" not in page.text
        assert ('<span class="k">def</span>' in page.text) == (language == "python")
        assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert (await shop.make(text, language="no-such-language")).status_code == 422
    assert len(languages()) > 500
