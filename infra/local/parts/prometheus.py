"""Prometheus, from PATH, with the rules and targets of `infra/prometheus`."""

from __future__ import annotations

import shutil
from typing import Any

from infra.error import StackError
from infra.local import probe
from infra.local.home import CHECKOUT
from infra.local.part import Part, Site
from infra.local.process import Launch
from streams.runtime.settings import Settings

CONFIG = CHECKOUT / "infra" / "prometheus" / "prometheus.yml"


def prepare(site: Site) -> Launch:
    """The command. Raises `StackError` when Prometheus is not installed."""
    server = shutil.which("prometheus")
    if server is None:
        raise StackError(
            "prometheus is not on PATH; Debian and Ubuntu have it: apt-get install prometheus"
        )
    data = site.home.data("prometheus")
    data.mkdir(parents=True, exist_ok=True)
    listen = f"--web.listen-address=127.0.0.1:{site.ports['main']}"
    return Launch(
        (server, f"--config.file={CONFIG}", f"--storage.tsdb.path={data}", listen), cwd=data
    )


def address(settings: Settings) -> tuple[str, int]:
    return probe.endpoint(settings.prometheus.url)


def values(site: Site) -> dict[str, Any]:
    return {"url": f"http://127.0.0.1:{site.ports['main']}"}


def ready(settings: Settings) -> bool:
    return probe.http_ok(f"{settings.prometheus.url}/-/ready")


PART = Part(
    name="prometheus",
    ports={"main": 19090},
    variables=("HEADRACE_PROMETHEUS__URL",),
    address=address,
    values=values,
    prepare=prepare,
    ready=ready,
)
