"""The registry being away is never the record's fault; only its own "no" is."""

import json
import threading
from collections.abc import Callable

import httpx
import pytest

from streams.runtime.avro import (
    Decoder,
    RegistrySource,
    RegistryUnavailable,
    UnknownSchema,
)
from tests.runtime.avro.wire import CLICK, CLICK_DTYPES, clicks, record_type, topic

FOUND = httpx.Response(200, json={"schema": json.dumps(CLICK)})
MISSING = httpx.Response(404, json={"error_code": 40403, "message": "Schema not found"})


class Registry:
    """Answers in turn; the last answer repeats."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.paths: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.paths.append(request.url.path)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, content=answer.content)


def source(registry: Registry, clock: Callable[[], float] = lambda: 0.0) -> RegistrySource:
    client = httpx.Client(transport=httpx.MockTransport(registry))
    return RegistrySource("http://registry/apis/ccompat/v7/", client=client, clock=clock)


def test_a_schema_is_asked_for_once() -> None:
    registry = Registry(FOUND)
    schemas = source(registry)
    first = schemas.writer_schema(7)
    assert schemas.writer_schema(7) is first
    assert first.fullname == "test.Click" and first.schema_id == 7
    assert registry.paths == ["/apis/ccompat/v7/schemas/ids/7"]


@pytest.mark.parametrize(
    "answer",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("cut"),
        httpx.Response(500),
        httpx.Response(503, text="busy"),
        httpx.Response(429),
        httpx.Response(401),
        httpx.Response(302, headers={"location": "/login"}),
        httpx.Response(404, text="<html>no such page</html>"),
        httpx.Response(404, json={"error_code": 404, "message": "HTTP 404 Not Found"}),
        httpx.Response(404, json=["error_code"]),
        httpx.Response(200, text="<html>sign in</html>"),
        httpx.Response(200, json={}),
        httpx.Response(200, json=[]),
        httpx.Response(200, json={"schema": "{half"}),
        httpx.Response(200, json={"schema": None}),
    ],
    ids=repr,
)
def test_no_trustworthy_answer_is_no_poison_and_is_not_remembered(
    answer: httpx.Response | Exception,
) -> None:
    schemas = source(Registry(answer, FOUND))
    decoder = Decoder(topic(record_type(CLICK, CLICK_DTYPES)), schemas)
    values = clicks(10)
    with pytest.raises(RegistryUnavailable):
        decoder.decode(values)
    decoded = decoder.decode(values)
    assert decoded.frames["test.Click"].height == 10 and not decoded.dead


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (MISSING, "schema id 7 is not in the registry"),
        (httpx.Response(200, json={"schemaType": "JSON", "schema": "{}"}), "is JSON, not Avro"),
        (httpx.Response(200, json={"schema": '"string"'}), "is a string, not a record"),
        (httpx.Response(200, json={"schema": '{"type":"record"}'}), "is not Avro"),
        (httpx.Response(200, json={"schema": '{"type":"recrod","name":"R"}'}), "is not Avro"),
        (httpx.Response(200, json={"schema": "[" * 500 + "]" * 500}), "is not Avro|a union"),
    ],
    ids=["missing", "JSON schema", "no record", "no name", "no type", "deep"],
)
def test_the_registrys_own_no_is_poison(answer: httpx.Response, reason: str) -> None:
    with pytest.raises(UnknownSchema, match=reason):
        source(Registry(answer)).writer_schema(7)


def test_unknown_is_believed_briefly() -> None:
    now = [100.0]
    registry = Registry(MISSING, FOUND)
    schemas = source(registry, lambda: now[0])
    for _ in range(3):
        with pytest.raises(UnknownSchema):
            schemas.writer_schema(7)
    assert len(registry.paths) == 1
    now[0] += 10
    assert schemas.writer_schema(7).fullname == "test.Click"


def test_a_flood_of_unknown_ids_does_not_fill_the_memory() -> None:
    schemas = source(Registry(MISSING))
    for schema_id in range(10_050):
        with pytest.raises(UnknownSchema):
            schemas.writer_schema(schema_id)
    assert schemas.remembered <= 10_000


def test_many_threads_one_schema_object() -> None:
    schemas = source(Registry(FOUND))
    decoder = Decoder(topic(record_type(CLICK, CLICK_DTYPES)), schemas)
    values = clicks(500)
    values[77] = values[77][:-1]
    seen: list[tuple[int, list[int]]] = []

    def work() -> None:
        for _ in range(10):
            decoded = decoder.decode(values)
            seen.append((decoded.frames["test.Click"].height, [d.row for d in decoded.dead]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [(499, [77])] * 40
