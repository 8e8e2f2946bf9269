"""What the tests on a real log run with: topics of their own, a provider, worker processes."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import fastavro
import httpx
from confluent_kafka import Message, TopicPartition

from connectors.encode import Encoder
from infra.local.ports import free_port
from schemas.apply import apply, wanted
from schemas.registry import RegistryClient, schema_ids, subjects
from streams.runtime import kafka
from streams.runtime.reactor.offsets import Commit
from streams.runtime.settings import Settings, home
from tests.chaos.processes import ROOT, until
from tests.runtime.reactor.asking import ANSWERED, Answered, Asked, topics


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # more calls at once than that are not made


class Provider:
    """An HTTP server that counts calls by task id, and answers as told, by target."""

    def __init__(self) -> None:
        self.began: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.targets: Counter[str] = Counter()
        self.status: dict[str, int] = {}
        self.hanging: dict[str, threading.Event] = {}
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                task = self.rfile.read(int(self.headers["Content-Length"])).decode()
                outer._call(self.path.removeprefix("/"), task)
                with suppress(OSError):  # the worker was killed
                    self.send_response(outer.status.get(self.path.removeprefix("/"), 200))
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def _call(self, target: str, task: str) -> None:
        with self._lock:
            self.began[task] += 1
            self.targets[target] += 1
        if target in self.hanging:
            self.hanging[target].wait(120)
        with self._lock:
            self.ended[task] += 1

    def hang(self, target: str) -> None:
        """Calls to this target do not end until `release`."""
        self.hanging[target] = threading.Event()

    def release(self, target: str) -> None:
        self.hanging[target].set()

    def close(self) -> None:
        for event in self.hanging.values():
            event.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass
class Rig:
    """One run."""

    folder: Path
    run: str = field(default_factory=lambda: f"reactor{uuid4().hex[:8]}")
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings = Settings.read()
        self.provider = Provider()
        self.asked, self.answered = topics(self.run)
        self.name = f"{self.run}-asker"
        apply(self.settings, [self.asked, self.answered])
        self._encoder = Encoder(self.asked, schema_ids(self.asked, self.settings.registry))

    def ask(self, *rows: Asked) -> None:
        """Put questions on the log."""
        producer = kafka.producer(self.settings.kafka)
        for row in rows:
            key, value = self._encoder.encode("Asked", row)
            producer.produce(self.asked.name, key=key, value=value)
        assert producer.flush(30) == 0

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """A worker that has joined its group; killed at the end if it still runs."""
        own = self.folder / f"home{len(self.workers)}"
        own.mkdir()
        if (stack := home() / "stack.json").is_file():
            shutil.copy(stack, own)
        port = free_port()
        self.log = own / "worker.log"
        command = [sys.executable, "-m", "tests.runtime.reactor.worker"]
        with self.log.open("wb") as out:
            process = subprocess.Popen(
                [*command, self.run, self.provider.url, str(port)],
                cwd=ROOT,
                env={**os.environ, "HEADRACE_HOME": str(own), "PYTHONPATH": "."},
                stdout=out,
                stderr=out,
            )
        self.workers.append(process)
        self.metrics_url = f"http://127.0.0.1:{port}/metrics"
        try:
            until(lambda: self._ready(process, port), 60, "the worker is ready")
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    def _ready(self, process: subprocess.Popen[bytes], port: int) -> bool:
        assert process.poll() is None, self.log.read_text()[-3_000:]
        with suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
        return False

    def metric(self, sample: str) -> float:
        """The sum of the samples whose line contains these words."""
        lines = httpx.get(self.metrics_url).text.splitlines()
        words = sample.split()
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if not line.startswith("#") and all(word in line for word in words)
        )

    # -- what is on the log ---------------------------------------------------------------------

    def records(self, topic: str) -> list[Message]:
        """All records of a topic."""
        client = kafka.admin(self.settings.kafka)
        found: list[Message] = []
        with closing(kafka.consumer(self.settings.kafka, f"{self.run}-look")) as reader:
            for partition in client.list_topics(topic, 10).topics[topic].partitions:
                bounds = kafka.log_bounds(client, topic, partition)
                reader.assign([TopicPartition(topic, partition, bounds.start)])
                at = bounds.start
                while at < bounds.end:
                    message = reader.poll(10)
                    assert message is not None and message.error() is None
                    found.append(message)
                    at = message.offset() + 1
        return found

    def answers(self) -> list[Answered]:
        """All outcomes."""
        schema = fastavro.parse_schema(json.loads(ANSWERED.avsc))
        return [
            Answered(**fastavro.schemaless_reader(_body(message), schema, None))
            for message in self.records(self.answered.name)
        ]

    def commits(self) -> dict[tuple[str, int], Commit]:
        """What the group has committed, by topic and partition."""
        names = [one.name for one in wanted(self.asked, 1)]
        places = [TopicPartition(name, p) for name in names for p in range(self.asked.partitions)]
        with closing(kafka.consumer(self.settings.kafka, self.name)) as group:
            return {
                (one.topic, one.partition): Commit.read(one.offset, one.metadata)
                for one in group.committed(places, timeout=10)
                if one.offset >= 0
            }

    def close(self) -> None:
        self.provider.close()
        client = kafka.admin(self.settings.kafka)
        declared = (self.asked, self.answered)
        names = [one.name for topic in declared for one in wanted(topic, 1)]
        for future in client.delete_topics(names).values():
            with suppress(Exception):
                future.result(15)
        groups = [self.name, f"headrace-redrive-{self.asked.dead_letters}"]
        for future in client.delete_consumer_groups(groups).values():
            with suppress(Exception):  # one that never was
                future.result(15)
        with RegistryClient(self.settings.registry) as registry:
            for topic in declared:
                for subject in subjects(topic):
                    registry.delete(subject.name)


def _body(message: Message) -> io.BytesIO:
    return io.BytesIO(message.value()[5:])
