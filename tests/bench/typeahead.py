"""`bench typeahead`: suggestions from a snapshot of a million terms.

The snapshot alone first: how long it takes to build, how much memory a process maps (processes
of one machine share it) and what a look-up takes. Then over HTTP, at half of the most requests a
second that the API process answers: beginnings of terms, a fifth of them mistyped, and while
snapshots are swapped. The snapshot that answered before is put back.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

import polars as pl
import psutil

from api.auth import READ
from schemas.apply import apply
from sinks.drivers import s3
from sinks.typeahead.index import ONE, TERMS, Index, build
from sinks.typeahead.snapshots import NAME, Snapshots
from streams.runtime.settings import Settings
from tests.bench import http, report
from tests.bench.http import Client, Taken
from tests.bench.serving import Servers, metered, servers, settings_of_api, token

MILLION = 1_000_000
LOOKUPS = 20_000
ASKED = 4_096
MISTYPED = 5
"""Every so many-th request has a letter wrong."""
CONNECTIONS = 16
SECONDS, WARM_UP_S = 5.0, 1.0
SWAP_EVERY_S = 2.5
LIMIT = 10
OK = 200
MIB = 2**20


def terms(count: int) -> pl.DataFrame:
    """Terms of one to three made-up words, few of them popular and most of them rare."""
    chance = random.Random(10)
    syllables = [a + b for a in "bcdfghklmnprstvw" for b in "aeiou"]
    words = sorted(
        {"".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(40_000)}
    )
    made: dict[str, int] = {}
    while len(made) < count:
        some = chance.choices(words, k=chance.choice((1, 2, 2, 3)))
        made.setdefault(" ".join(some), int(ONE * min(10**6, chance.paretovariate(0.9))))
    names = list(made)
    return pl.DataFrame({"term": names, "text": names, "score": list(made.values())}, schema=TERMS)


def typed(names: list[str], count: int) -> Iterator[tuple[str, str]]:
    """Beginnings of terms, as right and as wrong letters make them."""
    chance = random.Random(11)
    for name in chance.choices(names, k=count):
        right = name[: chance.randint(1, min(12, len(name)))]
        at = chance.randrange(1, max(2, len(right)))
        yield right, right[:at] + chance.choice("abcdefghijklmnopqrstuvwxyz") + right[at + 1 :]


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; returns the result. `records` is the number of
    terms. About a minute with three runs.
    """
    settings, count = Settings.read(), records or MILLION
    frame = terms(count)
    names = frame["term"].to_list()
    file, alone = _alone(frame, names)
    apply(settings)
    other = build(frame.with_columns(pl.col("score") + 1))
    with (
        closing(s3.connect(settings.s3)) as bucket,
        _published(bucket, (file, other), count) as publish,
        servers(settings, ()) as running,
    ):
        taken = asyncio.run(_http(settings, running, names, publish, runs))
    loads = {name: http.figures(each) for name, each in taken.items()}
    result = {"terms": count, **alone, "api": settings_of_api(), "loads": loads}
    _print(result)
    report.save("typeahead", result)
    return result


def _alone(frame: pl.DataFrame, names: list[str]) -> tuple[bytes, dict[str, Any]]:
    """The snapshot's file, and what it takes without a server."""
    began = time.perf_counter()
    file = build(frame)
    build_s = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "some.arrow")
        path.write_bytes(file)
        asked = [*typed(names, LOOKUPS)]
        before = psutil.Process().memory_full_info().uss
        index = Index(path)
        best = [_ms(index.best, right) for right, _ in asked]
        near = [_ms(index.near, wrong) for _, wrong in asked if len(wrong) > 2]
        own = psutil.Process().memory_full_info().uss - before
    per_million = MILLION / len(names) / MIB
    return file, {
        "build_s": round(build_s, 2),
        "mapped_mib_per_million_terms": round(len(file) * per_million, 1),
        "own_mib_per_million_terms": round(max(0, own) * per_million, 1),
        "best_ms": http.percentiles([best]),
        "near_ms": http.percentiles([near]),
    }


