"""What minio and urllib3 raise, in the words of the sink contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from minio.error import MinioException, S3Error
from urllib3.exceptions import HTTPError

from streams.runtime.sink import FenceRefused, SinkRejected, SinkUnavailable

UNKNOWN_OUTCOME = {"InternalError", "RequestTimeout", "IncompleteBody"}
"""Codes after which an object may or may not be there."""

TRANSIENT = {
    "AccessDenied",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidTokenId",
    "InsufficientStorage",
    "NoSuchBucket",
    "QuotaExceeded",
    "RequestTimeTooSkewed",
    "ServiceUnavailable",
    "SignatureDoesNotMatch",
    "SlowDown",
    "XMinioStorageFull",
}
"""Refusals of no row in particular: waiting, freeing space or an operator ends them."""

TRANSIENT_STATUS = {429, 503, 507}


class Changed(FenceRefused):
    """The object is not the one that the condition names."""


class Missing(SinkRejected):
    """There is no such object."""


@contextmanager
def translated() -> Iterator[None]:
    """Raise `SinkUnavailable` for an unknown outcome, `SinkRejected` for a clear refusal."""
    try:
        yield
    except S3Error as error:
        raise _refusal(error) from error
    except (MinioException, HTTPError, OSError) as error:
        raise SinkUnavailable(f"{type(error).__name__}: {error}") from error


def _refusal(error: S3Error) -> Exception:
    code, status = error.code or "", error.response.status
    words = f"{code} ({status}): {error.message} {error.object_name or ''}".rstrip()
    # 409 is a condition that S3 did not evaluate, because another write was under way.
    if status in (409, 412):
        return Changed(words)
    if code == "NoSuchKey":
        return Missing(words)
    if code in TRANSIENT or status in TRANSIENT_STATUS:
        return SinkRejected(words, transient=True)
    if code in UNKNOWN_OUTCOME or status >= 500:
        return SinkUnavailable(words)
    return SinkRejected(words)
