"""The routes over the real rules: a decider in the process answers, the fold is read back."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest
from fastapi import FastAPI

from api.app import create_app
from api.auth import LEDGER, PAY, READ, Verifier
from api.issuer import DevIssuer
from api.keys import KeyFile
from api.routes.payments import webhooks as route
from api.services import Services
from connectors import webhooks
from connectors.payments.psp import Told
from connectors.producer import RecordMetadata
from connectors.replies import Waiters
from schemas.payments.events import COMMANDS, EVENTS
from sinks.payments.books import BookReader
from sinks.payments.payments import PaymentReader
from streams.payments import SYSTEM
from streams.runtime.decider import wire
from streams.runtime.decider.replies import Answer
from streams.runtime.decider.testing import DeciderHarness
from streams.runtime.kafka import partition_of
from streams.runtime.testing import Harness
from tests.payments.store import PROJECTION, sink
from tests.rows import MemoryRows

KEY = webhooks.key_of("whsec_ZGV2ZWxvcG1lbnQ=")
PARTITION = partition_of("main", EVENTS.partitions)


class Heard(Waiters):
    """Verdicts of the decider in this process."""

    address = "harness"

    async def kept(self, correlation_id: str) -> Answer | None:
        return None


class Backend:
    """Producer, decider, projection and readers of one partition, without a broker."""

    def __init__(self) -> None:
        self.decider = DeciderHarness(SYSTEM.deciders[0])
        self.replies = Heard()
        self._sink = sink()
        self._books = Harness(PROJECTION, self._sink, partition=PARTITION)
        self._folded = 0
        self.rows = MemoryRows(self._sink)

    async def send(
        self, topic: str, record_name: str, row: Any, headers: Any = ()
    ) -> RecordMetadata:
        assert topic == COMMANDS.name
        assert type(row).__name__ == record_name.rpartition(".")[2]
        envelope = msgspec.structs.replace(wire.envelope_of(headers, "?"), reply_to="harness")
        _, value = self.decider._command_codec.encode(row)
        answer = self.decider.send_raw(value, key=row.book, envelope=envelope)
        self.fold()
        self.replies.heard(msgspec.structs.replace(answer, partition=PARTITION))
        return RecordMetadata(topic, PARTITION, len(self.decider.commands))

    async def send_many(self, *_: Any) -> list[RecordMetadata]:
        raise AssertionError("commands go one by one")

    def fold(self) -> None:
        """Bring the read model up to the log."""
        rows = self.decider.events
        for row in rows[self._folded :]:
            self._books.send(row)
        self._folded = len(rows)
        self._books.run()


@pytest.fixture
def backend() -> Backend:
    return Backend()


@pytest.fixture(scope="session")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> DevIssuer:
    issuer = DevIssuer(tmp_path_factory.mktemp("keys"), "headrace-test", "headrace")
    issuer.key()
    return issuer


@pytest.fixture
def app(backend: Backend, issuer: DevIssuer) -> FastAPI:
    services = Services(
        producer=backend,
        verifier=Verifier(KeyFile(issuer.folder / "jwks.json"), "headrace-test", "headrace"),
        replies=backend.replies,
        readers={
            "payments": PaymentReader(backend.rows),
            "payments-books": BookReader(backend.rows),
        },
    )

    @asynccontextmanager
    async def opener() -> AsyncIterator[Services]:
        yield services

    app = create_app(opener)
    app.state.services = services  # the in-process client runs no lifespan
    app.dependency_overrides[route.keys] = lambda: (KEY,)
    return app


@pytest.fixture
async def client(app: FastAPI, issuer: DevIssuer) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 40_000))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        token = issuer.token("tester", [READ, LEDGER, PAY], 600)
        client.headers["Authorization"] = f"Bearer {token}"
        yield client


async def opened(client: httpx.AsyncClient) -> None:
    """Accounts world, alice and sales; alice has 100.00 EUR."""
    for account, side, overdraft in (("world", "debit", None), ("alice", "credit", 0)):
        body = {"account": account, "currency": "EUR", "side": side, "overdraft": overdraft}
        made = await client.post("/v1/books/main/accounts", json=body)
        assert made.status_code == 201, made.text
    await client.post("/v1/books/main/accounts", json={"account": "sales", "currency": "EUR"})
    assert (await transfer(client, "world", "alice", 10_000)).status_code == 201


async def transfer(
    client: httpx.AsyncClient, debit: str, credit: str, amount: Any, key: str = "", **more: Any
) -> httpx.Response:
    leg = {"debit_account": debit, "credit_account": credit, "currency": "EUR", "amount": amount}
    headers = {"Idempotency-Key": key} if key else {}
    body = {"legs": [leg], **more}
    return await client.post("/v1/books/main/transfers", json=body, headers=headers)


async def pay(client: httpx.AsyncClient, key: str | None = None, **fields: Any) -> httpx.Response:
    body = {"orderId": "o-1", "amount": 4_200, "currency": "EUR", "method": "tok_visa", **fields}
    headers = {"Idempotency-Key": key or uuid.uuid4().hex}
    return await client.post("/v1/payments", json=body, headers=headers)


async def hear(
    client: httpx.AsyncClient, told: Told | bytes, id_: str = "", **headers: str
) -> httpx.Response:
    """The provider's webhook."""
    body = told if isinstance(told, bytes) else msgspec.json.encode(told)
    stamp, id_ = int(time.time()), id_ or uuid.uuid4().hex
    signed = {
        "webhook-id": id_,
        "webhook-timestamp": str(stamp),
        "webhook-signature": webhooks.sign(KEY, id_, stamp, body),
        **headers,
    }
    client.headers.pop("Authorization", None)
    return await client.post("/v1/payment-webhooks", content=body, headers=signed)


