"""The AsyncAPI document: up to date, true to the catalogue, valid by the official schema."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import jsonschema
import pytest

from schemas import asyncapi
from schemas.catalog import SYSTEMS, derived, topics
from schemas.generate.declaration import SCHEMAS
from streams.runtime.decider.records import CONTROL_RECORDS

SPECS = "@asyncapi/specs@6.11.1"
DOCUMENT = asyncapi.document(SYSTEMS)


def test_the_committed_document_is_up_to_date() -> None:
    assert asyncapi.DOCUMENT.read_text(encoding="utf-8") == asyncapi.text(SYSTEMS)
    assert not asyncapi.write(SYSTEMS)


def test_writes_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "asyncapi.json"
    assert asyncapi.write(SYSTEMS, path)
    assert json.loads(path.read_text(encoding="utf-8")) == DOCUMENT


def test_the_version_is_the_projects() -> None:
    project = tomllib.loads((SCHEMAS.parent / "pyproject.toml").read_text())["project"]
    assert project["version"] == asyncapi.VERSION


def test_every_topic_is_a_channel() -> None:
    names = {name for t in topics().values() for name in (t.name, *derived(t))}
    assert DOCUMENT["channels"].keys() == names
    for name, topic in topics().items():
        kafka = DOCUMENT["channels"][name]["bindings"]["kafka"]
        assert (kafka["topic"], kafka["partitions"]) == (name, topic.partitions)


def test_every_record_is_a_message_with_examples() -> None:
    messages = DOCUMENT["components"]["messages"]
    records = {r.fullname: r for t in topics().values() for r in t.records}
    records = {name: r for name, r in records.items() if r not in CONTROL_RECORDS}
    assert messages.keys() == records.keys()
    for name, message in messages.items():
        assert message["payload"]["schema"] == records[name].schema
        fastavro.parse_schema(message["payload"]["schema"])
        assert message["examples"]


def test_every_topic_has_a_writer() -> None:
    sent = {o["channel"]["$ref"] for o in DOCUMENT["operations"].values() if o["action"] == "send"}
    assert sent == {f"#/channels/{name}" for name in topics()}


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def test_every_reference_leads_somewhere() -> None:
    found = list(_references(DOCUMENT))
    assert found
    for reference in found:
        node = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
        assert node


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The AsyncAPI initiative's JSON schema of version 3.0.0, from its npm package."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed; the checks above hold the structure")
    folder = tmp_path_factory.mktemp("specs")
    command = [npm, "pack", "--silent", "--ignore-scripts", SPECS]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=120)
    packed = list(folder.glob("*.tgz"))
    if done.returncode or not packed:
        pytest.skip(f"npm gave no {SPECS}; the checks above hold the structure")
    with tarfile.open(packed[0]) as archive:
        member = archive.extractfile("package/schemas/3.0.0-without-$id.json")
        assert member is not None
        return json.load(io.TextIOWrapper(member, encoding="utf-8"))


def _validator(schema: Any) -> Any:
    return jsonschema.validators.validator_for(schema)(schema)


def test_the_document_is_valid_asyncapi(official: Any) -> None:
    errors = [f"{e.json_path}: {e.message}" for e in _validator(official).iter_errors(DOCUMENT)]
    assert errors == []


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("asyncapi",), "2.6.0"),
        (("info", "version"), 1),
        (("channels", "ads.events", "bindings", "kafka", "partitions"), 0),
        (("operations", "ads.send.ads.events", "action"), "publish"),
    ],
)
def test_the_official_schema_would_notice(
    official: Any, where: tuple[str, ...], value: Any
) -> None:
    broken = json.loads(json.dumps(DOCUMENT))
    node = broken
    for part in where[:-1]:
        node = node[part]
    assert where[-1] in node
    node[where[-1]] = value
    assert not _validator(official).is_valid(broken)
