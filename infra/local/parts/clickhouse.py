"""ClickHouse: the engine in this Python environment behind ClickHouse's HTTP protocol."""

from __future__ import annotations

import os
import sys
from typing import Any
from urllib.parse import unquote, urlsplit

from infra.local import probe
from infra.local.home import CHECKOUT
from infra.local.part import Part, Site
from infra.local.process import Launch
from streams.runtime.settings import Settings

FIXED = "HEADRACE_CLICKHOUSE__URL"


def password(site: Site) -> str:
    """The one in the fixed address if there is one, else the generated one."""
    if FIXED in os.environ:
        return unquote(urlsplit(site.settings.clickhouse.url.get_secret_value()).password or "")
    return site.home.secret("clickhouse")


def prepare(site: Site) -> Launch:
    """The command; the password is in a file that only the owner can read."""
    conf, data = site.home.conf("clickhouse"), site.home.data("clickhouse")
    conf.mkdir(parents=True, exist_ok=True)
    data.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "infra.clickhouse", "--data", str(data)]
    argv += ["--port", str(site.ports["main"])]
    if secret := password(site):
        file = conf / "password"
        file.touch(mode=0o600)
        file.write_text(secret)
        argv += ["--password-file", str(file)]
    return Launch(argv, cwd=CHECKOUT)


def address(settings: Settings) -> tuple[str, int]:
    return probe.endpoint(settings.clickhouse.url.get_secret_value())


def values(site: Site) -> dict[str, Any]:
    return {"url": f"http://default:{password(site)}@127.0.0.1:{site.ports['main']}/default"}


def ready(settings: Settings) -> bool:
    host, port = address(settings)
    scheme = settings.clickhouse.url.get_secret_value().partition(":")[0]
    return probe.http_ok(f"{scheme}://{host}:{port}/ping")


PART = Part(
    name="clickhouse",
    ports={"main": 18123},
    variables=(FIXED,),
    address=address,
    values=values,
    prepare=prepare,
    ready=ready,
)
