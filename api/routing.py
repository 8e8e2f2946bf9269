"""Finding a request's router by the begin of its path.

FastAPI asks every route of every included router in turn, three times over: a fifth of what a
request cost. Here a router is asked only for paths that one of its routes could match.
"""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send


class Guarded(BaseRoute):
    """What FastAPI made of an included router, asked only for paths that begin with `begins`."""

    def __init__(self, begins: tuple[str, ...], inner: BaseRoute) -> None:
        self.begins = begins
        self.inner = inner

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As the router's, which matches no other paths."""
        path: str = scope["path"]
        if not path.removeprefix(scope.get("root_path", "")).startswith(self.begins):
            return Match.NONE, {}
        return self.inner.matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As the router's."""
        await self.inner.handle(scope, receive, send)


def include(app: FastAPI, routers: Iterable[APIRouter]) -> None:
    """Include the routers; `TypeError` for one with other routes than FastAPI's own. One whose
    paths begin with a parameter is asked for every path, so it should come last.
    """
    routes = app.router.routes
    for router in routers:
        begins, known = _begins(router), len(routes)
        app.include_router(router)
        routes[known:] = [Guarded(begins, made) for made in routes[known:]]


def described(app: FastAPI) -> list[BaseRoute]:
    """The application's routes as FastAPI knows them, for its OpenAPI document."""
    return [one.inner if isinstance(one, Guarded) else one for one in app.routes]


def _begins(router: APIRouter) -> tuple[str, ...]:
    """What comes before the first parameter of the router's paths."""
    found = set()
    for route in router.routes:
        if not isinstance(route, APIRoute | APIWebSocketRoute):
            raise TypeError(f"{route} is no route of an API")
        found.add(route.path.partition("{")[0])
    return tuple(sorted(found))
