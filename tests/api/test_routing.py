"""Routes are found by the begin of their path; nothing else about them changes."""

from __future__ import annotations

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute, Route

from api.app import ROUTERS
from api.routing import grouped

things = APIRouter(prefix="/v1/things")
others = APIRouter()


@things.get("/{thing}")
async def read(thing: str) -> str:
    return f"read {thing}"


@things.get("/{thing}/parts/{part}")
async def part(thing: str, part: str) -> str:
    return f"{part} of {thing}"


@others.put("/v1/things/{thing}")
async def write(thing: str) -> str:
    return f"wrote {thing}"


@others.get("/v1/things-of-others/{thing}")
async def other(thing: str) -> str:
    return f"other {thing}"


@others.get("/short")
async def short() -> str:
    return "short"


def application(*, by_begin: bool) -> FastAPI:
    made = FastAPI()
    if by_begin:
        made.router.routes += grouped([things, others])
    else:
        made.include_router(things)
        made.include_router(others)
    return made


REQUESTS = [
    ("GET", "/v1/things/1"),
    ("PUT", "/v1/things/1"),
    ("DELETE", "/v1/things/1"),
    ("GET", "/v1/things/1/parts/2"),
    ("GET", "/v1/things-of-others/3"),
    ("POST", "/v1/things-of-others/3"),
    ("GET", "/v1/things"),
    ("GET", "/v1/things/1/"),
    ("GET", "/v1/thing"),
    ("GET", "/v1/things-of"),
    ("GET", "/short"),
    ("GET", "/shorter"),
    ("HEAD", "/short"),
    ("GET", "/"),
    ("GET", "//v1/things/1"),
    ("GET", "/v1/things/%2F1"),
]


@pytest.mark.parametrize("root", ["", "/behind/a/proxy"])
@pytest.mark.parametrize(("method", "path"), REQUESTS)
async def test_every_request_is_answered_as_by_included_routers(
    method: str, path: str, root: str
) -> None:
    answers = []
    for by_begin in (False, True):
        transport = httpx.ASGITransport(application(by_begin=by_begin), root_path=root)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answer = await client.request(method, f"{root}{path}")
        answers.append((answer.status_code, answer.content, answer.headers.get("allow")))
    assert answers[0] == answers[1]


def test_routes_of_the_api_are_in_one_group_each() -> None:
    groups = grouped(ROUTERS)
    assert len({group.begin for group in groups}) == len(groups)
    listed = [route for router in ROUTERS for route in router.routes]
    assert sorted(id(route) for group in groups for route in group.routes) == sorted(
        map(id, listed)
    )


def test_a_group_needs_a_fixed_begin() -> None:
    loose = APIRouter()
    loose.add_api_route("/v1/{anything}", short)
    with pytest.raises(ValueError, match="must be fixed"):
        grouped([loose])


def test_a_group_takes_only_routes_of_the_api() -> None:
    plain: list[BaseRoute] = [Route("/v1/plain", short)]
    with pytest.raises(TypeError, match="no route of the API"):
        grouped([APIRouter(routes=plain)])
