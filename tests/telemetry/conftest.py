"""The API in-process with a producer that keeps rows, for the ways in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import requests
from fastapi import FastAPI
from requests.adapters import BaseAdapter

from api.app import create_app
from api.auth import READ, WRITE, Verifier
from api.issuer import DevIssuer
from api.keys import KeyFile
from api.services import Services
from connectors.telemetry.intake import Intake
from connectors.telemetry.rules import Rule
from connectors.telemetry.series import Admission
from streams.runtime.settings import ApiLimits
from tests.api.conftest import AUDIENCE, ISSUER, MemoryProducer

SERIES_MAX = 100


@pytest.fixture(scope="session")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> DevIssuer:
    issuer = DevIssuer(tmp_path_factory.mktemp("keys"), ISSUER, AUDIENCE)
    issuer.key()
    return issuer


@pytest.fixture
def producer() -> MemoryProducer:
    return MemoryProducer()


@pytest.fixture
def readers() -> dict[str, Any]:
    """More readers of a test, by name."""
    return {}


@pytest.fixture
def app(producer: MemoryProducer, issuer: DevIssuer, readers: dict[str, Any]) -> FastAPI:
    drop = Rule(name="debug", levels=("DEBUG",), keep_one_of=0)
    services = Services(
        producer=producer,
        verifier=Verifier(KeyFile(issuer.folder / "jwks.json"), ISSUER, AUDIENCE),
        readers={"telemetry-intake": Intake([drop], Admission(SERIES_MAX)), **readers},
    )

    @asynccontextmanager
    async def opener() -> AsyncIterator[Services]:
        yield services

    app = create_app(opener, ApiLimits())
    app.state.services = services
    return app


@pytest.fixture
def token(issuer: DevIssuer) -> str:
    return issuer.token("tester", [READ, WRITE], 600)


class Asgi(BaseAdapter):
    """`requests` over the application: the exporters of OpenTelemetry send with it."""

    def __init__(self, app: FastAPI, token: str) -> None:
        super().__init__()
        self._app, self._token = app, token

    def send(self, request: Any, *_: Any, **__: Any) -> requests.Response:
        answer = asyncio.run(self._answer(request))
        response = requests.Response()
        response.status_code = answer.status_code
        response.headers.update(answer.headers)
        response._content = answer.content
        response.request, response.url = request, request.url
        return response

    async def _answer(self, request: Any) -> httpx.Response:
        headers = {**request.headers, "Authorization": f"Bearer {self._token}"}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self._app)) as client:
            return await client.request(
                request.method, request.url, content=request.body, headers=headers
            )

    def close(self) -> None:
        pass


@pytest.fixture
def session(app: FastAPI, token: str) -> requests.Session:
    session = requests.Session()
    session.mount("http://", Asgi(app, token))
    return session
