"""Failures a user can do something about, as one sentence and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from confluent_kafka import KafkaException
from rich.console import Console

from schemas.apply import PartitionsDiffer
from schemas.catalog import UnknownSystem, UnknownTopic
from schemas.check import GitError
from schemas.generate.declaration import DeclarationError
from schemas.registry import RegistryRefused, RegistryUnavailable

_EXPLAINED: tuple[tuple[type[Exception], str, int], ...] = (
    (UnknownTopic, "Unknown topic", 2),
    (UnknownSystem, "Unknown system", 2),
    (DeclarationError, "Wrong declaration", 1),
    (PartitionsDiffer, "Partition counts differ; nothing was changed", 3),
    (RegistryRefused, "The schema registry refused", 4),
    (RegistryUnavailable, "The schema registry does not answer", 5),
    (KafkaException, "Kafka refused or does not answer", 5),
    (GitError, "Git", 2),
)


@contextmanager
def explained() -> Iterator[None]:
    """Print a known failure and exit with its code; anything else is a bug and passes."""
    try:
        yield
    except tuple(kind for kind, _, _ in _EXPLAINED) as error:
        title, code = next((t, c) for kind, t, c in _EXPLAINED if isinstance(error, kind))
        console = Console(stderr=True)
        console.print(f"[bold red]{title}[/]")
        console.print(str(error), markup=False, soft_wrap=True)
        raise typer.Exit(code) from error
