"""Which ports a part listens on.

The defaults of `streams.runtime.settings` where they are free, else ports from a block derived
from the home folder, so that two checkouts on one machine settle on different ones and keep them.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path

import psutil

from infra.error import StackError

FIRST, BLOCK, BLOCKS = 20_000, 20, 600
"""Blocks of 20 ports from 20,000 to 31,999, below the range that systems hand out themselves."""


class PortTaken(StackError):
    """A port that the user fixed belongs to somebody else."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1 at this port now."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def holder(port: int) -> str:
    """Who listens on a port: `pid 123 (java -cp …)`, as far as this user may see it."""
    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        connections = []
    for c in connections:
        if c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port and c.pid:
            try:
                command = " ".join(psutil.Process(c.pid).cmdline()).strip()
            except psutil.Error:
                command = "?"
            return f"pid {c.pid} ({command[:120]})"
    return "a process that this user may not see"


def choose(
    wanted: Mapping[str, int],
    remembered: Mapping[str, int],
    reserved: Collection[int],
    home: Path,
) -> dict[str, int]:
    """A free port for each role: last time's, else the wanted default, else one of the block.

    All ports returned differ from one another and from the reserved ones. Raises `PortTaken`
    if the whole range is taken.
    """
    chosen: dict[str, int] = {}
    for role, default in wanted.items():
        first = [remembered[role]] if role in remembered else []
        for port in chain(first, [default], _block(home)):
            if port not in chosen.values() and port not in reserved and is_free(port):
                chosen[role] = port
                break
        else:
            raise PortTaken(f"no free port between {FIRST} and {FIRST + BLOCK * BLOCKS}")
    return chosen


def require(port: int, because: str) -> None:
    """Raise `PortTaken`, naming the holder, unless the port is free."""
    if not is_free(port):
        raise PortTaken(f"port {port} ({because}) is taken by {holder(port)}")


def _block(home: Path) -> Iterator[int]:
    start = int.from_bytes(hashlib.sha256(str(home).encode()).digest()[:4], "big") % BLOCKS
    for n in range(BLOCK * BLOCKS):
        yield FIRST + (start * BLOCK + n) % (BLOCK * BLOCKS)
