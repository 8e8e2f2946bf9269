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
from redis import exceptions as redis

from sinks.drivers.cassandra import errors as cassandra
from sinks.drivers.clickhouse import errors as clickhouse
from sinks.drivers.redis import errors as valkey
from streams.runtime.sink import SinkRejected, SinkUnavailable

Translated = Callable[[], AbstractContextManager[None]]


@pytest.mark.parametrize(
    ("translated", "error"),
    [
        (valkey.translated, redis.AuthenticationError("Authentication required.")),
        (valkey.translated, redis.AuthorizationError("NOPERM")),
        (valkey.translated, redis.ResponseError("BUSY Valkey is busy running a script")),
        (clickhouse.translated, DatabaseError("Code: 516. DB::Exception: …", code=516)),
        (clickhouse.translated, DatabaseError("Code: 243. DB::Exception: …", code=243)),
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
