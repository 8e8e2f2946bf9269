"""Real deciders on the local stack: topics of their own, worker processes, a sender of commands."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import redis
from confluent_kafka import TopicPartition

from infra.local.ports import free_port
from schemas.apply import apply
from schemas.registry import schema_ids
from streams.runtime import kafka
from streams.runtime.avro import RegistrySource
from streams.runtime.decider.codec import Codec, Unreadable
from streams.runtime.decider.folded import Folded, empty
from streams.runtime.decider.owner import Owner
from streams.runtime.decider.records import OwnershipClaimed
from streams.runtime.decider.replies import Answer, answer_key, channel, decode
from streams.runtime.decider.rules import Envelope
from streams.runtime.decider.testing import LogRecord, MemoryPorts, Slice
from streams.runtime.decider.wire import envelope_headers
from streams.runtime.kafka import partition_of
from streams.runtime.settings import Settings, home
from tests.bench.store import drop_topics
from tests.runtime.decider.bank import bank

WAIT_S = 150.0


@dataclass
class Worker:
    """One worker process; its log is shown when it surprises."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def await_ready(self) -> None:
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            assert self.process.poll() is None, self.text
            try:
                if httpx.get(f"http://127.0.0.1:{self.port}/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise TimeoutError(self.text)

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        text = httpx.get(f"http://127.0.0.1:{self.port}/metrics").text
        lines = [line for line in text.splitlines() if line.split("{")[0] == name]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    @property
    def text(self) -> str:
        return self.log.read_text()[-6_000:]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()


@dataclass
class Rig:
    """A bank of its own on the stack."""

    folder: Path
    partitions: int = 1
    prefix: str = field(default_factory=lambda: f"test-bank-{uuid4().hex[:8]}")
    workers: list[Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings = Settings.read()
        self.decider = bank(self.prefix, self.partitions)
        self.topics = [self.decider.commands, self.decider.events]
        apply(self.settings, self.topics)
        self.schemas = schemas = RegistrySource(self.settings.registry.url)
        ids = [schema_ids(topic, self.settings.registry) for topic in self.topics]
        self.commands, self.events = (
            Codec(topic, schemas, known) for topic, known in zip(self.topics, ids, strict=True)
        )
        self.producer = kafka.producer(self.settings.kafka)
        self.redis = redis.Redis.from_url(self.settings.redis.url.get_secret_value())
        self.instance = uuid4().hex
        self.heard = self.redis.pubsub()
        self.heard.subscribe(channel(self.instance))
        self.answers: dict[str, list[Answer]] = {}

    def start(self, *more: str, slot: int = 0, env: dict[str, str] | None = None) -> Worker:
        own = self.folder / str(slot)
        own.mkdir(exist_ok=True)
        if (home() / "stack.json").is_file():
            shutil.copy(home() / "stack.json", own)
        port = free_port()
        log = self.folder / f"worker-{len(self.workers)}.log"
        command = [sys.executable, "-m", "tests.runtime.decider.process", self.prefix]
        command += ["--port", str(port), "--slot", str(slot)]
        command += ["--partitions", str(self.partitions), *more]
        snapshots = {"HEADRACE_SNAPSHOTS__FOLDER": str(self.folder / "snapshots")}
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                env={**os.environ, "HEADRACE_HOME": str(own), **snapshots, **(env or {})},
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        worker = Worker(process, port, log)
        self.workers.append(worker)
        return worker

    def send(self, rows: Sequence[Any], *, keys: Sequence[str] | None = None) -> list[str]:
        """Append commands; returns their correlation ids."""
        sent = []
        for n, row in enumerate(rows):
            key = keys[n] if keys else ""
            envelope = Envelope(
                uuid4().hex,
                channel(self.instance),
                idempotency_key=key,
                fingerprint=repr(row) if key else "",
            )
            sent.append(envelope.correlation_id)
            self.producer.produce(
                self.decider.commands.name,
                key=row.account.encode(),
                value=self.commands.encode(row)[1],
                headers=envelope_headers(envelope),
            )
            self.producer.poll(0)
        self.producer.flush()
        return sent

    def await_answers(self, wanted: Sequence[str], wait_s: float = WAIT_S) -> list[Answer]:
        """One answer to each of these, in their order; the kept note counts, too."""
        until_s = time.monotonic() + wait_s
        while not all(one in self.answers for one in wanted):
            assert time.monotonic() < until_s, [worker.text for worker in self.workers]
            self._hear()
        return [self.answers[one][-1] for one in wanted]

    def answered(self, wanted: Sequence[str], worker: Worker) -> bool:
        """Wait for answers to all of these, or for the worker's end; whether it was the former."""
        while not all(one in self.answers for one in wanted):
            if worker.process.poll() is not None:
                return False
            self._hear()
        return True

    def _hear(self) -> None:
        message = self.heard.get_message(ignore_subscribe_messages=True, timeout=0.1)
        if message is not None:
            answer = decode(message["data"])
            self.answers.setdefault(answer.correlation_id, []).append(answer)

    def noted(self, correlation_id: str) -> Answer | None:
        raw = self.redis.get(answer_key(correlation_id))
        return None if raw is None else decode(raw)

    def ends(self, topic: str) -> list[int]:
        consumer = kafka.consumer(self.settings.kafka, f"{self.prefix}.look")
        found = [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1]
            for partition in range(self.partitions)
        ]
        consumer.close()
        return found

    def records(self, partition: int = 0) -> list[LogRecord]:
        """All records of a partition of the event log."""
        end = self.ends(self.decider.events.name)[partition]
        consumer = kafka.consumer(self.settings.kafka, f"{self.prefix}.look")
        consumer.assign([TopicPartition(self.decider.events.name, partition, 0)])
        found: list[LogRecord] = []
        while len(found) < end:
            for one in consumer.consume(1_000, timeout=1.0):
                assert one.error() is None, one.error()
                headers = one.headers() or []
                found.append(LogRecord(one.key(), one.value(), headers, one.timestamp()[1]))
        consumer.close()
        return found

    def folded(self, partition: int = 0) -> Owner:
        """A reader that folds the event log by the reader rule."""
        ports = MemoryPorts(None)  # type: ignore[arg-type]
        fresh = Folded(
            self.decider.rules,
            empty(self.decider.rules),
            key_ttl_ms=self.decider.idempotency_ttl_ms,
        )
        admin = kafka.admin(self.settings.kafka)
        topic_id = kafka.topic_id(admin, self.decider.commands.name)
        where = (self.decider, partition, fresh, self.events, ports)
        reader = Owner(*where, writer="test", commands_topic_id=topic_id)
        reader.read(Slice(0, self.records(partition)))
        return reader

    def writers(self, partition: int = 0) -> set[str]:
        """Who has claimed a partition."""
        found = self.events.decode([one.value for one in self.records(partition)])
        rows = [one[1] for one in found if not isinstance(one, Unreadable)]
        return {row.writer for row in rows if isinstance(row, OwnershipClaimed)}

    def partition(self, account: str) -> int:
        return partition_of(account, self.partitions)

    def close(self) -> None:
        for worker in self.workers:
            worker.end()
        self.schemas.close()
        self.heard.close()
        self.redis.close()
        drop_topics(self.settings, self.topics)
