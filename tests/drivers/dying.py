"""A process that writes to S3 and is gone, as by kill -9, at its n-th request that writes.

python -m tests.drivers.dying MODEL BEFORE|AFTER N
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from sinks.drivers.s3 import S3Sink, connect
from sinks.drivers.s3.bucket import Bucket
from streams.runtime.settings import Settings
from streams.runtime.sink import ReadModel
from tests.drivers.model import TABLES
from tests.drivers.writer import Click, Writer

LOG = [Click((i % 5, f"c{i % 7}"), gone=i % 11 == 10) for i in range(100)]
"""What it folds, in spans of 9."""


def fatal(when: str, request: int) -> type[Bucket]:
    """A bucket whose n-th request kills, before it is sent or after it was answered."""
    left = [request]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            left[0] -= 1
            if left[0] < 0 and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            answer = call(*arguments)
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return called

    class Fatal(Bucket):
        put = counted(Bucket.put)
        swap = counted(Bucket.swap)
        delete = counted(Bucket.delete)

    return Fatal


def main(model: str, when: str, request: str) -> None:
    bucket = connect(Settings.read().s3)
    kind = fatal(when, int(request))
    known = {name: getattr(bucket, name) for name in bucket.__dataclass_fields__}
    Writer(S3Sink(ReadModel(model, TABLES), kind(**known)), LOG).drain(rows=9)


if __name__ == "__main__":
    main(*sys.argv[1:])
