"""Finding a request's route: by the begin of its path first, then among the few that share it.

FastAPI asks every route of every included router in turn, three times over: a quarter of what a
request costs. Our routers are included under no prefix and with no settings of their own, so their
routes are complete as they are; each group of them is tried only for the paths it could match.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send


class Group(BaseRoute):
    """Routes whose paths all begin with `begin`; of those, the first that matches answers."""

    def __init__(self, begin: str, routes: Sequence[APIRoute]) -> None:
        self.begin = begin
        self.routes = routes

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As each of the routes would, in their order: full before partial (a 405)."""
        if scope["type"] != "http":
            return Match.NONE, {}
        path: str = scope["path"]
        if not path.removeprefix(scope.get("root_path", "")).startswith(self.begin):
            return Match.NONE, {}
        partial: tuple[Match, Scope] = (Match.NONE, {})
        for route in self.routes:
            found = route.matches(scope)
            if found[0] is Match.FULL:
                return found
            if found[0] is Match.PARTIAL and partial[0] is Match.NONE:
                partial = found
        return partial

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to the route that matched; the router has put it into the scope."""
        await scope["route"].handle(scope, receive, send)


def grouped(routers: Iterable[APIRouter]) -> list[Group]:
    """The routes of all routers, grouped by their paths' first two steps, both in their order.

    Raises `ValueError` for a route whose first two steps are not fixed: nothing could be said about
    it from a path's begin; and `TypeError` for one that is no `APIRoute`.
    """
    groups: dict[str, list[APIRoute]] = {}
    for route in (route for router in routers for route in router.routes):
        if not isinstance(route, APIRoute):
            raise TypeError(f"{route} is no route of the API")
        begin = "/".join(route.path.split("/")[:3])
        if "{" in begin:
            raise ValueError(f"{route.path}: its first two steps must be fixed")
        groups.setdefault(begin, []).append(route)
    return [Group(begin, routes) for begin, routes in groups.items()]
