"""Routes are found by the begin of their path; nothing else about them changes."""

from __future__ import annotations

from typing import Annotated

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI
from starlette.routing import BaseRoute, Route

from api.routing import include

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


async def given() -> str:
    return "given"


@others.get("/v1/given")
async def show(what: Annotated[str, Depends(given)]) -> str:
    return what


@others.get("/short")
async def short() -> str:
    return "short"


def application(*, by_begin: bool) -> FastAPI:
    made = FastAPI()
    if by_begin:
        include(made, [things, others])
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
    ("GET", "/v1/given"),
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


async def test_dependencies_can_be_replaced_as_ever() -> None:
    answers = []
    for value in ("one", "other"):
        app = application(by_begin=True)
        app.dependency_overrides[given] = lambda value=value: value
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answers.append((await client.get("/v1/given")).json())
    assert answers == ["one", "other"]


async def test_a_router_of_any_word_is_asked_last() -> None:
    fixed, loose = APIRouter(), APIRouter()
    fixed.add_api_route("/v1/{thing}", lambda thing: f"thing {thing}")
    loose.add_api_route("/{anything}", lambda anything: f"any {anything}")
    app = FastAPI()
    include(app, [fixed, loose])
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answers = [(await client.get(path)).json() for path in ("/v1/a", "/a")]
        unknown = await client.get("/v2/a")
    assert answers == ["thing a", "any a"]
    assert unknown.status_code == 404


def test_a_router_takes_only_routes_of_the_api() -> None:
    plain: list[BaseRoute] = [Route("/v1/plain", short)]
    with pytest.raises(TypeError, match="is no route of an API"):
        include(FastAPI(), [APIRouter(routes=plain)])
