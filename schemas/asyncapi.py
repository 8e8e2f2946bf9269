"""The catalogue as an AsyncAPI 3.0 document, for people and tools outside.

One channel per topic (dead letters and late rows too), one message per record with its Avro
schema and examples, `send` for the owner and `receive` for each reader, as seen from them.
Sources: AsyncAPI 3.0.0; its Kafka bindings 0.5.0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from schemas.catalog import topics_of
from schemas.generate.declaration import SCHEMAS, SchemaFile, SystemDeclaration, declared
from schemas.generate.render import topic_constant
from streams.runtime.decider.records import CONTROL_RECORDS
from streams.runtime.topic import RecordType, Topic, retry_topic

DOCUMENT = SCHEMAS / "asyncapi.json"
VERSION = "0.1.0"
"""The version of the project; a test holds it to pyproject.toml."""

_AVRO = "application/vnd.apache.avro;version=1.9.0"
_BINDING = "0.5.0"
_Json = dict[str, Any]


def document(systems: Iterable[str]) -> _Json:
    """The document of some systems; the same declarations always give the same document."""
    channels: _Json = {}
    operations: _Json = {}
    messages: _Json = {}
    for system in systems:
        declaration = declared(system)
        readers = {topic.name: topic.readers for topic in declaration.topics}
        for topic in topics_of(system):
            files = [declaration.newest(record.name) for record in _own(topic)]
            messages.update({file.fullname: _message(topic, file) for file in files})
            channels.update(_channels(topic))
            operations.update(_operations(declaration, topic, readers[topic.name]))
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Headrace events",
            "version": VERSION,
            "description": (
                "Every event on the log. Values are Avro in the Confluent wire format (a zero "
                "byte, a four-byte schema id, the body); keys are UTF-8 text, partitioned by "
                "murmur2; subjects follow TopicRecordNameStrategy under FULL_TRANSITIVE."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "avro/binary",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages},
    }


def text(systems: Iterable[str]) -> str:
    """The document as it is committed."""
    return json.dumps(document(systems), indent=2, ensure_ascii=False) + "\n"


def write(systems: Iterable[str], path: Path = DOCUMENT) -> bool:
    """Write the document; False where it was up to date."""
    new = text(systems)
    if path.is_file() and path.read_text(encoding="utf-8") == new:
        return False
    path.write_text(new, encoding="utf-8")
    return True


def _channels(topic: Topic) -> Iterator[tuple[str, _Json]]:
    configuration: _Json = {
        "cleanup.policy": topic.cleanup_policy.split(","),
        "retention.ms": topic.retention_ms,
    }
    yield topic.name, _channel(topic.name, topic.doc, topic, configuration)
    side = {**configuration, "cleanup.policy": ["delete"]}
    what = f"Records of {topic.name} that could not be processed, as they were; why is in headers."
    yield topic.dead_letters, _channel(topic.dead_letters, what, topic, side)
    if topic.event_time is not None:
        what = f"Rows of {topic.name} that came after the allowed lateness."
        yield topic.late, _channel(topic.late, what, topic, side)
    for reactor, delays_ms in topic.retries.items():
        for delay_ms in delays_ms:
            name = retry_topic(reactor, delay_ms)
            what = f"Records of {topic.name} that wait for another try of {reactor}."
            yield name, _channel(name, what, topic, side)


def _channel(name: str, doc: str, topic: Topic, configuration: _Json) -> _Json:
    references = {r.name: {"$ref": f"#/components/messages/{r.fullname}"} for r in _own(topic)}
    return {
        "address": name,
        "description": doc,
        "messages": references,
        "bindings": {
            "kafka": {
                "topic": name,
                "partitions": topic.partitions,
                "topicConfiguration": configuration,
                "bindingVersion": _BINDING,
            }
        },
    }


def _own(topic: Topic) -> list[RecordType]:
    """What a system's topic carries, without the runtime's own records (claims, rejections)."""
    return [record for record in topic.records if record not in CONTROL_RECORDS]


def _message(topic: Topic, file: SchemaFile) -> _Json:
    key = next(f for f in file.schema["fields"] if f["name"] == topic.key)
    return {
        "name": file.fullname,
        "title": file.name,
        "summary": file.schema["doc"],
        "contentType": "avro/binary",
        "payload": {"schemaFormat": _AVRO, "schema": file.schema},
        "examples": [{"name": p.stem, "payload": _example(file, p)} for p in file.examples()],
        "bindings": {
            "kafka": {
                "key": {"type": "string", "description": key["doc"]},
                "schemaIdLocation": "payload",
                "schemaIdPayloadEncoding": "confluent",
                "schemaLookupStrategy": "TopicRecordNameStrategy",
                "bindingVersion": _BINDING,
            }
        },
    }


def _operations(
    system: SystemDeclaration, topic: Topic, readers: list[str]
) -> Iterator[tuple[str, _Json]]:
    short = f"{system.name}.{topic_constant(system.name, topic.name).lower()}"
    channel = {"$ref": f"#/channels/{topic.name}"}
    yield (
        f"{topic.owner}.send.{short}",
        {"action": "send", "channel": channel, "summary": f"{topic.owner} writes {topic.name}."},
    )
    for reader in readers:
        summary = f"{reader} reads {topic.name}."
        operation = {"action": "receive", "channel": channel, "summary": summary}
        yield f"{reader}.receive.{short}", operation


def _example(file: SchemaFile, path: Path) -> Any:
    """The example in Avro's JSON encoding, as the file has it."""
    return json.loads(path.read_text(encoding="utf-8"))
