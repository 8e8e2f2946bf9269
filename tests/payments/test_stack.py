"""Payments through the whole product: API, decider, provider, webhooks, clearing, Cassandra."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import httpx
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from api.routes.payments.webhooks import keys
from connectors.payments.simulator.book import FIXED, SHARE_BP, Behaviour, Operations
from connectors.payments.simulator.server import Simulator
from connectors.webhooks import key_of
from schemas.apply import apply
from streams import catalog
from streams.runtime.settings import Settings
from tests import stack
from tests.payments.test_provider import SECRET

pytestmark = [pytest.mark.stack, pytest.mark.asyncio(loop_scope="module")]

AGENTS = [one.name for one in catalog.agents(catalog.load("payments"))]
PATIENCE_S = 120.0
BEHAVIOUR = Behaviour(lost_before=0, lost_after=0, file_wrong=5, file_missing=5, file_alien=5)
"""Lost requests cost a minute each until they are asked for; other tests lose them."""


class Shop:
    """The API, as somebody with all scopes; reads see all own writes."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.after: dict[str, int] = {}

    async def post(self, path: str, body: Any = None, key: str = "") -> httpx.Response:
        headers = {"Idempotency-Key": key or uuid.uuid4().hex, "Prefer": "wait=30"}
        answer = await self.client.post(path, json=body, headers=headers)
        if answer.status_code < 300 and "Headrace-Position" in answer.headers:
            for place, offset in stack.offsets(answer.headers["Headrace-Position"]).items():
                self.after[place] = max(offset, self.after.get(place, -1))
        return answer

    async def get(self, path: str, **params: Any) -> httpx.Response:
        """The answer once the read model has passed what was written."""
        after = ", ".join(f"{place}/{offset}" for place, offset in self.after.items())
        headers = {"Headrace-After": after, "Prefer": "wait=10"}
        return await until(
            lambda: self.client.get(path, params=params, headers=headers),
            lambda answer: answer.status_code not in {503, 504},
        )

    async def book(self) -> str:
        """A new book: alice and bob have 1,000.00 EUR of world's money, sales has none."""
        name = f"b{uuid.uuid4().hex[:10]}"
        for account in ("world", "alice", "bob", "sales"):
            world = account == "world"
            body = {"account": account, "currency": "EUR", "side": "debit" if world else "credit"}
            body |= {"overdraft": None} if world else {}
            made = await self.post(f"/v1/books/{name}/accounts", body)
            assert made.status_code == 201, made.text
        for account in ("alice", "bob"):
            assert (await self.transfer(name, "world", account, 100_000)).status_code == 201
        return name

    async def transfer(
        self, book: str, debit: str, credit: str, amount: int, key: str = "", **more: Any
    ) -> httpx.Response:
        leg = {"debit_account": debit, "credit_account": credit, "currency": "EUR"}
        body = {"legs": [{**leg, "amount": amount}], **more}
        return await self.post(f"/v1/books/{book}/transfers", body, key)

    async def balances(self, book: str) -> dict[str, int]:
        answer = await self.get(f"/v1/books/{book}/accounts")
        return {one["account"]: one["balance"] for one in answer.json()}


class Scene(NamedTuple):
    shop: Shop
    operations: Operations
    provider: httpx.AsyncClient


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    apply(Settings.read())
    folder = tmp_path_factory.mktemp("worker")
    operations = Operations(uuid.uuid4().int, BEHAVIOUR)
    hearing = Hearing()
    async with (
        TestServer(hearing.app()) as ears,
        TestServer(Simulator(operations, "k", str(ears.make_url("/")), SECRET).app()) as server,
    ):
        url = str(server.make_url("")).rstrip("/")
        settings = f'[psp]\nurl = "{url}"\nkey = "k"\nwebhook_secrets = ["{SECRET}"]\n'
        (folder / "payments.toml").write_text(settings)
        headers = {"Authorization": "Bearer k"}
        with stack.worker(folder, *AGENTS):
            async with (
                stack.api(tmp_path_factory.mktemp("api")) as api,
                httpx.AsyncClient(base_url=url, headers=headers) as provider,
            ):
                app = api.client._transport.app  # type: ignore[attr-defined]
                app.dependency_overrides[keys] = lambda: (key_of(SECRET),)
                hearing.client = api.client
                yield Scene(Shop(api.client), operations, provider)


