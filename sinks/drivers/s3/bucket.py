"""A bucket as the driver needs it: whole objects, and a compare-and-set on one of them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import md5
from io import BytesIO
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from minio import Minio
from minio.deleteobjects import DeleteObject
from minio.error import S3Error
from urllib3 import BaseHTTPResponse, PoolManager, Timeout

from sinks.drivers.s3.errors import Changed, Missing, translated
from streams.runtime.settings import S3
from streams.runtime.sink import SinkUnavailable

_DELETES_MAX = 1_000
_PRESIGNED = timedelta(minutes=15)


@dataclass(frozen=True)
class Bucket:
    """One bucket. Nothing is ever repeated on its own: a repeated conditional write would meet
    its own first try.
    """

    name: str
    client: Minio
    http: PoolManager
    storage_options: dict[str, Any] = field(repr=False)
    """What Polars reads the same bucket with."""

    def get(self, key: str) -> tuple[bytes, str]:
        """The object and its ETag. Raises `Missing`."""
        with translated():
            response = self.client.get_object(self.name, key)
            try:
                return response.read(), _etag(response)
            finally:
                response.close()
                response.release_conn()

    def find(self, key: str) -> tuple[bytes, str] | None:
        """The object and its ETag; None where there is none."""
        try:
            return self.get(key)
        except Missing:
            return None

    def put(self, key: str, content: bytes) -> None:
        """Write the object, whatever was there."""
        with translated():
            self.client.put_object(self.name, key, BytesIO(content), len(content))

    def swap(self, key: str, content: bytes, etag: str | None) -> str:
        """Write the object if it still is the one with this ETag (None: if there is none), and
        return the new ETag. Raises `Changed` with nothing written.

        The client has no conditions of its own, so the request is one it signed beforehand; a
        condition need not be signed (RFC 9110 section 13; S3 signs `host` and `x-amz-*` only).
        """
        condition = {"If-None-Match": "*"} if etag is None else {"If-Match": f'"{etag}"'}
        checksum = b64encode(md5(content, usedforsecurity=False).digest()).decode()
        with translated():
            url = self.client.get_presigned_url("PUT", self.name, key, _PRESIGNED)
            response = self.http.request(
                "PUT", url, body=content, headers={**condition, "Content-MD5": checksum}
            )
            if response.status == 404 and etag is not None:
                raise Changed(f"{key} is gone")
            if response.status >= 300:
                raise _refused(response)
        return _etag(response)

    def keys(self, prefix: str) -> Iterator[str]:
        """The keys that begin so."""
        with translated():
            for found in self.client.list_objects(self.name, prefix, recursive=True):
                yield str(found.object_name)

    def folders(self, prefix: str) -> list[str]:
        """The next parts of keys that go on after `prefix` with a part and a slash."""
        with translated():
            found = [str(o.object_name) for o in self.client.list_objects(self.name, prefix)]
        return [key.removeprefix(prefix).rstrip("/") for key in found if key.endswith("/")]

    def delete(self, keys: Iterable[str]) -> None:
        """Delete these objects, those too that are not there."""
        left = iter(keys)
        with translated():
            while page := [DeleteObject(key) for key in islice(left, _DELETES_MAX)]:
                for error in self.client.remove_objects(self.name, page):
                    raise SinkUnavailable(f"{error.code}: {error.message} {error.name}")

    def url(self, key: str) -> str:
        """The object's address for Polars."""
        return f"s3://{self.name}/{key}"

    def close(self) -> None:
        """Release the connections."""
        self.http.clear()


def connect(settings: S3, timeout_s: float = 30.0) -> Bucket:
    """The bucket of these settings. Sends nothing."""
    address = urlsplit(settings.url)
    access, secret = settings.access_key.get_secret_value(), settings.secret_key.get_secret_value()
    http = PoolManager(maxsize=16, retries=False, timeout=Timeout(timeout_s))
    client = Minio(
        address.netloc,
        access_key=access,
        secret_key=secret,
        secure=address.scheme == "https",
        region=settings.region,
        http_client=http,
    )
    options = {
        "aws_endpoint_url": settings.url,
        "aws_access_key_id": access,
        "aws_secret_access_key": secret,
        "aws_region": settings.region,
        "aws_allow_http": "true",
        "aws_virtual_hosted_style_request": "false",
        "timeout": f"{timeout_s:.0f}s",
        "max_retries": 1,
    }
    return Bucket(settings.bucket, client, http, options)


def _etag(response: BaseHTTPResponse) -> str:
    return str(response.headers.get("etag", "")).strip('"')


def _refused(response: BaseHTTPResponse) -> Exception:
    if b"<Error>" in response.data:
        refused: Exception = S3Error.fromxml(response)
        return refused
    return SinkUnavailable(f"HTTP {response.status} without a reason")
