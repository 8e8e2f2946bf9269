"""The scripts that run inside the server; each touches keys of one slot only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from redis.exceptions import NoScriptError

_REGISTER = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('SADD', KEYS[2], ARGV[1])
redis.call('SADD', KEYS[3], ARGV[2])
return 1
"""

_SEAL = """
redis.call('SET', KEYS[1], '1')
redis.call('SADD', KEYS[3], ARGV[1])
return redis.call('SMEMBERS', KEYS[2])
"""


class Script:
    """A Lua script that is sent by its hash, and whole where the server does not know it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, client: Any, names: Sequence[str], *args: bytes | str | int) -> Any:
        """Run it; `names` are its keys, all of one slot."""
        try:
            return client.evalsha(self.sha, len(names), *names, *args)
        except NoScriptError:
            return client.eval(self.source, len(names), *names, *args)


WRITE = Script(files(__package__).joinpath("write.lua").read_text())
REGISTER = Script(_REGISTER)
SEAL = Script(_SEAL)
