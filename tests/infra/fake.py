"""A part whose server is `fake_server.py`; as a script: `fake.py MODE` runs `up` with it."""

import dataclasses
import os
import sys
from pathlib import Path

from infra.local import PARTS, Stack
from infra.local.part import Part, Site
from infra.local.process import Launch

SERVER = Path(__file__).with_name("fake_server.py")
NAME = "prometheus"
"""The part that is replaced; its settings and its probe are plain HTTP."""


def part(mode: str, ready_within_s: float = 20.0) -> Part:
    def prepare(site: Site) -> Launch:
        data = site.home.data(NAME)
        data.mkdir(parents=True, exist_ok=True)
        argv = (sys.executable, str(SERVER), str(site.ports["main"]), str(data), mode)
        return Launch(argv, cwd=data)

    return dataclasses.replace(
        PARTS[NAME], prepare=prepare, ready_within_s=ready_within_s, stop_within_s=1.0
    )


if __name__ == "__main__":
    PARTS[NAME] = part(sys.argv[1])
    settings = Stack(way="native").up([NAME])
    print(settings.prometheus.url, os.getpid())
