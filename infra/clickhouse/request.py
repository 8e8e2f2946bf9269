"""What an HTTP request says: who asks, with which settings, about which text."""

from __future__ import annotations

import base64
import binascii
import hmac
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.clickhouse.errors import ServerError

_QUERY_ID_CHARS = 256

# URL parameters with a meaning of their own; every other one is a setting of the query.
_RESERVED = frozenset(
    {
        "query",
        "database",
        "default_format",
        "query_id",
        "user",
        "password",
        "quota_key",
        "session_id",
        "session_timeout",
        "session_check",
        "close_session",
        "compress",
        "decompress",
        "client_protocol_version",
        "role",
        "stacktrace",
        "buffer_size",
        "wait_end_of_query",
        "log_comment",
    }
)


@dataclass(frozen=True, slots=True)
class Credentials:
    """The one account; `password` None lets everyone in."""

    user: str = "default"
    password: str | None = field(default=None, repr=False)

    def check(self, headers: Mapping[str, str], query: Mapping[str, str]) -> None:
        """Raise REQUIRED_PASSWORD (401) for none, AUTHENTICATION_FAILED (403) for wrong ones."""
        if self.password is None:
            return
        user, password = _claimed(headers, query)
        if password is None:
            raise ServerError(
                194, "REQUIRED_PASSWORD", f"{user}: Authentication failed: password is required"
            )
        right_user = _equal(user, self.user)
        right_password = _equal(password, self.password)
        if not (right_user and right_password):
            raise ServerError(
                516,
                "AUTHENTICATION_FAILED",
                f"{user}: Authentication failed: password is incorrect, "
                "or there is no user with such name",
            )


def _equal(claimed: str, right: str) -> bool:
    """Compare in constant time; a header may hold bytes that are no UTF-8."""
    return hmac.compare_digest(claimed.encode("utf-8", "surrogateescape"), right.encode())


def _claimed(headers: Mapping[str, str], query: Mapping[str, str]) -> tuple[str, str | None]:
    if "X-ClickHouse-User" in headers or "X-ClickHouse-Key" in headers:
        return headers.get("X-ClickHouse-User", "default"), headers.get("X-ClickHouse-Key")
    scheme, _, encoded = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            user, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise ServerError(516, "AUTHENTICATION_FAILED", "Invalid HTTP Basic header") from None
        return user, password
    return query.get("user", "default"), query.get("password")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request without its body."""

    query: str
    database: str | None
    default_format: str | None
    settings: dict[str, str]
    params: dict[str, str]

    @classmethod
    def read(cls, headers: Mapping[str, str], query: Mapping[str, str]) -> Asked:
        """Sort URL parameters and headers.

        `param_x` values stay escaped as the client sent them, which is what the engine reads.
        Raises NOT_IMPLEMENTED for ClickHouse's own block compression (`compress`, `decompress`)
        and BAD_ARGUMENTS for a `query_id` that does not fit a header line.
        """
        for name in ("compress", "decompress"):
            if query.get(name, "0") not in {"0", "false"}:
                raise ServerError(
                    48, "NOT_IMPLEMENTED", f"{name}=1 is not supported: use HTTP content codings"
                )
        if query.get("query_id") and not _fits_a_header(query["query_id"]):
            raise ServerError(
                36, "BAD_ARGUMENTS", f"query_id must be at most {_QUERY_ID_CHARS} ASCII characters"
            )
        return cls(
            query=query.get("query", ""),
            database=query.get("database") or headers.get("X-ClickHouse-Database") or None,
            default_format=query.get("default_format")
            or headers.get("X-ClickHouse-Format")
            or None,
            settings={
                name: value
                for name, value in query.items()
                if name not in _RESERVED and not name.startswith("param_")
            },
            params={
                name.removeprefix("param_"): value
                for name, value in query.items()
                if name.startswith("param_")
            },
        )


def query_id(query: Mapping[str, str]) -> str:
    """The caller's id for the query, or a fresh one when there is none that fits a header line."""
    asked = query.get("query_id", "")
    return asked if _fits_a_header(asked) else str(uuid.uuid4())


def _fits_a_header(asked: str) -> bool:
    return 0 < len(asked) <= _QUERY_ID_CHARS and asked.isascii() and asked.isprintable()
