"""The catalogue: every topic is found, and a wrong name says what is close."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from schemas import catalog
from schemas.catalog import SYSTEMS, UnknownSystem, UnknownTopic, derived, topic, topics, topics_of
from schemas.generate.declaration import SCHEMAS
from streams.runtime.decider.records import CONTROL_RECORDS


def test_systems_are_the_folders_alphabetically() -> None:
    folders = sorted(path.parent.name for path in SCHEMAS.glob("*/topics.toml"))
    assert list(SYSTEMS) == folders


def test_topics_are_of_all_systems() -> None:
    assert topics().keys() >= {"ads.events", "leaderboard.scores"}
    assert topics() == catalog.TOPICS
    assert [t.name for t in topics_of("ads")] == ["ads.events"]


@pytest.mark.parametrize("name", sorted(topics()))
def test_a_topic_is_complete(name: str) -> None:
    found = topic(name)
    assert found.owner in SYSTEMS
    assert found.doc
    for record in (record for record in found.records if record not in CONTROL_RECORDS):
        fields = {f["name"]: f["type"] for f in record.schema["fields"]}
        assert fields[found.key] == "string"
        assert found.event_time is None or found.event_time in fields


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ads.event", "did you mean ads.events"),
        ("leaderboard.score", "did you mean leaderboard.scores"),
        ("qqq", "there is ads.events, "),
    ],
)
def test_an_unknown_topic_names_close_ones(name: str, message: str) -> None:
    with pytest.raises(UnknownTopic, match=re.escape(message)):
        topic(name)


def test_an_unknown_system_names_close_ones() -> None:
    with pytest.raises(UnknownSystem, match="did you mean leaderboard"):
        topics_of("leaderbord")


def test_an_unknown_attribute_is_an_error() -> None:
    with pytest.raises(AttributeError, match="nope"):
        _ = catalog.nope  # type: ignore[attr-defined]


def test_derived_topics() -> None:
    assert list(derived(topic("ads.events"))) == ["ads.events.dlq", "ads.events.late"]


def test_importing_the_catalogue_imports_no_system() -> None:
    code = (
        "import sys, schemas.catalog as c; "
        "print([s for s in c.SYSTEMS if f'schemas.{s}' in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=SCHEMAS.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
