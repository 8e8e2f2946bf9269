"""What a store's refusal means: a fault of the rows, or of nothing that they can help."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from cassandra import (
    AuthenticationFailed,
    InvalidRequest,
    OperationTimedOut,
    Unauthorized,
    Unavailable,
    WriteTimeout,
    protocol,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionShutdown
from clickhouse_connect.driver.exceptions import DatabaseError
from minio.error import InvalidResponseError, S3Error
from redis import exceptions as redis
from urllib3 import HTTPResponse
from urllib3.exceptions import ProtocolError

from sinks.drivers.cassandra import errors as cassandra
from sinks.drivers.clickhouse import errors as clickhouse
from sinks.drivers.redis import errors as valkey
from sinks.drivers.s3 import errors as s3
from streams.runtime.sink import FenceRefused, SinkRejected, SinkUnavailable

Translated = Callable[[], AbstractContextManager[None]]


def of_s3(status: int, code: str) -> S3Error:
    """What the client raises for this answer."""
    return S3Error(HTTPResponse(status=status), code, "…", "/", "", "")


@pytest.mark.parametrize(
    ("translated", "error"),
    [
        (valkey.translated, redis.AuthenticationError("Authentication required.")),
        (valkey.translated, redis.AuthorizationError("NOPERM")),
        (valkey.translated, redis.ResponseError("BUSY Valkey is busy running a script")),
        (clickhouse.translated, DatabaseError("Code: 516. DB::Exception: …", code=516)),
        (clickhouse.translated, DatabaseError("Code: 243. DB::Exception: …", code=243)),
        (s3.translated, of_s3(503, "SlowDown")),
        (s3.translated, of_s3(507, "InsufficientStorage")),
        (s3.translated, of_s3(403, "QuotaExceeded")),
        (s3.translated, of_s3(403, "SignatureDoesNotMatch")),
        (s3.translated, of_s3(404, "NoSuchBucket")),
        (cassandra.translated, Unauthorized("no MODIFY permission")),
        (cassandra.translated, protocol.OverloadedErrorMessage(0x1001, "overloaded", {})),
        (cassandra.translated, NoHostAvailable("", {"n1": AuthenticationFailed("bad password")})),
    ],
)
def test_refusals_that_blame_no_row_are_waited_for(
    translated: Translated, error: Exception
) -> None:
    with pytest.raises(SinkRejected) as refused, translated():
        raise error
    assert refused.value.transient


@pytest.mark.parametrize(
    ("translated", "error"),
    [
        (valkey.translated, redis.ResponseError("WRONGTYPE Operation against a key")),
        (clickhouse.translated, DatabaseError("Code: 53. DB::Exception: …", code=53)),
        (s3.translated, of_s3(400, "EntityTooLarge")),
        (s3.translated, of_s3(404, "NoSuchKey")),
        (cassandra.translated, InvalidRequest("Batch too large")),
        (cassandra.translated, protocol.SyntaxException(0x2000, "line 1:0", {})),
    ],
)
def test_refusals_of_the_rows_are_told(translated: Translated, error: Exception) -> None:
    with pytest.raises(SinkRejected) as refused, translated():
        raise error
    assert not refused.value.transient


@pytest.mark.parametrize(
    "error",
    [
        of_s3(500, "InternalError"),
        of_s3(400, "RequestTimeout"),
        of_s3(504, "GatewayTimeout"),
        InvalidResponseError(502, "text/html", "bad gateway"),
        ProtocolError("Connection aborted."),
    ],
)
def test_an_answer_that_says_nothing_of_an_object_is_none(error: Exception) -> None:
    with pytest.raises(SinkUnavailable), s3.translated():
        raise error


@pytest.mark.parametrize("status", [409, 412])
def test_a_condition_that_does_not_hold_is_the_fence(status: int) -> None:
    with pytest.raises(FenceRefused), s3.translated():
        raise of_s3(status, "PreconditionFailed" if status == 412 else "ConditionalRequestConflict")


@pytest.mark.parametrize(
    "error",
    [
        OperationTimedOut(),
        Unavailable("", consistency=6, required_replicas=2, alive_replicas=1),
        WriteTimeout("", write_type=6),
        ConnectionShutdown("closed"),
        NoHostAvailable("", {}),
        NoHostAvailable("", {"n1": AuthenticationFailed("bad"), "n2": OSError("refused")}),
        protocol.ServerError(0x0000, "?", {}),
    ],
)
def test_no_clear_answer_is_an_unknown_outcome(error: Exception) -> None:
    with pytest.raises(SinkUnavailable), cassandra.translated():
        raise error


def test_behind_the_fence_every_refusal_is_an_unknown_outcome() -> None:
    with pytest.raises(SinkUnavailable, match="not all there"), cassandra.committed():
        raise SinkRejected("disk full", transient=True)
