"""The topic catalogue: every topic of every system, from the generated `events.py` files.

`SYSTEMS` is the explicit list; a system's events are imported when they are first asked for.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from streams.runtime.topic import Topic, retry_topic

SYSTEMS = (
    "ads",
    "chat",
    "feed",
    "ids",
    "leaderboard",
    "limiter",
    "links",
    "notifications",
    "pastes",
    "payments",
    "telemetry",
    "typeahead",
    "webhooks",
)
"""Every system with schemas, alphabetical; each is a folder here with an `events.py`."""


class UnknownTopic(LookupError):
    """No system declares such a topic; the message names close ones."""


class UnknownSystem(LookupError):
    """No such system; the message names close ones."""


def topics_of(system: str) -> tuple[Topic, ...]:
    """The topics of one system, by name; raises `UnknownSystem`."""
    if system not in SYSTEMS:
        raise UnknownSystem(f"no system {system!r}; {_close(system, SYSTEMS)}")
    module = importlib.import_module(f"schemas.{system}.events")
    found = {value.name: value for value in vars(module).values() if isinstance(value, Topic)}
    return tuple(found[name] for name in sorted(found))


def topics() -> Mapping[str, Topic]:
    """Every declared topic by name."""
    declared = (topic for system in SYSTEMS for topic in topics_of(system))
    return MappingProxyType({topic.name: topic for topic in declared})


def topic(name: str) -> Topic:
    """The declared topic of that name; raises `UnknownTopic` with the close ones."""
    known = topics()
    if name in known:
        return known[name]
    raise UnknownTopic(f"no topic {name!r}; {_close(name, tuple(known))}")


def __getattr__(name: str) -> Mapping[str, Topic]:
    if name == "TOPICS":
        return topics()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def system_of(topic_name: str) -> str:
    """The system a topic belongs to: the first part of its name."""
    return topic_name.split(".", 1)[0]


def derived(declared: Topic) -> Iterator[str]:
    """Names of the topics that exist because a topic does: dead letters, late rows, and where the
    records of its reactors wait for another try.
    """
    yield declared.dead_letters
    if declared.event_time is not None:
        yield declared.late
    for reactor, delays_ms in declared.retries.items():
        for delay_ms in delays_ms:
            yield retry_topic(reactor, delay_ms)


def _close(name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there is {', '.join(known)}"
