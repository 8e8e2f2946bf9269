"""The OpenAPI document is whole, and the application keeps to it."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import given, settings
from schemathesis.checks import not_a_server_error, positive_data_acceptance

from api.app import document
from api.auth import OPEN, REDIRECT, SIGNED
from api.services import Services
from schemas import catalog
from tests.api.conftest import FakeReads

LABELS = [
    f"{method.upper()} {path}"
    for path, methods in document()["paths"].items()
    for method in methods
]


@schemathesis.serializer("application/x-protobuf")
def any_bytes(context: Any, value: Any) -> bytes:
    """Not protobuf, as a rule: what is sent is whatever the strategy has."""
    return value if isinstance(value, bytes) else str(value).encode()


def operations(app: FastAPI) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, methods in app.openapi()["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_operation_is_described(app: FastAPI) -> None:
    found = operations(app)
    assert len(found) >= 15
    assert len({operation["operationId"] for _, _, operation in found}) == len(found)
    for path, _method, operation in found:
        assert operation["summary"]
        assert operation["tags"]
        if path not in {*OPEN, REDIRECT} and not path.startswith(SIGNED):
            assert operation["security"], path
            assert {"401", "403", "422", "429", "503"} <= operation["responses"].keys()


def test_every_event_has_examples_and_every_field_a_description(app: FastAPI) -> None:
    document = app.openapi()
    for system in ("ads", "leaderboard"):
        body = document["paths"][f"/v1/{system}/events"]["post"]["requestBody"]
        assert body["content"]["application/json"]["examples"]
    for name in ("AdClicked", "AdImpressed", "ScoreSubmitted", "PlayerBanned", "PlayerReinstated"):
        fields = document["components"]["schemas"][name]["properties"]
        assert all(field.get("description") for field in fields.values()), name


def test_an_error_is_a_problem_document_in_every_description(app: FastAPI) -> None:
    for path, _method, operation in operations(app):
        for status, response in operation["responses"].items():
            if path not in OPEN and int(status) >= 400:
                content = response["content"]["application/problem+json"]
                assert content["schema"]["$ref"] == "#/components/schemas/ProblemDocument"


@pytest.mark.parametrize("label", LABELS)
def test_the_application_keeps_to_its_document(
    app: FastAPI, services: Services, reads: FakeReads, token: str, label: str
) -> None:
    for topic in catalog.topics().values():  # folded so far that no read has to wait
        reads.positions |= {(topic.name, p): 2**62 for p in range(topic.partitions)}
    method, path = label.split(" ")
    headers = {"Authorization": f"Bearer {token}"}
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=headers)
    (system,) = app.openapi()["paths"][path][method.lower()]["tags"]
    unchecked = [positive_data_acceptance]
    if system in set(catalog.SYSTEMS) - services.readers.keys():
        unchecked.append(not_a_server_error)  # what reads is 503, which is described
    headers["Prefer"] = "respond-async"  # nobody decides here, so nobody is to wait for it

    @given(case=schema[path][method].as_strategy())
    @settings(max_examples=20, deadline=None, derandomize=True, database=None)
    def keeps(case: schemathesis.Case) -> None:
        # Not checked: that all that fits the schemas is accepted. JSON Schema cannot say "points
        # or delta" of two nullable fields, nor that a date-time lies between 1970 and 2100.
        case.call_and_validate(headers=headers, excluded_checks=unchecked)

    keeps()