async def test_a_transfer_and_its_repeat(client: httpx.AsyncClient) -> None:
    await opened(client)
    first = await transfer(client, "alice", "sales", 700, "k")
    again = await transfer(client, "alice", "sales", 700, "k")
    other = await transfer(client, "alice", "sales", 701, "k")
    assert (first.status_code, again.status_code, other.status_code) == (201, 201, 422)
    assert first.content == again.content
    assert again.headers["Idempotent-Replay"] == "true"
    assert "Idempotent-Replay" not in first.headers
    position = {"Headrace-After": first.headers["Headrace-Position"]}
    found = await client.get("/v1/books/main/accounts/alice", headers=position)
    assert found.json()["balance"] == 9_300
    assert "payments.events/" in found.headers["Headrace-Applied"]
    told = await client.get(f"/v1/books/main/transfers/{first.json()['transfer_id']}")
    assert (told.json()["state"], told.json()["legs"][0]["amount"]) == ("posted", 700)


async def test_a_key_belongs_to_one_book(client: httpx.AsyncClient) -> None:
    """Also where one decider has both books: which books share a partition is no business of the
    sender."""
    headers = {"Idempotency-Key": "k"}
    body = {"account": "alice", "currency": "EUR"}
    made = [
        await client.post(f"/v1/books/{book}/accounts", json=body, headers=headers)
        for book in ("one", "other", "one")
    ]
    assert [answer.status_code for answer in made] == [201, 201, 201]
    assert ["Idempotent-Replay" in answer.headers for answer in made] == [False, False, True]


async def test_refusals_are_problems(client: httpx.AsyncClient) -> None:
    await opened(client)
    refused = await transfer(client, "alice", "sales", 10_001)
    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:headrace:problem:insufficient-funds"
    assert refused.headers["content-type"] == "application/problem+json"
    missing = await transfer(client, "alice", "nobody", 1)
    assert missing.status_code == 404


@pytest.mark.parametrize("amount", [0, -1, 1.0, 1.005, "1", "1.00", True, None, 10**16, 2**63])
async def test_amounts_are_whole_minor_units(client: httpx.AsyncClient, amount: Any) -> None:
    await opened(client)
    assert (await transfer(client, "alice", "sales", amount)).status_code == 422
    assert (await pay(client, amount=amount)).status_code == 422


async def test_amounts_keep_their_digits(client: httpx.AsyncClient) -> None:
    """Beyond what a double holds."""
    await opened(client)
    amount = 999_999_999_999_999
    for _ in range(60):
        await transfer(client, "world", "alice", amount)
    found = await client.get("/v1/books/main/accounts/alice")
    assert found.json()["balance"] == 60 * amount + 10_000


async def test_holds_are_posted_and_voided(client: httpx.AsyncClient) -> None:
    await opened(client)
    held = (await transfer(client, "alice", "sales", 500, hold=True)).json()
    path = f"/v1/books/main/transfers/{held['transfer_id']}"
    posted = await client.post(f"{path}/post", json={"amount": 200})
    assert (posted.status_code, posted.json()["state"]) == (201, "posted")
    again = await client.post(f"{path}/void")
    assert (again.status_code, again.json()["type"]) == (409, "urn:headrace:problem:not-pending")


async def test_a_payment_by_card(client: httpx.AsyncClient, backend: Backend) -> None:
    await opened(client)
    made = await pay(client, "k1")
    assert (made.status_code, made.json()["state"]) == (201, "pending")
    assert (await pay(client, "k1")).headers["Idempotent-Replay"] == "true"
    name = made.json()["payment_id"]
    auth = Told(f"{name}.auth", name, "succeeded", 4_200, "EUR", "op_1")
    captured = Told(f"{name}.capture", name, "succeeded", 4_200, "EUR", "op_2")
    token = client.headers["Authorization"]
    for told, id_ in ((auth, "m1"), (auth, "m1"), (captured, "m2"), (auth, "m3"), (auth, "m1")):
        assert (await hear(client, told, id_)).status_code == 204
    client.headers["Authorization"] = token
    found = (await client.get(f"/v1/payments/{name}")).json()
    assert (found["state"], found["captured"]) == ("captured", 4_200)
    assert [o["status"] for o in found["operations"]] == ["succeeded", "succeeded"]
    refund = await client.post(
        f"/v1/payments/{name}/refunds", json={"amount": 200}, headers={"Idempotency-Key": "r"}
    )
    assert (refund.status_code, refund.json()["operations"][0]["status"]) == (200, "requested")
    sums = (await client.get("/v1/books/main/sums")).json()
    assert [one["balance"] for one in sums] == [0]


