"""Prometheus, from PATH, with the rules of `infra/prometheus`.

Never in a container here: what it scrapes are processes that listen on this machine's loopback.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from infra.error import StackError
from infra.local import probe
from infra.local.part import Part, Site
from infra.local.process import Launch
from streams.runtime.settings import Settings


def prepare(site: Site) -> Launch:
    """Configuration and command. Raises `StackError` when Prometheus is not installed."""
    from infra.prometheus import render

    server = shutil.which("prometheus")
    if server is None:
        raise StackError(
            "prometheus is not on PATH; Debian and Ubuntu have it: apt-get install prometheus"
        )
    conf = site.home.conf("prometheus")
    conf.mkdir(parents=True, exist_ok=True)
    config = conf / "prometheus.yml"
    host, port = probe.endpoint(site.settings.alertmanager.url)
    config.write_text(
        render(
            site.home.root / "targets",
            alertmanager=f"{host}:{port}",
            remote_read=(samples(site.settings), token(site, conf)),
        )
    )
    data = site.home.data("prometheus")
    data.mkdir(parents=True, exist_ok=True)
    listen = f"--web.listen-address=127.0.0.1:{site.ports['main']}"
    return Launch(
        (server, f"--config.file={config}", f"--storage.tsdb.path={data}", listen), cwd=data
    )


def samples(settings: Settings) -> str:
    """Where the API answers remote reads."""
    return f"http://{settings.api.host}:{settings.api.port}/v1/telemetry/prometheus/read"


def token(site: Site, folder: Path) -> Path:
    """A file with a token of the development issuer, for a week: the next start renews it."""
    from api.auth import READ
    from api.issuer import TTL_S_MAX, DevIssuer

    api = site.settings.api
    issuer = DevIssuer(site.home.root / "keys", api.issuer, api.audience)
    file = folder / "token"
    file.touch(mode=0o600)
    file.write_text(issuer.token("prometheus", [READ], TTL_S_MAX))
    return file


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
    docker=False,
)
