"""An agent in a process of its own, for tests that kill it: `python -m … FOLDER`.

What it delivers is appended to `FOLDER/delivered` as JSON lines, durable before it is confirmed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from connectors.telemetry.line import Line
from connectors.telemetry.tail.agent import Reader, Shipper, Source, run
from connectors.telemetry.tail.spool import Spool


def main(folder: Path) -> None:
    sources = [Source("app", (str(folder / "app.log"),), "plain")]
    with (
        Spool(folder / "spool", segment_bytes=8_192) as spool,
        (folder / "delivered").open("ab", buffering=0) as out,
    ):

        async def deliver(lines: Sequence[Line]) -> None:
            out.write(b"".join(json.dumps([x.line_id, x.body]).encode() + b"\n" for x in lines))
            os.fsync(out.fileno())

        agent = Reader(sources, spool), Shipper("host", sources, spool, deliver)
        asyncio.run(run(*agent, asyncio.Event()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