async def test_a_payment_from_a_wallet(client: httpx.AsyncClient) -> None:
    await opened(client)
    paid = await pay(client, method="wallet:alice")
    assert (paid.status_code, paid.json()["state"]) == (201, "captured")
    short = await pay(client, method="wallet:alice", amount=9_000)
    assert short.json()["type"] == "urn:headrace:problem:insufficient-funds"


async def test_card_numbers_never_reach_the_log(
    client: httpx.AsyncClient, backend: Backend
) -> None:
    await opened(client)
    before = len(backend.decider.commands)
    for method in ("4242424242424242", "4242 4242 4242 4242", "card:5555-5555-5555-4444"):
        assert (await pay(client, method=method)).status_code == 422
    assert len(backend.decider.commands) == before


async def test_what_costs_money_needs_a_key(client: httpx.AsyncClient) -> None:
    body = {"orderId": "o", "amount": 1, "currency": "EUR", "method": "tok"}
    assert (await client.post("/v1/payments", json=body)).status_code == 400


async def test_scopes(client: httpx.AsyncClient, issuer: DevIssuer) -> None:
    client.headers["Authorization"] = f"Bearer {issuer.token('reader', [READ], 600)}"
    assert (await transfer(client, "a", "b", 1)).status_code == 403
    assert (await pay(client)).status_code == 403
    client.headers["Authorization"] = "Bearer x"
    assert (await client.get("/v1/books/main/accounts")).status_code == 401


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b'{"a": 1.0}', {}, 422),
        (b"\xff", {}, 422),
        (b"{}", {"webhook-signature": "sha256=\xe9"}, 401),
        (b"{}", {"webhook-timestamp": "4102444800"}, 401),
        (b"{}", {"webhook-timestamp": "1"}, 401),
        (b"{}", {"webhook-signature": ""}, 401),
    ],
)
async def test_webhooks_that_prove_nothing(
    client: httpx.AsyncClient, backend: Backend, body: bytes, headers: dict[str, str], status: int
) -> None:
    encoded: Any = {name: value.encode("latin-1") for name, value in headers.items()}
    assert (await hear(client, body, **encoded)).status_code == status
    assert backend.decider.commands == []


async def test_a_statement_and_a_balance_as_of_then(client: httpx.AsyncClient) -> None:
    await opened(client)
    for n in range(5):
        await transfer(client, "alice", "sales", 10 + n)
    path = "/v1/books/main/accounts/sales"
    span = {"from": "2023-11-14T00:00:00Z", "to": "2023-11-16T00:00:00Z"}
    page = (await client.get(f"{path}/statement", params={**span, "limit": "3"})).json()
    assert [entry["amount"] for entry in page["entries"]] == [10, 11, 12]
    assert page["closing"] is None
    await transfer(client, "alice", "sales", 99)
    rest = {**span, "limit": "3", "cursor": page["next"]}
    page = (await client.get(f"{path}/statement", params=rest)).json()
    assert ([e["amount"] for e in page["entries"]], page["closing"]) == ([13, 14], 60)
    known = {"known_at": str(page["known_at"])}
    assert (await client.get(path, params=known)).json()["balance"] == 60
    assert (await client.get(path)).json()["balance"] == 159
    early = await client.get(path, params={"as_of": "2023-01-01T00:00:00Z"})
    assert early.json()["balance"] == 0
    for cursor in ("", "x", "é", "WzFd", "bm9wZQ=="):
        wrong = await client.get(f"{path}/statement", params={**span, "cursor": cursor})
        assert wrong.status_code == 422


async def test_a_settlement_file_and_its_report(client: httpx.AsyncClient) -> None:
    await opened(client)
    lines = [f"L,main.p.{n},capture,EUR,42.00,0.84,op_{n}" for n in range(1_100)]
    head = "H,f1,2023-11-14T00:00:00Z,2023-11-15T00:00:00Z"
    file = "\n".join([head, *lines, f"T,{len(lines)}\n"])
    path = "/v1/books/main/settlements"
    taken = await client.post(path, content=file, headers={"Content-Type": "text/csv"})
    assert taken.json() == {"file_id": "f1", "lines": 1_100, "parts": 3, "new": 3}
    again = await client.post(path, content=file, headers={"Content-Type": "text/csv"})
    assert again.json()["new"] == 0
    cut = await client.post(path, content=file[:-20], headers={"Content-Type": "text/csv"})
    assert cut.status_code == 422
    report = (await client.get(f"{path}/f1/report", params={"share_bp": "140"})).json()
    assert report["counts"]["missing_here"] == 1_100
    assert (await client.get(path)).json()[0]["lines"] == 1_100
    assert (await client.get(f"{path}/none/report")).status_code == 404
    sums = (await client.get("/v1/books/main/sums")).json()
    assert [one["balance"] for one in sums] == [0]
    assert json.dumps(report)