class Hearing:
    """An address that hands webhooks to the API in this process."""

    client: httpx.AsyncClient

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes([web.post("/", self._hand)])
        return app

    async def _hand(self, request: web.Request) -> web.Response:
        passed = {n: v for n, v in request.headers.items() if n.lower().startswith("webhook-")}
        body = await request.read()
        answer = await self.client.post("/v1/payment-webhooks", content=body, headers=passed)
        return web.Response(status=answer.status_code)


async def until(ask: Callable[[], Awaitable[Any]], good: Callable[[Any], bool]) -> Any:
    """The first good answer."""
    until_s = time.monotonic() + PATIENCE_S
    while not good(answer := await ask()):
        assert time.monotonic() < until_s, getattr(answer, "text", answer)
        await asyncio.sleep(0.1)
    return answer


async def test_fifty_at_once_with_one_key_are_one_transfer(scene: Scene) -> None:
    shop = scene.shop
    book, key = await shop.book(), uuid.uuid4().hex  # of no earlier run on the same topics
    answers = await asyncio.gather(
        *(shop.transfer(book, "alice", "bob", 700, key=key) for _ in range(50))
    )
    assert {(a.status_code, a.content) for a in answers} == {(201, answers[0].content)}
    assert Counter("Idempotent-Replay" in a.headers for a in answers) == {True: 49, False: 1}
    assert (await shop.transfer(book, "alice", "bob", 701, key=key)).status_code == 422
    assert await shop.balances(book) == {
        "alice": 99_300,
        "bob": 100_700,
        "sales": 0,
        "world": -200_000,
    }


async def test_an_account_is_emptied_and_never_more(scene: Scene) -> None:
    shop = scene.shop
    book = await shop.book()
    answers = await asyncio.gather(
        *(shop.transfer(book, "alice", "sales", 7_000) for _ in range(60))
    )
    assert Counter(a.status_code for a in answers) == {201: 14, 409: 46}
    assert (await shop.balances(book))["alice"] == 2_000


async def test_an_amount_arrives_in_another_book(scene: Scene) -> None:
    shop = scene.shop
    here, there = await shop.book(), await shop.book()
    body = {"account": "alice", "to_account": "sales", "currency": "EUR", "amount": 600}
    sent = await shop.post(f"/v1/books/{here}/remittances", {**body, "to_book": there})
    lost = await shop.post(
        f"/v1/books/{here}/remittances", {**body, "to_book": there, "to_account": "nobody"}
    )
    path = f"/v1/books/{here}/transfers/"
    for answer, state in ((sent, "posted"), (lost, "voided")):
        name = answer.json()["transfer_id"]
        await until(lambda n=name: shop.get(path + n), lambda a, s=state: a.json()["state"] == s)  # type: ignore[misc]
    mine = await shop.balances(here)
    theirs = await until(lambda: shop.balances(there), lambda found: found["sales"] == 600)
    assert mine["alice"] == 99_400
    assert mine[f"$clearing:{there}:EUR"] == -theirs[f"$clearing:{here}:EUR"] == 600


