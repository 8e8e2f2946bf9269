"""Clean ground: what a demo may delete, and that it deletes nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from infra.demo import ground
from infra.demo.ground import Ground, empty
from infra.error import StackError
from infra.local.home import Home, read_json, write_json
from infra.local.stack import State
from infra.prometheus.scrape import Frame
from sinks.drivers.memory import MemorySink, MemoryStore
from streams import catalog
from streams.runtime.position import Position
from streams.runtime.settings import Settings
from streams.runtime.sink import Write


@dataclass
class World:
    """Kafka, stores and servers, as far as the ground looks at them."""

    held: dict[str, int]
    servers: str = "ready"
    workers: bool = False
    epoch: int = 1
    deleted: list[str] = field(default_factory=list)
    emptied: int = 0


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World({"ads.events": 0})

    def deletes(_: Any, topics: list[Any]) -> None:
        world.deleted += [topic.name for topic in topics]
        world.epoch += 1

    def empties(_: Any) -> None:
        world.emptied += 1

    values = {("127.0.0.1:1", "up", frozenset[tuple[str, str]]()): 1.0}
    frame = lambda _: Frame(0.0, values if world.workers else {})  # noqa: E731
    monkeypatch.setattr(ground.kafka, "admin", lambda _: None)
    monkeypatch.setattr(ground.kafka, "topic_id", lambda _, name: f"{name}-{world.epoch}")
    monkeypatch.setattr(ground, "rows", lambda _, name, __: world.held[name])
    monkeypatch.setattr(ground, "delete", deletes)
    monkeypatch.setattr(ground, "empty", empties)
    monkeypatch.setattr(ground, "apply", lambda _: None)
    monkeypatch.setattr(ground, "scrape", frame)
    monkeypatch.setattr(ground, "open_sink", lambda _, model, __: MemorySink(model, MemoryStore()))
    monkeypatch.setattr(
        ground.Stack,
        "status",
        lambda _: [State("kafka", world.servers)],  # type: ignore[arg-type]
    )
    return world


@pytest.fixture
def clean(tmp_path: Path) -> Ground:
    return Ground(Settings(), Home(tmp_path), [catalog.load("ads")], lambda _: None)


def test_where_nothing_is_nothing_is_deleted(world: World, clean: Ground) -> None:
    clean.prepare(keep=False, reset=False)
    assert (world.deleted, world.emptied) == ([], 2)
    assert read_json(clean.home.root / ground.MARK) == {"ads.events": "ads.events-1"}


def test_what_a_demo_wrote_goes(world: World, clean: Ground) -> None:
    clean.prepare(keep=False, reset=False)
    world.held["ads.events"] = 5
    clean.prepare(keep=False, reset=False)
    assert world.deleted == ["ads.events"]
    assert read_json(clean.home.root / ground.MARK) == {"ads.events": "ads.events-2"}


@pytest.mark.parametrize("mark", [{}, {"ads.events": "another"}])
def test_what_no_demo_wrote_stays(world: World, clean: Ground, mark: dict[str, str]) -> None:
    write_json(clean.home.root / ground.MARK, mark)
    world.held["ads.events"] = 5
    with pytest.raises(StackError, match="5 records that no demo wrote; --reset"):
        clean.prepare(keep=False, reset=False)
    assert (world.deleted, world.emptied) == ([], 0)
    clean.prepare(keep=False, reset=True)
    assert world.deleted == ["ads.events"]


def test_servers_that_were_given_are_not_emptied(world: World, clean: Ground) -> None:
    clean.prepare(keep=False, reset=False)
    world.held["ads.events"], world.servers = 5, "given"
    with pytest.raises(StackError, match=r"not ours to empty \(kafka\)"):
        clean.prepare(keep=False, reset=False)
    assert world.deleted == []


def test_keep_refuses_always(world: World, clean: Ground) -> None:
    clean.prepare(keep=False, reset=False)
    world.held["ads.events"] = 5
    with pytest.raises(StackError, match="--keep"):
        clean.prepare(keep=True, reset=True)
    assert world.deleted == []


def test_a_running_worker_is_not_undermined(world: World, clean: Ground) -> None:
    world.workers = True
    with pytest.raises(StackError, match=r"127\.0\.0\.1:1"):
        clean.prepare(keep=False, reset=True)
    assert world.emptied == 0


def test_an_emptied_read_model_has_one_version_without_anything() -> None:
    _, projection = catalog.projection("ads-windows")
    sink = MemorySink(projection.model, MemoryStore())
    sink.prepare(1)
    sink.write(1, Write("ads.events", 0, None, Position.start("t", 5)))
    sink.prepare(2)
    empty(sink)
    assert sink.live_version() == 3
    assert sink.positions(3) == {}
    assert sink.versions() in ([], [3])
    empty(sink)
    assert sink.live_version() == 3
