"""Stores of a test's own, to break: each a process that can be killed and started again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infra.local.home import Home
from infra.local.part import Site
from infra.local.parts import cassandra, s3
from infra.local.parts.redis import binary
from infra.local.ports import free_port
from infra.local.process import Launch
from streams.runtime.settings import Settings
from tests.chaos.processes import ROOT, Server

SOON_READY = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A node that lives for a minute never earns back what the better compiler costs."""
HEAP_MB = 400


def valkey(folder: Path) -> Server:
    """Without persistence: a restart finds nothing."""
    port = free_port()
    options = f"--port {port} --bind 127.0.0.1 --save  --appendonly no --dir {folder}".split(" ")
    return Server(
        Launch([binary(), *options], ROOT),
        port,
        folder / "valkey.log",
        lambda at: {"url": f"redis://127.0.0.1:{at}/0"},
    )


def clickhouse(folder: Path) -> Server:
    """chDB behind HTTP, on a folder that it finds again."""
    port, data = free_port(), folder / "clickhouse" / "data"
    command = [sys.executable, "-m", "infra.clickhouse", "--data", str(data), "--port", str(port)]
    return Server(
        Launch(command, ROOT),
        port,
        folder / "clickhouse.log",
        lambda at: {"url": f"http://default@127.0.0.1:{at}/default"},
    )


def cassandra_node(folder: Path) -> Server:
    """One node."""
    site = _site(folder / "cassandra", main=free_port(), storage=free_port())
    launch = cassandra.launch(site, cassandra.Node(heap_mb=HEAP_MB, options=SOON_READY))
    return Server(
        launch,
        site.ports["main"],
        folder / "cassandra.log",
        lambda at: {"contact_points": ["127.0.0.1"], "port": at},
    )


def gateway(folder: Path) -> Server:
    """S3 over a folder."""
    site = _site(folder / "s3", main=free_port())
    known = s3.values(site)
    return Server(
        s3.prepare(site),
        site.ports["main"],
        folder / "s3.log",
        lambda at: known | {"url": f"http://127.0.0.1:{at}"},
    )


STORES: dict[str, Callable[[Path], Server]] = {
    "redis": valkey,
    "clickhouse": clickhouse,
    "cassandra": cassandra_node,
    "s3": gateway,
}
"""By the name of the settings' section."""


def _site(folder: Path, **ports: int) -> Site:
    """Folders of its own; downloads are shared with the stack."""
    home = Home(folder)
    home.make()
    home.lib.symlink_to(Home.default().lib)
    keep: Any = lambda _: None  # noqa: E731
    return Site(home, ports, Settings(), keep, keep)
