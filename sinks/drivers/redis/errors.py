"""What redis-py raises, in the words of the sink contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions as redis

from streams.runtime.sink import SinkRejected, SinkUnavailable

TRANSIENT = (
    "OOM",
    "READONLY",
    "LOADING",
    "MISCONF",
    "NOREPLICAS",
    "BUSY",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "MASTERDOWN",
)
"""Refusals that waiting, freeing memory or a failover can end."""

_TRANSIENT_ERRORS = (
    redis.BusyLoadingError,
    redis.ReadOnlyError,
    redis.OutOfMemoryError,
    redis.ClusterDownError,
    redis.TryAgainError,
    redis.MasterDownError,
)


@contextmanager
def translated() -> Iterator[None]:
    """Raise `SinkUnavailable` for an unknown outcome, `SinkRejected` for a clear refusal."""
    try:
        yield
    except _TRANSIENT_ERRORS as error:
        raise SinkRejected(f"{type(error).__name__}: {error}", transient=True) from error
    except (redis.AuthenticationError, redis.AuthorizationError) as error:
        # No row is to blame; an operator who mends the password finds the worker waiting.
        raise SinkRejected(str(error), transient=True) from error
    except redis.ResponseError as error:
        raise SinkRejected(str(error), transient=str(error).startswith(TRANSIENT)) from error
    except (redis.RedisError, OSError) as error:
        raise SinkUnavailable(f"{type(error).__name__}: {error}") from error
