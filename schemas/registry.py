"""Register schemas at a Confluent-compatible registry, and ask it for their ids.

Subjects follow TopicRecordNameStrategy (`<topic>-<record full name>`), each with compatibility
FULL_TRANSITIVE of its own, so that it does not depend on how the registry was set up.
An outage is `RegistryUnavailable` (wait, retry); a "no" is `RegistryRefused` (retrying does
not help, and `message` says why). Source: Confluent Schema Registry API v7.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from schemas.generate.declaration import SCHEMAS, declared
from streams.runtime import tls
from streams.runtime.settings import Registry
from streams.runtime.topic import RecordType, Topic

COMPATIBILITY = "FULL_TRANSITIVE"
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryError(Exception):
    """Something about the registry; see the two kinds below."""


class RegistryUnavailable(RegistryError):
    """No answer, or an answer that says "not now" (5xx, 429): the same call may work later."""


class RegistryRefused(RegistryError):
    """A definite no, such as an incompatible schema; `status` is the HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Subject:
    """One subject and the schemas (JSON text) it must hold, oldest version first."""

    name: str
    fullname: str
    versions: tuple[str, ...]


def subjects(topic: Topic) -> list[Subject]:
    """The subjects of a topic with all declared versions of each record; none for JSON."""
    if topic.encoding == "json":
        return []
    return [Subject(topic.subject(r), r.fullname, _versions(r)) for r in topic.records]


def _versions(record: RecordType) -> tuple[str, ...]:
    """Every declared version of a record, or what it holds itself where none is declared."""
    system = record.fullname.removeprefix("headrace.").split(".", 1)[0]
    if (SCHEMAS / system / "topics.toml").is_file():
        files = declared(system).records.get(record.name, ())
        if files and files[-1].avsc == record.avsc:
            return tuple(file.avsc for file in files)
    return (record.avsc,)


class RegistryClient:
    """A connection to the registry; use it as a context manager."""

    def __init__(self, registry: Registry, timeout_s: float = 10.0) -> None:
        self._url = registry.url.rstrip("/")
        # The address may carry a user and password; messages must not.
        self._shown = str(httpx.URL(self._url).copy_with(userinfo=b""))
        self._http = httpx.Client(
            timeout=timeout_s, headers={"Content-Type": _CONTENT_TYPE}, verify=tls.context()
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def register(self, subject: Subject) -> int:
        """Make the subject hold all its versions under FULL_TRANSITIVE; returns the newest's id.

        Idempotent. Compatibility is set first, so that there is no moment in which another
        producer could register a break.
        """
        self._set_compatibility(subject.name)
        ids = [self._add(subject.name, schema) for schema in subject.versions]
        return ids[-1]

    def complete(self, subject: Subject) -> bool:
        """Whether `register` would change nothing."""
        held = self.id_of(subject.name, subject.versions[-1]) is not None
        return held and self.compatibility(subject.name) == COMPATIBILITY

    def _set_compatibility(self, subject: str) -> None:
        if self.compatibility(subject) == COMPATIBILITY:
            return
        try:
            self._call("PUT", f"config/{_q(subject)}", {"compatibility": COMPATIBILITY})
        except RegistryRefused:
            # Somebody else may just have set the same; Apicurio answers that with a conflict.
            if self.compatibility(subject) != COMPATIBILITY:
                raise

    def _add(self, subject: str, schema: str) -> int:
        try:
            answer = self._call("POST", f"subjects/{_q(subject)}/versions", {"schema": schema})
            return int(answer["id"])
        except RegistryRefused:
            held = self.id_of(subject, schema)  # as above
            if held is None:
                raise
            return held

    def id_of(self, subject: str, schema: str) -> int | None:
        """The id under which the subject holds that schema, or None."""
        answer = self._call("POST", f"subjects/{_q(subject)}", {"schema": schema}, missing=True)
        return None if answer is None else int(answer["id"])

    def compatibility(self, subject: str) -> str | None:
        """The compatibility set on the subject itself, or None."""
        answer = self._call("GET", f"config/{_q(subject)}", missing=True)
        return None if answer is None else str(answer["compatibilityLevel"])

    def stored(self, subject: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """The versions the registry holds, oldest first, as (version, schema)."""
        path = f"subjects/{_q(subject)}/versions"
        for version in self._call("GET", path, missing=True) or ():
            answer = self._call("GET", f"{path}/{version}")
            yield int(version), json.loads(answer["schema"])

    def delete(self, subject: str) -> None:
        """Remove a subject for good, with its versions and its compatibility."""
        path = f"subjects/{_q(subject)}"
        self._call("DELETE", path, missing=True)
        self._call("DELETE", f"{path}?permanent=true", missing=True)
        self._call("DELETE", f"config/{_q(subject)}", missing=True)

    def _call(self, method: str, path: str, body: Any = None, *, missing: bool = False) -> Any:
        """One request; None for 404 where `missing` is allowed."""
        what = f"{method} {self._shown}/{path}"
        try:
            response = self._http.request(method, f"{self._url}/{path}", json=body)
        except httpx.TransportError as error:
            raise RegistryUnavailable(f"{what}: {error}") from error
        status = response.status_code
        if response.is_server_error or status == HTTPStatus.TOO_MANY_REQUESTS:
            raise RegistryUnavailable(f"{what}: {status} {_message(response)}")
        if status == HTTPStatus.NOT_FOUND and missing:
            return None
        if not response.is_success:
            raise RegistryRefused(f"{what}: {status} {_message(response)}", status)
        try:
            return response.json() if response.content else {}
        except ValueError as error:
            # A proxy's login page or an error page with status 200 is no registry.
            raise RegistryUnavailable(f"{what}: the answer is not JSON") from error


def schema_ids(topic: Topic, registry: Registry) -> dict[str, int]:
    """The registry's id of each record's newest schema, by full name: what encoders write.

    Raises `RegistryUnavailable`, or `RegistryRefused` where a schema is not registered.
    """
    ids: dict[str, int] = {}
    with RegistryClient(registry) as client:
        for record in topic.records:
            found = client.id_of(topic.subject(record), record.avsc)
            if found is None:
                raise RegistryRefused(
                    f"{topic.subject(record)} is not registered: headrace topics apply",
                    HTTPStatus.NOT_FOUND,
                )
            ids[record.fullname] = found
    return ids


def _q(name: str) -> str:
    return quote(name, safe="")


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:200]
