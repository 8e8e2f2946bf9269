"""What the Cassandra driver raises, in the words of the sink contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cassandra import AuthenticationFailed, DriverException, Unauthorized, protocol
from cassandra import RequestValidationException as Invalid
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.pool import NoConnectionsAvailable

from streams.runtime.sink import SinkRejected, SinkUnavailable

_WAIT = (
    AuthenticationFailed,
    Unauthorized,
    protocol.OverloadedErrorMessage,
    protocol.IsBootstrappingErrorMessage,
)
"""Refusals of no row in particular: an operator, a calmer minute or a started node ends them."""

_UNKNOWN = (
    DriverException,
    protocol.ErrorMessage,
    NoConnectionsAvailable,
    ConnectionException,
    OSError,
)


class MissingTable(SinkRejected):
    """The version was never prepared, or is dropped."""


@contextmanager
def translated() -> Iterator[None]:
    """Raise `SinkUnavailable` for an unknown outcome, `SinkRejected` for a clear refusal.

    A timeout says nothing about what was done, of a lightweight transaction least of all.
    """
    try:
        yield
    except NoHostAvailable as error:
        causes = list(error.errors.values())
        if causes and all(isinstance(one, _WAIT) for one in causes):
            raise SinkRejected(_words(causes[0]), transient=True) from error
        raise SinkUnavailable(_words(error)) from error
    except _WAIT as error:
        raise SinkRejected(_words(error), transient=True) from error
    except (Invalid, protocol.RequestValidationException) as error:
        if "does not exist" in str(error) or "unconfigured table" in str(error):
            raise MissingTable(_words(error)) from error
        raise SinkRejected(_words(error)) from error
    except _UNKNOWN as error:
        raise SinkUnavailable(_words(error)) from error


@contextmanager
def committed() -> Iterator[None]:
    """Past the fence no refusal means that nothing happened: the write will be brought to its
    end by the next `load`, this writer's or another's.
    """
    try:
        yield
    except SinkRejected as error:
        raise SinkUnavailable(f"the position has moved, its rows are not all there: {error}") from (
            error
        )


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
