"""ClickHouse: the engine in this Python environment behind ClickHouse's HTTP protocol."""

from __future__ import annotations

import sys
from typing import Any

from infra.local import probe
from infra.local.home import CHECKOUT
from infra.local.part import Part, Site
from infra.local.process import Launch
from streams.runtime.settings import Settings


def prepare(site: Site) -> Launch:
    data = site.home.data("clickhouse")
    data.mkdir(parents=True, exist_ok=True)
    server = (sys.executable, "-m", "infra.clickhouse")
    return Launch((*server, "--data", str(data), "--port", str(site.ports["main"])), cwd=CHECKOUT)


def address(settings: Settings) -> tuple[str, int]:
    return probe.endpoint(settings.clickhouse.url.get_secret_value())


def values(site: Site) -> dict[str, Any]:
    """The real server in a container refuses a user without password from another host."""
    user = f"default:{site.home.secret('clickhouse')}" if site.way == "docker" else "default"
    return {"url": f"http://{user}@127.0.0.1:{site.ports['main']}/default"}


def ready(settings: Settings) -> bool:
    host, port = address(settings)
    scheme = settings.clickhouse.url.get_secret_value().partition(":")[0]
    return probe.http_ok(f"{scheme}://{host}:{port}/ping")


PART = Part(
    name="clickhouse",
    ports={"main": 18123},
    variables=("HEADRACE_CLICKHOUSE__URL",),
    address=address,
    values=values,
    prepare=prepare,
    ready=ready,
)
