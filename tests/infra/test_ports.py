import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local import ports

HERE, THERE = Path("/one/.headrace"), Path("/two/.headrace")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that this process listens on."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


@pytest.fixture
def free() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def test_a_free_default_is_taken(free: int) -> None:
    assert ports.choose({"main": free}, {}, (), HERE) == {"main": free}


def test_last_times_port_comes_before_the_default(free: int) -> None:
    default = 1  # privileged or not, never asked for
    assert ports.choose({"main": default}, {"main": free}, (), HERE) == {"main": free}


def test_a_taken_default_gives_a_port_of_the_block(taken: int) -> None:
    chosen = ports.choose({"main": taken, "admin": taken}, {}, (), HERE)
    assert len(set(chosen.values())) == 2
    assert all(ports.FIRST <= port < 32_000 for port in chosen.values())
    assert chosen == ports.choose({"main": taken, "admin": taken}, {}, (), HERE)


def test_two_checkouts_get_different_ports(taken: int) -> None:
    here = ports.choose({"main": taken}, {}, (), HERE)
    assert here != ports.choose({"main": taken}, {}, (), THERE)


def test_reserved_ports_are_left_to_the_other_parts(taken: int) -> None:
    first = ports.choose({"main": taken}, {}, (), HERE)["main"]
    assert ports.choose({"main": taken}, {}, (first,), HERE)["main"] != first


def test_a_fixed_port_that_is_taken_names_its_holder(taken: int) -> None:
    with pytest.raises(ports.PortTaken, match=rf"port {taken} \(fixed\).*pid {os.getpid()}"):
        ports.require(taken, "fixed")


def test_a_server_on_all_addresses_counts_as_taken() -> None:
    with socket.socket() as server:
        server.bind(("0.0.0.0", 0))
        server.listen()
        assert not ports.is_free(server.getsockname()[1])
