"""`bench lane`: clicks and cost by campaign and window of ten seconds, on the lane and its peers.

All read one topic from one broker and take turns; every run's totals must be the generator's. A
ratio is between two runs of the same turn, and the median over turns counts. *Cold* is the whole
run from the first record on, *steady* what follows the first two million records.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from importlib.util import find_spec
from typing import Any

from infra.error import StackError
from streams.runtime.settings import Settings
from tests.bench import clicks, report
from tests.bench.contenders.finish import WARM_UP
from tests.bench.measure import Run, broker_process, python
from tests.bench.peers import java
from tests.bench.peers.environments import BYTEWAX, QUIX
from tests.bench.peers.lane import PEERS, Ground, Peer
from tests.bench.store import drop_read_model
from tests.bench.turns import Contender, WrongTotals, figures, ratios, take_turns

RECORDS = 10_000_000
NATIVE = "streams.runtime.native"
GUARANTEE = "exactly once: position and rows in one write"
OURS = {
    "raw": Peer(
        "consume() alone", "none", lambda ground, take: python("raw", take), {"consume": 500}
    ),
    "memory": Peer(
        "lane → memory sink", "none: memory", lambda ground, take: python("lane", take, "memory")
    ),
    "lane": Peer(
        "lane → Valkey, all guarantees",
        GUARANTEE,
        lambda ground, take: python("lane", take, "redis"),
    ),
    "two": Peer(
        "lane → Valkey, 2 processes", GUARANTEE, lambda ground, take: python("lane_two", take)
    ),
}
NOTES = (
    "Where a peer wins: Flink, once it is warm, passes the lane in one process. It reads, decodes "
    "and folds on three threads of compiled code and throws its results away; the lane decodes and "
    "folds on one thread, beside its reader and the writer that waits for Valkey, and takes less "
    "processor time for each event. Two processes gain nothing with the column reader here: they "
    "share two cores with broker and store. With the Python reader Flink is faster from the start.",
)
LANES = ("lane", "two", "native", "native_two")
"""What every peer is compared with."""


def contenders(
    settings: Settings, records: int, only: Collection[str] = ()
) -> dict[str, Contender]:
    """Everything that takes turns on a topic of `records` clicks, or what `only` names of it."""
    peers = entries()
    if unknown := set(only) - set(peers):
        raise ValueError(f"no contender {', '.join(sorted(unknown))}; there are {', '.join(peers)}")
    ground = Ground(settings.kafka.bootstrap_servers, clicks.topic(records).name, records)
    return {
        name: _contender(name, peer, ground, settings)
        for name, peer in peers.items()
        if not only or name in only
    }


def entries() -> dict[str, Peer]:
    """All contenders by name: the peers, then ours in both ways of reading."""
    ours = dict(OURS)
    for native, python_way in (("native", "lane"), ("native_two", "two")):
        way = OURS[python_way]
        ours[native] = Peer(
            f"{way.title}, column reader", way.guarantee, way.command, missing=no_native
        )
    return {**PEERS, **ours}


def no_native() -> str:
    """Why the column reader cannot be measured here; empty if it can."""
    if find_spec(NATIVE) is None:
        return "there is no column reader"
    return "" if importlib.import_module(NATIVE).available() else "the column reader is not built"


def _contender(name: str, peer: Peer, ground: Ground, settings: Settings) -> Contender:
    missing, command = peer.missing(), list[str]()
    if not missing:
        try:
            command = peer.command(ground, peer.share(ground))
        except StackError as error:  # no network, for example: the others can still be measured
            missing = str(error)
    return Contender(
        peer.title,
        command,
        prepare=lambda: drop_read_model(settings, "bench-lane-redis"),
        check=lambda one: check(peer.title, one, ground.records),
        env=reader(name),
        missing=missing,
    )


def reader(name: str) -> dict[str, str]:
    """The environment that fixes how a contender of ours reads, where there is a choice."""
    if find_spec(NATIVE) is None:
        return {}
    return {"HEADRACE_READER": "native" if name.startswith("native") else "python"}


def bench(runs: int, records: int | None = None, only: Collection[str] = ()) -> dict[str, Any]:
    """Run it, print tables, write the result file unless only some ran; returns the result."""
    settings, records = Settings.read(), records or RECORDS
    chosen = contenders(settings, records, only)
    report.console.print(f"topic of {records:,} clicks …")
    clicks.ensure(settings, records)
    measured = take_turns(chosen, runs, broker_process(settings))
    result = summary(measured, records)
    show(result)
    if not only:
        report.save("lane", result)
    return result


def check(title: str, one: Run, records: int) -> None:
    """Raise `WrongTotals` unless a run counted exactly what there was in what it consumed, and
    took no record for late.
    """
    finish = one.finish
    if finish.dropped:
        raise WrongTotals(f"{title}: {finish.dropped} records dropped for late; none are")
    if finish.count is None:
        return
    wanted = clicks.totals(records, finish.consumed)
    counted = clicks.Totals(finish.count, finish.cost_micros or 0)
    if counted != wanted:
        raise WrongTotals(f"{title}: {counted}, the generator made {wanted}")


def summary(measured: Mapping[str, list[Run]], records: int) -> dict[str, Any]:
    """The content of the result file."""
    known = entries()
    return {
        "records": records,
        "warm_up": WARM_UP,
        "totals": "equal to the generator's in every run; none dropped for late",
        "notes": NOTES,
        "versions": _versions(measured),
        **_compared(measured),
        "contenders": {
            name: {
                **figures(known[name].title, runs),
                "guarantee": known[name].guarantee,
                "settings": dict(known[name].settings),
            }
            for name, runs in measured.items()
        },
    }


def _compared(measured: Mapping[str, list[Run]]) -> dict[str, Any]:
    """`<lane>_to_<peer>_<cold|steady>`: the ratio of events a second, as median and by turn."""
    found: dict[str, Any] = {}
    ways: dict[str, Callable[[Run], float | None]] = {
        "cold": lambda one: one.rate,
        "steady": lambda one: one.steady_rate,
    }
    for lane in (name for name in LANES if name in measured):
        for peer in (name for name in (*PEERS, "raw") if name in measured):
            for way, rate in ways.items():
                if compared := ratios(measured[lane], measured[peer], rate):
                    found[f"{lane}_to_{peer}_{way}"] = compared
    return found


def _versions(measured: Mapping[str, list[Run]]) -> dict[str, str]:
    jvm = any(name.startswith(java.ENGINES) for name in measured)
    found = java.versions() if jvm else {}
    if "quix" in measured:
        found["quixstreams"] = QUIX.version("quixstreams")
    if "bytewax" in measured:
        found["bytewax"] = BYTEWAX.version("bytewax")
    return found


def show(result: Mapping[str, Any]) -> None:
    """Print the figures of every contender, and how the lanes compare."""
    columns = {
        "events/s": "events_per_s",
        "steady/s": "steady_events_per_s",
        "CPU s/M": "cpu_s_per_million",
        "broker CPU s/M": "broker_cpu_s_per_million",
        "peak MiB": "rss_peak_mib",
    }
    found = result["contenders"]
    rows = [(one["title"], *(one[key] for key in columns.values())) for one in found.values()]
    title = f"{result['records']:,} clicks, windows of 10 s by campaign; medians"
    report.table(title, ("", *columns), rows)
    lanes = [name for name in LANES if name in found]
    ways = [(lane, way) for lane in lanes for way in ("cold", "steady")]
    rows = [
        (one["title"], *(_median(result, f"{lane}_to_{peer}_{way}") for lane, way in ways))
        for peer, one in found.items()
        if any(f"{lane}_to_{peer}_cold" in result for lane in lanes)
    ]
    if rows:
        heads = [f"{lane} {way}" for lane, way in ways]
        report.table("times the events a second of …", ("", *heads), rows)


def _median(result: Mapping[str, Any], key: str) -> float | None:
    return result[key]["median"] if key in result else None
