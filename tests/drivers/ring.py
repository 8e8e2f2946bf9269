"""Three Cassandra nodes on 127.0.0.1, .2 and .3 that a test may kill."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from cassandra import OperationTimedOut
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
)
from cassandra.policies import WhiteListRoundRobinPolicy

from infra.local.home import Home
from infra.local.part import Site
from infra.local.parts import cassandra
from streams.runtime.settings import Cassandra, Settings

ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
HEAP_MB = 400
SOON_READY = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A node that lives for a minute never earns back what the better compiler costs."""
START_TIMEOUT_S = 170.0


class Ring:
    """Three nodes, each with all rows; folders of their own, downloads shared with the stack."""

    def __init__(self, folder: Path, main_port: int, storage_port: int) -> None:
        home = Home(folder)
        home.make()
        Home.default().lib.mkdir(parents=True, exist_ok=True)
        home.lib.symlink_to(Home.default().lib)
        ports = {"main": main_port, "storage": storage_port}
        self._site = Site(home, ports, Settings.read(), print, print)
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self.settings = Cassandra(
            contact_points=ADDRESSES, port=main_port, keyspace="ring", replication_factor=3
        )

    def start(self, *nodes: int) -> None:
        """Start these nodes and return when all of them serve and know of each other: a schema made
        before that is not known everywhere, and a quorum is not found.
        """
        for n in nodes:
            node = cassandra.Node(f"node-{n}", ADDRESSES[n], ADDRESSES, HEAP_MB, SOON_READY)
            launch = cassandra.launch(self._site, node)
            log = self._site.home.root / f"node-{n}.log"
            with log.open("ab") as out:
                self._running[n] = subprocess.Popen(
                    launch.argv,
                    cwd=launch.cwd,
                    env={**os.environ, **launch.env},
                    stdout=out,
                    stderr=subprocess.STDOUT,
                )
        until_s = time.monotonic() + START_TIMEOUT_S
        while not all(self._serves(n) and self._knows_all(n) for n in nodes):
            for n in nodes:
                assert self._running[n].poll() is None, self._log(n)
            assert time.monotonic() < until_s, "\n".join(self._log(n) for n in nodes)
            time.sleep(0.2)

    def kill(self, *nodes: int) -> None:
        """As `kill -9` does."""
        for n in nodes:
            self._running[n].kill()
        for n in nodes:
            self._running.pop(n).wait(20)

    def stop(self) -> None:
        """End all nodes."""
        self.kill(*self._running)

    def _serves(self, n: int) -> bool:
        at = self.settings.model_copy(update={"contact_points": (ADDRESSES[n],)})
        return cassandra.ready(self._site.settings.model_copy(update={"cassandra": at}))

    def _knows_all(self, n: int) -> bool:
        only = WhiteListRoundRobinPolicy([ADDRESSES[n]])
        profiles = {EXEC_PROFILE_DEFAULT: ExecutionProfile(load_balancing_policy=only)}
        port = self.settings.port
        cluster = Cluster([ADDRESSES[n]], port, execution_profiles=profiles, protocol_version=4)
        try:
            others = cluster.connect().execute("SELECT peer FROM system.peers").all()
            return len(others) == len(ADDRESSES) - 1
        except (NoHostAvailable, OperationTimedOut):
            return False
        finally:
            cluster.shutdown()

    def _log(self, n: int) -> str:
        return (self._site.home.root / f"node-{n}.log").read_text(errors="replace")[-3_000:]
