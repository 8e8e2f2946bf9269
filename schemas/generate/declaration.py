"""Read and check what one system declares: its `topics.toml`, `.avsc` files and examples.

A declaration that cannot be right is refused here, with the file and the field, so that
everything derived from it (Kafka topics, subjects, `events.py`, AsyncAPI) can trust it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import fastavro
from pydantic import BaseModel, ConfigDict, Field, ValidationError

Schema = dict[str, Any]

SCHEMAS = Path(__file__).resolve().parents[1]
"""The folder that holds one folder per system."""

_FILE = re.compile(r"(?P<record>[a-z][a-z0-9_]*)\.v(?P<version>[1-9][0-9]*)\.avsc")
_JSON_TYPES: Mapping[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "string": (str,),
    "bytes": (str,),
    "fixed": (str,),
    "float": (int, float),
    "double": (int, float),
    "array": (list,),
    "map": (dict,),
    "record": (dict,),
}
_TOPIC_SUFFIXES = (".dlq", ".late")


class DeclarationError(ValueError):
    """A file below `schemas/` that cannot be right; the message names file and field."""


class TopicDeclaration(BaseModel):
    """One `[[topic]]` of a `topics.toml`; durations are milliseconds.

    `config` holds further Kafka topic settings, passed through as they are. `decides` makes it the
    event topic of the decider of that command topic, `derived_from` a derived topic. `retries` has
    the reactors that read it, with the delays of their retry topics.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+$")
    doc: str = Field(min_length=1)
    owner: str = Field(min_length=1)
    readers: list[str]
    records: list[str] = Field(min_length=1)
    key: str
    event_time: str | None = None
    partitions: int = Field(ge=1)
    retention_ms: int = Field(default=-1, ge=-1)
    cleanup_policy: Literal["delete", "compact", "compact,delete"] = "delete"
    allowed_lateness_ms: int = Field(default=0, ge=0)
    out_of_orderness_ms: int = Field(default=0, ge=0)
    future_skew_ms: int = Field(default=60_000, ge=0)
    columnar: bool = True
    decides: str | None = None
    derived_from: list[str] = Field(default_factory=list)
    retries: dict[str, list[int]] = Field(default_factory=dict)
    config: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True)
class SchemaFile:
    """One version of one record: `<record_name_snake>.v<version>.avsc`."""

    path: Path
    version: int
    schema: Schema

    @property
    def name(self) -> str:
        """The record's name without its namespace."""
        return str(self.schema["name"])

    @property
    def fullname(self) -> str:
        """The record's name with its namespace."""
        return f"{self.schema['namespace']}.{self.name}"

    @property
    def avsc(self) -> str:
        """The schema as one line of JSON: what is registered and what readers use."""
        return json.dumps(self.schema, separators=(",", ":"), ensure_ascii=False)

    def examples(self) -> Iterator[Path]:
        """Example files of this version: `examples/<record>.v<version>[.<what>].json`."""
        stem = self.path.stem
        folder = self.path.parent / "examples"
        yield from sorted({*folder.glob(f"{stem}.json"), *folder.glob(f"{stem}.*.json")})


@dataclass(frozen=True)
class SystemDeclaration:
    """Everything one system declares, checked."""

    name: str
    folder: Path
    topics: tuple[TopicDeclaration, ...]
    files: tuple[SchemaFile, ...]

    @cached_property
    def records(self) -> Mapping[str, tuple[SchemaFile, ...]]:
        """Versions of each record by its short name, oldest first."""
        names = dict.fromkeys(file.name for file in self.files)
        return {n: tuple(file for file in self.files if file.name == n) for n in names}

    def newest(self, record: str) -> SchemaFile:
        """The version of a record that readers use."""
        return self.records[record][-1]


def declared(system: str, root: Path = SCHEMAS) -> SystemDeclaration:
    """The declaration of one system; `DeclarationError` names what is wrong and where."""
    folder = root / system
    if not (folder / "topics.toml").is_file():
        raise DeclarationError(f"{folder / 'topics.toml'} is missing")
    files = tuple(sorted(map(_schema_file, folder.glob("*.avsc")), key=_by_name_and_version))
    declaration = SystemDeclaration(system, folder, _topics(folder / "topics.toml"), files)
    _check_files(declaration)
    for topic in declaration.topics:
        _check_topic(declaration, topic)
    _check_carried(declaration)
    _check_decided(declaration)
    return declaration


