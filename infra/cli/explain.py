"""Failures a user can do something about, as one sentence and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from confluent_kafka import KafkaException
from rich.console import Console

from schemas.apply import KafkaUnavailable, PartitionsDiffer
from schemas.catalog import UnknownSystem, UnknownTopic
from schemas.check import GitError
from schemas.generate.declaration import DeclarationError
from schemas.registry import RegistryRefused, RegistryUnavailable
from streams.runtime.settings import Settings

_EXPLAINED: tuple[tuple[type[Exception], str, int], ...] = (
    (UnknownTopic, "Unknown topic", 2),
    (UnknownSystem, "Unknown system", 2),
    (DeclarationError, "Wrong declaration", 1),
    (PartitionsDiffer, "Partition counts differ; nothing was changed", 3),
    (RegistryRefused, "The schema registry refused", 4),
    (RegistryUnavailable, "The schema registry does not answer", 5),
    (KafkaUnavailable, "Kafka does not answer", 5),
    (KafkaException, "Kafka refused", 4),
    (GitError, "Git", 2),
)


def settings() -> Settings:
    """The settings; exits with code 2 and the reason where they are wrong."""
    try:
        return Settings.read()
    except ValueError as error:  # an unknown name, or a value of the wrong type
        raise _exit("Wrong settings", error, 2) from error


@contextmanager
def explained() -> Iterator[None]:
    """Print a known failure and exit with its code; anything else is a bug and passes."""
    try:
        yield
    except tuple(kind for kind, _, _ in _EXPLAINED) as error:
        title, code = next((t, c) for kind, t, c in _EXPLAINED if isinstance(error, kind))
        raise _exit(title, error, code) from error


def _exit(title: str, error: Exception, code: int) -> typer.Exit:
    console = Console(stderr=True)
    console.print(f"[bold red]{title}[/]")
    console.print(str(error), markup=False, soft_wrap=True)
    return typer.Exit(code)
