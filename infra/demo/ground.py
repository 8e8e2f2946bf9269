"""Clean ground: topics and read models without anything in them.

Watermarks are a matter of the whole topic, so traffic of 2013 after traffic of 2014 would be late
and nothing else. A demo therefore begins with topics of its own: it deletes and creates them anew,
and drops what was folded from them. It does so only where nothing of value can be: on servers
that `headrace up` started here, and in topics that an earlier demo has filled. Everything else
is refused with a sentence, unless `--reset` says that it may go; `--keep` refuses always.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.error import KafkaError

from infra.error import StackError
from infra.local import Stack
from infra.local.home import Home, read_json, write_json
from infra.prometheus.scrape import discover, scrape
from schemas.apply import apply
from sinks.open import open_sink
from streams.runtime import kafka
from streams.runtime.projection import System
from streams.runtime.settings import Settings
from streams.runtime.sink import Sink
from streams.runtime.topic import Topic

GONE_TIMEOUT_S = 60.0
POLL_S = 0.2
MARK = "demo.json"
"""Under the home folder: Kafka's ids of the topics that a demo has filled."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Ground:
    """The topics and read models that a demo uses."""

    settings: Settings
    home: Home
    systems: Sequence[System]
    say: Say

    @property
    def topics(self) -> list[Topic]:
        """Each topic once, in order."""
        agents = [projection for system in self.systems for projection in system.projections]
        return list({agent.topic.name: agent.topic for agent in agents}.values())

    def prepare(self, *, keep: bool, reset: bool) -> None:
        """Make it clean, or raise `StackError` saying why not. Applies the catalogue."""
        self._nobody_folds()
        client = kafka.admin(self.settings.kafka)
        held = {topic.name: rows(client, topic.name, topic.partitions) for topic in self.topics}
        used = {name: count for name, count in held.items() if count}
        if used:
            if keep:
                raise StackError(f"{_listed(used)}, and --keep says to delete nothing")
            if not reset:
                self._refuse_what_is_not_ours(client, used)
            self.say(f"deleting what is there: {_listed(used)}")
            delete(client, self.topics)
        self._drop(keep=keep)
        apply(self.settings)
        ids = {topic.name: kafka.topic_id(client, topic.name) for topic in self.topics}
        write_json(self.home.root / MARK, read_json(self.home.root / MARK) | ids)

    def _nobody_folds(self) -> None:
        looked = scrape(discover(self.home.root / "targets"))
        if looked.values:
            address = min(address for address, _, _ in looked.values)
            raise StackError(f"a worker runs at {address}: stop it, the demo runs its own")

    def _refuse_what_is_not_ours(self, client: AdminClient, used: dict[str, int]) -> None:
        given = [state.part for state in Stack(home=self.home).status() if state.state == "given"]
        if given:
            raise StackError(
                f"{_listed(used)}, on servers that are not ours to empty ({', '.join(given)}); "
                "--reset deletes all of it"
            )
        mark = read_json(self.home.root / MARK)
        for name, count in used.items():
            if mark.get(name) != kafka.topic_id(client, name):
                raise StackError(
                    f"{_listed({name: count})} that no demo wrote; --reset deletes them, "
                    "another HEADRACE_HOME leaves them alone"
                )

    def _drop(self, *, keep: bool) -> None:
        """Make an empty version of every read model the live one and drop all others."""
        for system in self.systems:
            for projection in system.projections:
                sink = open_sink(projection.store, projection.model, self.settings)
                try:
                    if keep and sink.positions(sink.live_version()):
                        raise StackError(f"{projection.name} holds data, and --keep keeps it")
                    empty(sink)
                finally:
                    sink.close()


def rows(client: AdminClient, topic: str, partitions: int) -> int:
    """Records that a topic holds now; 0 where there is no such topic."""
    try:
        bounds = [kafka.log_bounds(client, topic, p) for p in range(partitions)]
    except kafka.UnknownTopic:
        return 0
    return sum(bound.end - bound.start for bound in bounds)


def delete(client: AdminClient, topics: Sequence[Topic]) -> None:
    """Delete topics with their side topics; returns when they are gone."""
    wanted = {name for topic in topics for name in (topic.name, topic.dead_letters, topic.late)}
    there = wanted & set(client.list_topics(timeout=10).topics)
    if not there:
        return
    for future in client.delete_topics(sorted(there)).values():
        try:
            future.result(GONE_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while wanted & set(client.list_topics(timeout=10).topics):
        if time.monotonic() > deadline:
            raise StackError(f"Kafka did not delete {', '.join(sorted(wanted))} in time")
        time.sleep(POLL_S)


def empty(sink: Sink) -> None:
    """Leave one live version with nothing in it."""
    live = sink.live_version()
    if not sink.positions(live) and sink.versions() in ([], [live]):
        return
    fresh = max([live, *sink.versions()]) + 1
    sink.prepare(fresh)
    sink.switch(fresh)
    for version in sink.versions():
        if version != fresh:
            sink.drop(version)


def _listed(held: dict[str, int]) -> str:
    return ", ".join(f"{name} holds {count:,} records" for name, count in held.items())