def snake(name: str) -> str:
    """`AdClicked` as `ad_clicked`; digits and acronyms stay together."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return parted.lower()


def _by_name_and_version(file: SchemaFile) -> tuple[str, int]:
    return file.name, file.version


def _topics(path: Path) -> tuple[TopicDeclaration, ...]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        unknown = content.keys() - {"topic"}
        if unknown:
            raise DeclarationError(f"{path}: only [[topic]] is known, not {sorted(unknown)}")
        return tuple(TopicDeclaration.model_validate(t) for t in content.get("topic", ()))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise DeclarationError(f"{path}: {error}") from error


def _schema_file(path: Path) -> SchemaFile:
    match = _FILE.fullmatch(path.name)
    if match is None:
        raise DeclarationError(f"{path}: name it <record_name_snake>.v<version>.avsc")
    try:
        schema = json.loads(path.read_text(encoding="utf-8"))
        problems = list(_problems(schema))
        if not problems:  # ours come first, since fastavro does not name the field
            fastavro.parse_schema(schema)
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise DeclarationError(f"{path}: not an Avro schema: {error!r}") from error
    if problems:
        raise DeclarationError(f"{path}: {problems[0]}")
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise DeclarationError(f"{path}: an event is a record")
    if snake(schema["name"]) != match["record"]:
        expected = f"{snake(schema['name'])}.v{match['version']}.avsc"
        raise DeclarationError(f"{path}: holds {schema['name']}, so name it {expected}")
    return SchemaFile(path, int(match["version"]), schema)


def _check_files(system: SystemDeclaration) -> None:
    for file in system.files:
        expected = f"headrace.{system.name}"
        if file.schema.get("namespace") != expected:
            raise DeclarationError(f"{file.path}: the namespace must be {expected}")
    for versions in system.records.values():
        numbers = [file.version for file in versions]
        if numbers != list(range(1, len(numbers) + 1)):
            raise DeclarationError(f"{versions[0].path}: versions {numbers} have a hole")


def _problems(schema: Any, path: str = "") -> Iterator[str]:
    """What we do not accept in a schema though Avro does, nested types too."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _problems(branch, path)
    if not isinstance(schema, dict):
        return
    path = path or str(schema["name"])
    if "aliases" in schema:
        yield f"{path} has aliases; readers here go by name, so they are not followed"
    for field in schema.get("fields", ()):
        at = f"{path}.{field['name']}"
        if not field.get("doc"):
            yield f"{at} has no doc"
        if "aliases" in field:
            yield f"{at} has aliases; readers here go by name, so they are not followed"
        if "default" in field and not _fits(field["default"], field["type"]):
            yield f"{at}: default {json.dumps(field['default'])} does not fit its type"
        yield from _problems(field["type"], at)
    if schema["type"] == "record" and not schema.get("doc"):
        yield f"{path} has no doc"
    for inner in ("items", "values", "type"):
        yield from _problems(schema.get(inner), path)


def _fits(default: Any, schema: Any) -> bool:
    """Whether a default is of its type; of a union it must be of the first branch.

    Avro libraries find out only when they use the default, that is on the oldest events.
    """
    if isinstance(schema, list):
        return _fits(default, schema[0])
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "enum":
        return default in schema["symbols"]
    if kind in ("int", "long"):
        bits = 31 if kind == "int" else 63
        return type(default) is int and -(2**bits) <= default < 2**bits
    python = _JSON_TYPES.get(kind)
    return python is None or type(default) in python


def _check_topic(system: SystemDeclaration, topic: TopicDeclaration) -> None:
    where = f"{system.folder / 'topics.toml'}: {topic.name}"
    if not topic.name.startswith(f"{system.name}."):
        raise DeclarationError(f"{where}: topics of {system.name} start with {system.name}.")
    if topic.name.endswith(_TOPIC_SUFFIXES):
        raise DeclarationError(f"{where}: {' and '.join(_TOPIC_SUFFIXES)} topics are derived")
    for reactor, delays_ms in topic.retries.items():
        if not delays_ms or sorted({*delays_ms}) != delays_ms or delays_ms[0] <= 0:
            raise DeclarationError(f"{where}: retries of {reactor} are not ascending delays")
    for record in topic.records:
        if record not in system.records:
            known = ", ".join(system.records)
            raise DeclarationError(f"{where}: no .avsc of {record}; there is {known}")
        fields = {f["name"]: f["type"] for f in system.newest(record).schema["fields"]}
        if fields.get(topic.key) != "string":
            raise DeclarationError(f"{where}: key {topic.key} must be a string of {record}")
        if topic.event_time is not None and not _is_timestamp(fields.get(topic.event_time)):
            raise DeclarationError(
                f"{where}: event_time {topic.event_time} must be a timestamp-millis of {record}"
            )


def _is_timestamp(schema: Any) -> bool:
    wanted = {"type": "long", "logicalType": "timestamp-millis"}
    return isinstance(schema, dict) and wanted.items() <= schema.items()


def _check_carried(system: SystemDeclaration) -> None:
    names = [topic.name for topic in system.topics]
    if len(set(names)) < len(names):
        raise DeclarationError(f"{system.folder / 'topics.toml'}: a topic is declared twice")
    carried = {record for topic in system.topics for record in topic.records}
    for record in system.records.keys() - carried:
        raise DeclarationError(f"{system.newest(record).path}: no topic carries {record}")


def _check_decided(system: SystemDeclaration) -> None:
    """A decider's two topics belong together, and nothing of its log may ever go (rule A1)."""
    topics = {topic.name: topic for topic in system.topics}
    for topic in system.topics:
        where = f"{system.folder / 'topics.toml'}: {topic.name}"
        for source in topic.derived_from:
            if source not in topics:
                raise DeclarationError(f"{where}: derived_from {source} is not declared here")
        if topic.decides is None:
            continue
        commands = topics.get(topic.decides)
        if commands is None:
            raise DeclarationError(f"{where}: decides {topic.decides}, which is not declared here")
        if commands.partitions != topic.partitions:
            raise DeclarationError(
                f"{where}: {topic.partitions} partitions, but {commands.name} has "
                f"{commands.partitions}; commands and events of a key share a partition number"
            )
        if topic.cleanup_policy != "delete":
            raise DeclarationError(f"{where}: events of a decider are never compacted")
