"""What a part of the stack is: the contract between the launcher and one server.

Client libraries are imported inside `ready` functions: most commands need none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from infra.local.home import Home
from infra.local.process import Launch
from streams.runtime.settings import Settings

Say = Callable[[str], None]
"""Shows one line: for good (`say`), or until the next one comes (`progress`)."""
Way = Literal["native", "docker"]


@dataclass(frozen=True)
class Site:
    """Where a part is set up: the home, its ports by role, the addresses of others, and a voice."""

    home: Home
    ports: Mapping[str, int]
    settings: Settings
    """Addresses of the parts this one needs, and the part's own fixed address if there is one."""
    say: Say
    progress: Say
    way: Way = "native"


@dataclass(frozen=True)
class Part:
    """One server. The functions are the whole difference between parts."""

    name: str
    """The name everywhere: command line, `Settings` field, compose service, folders."""
    ports: Mapping[str, int]
    """Default ports by role; `main` is the one in the address."""
    variables: tuple[str, ...]
    """Environment variables that fix the address."""
    address: Callable[[Settings], tuple[str, int]]
    """Host and port that clients use."""
    values: Callable[[Site], dict[str, Any]]
    """The part's section of `Settings`, once it runs at the site."""
    prepare: Callable[[Site], Launch]
    """Download what is missing, write the configuration, return the command. Repeatable.
    Raises `StackError` with what the user can do when something cannot be had."""
    ready: Callable[[Settings], bool]
    """Whether the server at the address does its work, not only accepts connections."""
    docker: bool = True
    """Whether the part may run in a container."""
    needs: tuple[str, ...] = ()
    ready_within_s: float = 120.0
    stop_within_s: float = 20.0
