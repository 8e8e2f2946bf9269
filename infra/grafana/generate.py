"""Write the dashboards as JSON, or tell which of the committed ones are out of date."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from infra.grafana.overview import overview
from infra.grafana.systems import (
    ads,
    chat,
    feed,
    ids,
    leaderboard,
    limiter,
    links,
    notifications,
    pastes,
    payments,
    telemetry,
    typeahead,
    webhooks,
)

FOLDER = Path(__file__).resolve().parent / "dashboards"

DASHBOARDS: dict[str, Callable[[], Any]] = {
    "overview": overview,
    "ads": ads.dashboard,
    "chat": chat.dashboard,
    "feed": feed.dashboard,
    "ids": ids.dashboard,
    "leaderboard": leaderboard.dashboard,
    "limiter": limiter.dashboard,
    "links": links.dashboard,
    "notifications": notifications.dashboard,
    "pastes": pastes.dashboard,
    "payments": payments.dashboard,
    "telemetry": telemetry.dashboard,
    "typeahead": typeahead.dashboard,
    "webhooks": webhooks.dashboard,
}


def render() -> dict[str, str]:
    """The JSON text of every dashboard by file name; the same for the same code."""
    encoder = JSONEncoder(sort_keys=True, indent=2)
    return {f"{name}.json": encoder.encode(make()) + "\n" for name, make in DASHBOARDS.items()}


def generate(folder: Path = FOLDER) -> list[Path]:
    """Write all dashboards and delete files no dashboard stands for; answers what changed."""
    wanted = render()
    changed = [folder / name for name in stale(folder)]
    folder.mkdir(parents=True, exist_ok=True)
    for path in changed:
        if path.name in wanted:
            path.write_text(wanted[path.name])
        else:
            path.unlink()
    return changed


def stale(folder: Path = FOLDER) -> list[str]:
    """Names of files that differ from what the code says: changed, missing or left over."""
    wanted = render()
    found = {path.name: path.read_text() for path in folder.glob("*.json")}
    return sorted(n for n in wanted.keys() | found.keys() if wanted.get(n) != found.get(n))