def _ms(look: Callable[[str, int], list[int]], prefix: str) -> float:
    began = time.perf_counter()
    look(prefix, LIMIT)
    return (time.perf_counter() - began) * 1_000


@contextlib.contextmanager
def _published(bucket: Any, files: tuple[bytes, bytes], count: int) -> Iterator[Callable[[], None]]:
    """A snapshot answers; gives what puts the other one in its place. Afterwards the one before
    answers.
    """
    snapshots, live = Snapshots(bucket), f"{NAME}/live.json"
    turns = itertools.cycle(files)
    before = bucket.find(live)
    kept = set(bucket.keys(f"{NAME}/"))

    def publish() -> None:
        # Without the pointer nothing is older, so nothing is deleted of what answered before.
        bucket.delete([live])
        snapshots.publish(next(turns), terms=count, as_of_ms=0, positions={}, over=None)

    saved = {key: bucket.get(key)[0] for key in kept}
    try:
        publish()
        yield publish
    finally:
        for key, content in saved.items():
            if bucket.find(key) is None:
                bucket.put(key, content)
        bucket.delete(set(bucket.keys(f"{NAME}/")) - kept - ({live} if before else set()))
        if before:
            bucket.put(live, before[0])
        else:
            bucket.delete([live])


async def _http(
    settings: Settings,
    running: Servers,
    names: list[str],
    publish: Callable[[], None],
    runs: int,
) -> dict[str, list[Taken]]:
    paths = [
        f"/v1/suggest?limit={LIMIT}&q={quote(right if n % MISTYPED else wrong)}"
        for n, (right, wrong) in enumerate(typed(names, ASKED))
    ]
    taken: dict[str, list[Taken]] = {"most": [], "half of it": [], "half of it, swapping": []}
    async with Client(running.base, token(settings, READ)) as client:
        requests = [client.request("GET", path) for path in paths]

        def request(n: int) -> bytes:
            return requests[n % ASKED]

        await _answers(client, requests)
        await http.closed_loop(client, CONNECTIONS, WARM_UP_S, request, OK)
        for _ in range(runs):
            load = http.closed_loop(client, CONNECTIONS, SECONDS, request, OK)
            most = await metered(running, load)
            taken["most"].append(most)
            half = median(len(one.ms) / one.seconds for one in taken["most"]) / 2
            for name in ("half of it", "half of it, swapping"):
                async with _swapping(publish if "swapping" in name else None):
                    load = http.open_loop(client, half, SECONDS, request, OK)
                    taken[name].append(await metered(running, load))
    return taken


async def _answers(client: Client, requests: list[bytes]) -> None:
    """Wait until the snapshot answers. Raises `RuntimeError` where it does not."""
    for _ in range(300):
        status, _, body = await client.ask(requests[1])
        if status == OK and b"popular" in body:
            return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"the snapshot does not answer: {status} {body!r:.200}")


@contextlib.asynccontextmanager
async def _swapping(publish: Callable[[], None] | None) -> AsyncIterator[None]:
    async def again_and_again(publish: Callable[[], None]) -> None:
        while True:
            await asyncio.to_thread(publish)
            await asyncio.sleep(SWAP_EVERY_S)

    task = None if publish is None else asyncio.create_task(again_and_again(publish))
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


def _print(result: dict[str, Any]) -> None:
    report.table(
        f"A snapshot of {result['terms']:,} terms",
        ["build s", "mapped MiB per million", "own MiB per million", "best p99 ms", "near p99 ms"],
        [
            [
                result["build_s"],
                result["mapped_mib_per_million_terms"],
                result["own_mib_per_million_terms"],
                result["best_ms"]["p99"],
                result["near_ms"]["p99"],
            ]
        ],
    )
    rows = [
        [name, one["per_s"], one["ms"]["p50"], one["ms"]["p99"], one["refused"]]
        for name, one in result["loads"].items()
    ]
    report.table("Over HTTP", ["", "requests/s", "p50 ms", "p99 ms", "refused"], rows)