async def test_payments_agree_with_the_provider_and_its_file(scene: Scene) -> None:
    shop, operations = scene.shop, scene.operations
    book = await shop.book()
    since_ms = time.time_ns() // 1_000_000

    async def pay(n: int) -> str:
        body = {"orderId": f"o{n}", "amount": 1_000 + n, "currency": "EUR", "method": "tok_visa"}
        made = await shop.post("/v1/payments", {**body, "book": book})
        assert made.status_code == 201, made.text
        return str(made.json()["payment_id"])

    names = await asyncio.gather(*(pay(n) for n in range(60)))
    path = "/v1/payments/"
    for name in names:
        found = await until(
            lambda n=name: shop.get(path + n),  # type: ignore[misc]
            lambda a: a.json()["state"] in ("captured", "failed"),
        )
        if found.json()["state"] == "captured" and len(operations.known) % 2:
            refund = await shop.post(f"{path}{name}/refunds", {"amount": 100})
            assert refund.status_code == 200, refund.text
            await until(
                lambda n=name: shop.get(path + n),  # type: ignore[misc]
                lambda a: a.json()["refunded"] == 100,
            )
    done: Counter[str] = Counter()
    for asked, told, _ in operations.known.values():
        if asked.payment.startswith(f"{book}.") and told.status == "succeeded":
            done[asked.kind] += told.amount
    balances = await shop.balances(book)
    assert balances["sales"] == done["capture"] - done["refund"] == -balances["$psp:EUR"]
    assert done["capture"] > 40_000
    await settle(scene, book, since_ms)


async def settle(scene: Scene, book: str, since_ms: int) -> None:
    """The provider's file is taken, twice, and the report names just its mistakes."""
    shop = scene.shop
    span = {"from": str(since_ms // 1_000 * 1_000), "to": str(time.time_ns() // 10**9 * 1_000)}
    await asyncio.sleep(1)
    file = await scene.provider.get(f"/settlements/{book}", params=span)
    mine = [line for line in file.text.splitlines() if line.startswith(f"L,{book}.")]
    lines = [file.text.splitlines()[0], *mine, f"T,{len(mine)}", ""]
    for new in (1, 0):
        taken = await shop.client.post(
            f"/v1/books/{book}/settlements",
            content="\n".join(lines),
            headers={"Content-Type": "text/csv"},
        )
        assert (taken.status_code, taken.json()["new"]) == (200, new)
    report = await until(
        lambda: shop.client.get(
            f"/v1/books/{book}/settlements/{book}/report",
            params={"share_bp": SHARE_BP, "fixed": FIXED},
        ),
        lambda answer: answer.status_code == 200,
    )
    counts = report.json()["counts"]
    known = scene.operations.known
    wrong = {
        line.split(",")[1]
        for line in mine
        if line.split(",")[1] in known
        and round(float(line.split(",")[4]) * 100) != known[line.split(",")[1]][1].amount
    }
    alien = {line.split(",")[1] for line in mine} - set(known)
    differs = {f["operation_id"] for f in report.json()["findings"] if f["status"] == "differs"}
    missing = {
        f["operation_id"] for f in report.json()["findings"] if f["status"] == "missing_here"
    }
    assert wrong <= differs
    assert missing == alien
    assert counts["matched"] + counts["differs"] + counts["missing_here"] == len(mine)
    sums = (await shop.get(f"/v1/books/{book}/sums")).json()
    assert [one["balance"] for one in sums] == [0]


async def test_a_statement_ends_at_the_balance(scene: Scene) -> None:
    shop = scene.shop
    book = await shop.book()
    for n in range(12):
        await shop.transfer(book, "alice", "bob", 10 + n)
    now_ms = time.time_ns() // 1_000_000
    span = {"from": now_ms - 3_600_000, "to": now_ms + 3_600_000}
    path, cursor, amounts = f"/v1/books/{book}/accounts/bob/statement", None, []
    while True:
        more = {} if cursor is None else {"cursor": cursor}
        page = (await shop.get(path, **span, limit=5, **more)).json()
        amounts += [entry["amount"] for entry in page["entries"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert amounts == [100_000, *range(10, 22)]
    assert page["closing"] == (await shop.balances(book))["bob"]
