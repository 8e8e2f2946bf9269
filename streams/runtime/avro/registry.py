"""Where writer schemas come from: the registry by id, cached for good.

The registry being away is never the record's fault: it raises `RegistryUnavailable` and the
caller retries. Only a registry that answers "no such id" makes a record poison.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx

from streams.runtime import tls
from streams.runtime.avro.schema import BadSchema, Type, parse

NOT_FOUND_CODES = range(40401, 40500)
"""Confluent's error codes for what does not exist (40403: no such schema). The bare 404 of a
proxy or a wrong path has none of them."""

_MAX_UNKNOWN = 10_000


class UnknownSchema(LookupError):
    """The registry answered that the id does not exist, or is not an Avro record: poison."""


class RegistryUnavailable(ConnectionError):
    """No trustworthy answer (down, timeout, 5xx, nonsense): retry, never quarantine."""


@dataclass(frozen=True)
class WriterSchema:
    """The schema a record was written with. `json` is as registered, `type` its tree."""

    schema_id: int
    json: Any
    type: Type = field(repr=False)

    @property
    def fullname(self) -> str:
        """Full name of the record."""
        return self.type.name

    @classmethod
    def of(cls, schema_id: int, schema: Any) -> WriterSchema:
        """From parsed JSON; `UnknownSchema` where it is not an Avro record."""
        try:
            tree = parse(schema)
        except BadSchema as error:
            raise UnknownSchema(f"schema id {schema_id} is not Avro: {error}") from error
        if tree.kind != "record":
            raise UnknownSchema(f"schema id {schema_id} is a {tree.kind}, not a record")
        return cls(schema_id, schema, tree)


class SchemaSource(Protocol):
    """Anything that knows writer schemas by id."""

    def writer_schema(self, schema_id: int) -> WriterSchema:
        """The schema; raises `UnknownSchema` or `RegistryUnavailable`."""
        ...


class MemorySource:
    """Schemas held in memory, for tests and for files that carry their own."""

    def __init__(self, schemas: Mapping[int, Any]) -> None:
        self._schemas = {i: WriterSchema.of(i, schema) for i, schema in schemas.items()}

    def writer_schema(self, schema_id: int) -> WriterSchema:
        try:
            return self._schemas[schema_id]
        except KeyError:
            raise UnknownSchema(f"schema id {schema_id} is not in the registry") from None


class RegistrySource:
    """A registry with Confluent's HTTP API (Confluent, Apicurio ccompat, Karapace).

    Thread-safe: one lock around the cache, none while a request runs, so two threads may ask
    the same id twice but never wait for each other. A schema never changes under its id and is
    kept for good. "Unknown" is believed for `unknown_ttl_ms` only: the schema may be registered
    a moment later, and a flood of bad records must not become a flood of requests.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_ms: int = 5_000,
        unknown_ttl_ms: int = 10_000,
        client: httpx.Client | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url.rstrip("/")
        self._client = client or httpx.Client(timeout=timeout_ms / 1000, verify=tls.context())
        self._unknown_ttl_s = unknown_ttl_ms / 1000
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[int, WriterSchema] = {}
        self._unknown: dict[int, tuple[float, str]] = {}

    def writer_schema(self, schema_id: int) -> WriterSchema:
        with self._lock:
            if found := self._known.get(schema_id):
                return found
            until, reason = self._unknown.get(schema_id, (0.0, ""))
            if reason and self._clock() < until:
                raise UnknownSchema(reason)
        try:
            found = self._fetch(schema_id)
        except UnknownSchema as error:
            with self._lock:
                self._remember_unknown(schema_id, str(error))
            raise
        with self._lock:
            self._unknown.pop(schema_id, None)
            return self._known.setdefault(schema_id, found)

    @property
    def remembered(self) -> int:
        """How many unknown ids are kept in memory."""
        return len(self._unknown)

    def close(self) -> None:
        """Close the HTTP connections."""
        self._client.close()

    def _remember_unknown(self, schema_id: int, reason: str) -> None:
        now = self._clock()
        if len(self._unknown) >= _MAX_UNKNOWN:
            self._unknown.clear()
        self._unknown[schema_id] = (now + self._unknown_ttl_s, reason)

    def _fetch(self, schema_id: int) -> WriterSchema:
        try:
            answer = self._client.get(f"{self._url}/schemas/ids/{schema_id}")
        except httpx.HTTPError as error:
            raise RegistryUnavailable(f"schema registry {self._url}: {error!r}") from error
        if answer.status_code == httpx.codes.NOT_FOUND:
            if _error_code(answer) in NOT_FOUND_CODES:
                raise UnknownSchema(f"schema id {schema_id} is not in the registry")
            raise RegistryUnavailable(f"schema registry {self._url}: 404 without its error code")
        if answer.status_code != httpx.codes.OK:
            raise RegistryUnavailable(f"schema registry {self._url}: {answer.status_code}")
        try:
            body = answer.json()
            kind, text = body.get("schemaType", "AVRO"), body["schema"]
            schema = json.loads(text) if kind == "AVRO" else None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RegistryUnavailable(f"schema registry {self._url}: bad answer") from error
        if kind != "AVRO":
            raise UnknownSchema(f"schema id {schema_id} is {kind}, not Avro")
        return WriterSchema.of(schema_id, schema)


def _error_code(answer: httpx.Response) -> int | None:
    try:
        code = answer.json()["error_code"]
    except (ValueError, KeyError, TypeError):
        return None
    return code if isinstance(code, int) else None
