"""The way through Docker Compose: the same parts, names and ports, as containers.

The project name carries the home's tag, so two checkouts have two projects. Passwords reach
Compose in the environment of the call only.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

from infra.error import StackError
from infra.local.home import CHECKOUT, Home

FILE = CHECKOUT / "docker-compose.yml"
DAEMON_WITHIN_S = 3.0
SECRETS = {
    "REDIS_PASSWORD": "redis",
    "CLICKHOUSE_PASSWORD": "clickhouse",
    "S3_ACCESS_KEY": "s3_access_key",
    "S3_SECRET_KEY": "s3_secret_key",
    "GRAFANA_PASSWORD": "grafana",
}
"""Variables of the Compose file and the secrets of the home that fill them."""


@functools.cache
def available() -> bool:
    """Whether a Docker daemon with Compose answers; asked once per run."""
    docker = shutil.which("docker")
    if docker is None:
        return False
    try:
        for question in (("compose", "version"), ("info",)):
            subprocess.run(
                [docker, *question], capture_output=True, timeout=DAEMON_WITHIN_S, check=True
            )
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def start(home: Home, part: str) -> None:
    """Start one service on its port of the home. Raises `StackError` with what Compose said."""
    _compose(home, ("up", "--detach", "--no-deps", part))


def stop(home: Home, part: str) -> None:
    """Stop and remove one service's container; its volume stays."""
    _compose(home, ("rm", "--stop", "--force", part))


def logs(home: Home, part: str, lines: int) -> list[str]:
    """The last lines of a service's output."""
    shown = _compose(home, ("logs", "--no-color", "--no-log-prefix", f"--tail={lines}", part))
    return shown.splitlines()


def remove(home: Home) -> None:
    """Remove this home's containers and volumes."""
    _compose(home, ("down", "--volumes"))


def environment(home: Home) -> dict[str, str]:
    """The variables of the Compose file: passwords and host ports."""
    secrets = {variable: home.secret(name) for variable, name in SECRETS.items()}
    used = {f"{part.upper()}_PORT": str(roles["main"]) for part, roles in home.ports().items()}
    return secrets | used


def _compose(home: Home, arguments: tuple[str, ...]) -> str:
    command = ["docker", "compose", "-p", f"headrace-{home.tag}", "-f", str(FILE), *arguments]
    done = subprocess.run(
        command,
        env={**os.environ, **environment(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise StackError(f"{' '.join(command)}:\n{done.stderr.strip()}")
    return done.stdout
