"""What an HTTP request says: who asks, with which settings, about which text."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.clickhouse.errors import ServerError

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
        """Raise REQUIRED_PASSWORD (401) without a password, AUTHENTICATION_FAILED (403) if wrong."""
        if self.password is None:
            return
        user, password = _claimed(headers, query)
        if password is None:
            raise ServerError(
                194, "REQUIRED_PASSWORD", f"{user}: Authentication failed: password is required"
            )
        right_user = hmac.compare_digest(user.encode(), self.user.encode())
        right_password = hmac.compare_digest(password.encode(), self.password.encode())
        if not (right_user and right_password):
            raise ServerError(
                516,
                "AUTHENTICATION_FAILED",
                f"{user}: Authentication failed: password is incorrect, "
                "or there is no user with such name",
            )


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
    query_id: str | None
    database: str | None
    default_format: str | None
    settings: dict[str, str]
    params: dict[str, str]

    @classmethod
    def read(cls, headers: Mapping[str, str], query: Mapping[str, str]) -> Asked:
        """Sort URL parameters and headers.

        `param_x` values stay escaped as the client sent them, which is what the engine reads.
        Raises NOT_IMPLEMENTED for ClickHouse's own block compression (`compress`, `decompress`).
        """
        for name in ("compress", "decompress"):
            if query.get(name, "0") not in {"0", "false"}:
                raise ServerError(
                    48, "NOT_IMPLEMENTED", f"{name}=1 is not supported: use HTTP content codings"
                )
        return cls(
            query=query.get("query", ""),
            query_id=query.get("query_id") or None,
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
