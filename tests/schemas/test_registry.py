"""The registry client: what is an outage, what is a no, and that registering is idempotent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

import pytest

from schemas.catalog import topic
from schemas.check import check_registry
from schemas.registry import (
    COMPATIBILITY,
    RegistryClient,
    RegistryError,
    RegistryRefused,
    RegistryUnavailable,
    Subject,
    schema_ids,
    subjects,
)
from streams.runtime.settings import Registry, Settings
from streams.runtime.topic import RecordType, Topic


class Answers(ThreadingHTTPServer):
    """A registry that gives one answer to everything."""

    daemon_threads = True
    status = 200
    body = b"{}"


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        assert isinstance(self.server, Answers)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - the library's names

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def answers() -> Iterator[Answers]:
    with Answers(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _registry(server: Answers) -> Registry:
    return Registry(url=f"http://127.0.0.1:{server.server_address[1]}/apis/ccompat/v7/")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b'{"error_code": 50001, "message": "store"}'),
        (503, b"<html>starting</html>"),
        (429, b"{}"),
        (200, b"<html>log in</html>"),
    ],
)
def test_an_outage_is_not_a_no(answers: Answers, status: int, body: bytes) -> None:
    answers.status, answers.body = status, body
    with RegistryClient(_registry(answers)) as client, pytest.raises(RegistryUnavailable):
        client.id_of("s", "{}")


def test_nobody_there_is_an_outage(answers: Answers) -> None:
    registry = _registry(answers)
    answers.shutdown()
    answers.server_close()
    with pytest.raises(RegistryUnavailable, match=r"127\.0\.0\.1"):
        schema_ids(topic("ads.events"), registry)


@pytest.mark.parametrize("status", [403, 503, None])
def test_messages_hide_the_password(answers: Answers, status: int | None) -> None:
    url = _registry(answers).url.replace("http://", "http://me:secret@")
    if status is None:
        answers.shutdown()
        answers.server_close()
    else:
        answers.status = status
    with RegistryClient(Registry(url=url)) as client, pytest.raises(RegistryError) as caught:
        client.id_of("s", "{}")
    assert "secret" not in str(caught.value)
    assert "/subjects/s" in str(caught.value)


@pytest.mark.parametrize("status", [401, 403, 409, 422])
def test_a_no_is_not_an_outage(answers: Answers, status: int) -> None:
    answers.status, answers.body = status, json.dumps({"message": "because"}).encode()
    with (
        RegistryClient(_registry(answers)) as client,
        pytest.raises(RegistryRefused, match="because") as caught,
    ):
        client.register(Subject("s", "x.R", ("{}",)))
    assert caught.value.status == status


def test_a_schema_that_is_not_registered_is_a_no(answers: Answers) -> None:
    answers.status, answers.body = 404, b'{"error_code": 40401, "message": "no subject"}'
    with pytest.raises(RegistryRefused, match="headrace topics apply"):
        schema_ids(topic("ads.events"), _registry(answers))


def test_subjects_are_named_by_topic_and_record() -> None:
    names = [subject.name for subject in subjects(topic("ads.events"))]
    assert names == [
        "ads.events-headrace.ads.AdImpressed",
        "ads.events-headrace.ads.AdClicked",
    ]
    assert all(subject.versions[-1] for subject in subjects(topic("ads.events")))


# Against the real registry, under names of our own.


def _avsc(*fields: dict[str, Any]) -> str:
    every = [{"name": "id", "type": "string"}, *fields]
    return json.dumps(
        {"type": "record", "name": "Tried", "namespace": "headrace.trial", "fields": every}
    )


V1 = _avsc()
V2 = _avsc({"name": "note", "type": ["null", "string"], "default": None})
BROKEN = _avsc({"name": "price", "type": "int"})


@pytest.fixture
def client() -> Iterator[RegistryClient]:
    with RegistryClient(Settings.read().registry) as made:
        yield made


@pytest.fixture
def trial(client: RegistryClient) -> Iterator[Topic]:
    """A topic of its own name, whose subject is removed afterwards."""
    made = _topic(f"trial{uuid4().hex[:8]}.events", V1)
    yield made
    client.delete(made.subject(made.records[0]))


def _topic(name: str, avsc: str) -> Topic:
    record = RecordType("headrace.trial.Tried", avsc, {}, dict)
    return Topic(name, (record,), "id", None, 1, "trial", "A trial.")


@pytest.mark.stack
def test_registering_is_idempotent(client: RegistryClient, trial: Topic) -> None:
    [subject] = subjects(trial)
    assert not client.complete(subject)
    first = client.register(subject)
    assert client.complete(subject)
    assert client.register(subject) == first
    assert client.compatibility(subject.name) == COMPATIBILITY
    assert [version for version, _ in client.stored(subject.name)] == [1]
    assert schema_ids(trial, Settings.read().registry) == {"headrace.trial.Tried": first}


@pytest.mark.stack
def test_all_versions_are_registered_in_order(client: RegistryClient, trial: Topic) -> None:
    name = trial.subject(trial.records[0])
    newest = client.register(Subject(name, "headrace.trial.Tried", (V1, V2)))
    assert [schema for _, schema in client.stored(name)] == [json.loads(V1), json.loads(V2)]
    assert client.id_of(name, V2) == newest
    assert client.id_of(name, V1) not in (None, newest)


@pytest.mark.stack
def test_the_registry_refuses_a_break(client: RegistryClient, trial: Topic) -> None:
    name = trial.subject(trial.records[0])
    client.register(Subject(name, "headrace.trial.Tried", (V1, V2)))
    with pytest.raises(RegistryRefused) as caught:
        client.register(Subject(name, "headrace.trial.Tried", (BROKEN,)))
    assert caught.value.status == 409
    assert [version for version, _ in client.stored(name)] == [1, 2]


@pytest.mark.stack
def test_our_check_names_what_the_registry_holds(client: RegistryClient, trial: Topic) -> None:
    client.register(subjects(trial)[0])
    assert list(check_registry([trial], client)) == []
    [finding] = check_registry([_topic(trial.name, BROKEN)], client)
    assert finding.against == "registry version 1 → declared"
    assert "Tried.price: added without a default" in finding.what


@pytest.mark.stack
def test_compatibility_is_restored(client: RegistryClient, trial: Topic) -> None:
    [subject] = subjects(trial)
    client.register(subject)
    client._call("PUT", f"config/{subject.name}", {"compatibility": "NONE"})
    assert not client.complete(subject)
    client.register(subject)
    assert client.compatibility(subject.name) == COMPATIBILITY


@pytest.mark.stack
def test_an_unknown_subject_holds_nothing(client: RegistryClient, trial: Topic) -> None:
    name = trial.subject(trial.records[0])
    assert list(client.stored(name)) == []
    assert client.id_of(name, V1) is None
    client.delete(name)
