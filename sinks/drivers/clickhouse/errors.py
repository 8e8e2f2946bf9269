"""What clickhouse-connect raises, in the words of the sink contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clickhouse_connect.driver.exceptions import ClickHouseError, DatabaseError
from urllib3.exceptions import HTTPError

from streams.runtime.sink import FenceRefused, SinkRejected, SinkUnavailable

UNKNOWN_TABLE = 60
VIOLATED_CONSTRAINT = 469

TRANSIENT = {
    164: "READONLY",
    192: "UNKNOWN_USER",
    202: "TOO_MANY_SIMULTANEOUS_QUERIES",
    225: "NO_ZOOKEEPER",
    241: "MEMORY_LIMIT_EXCEEDED",
    242: "TABLE_IS_READ_ONLY",
    243: "NOT_ENOUGH_SPACE",
    252: "TOO_MANY_PARTS",
    285: "TOO_FEW_LIVE_REPLICAS",
    439: "CANNOT_SCHEDULE_TASK",
    497: "ACCESS_DENIED",
    516: "AUTHENTICATION_FAILED",
}
"""Refusals of no row in particular: waiting, freeing space, a failover or an operator ends them."""

UNKNOWN_OUTCOME = {
    159: "TIMEOUT_EXCEEDED",
    209: "SOCKET_TIMEOUT",
    210: "NETWORK_ERROR",
    319: "UNKNOWN_STATUS_OF_INSERT",
    394: "QUERY_WAS_CANCELLED",
    999: "KEEPER_EXCEPTION",
}


class MissingTable(SinkRejected):
    """The version was never prepared, or is dropped."""


@contextmanager
def translated() -> Iterator[None]:
    """Raise `SinkUnavailable` for an unknown outcome, `SinkRejected` for a clear refusal."""
    try:
        yield
    except DatabaseError as error:
        code = error.code
        if code == VIOLATED_CONSTRAINT:
            raise FenceRefused("the version is sealed") from error
        if code == UNKNOWN_TABLE:
            raise MissingTable(str(error)) from error
        if code is None or code in UNKNOWN_OUTCOME:
            raise SinkUnavailable(f"{type(error).__name__}: {error}") from error
        raise SinkRejected(str(error), transient=code in TRANSIENT) from error
    except (ClickHouseError, HTTPError, OSError) as error:
        raise SinkUnavailable(f"{type(error).__name__}: {error}") from error
