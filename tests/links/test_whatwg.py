"""The standard's own cases (web-platform-tests, as the crate `url` carries them)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ada_url import URL

from connectors.datasets import DATASETS, Unavailable, fetch
from connectors.links.target import SCHEMES, target
from streams.runtime.settings import home

NO_CREDENTIALS = "a user name or a password"
"""Our one refusal of what the standard takes: `https://bank.example@evil.example/` reads as the
bank."""


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    try:
        (content,) = fetch(DATASETS["whatwg-urls"], home() / "datasets").values()
    except Unavailable as error:
        pytest.skip(str(error))
    return [case for case in json.loads(content) if isinstance(case, dict)]


def test_what_is_no_url_is_refused(cases: list[dict[str, Any]]) -> None:
    failing = [case["input"] for case in cases if case.get("failure")]
    assert len(failing) == 272
    assert [text for text in failing if written(text)] == []


def test_what_is_a_url_is_written_as_the_standard_writes_it(cases: list[dict[str, Any]]) -> None:
    """All of http and https that stand for themselves; of other schemes none."""
    alone = [case for case in cases if case["base"] is None and "href" in case]
    web = [case for case in alone if case["protocol"] in SCHEMES]
    taken = {case["input"]: case["href"] for case in web if not credentials(case)}
    assert len(taken) > 90
    assert {text: written(text) for text in taken} == taken
    others = [case["input"] for case in alone if case not in web or credentials(case)]
    assert len(others) > 180
    assert [text for text in others if written(text)] == []
    for case in (one for one in web if credentials(one)):
        with pytest.raises(ValueError, match=NO_CREDENTIALS):
            target(case["input"])


def test_what_is_written_is_written_the_same_again(cases: list[dict[str, Any]]) -> None:
    """Also what cases with a base come to, which is an absolute URL."""
    found = {case["href"] for case in cases if case.get("protocol") in SCHEMES}
    found = {href for href in found if not URL(href).username and not URL(href).password}
    assert len(found) > 140
    assert {href for href in found if written(href) != href} == set()


def credentials(case: dict[str, Any]) -> bool:
    return bool(case["username"] or case["password"])


def written(text: str) -> str | None:
    try:
        return target(text)
    except ValueError:
        return None
