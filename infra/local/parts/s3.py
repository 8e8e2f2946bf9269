"""S3: versitygw serving a folder. Objects are files, so a look into the folder shows them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from infra.error import StackError
from infra.local import probe
from infra.local.home import Home
from infra.local.part import Part, Say, Site
from infra.local.process import Launch
from streams.runtime.settings import Settings

MODULE, VERSION = "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"


def binary(home: Home, say: Say) -> Path:
    """The server, built once with Go. Raises `StackError` without Go on PATH."""
    folder = home.lib / f"versitygw-{VERSION}"
    built = folder / "versitygw"
    if built.exists():
        return built
    go = shutil.which("go")
    if go is None:
        raise StackError(
            "the local S3 server is built with Go, which is not on PATH: install Go (go.dev), or "
            "set HEADRACE_S3__URL, HEADRACE_S3__ACCESS_KEY and HEADRACE_S3__SECRET_KEY"
        )
    say("building versitygw with Go (about a minute, once)")
    environment = {**os.environ, "GOBIN": str(folder)}
    done = subprocess.run(
        [go, "install", f"{MODULE}@{VERSION}"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise StackError(f"versitygw could not be built:\n{done.stderr.strip()}")
    return built


def keys(site: Site) -> tuple[str, str]:
    """Access and secret key: the fixed ones if given, else generated ones."""
    s3 = site.settings.s3
    access, secret = s3.access_key.get_secret_value(), s3.secret_key.get_secret_value()
    if access and secret:
        return access, secret
    return site.home.secret("s3_access_key"), site.home.secret("s3_secret_key")


def prepare(site: Site) -> Launch:
    """The command; the bucket is a folder, made beforehand."""
    data = site.home.data("s3")
    (data / site.settings.s3.bucket).mkdir(parents=True, exist_ok=True)
    access, secret = keys(site)
    server = str(binary(site.home, site.say))
    argv = (server, "--port", f"127.0.0.1:{site.ports['main']}", "posix", str(data))
    return Launch(argv, data, {"ROOT_ACCESS_KEY": access, "ROOT_SECRET_KEY": secret})


def address(settings: Settings) -> tuple[str, int]:
    return probe.endpoint(settings.s3.url)


def values(site: Site) -> dict[str, Any]:
    access, secret = keys(site)
    url = f"http://127.0.0.1:{site.ports['main']}"
    return {"url": url, "access_key": access, "secret_key": secret}


def ready(settings: Settings) -> bool:
    """Whether it accepts the keys and has the bucket."""
    from minio import Minio
    from minio.error import MinioException
    from urllib3 import PoolManager, Timeout
    from urllib3.exceptions import HTTPError

    host, port = address(settings)
    client = Minio(
        f"{host}:{port}",
        access_key=settings.s3.access_key.get_secret_value(),
        secret_key=settings.s3.secret_key.get_secret_value(),
        secure=settings.s3.url.startswith("https:"),
        http_client=PoolManager(timeout=Timeout(probe.ASK_WITHIN_S), retries=False),
    )
    try:
        return bool(client.bucket_exists(settings.s3.bucket))
    except (MinioException, HTTPError):
        return False


PART = Part(
    name="s3",
    ports={"main": 17070},
    variables=("HEADRACE_S3__URL",),
    address=address,
    values=values,
    prepare=prepare,
    ready=ready,
)
