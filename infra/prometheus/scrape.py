"""Read the workers' `/metrics` directly, found as Prometheus finds them (`file_sd` files)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

Series = tuple[str, str, frozenset[tuple[str, str]]]
"""Target address, sample name, labels."""


@dataclass(frozen=True)
class Target:
    """One process to scrape: `host:port`, and the labels its file gives it."""

    address: str
    labels: Mapping[str, str] = field(default_factory=dict)


class BadTargets(ValueError):
    """A file in the targets folder is not a `file_sd` list; the message names it."""


@dataclass(frozen=True)
class Frame:
    """One look at all targets. `taken_s` is monotonic; `down` are addresses without answer."""

    taken_s: float
    values: Mapping[Series, float]
    down: tuple[str, ...] = ()

    def of(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        """Labels and value of every sample of that name, one per process that has it."""
        for (_, sample, labels), value in self.values.items():
            if sample == name:
                yield dict(labels), value

    def increase(self, before: Frame, name: str) -> Iterator[tuple[dict[str, str], float]]:
        """By how much each counter grew since `before`; one that was reset counts from 0."""
        for series, value in self.values.items():
            if series[1] == name:
                was = before.values.get(series, 0.0)
                yield dict(series[2]), value - was if value >= was else value


def discover(folder: Path) -> list[Target]:
    """All targets of a folder of `file_sd` JSON files; none where the folder is missing."""
    return [target for file in sorted(folder.glob("*.json")) for target in _listed(file)]


def scrape(targets: list[Target], *, timeout_s: float = 2.0) -> Frame:
    """Scrape all targets at once. A target that does not answer is listed, never raised."""
    values: dict[Series, float] = {}
    down: list[str] = []
    with httpx.Client(timeout=timeout_s) as client, ThreadPoolExecutor(16) as pool:
        texts = pool.map(lambda target: _text(client, target.address), targets)
        for target, text in zip(targets, texts, strict=True):
            if text is None:
                down.append(target.address)
            else:
                values.update(_samples(target.address, text))
    return Frame(time.monotonic(), values, tuple(down))


def _listed(file: Path) -> Iterator[Target]:
    try:
        groups: list[dict[str, Any]] = json.loads(file.read_text())
        for group in groups:
            for address in group["targets"]:
                yield Target(address, group.get("labels", {}))
    except (ValueError, KeyError, TypeError) as error:
        raise BadTargets(f"{file} is no list of targets: {error}") from error


def _text(client: httpx.Client, address: str) -> str | None:
    try:
        return client.get(f"http://{address}/metrics").raise_for_status().text
    except httpx.HTTPError:
        return None


def _samples(address: str, text: str) -> Iterator[tuple[Series, float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield (address, sample.name, frozenset(sample.labels.items())), sample.value
