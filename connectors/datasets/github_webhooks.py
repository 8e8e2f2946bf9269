"""Example payloads of GitHub's webhooks, as its community keeps them (octokit/webhooks)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MEMBER = "package/api.github.com/index.json"
ABOUT = (("repository", "full_name"), ("organization", "login"), ("sender", "login"))


@dataclass(frozen=True)
class Hook:
    """One event as GitHub sends it."""

    event_type: str
    """The event's name, with its action behind a dot where it has one: `issues.opened`. Other
    characters than letters, digits and `_`, which the standard does not allow, are `_`.
    """
    about: str
    """The repository, else the organization, else the account it is about; empty for none."""
    payload: dict[str, Any]


def hooks(files: Mapping[str, bytes]) -> list[Hook]:
    """All examples in the order of the file."""
    return [
        Hook(_type(event["name"], payload), _about(payload), payload)
        for event in json.loads(files[MEMBER])
        for payload in event["examples"]
    ]


def _type(name: str, payload: dict[str, Any]) -> str:
    action = payload.get("action")
    return f"{name}.{re.sub(r'[^A-Za-z0-9_]', '_', action)}" if isinstance(action, str) else name


def _about(payload: dict[str, Any]) -> str:
    for kind, field in (
        ("repository", "full_name"),
        ("organization", "login"),
        ("sender", "login"),
    ):
        found = payload.get(kind)
        if isinstance(found, dict) and isinstance(found.get(field), str):
            return f"{kind}/{found[field]}"
    return ""
