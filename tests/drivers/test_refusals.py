"""What a store's refusal means: a fault of the rows, or of nothing that they can help."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError
from redis import exceptions as redis

from sinks.drivers.clickhouse import errors as clickhouse
from sinks.drivers.redis import errors as valkey
from streams.runtime.sink import SinkRejected

Translated = Callable[[], AbstractContextManager[None]]


@pytest.mark.parametrize(
    ("translated", "error"),
    [
        (valkey.translated, redis.AuthenticationError("Authentication required.")),
        (valkey.translated, redis.AuthorizationError("NOPERM")),
        (valkey.translated, redis.ResponseError("BUSY Valkey is busy running a script")),
        (clickhouse.translated, DatabaseError("Code: 516. DB::Exception: …", code=516)),
        (clickhouse.translated, DatabaseError("Code: 243. DB::Exception: …", code=243)),
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
    ],
)
def test_refusals_of_the_rows_are_told(translated: Translated, error: Exception) -> None:
    with pytest.raises(SinkRejected) as refused, translated():
        raise error
    assert not refused.value.transient
