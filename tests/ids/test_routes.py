"""What the id routes take, refuse and show."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.auth import READ, WRITE, Verifier
from api.issuer import DevIssuer
from api.keys import KeyFile
from api.services import Services
from connectors.ids.issuer import Issuer
from schemas.ids.snowflake import PUBLIC_CHARS
from streams.runtime.permutation import Codes
from streams.runtime.settings import Ids
from tests.ids.desk import Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def client(desk: Desk, tmp_path: Any) -> AsyncIterator[httpx.AsyncClient]:
    keys = DevIssuer(tmp_path, "headrace-test", "headrace")
    token = keys.token("t", [READ, WRITE], 600)
    async with Issuer(desk, Ids()) as issuer:
        own = {"ids-issuer": issuer, "ids-codes": Codes("s", PUBLIC_CHARS, "ids")}
        verifier = Verifier(KeyFile(keys.folder / "jwks.json"), "headrace-test", "headrace")
        services = Services(producer=None, verifier=verifier, readers=own)  # type: ignore[arg-type]

        @asynccontextmanager
        async def opener() -> AsyncIterator[Services]:
            yield services

        app = create_app(opener)
        app.state.services = services
        headers = {"Authorization": f"Bearer {token}"}
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://t", headers=headers
        ) as opened:
            yield opened


@pytest.mark.parametrize(
    ("kind", "chars"), [("snowflake", 18), ("public", 11), ("uuidv7", 36), ("ulid", 26)]
)
async def test_every_kind_is_made_and_says_when(
    client: httpx.AsyncClient, kind: str, chars: int
) -> None:
    made = (await client.post("/v1/ids", json={"kind": kind, "count": 50})).json()["ids"]
    assert len(set(made)) == 50
    assert {len(one) for one in made} == {chars}
    told = [(await client.get(f"/v1/ids/{one}")).json() for one in made]
    assert {one["kind"] for one in told} == {kind}
    times = [one["time_ms"] for one in told]
    assert times == sorted(times)


async def test_public_ids_do_not_show_their_order(client: httpx.AsyncClient) -> None:
    made = (await client.post("/v1/ids", json={"kind": "public", "count": 200})).json()["ids"]
    assert made != sorted(made)
    assert len({one[:4] for one in made}) > 190


@pytest.mark.parametrize(
    "body",
    [{"count": 0}, {"count": 10_001}, {"count": 1.5}, {"kind": "uuidv4"}, {"kindd": "ulid"}],
)
async def test_what_cannot_be_made_is_refused(client: httpx.AsyncClient, body: Any) -> None:
    answer = await client.post("/v1/ids", json=body)
    assert answer.status_code == 422, answer.text


@pytest.mark.parametrize(
    "text",
    [
        "x", "-1", "9223372036854775808", "1" * 40, "zzzzzzzzzzz", "é" * 11, "٣" * 18,
        "6ba7b810-9dad-41d1-80b4-00c04fd430c8", "U" * 26, "8" + "Z" * 25,
    ],
)  # fmt: skip
async def test_what_is_no_id_is_refused(client: httpx.AsyncClient, text: str) -> None:
    answer = await client.get(f"/v1/ids/{text}")
    assert answer.status_code == 422, answer.text
    assert "not an id" in answer.json()["detail"]


async def test_no_lease_and_no_log_is_503(client: httpx.AsyncClient, desk: Desk) -> None:
    desk.down = True
    answer = await client.post("/v1/ids", json={})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    desk.down = False
    assert (await client.post("/v1/ids", json={})).status_code == 201
