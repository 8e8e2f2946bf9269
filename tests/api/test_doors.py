"""Every route: none but the open ones without a token, and none without the scope that it names."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute

from api.app import ROUTERS
from api.auth import OPEN, PAGE, PASTE, REDIRECT, SIGNED
from api.issuer import DevIssuer
from tests.api.conftest import CLICK, client_of, problem_of


def routes() -> list[APIRoute]:
    """Every route but sockets, whose own tests are tests/chat/test_socket.py."""
    found = [route for router in ROUTERS for route in router.routes]
    sockets = [route.path for route in found if isinstance(route, APIWebSocketRoute)]
    assert sockets == ["/v1/chat/socket"]
    return [route for route in found if isinstance(route, APIRoute)]


async def test_every_route_but_the_open_ones_wants_a_token(app: FastAPI) -> None:
    assert len(routes()) > 10
    async with client_of(app) as client:
        for route in routes():
            path, (method, *_) = route.path, sorted(route.methods)
            answer = await client.request(method, path)
            if path in OPEN or path.startswith(PAGE):
                assert answer.status_code == 200, path
            elif method == "GET" and path.startswith(PASTE):
                problem_of(answer, 503)  # it was let through: there is no read model here
            elif path != REDIRECT and not path.startswith(SIGNED):
                problem_of(answer, 401)
        problem_of(await client.get("/openapi.json"), 401)
        problem_of(await client.get("/nothing/there"), 401)
        problem_of(await client.get("/x"), 401)


async def test_every_route_but_the_open_ones_names_a_scope(app: FastAPI, issuer: DevIssuer) -> None:
    async with client_of(app) as client:
        client.headers["Authorization"] = f"Bearer {issuer.token('me', [], 60)}"
        for route in routes():
            if route.path in {*OPEN, REDIRECT} or route.path.startswith((*SIGNED, PAGE)):
                continue
            (method, *_) = sorted(route.methods)
            answer = await client.request(method, route.path, json=CLICK)
            problem_of(answer, 403)
            assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
