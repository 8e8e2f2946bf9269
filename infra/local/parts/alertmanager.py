"""Alertmanager, from PATH, with the routes of `infra/prometheus`."""

from __future__ import annotations

import shutil
from typing import Any

from infra.error import StackError
from infra.local import probe
from infra.local.part import Part, Site
from infra.local.process import Launch
from streams.runtime.settings import Settings

NAMES = ("alertmanager", "prometheus-alertmanager")
"""Its own name, and Debian's."""


def prepare(site: Site) -> Launch:
    """The command. Raises `StackError` when Alertmanager is not installed."""
    from infra.prometheus import HERE

    server = next(filter(None, map(shutil.which, NAMES)), None)
    if server is None:
        raise StackError(
            "alertmanager is not on PATH; Debian and Ubuntu have it: "
            "apt-get install prometheus-alertmanager"
        )
    data = site.home.data("alertmanager")
    data.mkdir(parents=True, exist_ok=True)
    argv = (
        server,
        f"--config.file={HERE / 'alertmanager.yml'}",
        f"--storage.path={data}",
        f"--web.listen-address=127.0.0.1:{site.ports['main']}",
        "--cluster.listen-address=",
    )
    return Launch(argv, cwd=data)


def address(settings: Settings) -> tuple[str, int]:
    return probe.endpoint(settings.alertmanager.url)


def values(site: Site) -> dict[str, Any]:
    return {"url": f"http://127.0.0.1:{site.ports['main']}"}


def ready(settings: Settings) -> bool:
    return probe.http_ok(f"{settings.alertmanager.url}/-/ready")


PART = Part(
    name="alertmanager",
    ports={"main": 19093},
    variables=("HEADRACE_ALERTMANAGER__URL",),
    address=address,
    values=values,
    prepare=prepare,
    ready=ready,
    docker=False,
)
