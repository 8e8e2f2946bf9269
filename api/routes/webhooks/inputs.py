"""What clients send about webhooks. Names are camelCase on the wire."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Path
from pydantic import AfterValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api.models import Input, Instant, Text, clean_text
from connectors.webhooks import key_of

BODY_BYTES_MAX = 262_144
KEY_BYTES = (24, 64)
"""What Standard Webhooks asks of a secret."""
HOUR_MS = 3_600_000
OVERLAP_MS, OVERLAP_MS_MAX = 24 * HOUR_MS, 30 * 24 * HOUR_MS

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
"""An id that is part of paths and of other ids."""
TenantPath = Annotated[Name, Path(description="Who the endpoints and messages belong to.")]
EndpointPath = Annotated[Name, Path(description="The endpoint.")]
MessagePath = Annotated[Name, Path(description="The message.")]
EventType = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$", max_length=128)]
Pattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*(\.\*)?$", max_length=128)]


def _url(value: str) -> str:
    """Refuse what can be no endpoint. Where it leads is checked at every connection."""
    try:
        parts = urlsplit(clean_text(value))
        port = parts.port
    except ValueError:
        raise ValueError("not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError("an http or https URL with a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("credentials do not belong in a URL")
    return value


def _secret(value: str) -> str:
    low, high = KEY_BYTES
    if not value.startswith("whsec_") or not low <= len(key_of(value)) <= high:
        raise ValueError(f"whsec_ and base64 of {low} to {high} bytes")
    return value


Secret = Annotated[str, Field(max_length=128), AfterValidator(_secret)]


class _Camel(Input):
    model_config = ConfigDict(alias_generator=to_camel)


class Endpoint(_Camel):
    """An endpoint's settings."""

    url: Annotated[str, Field(max_length=2_048), AfterValidator(_url)]
    event_types: list[Pattern] = Field(
        default=[], max_length=100, description="Empty for all; `a.*` for all below `a`."
    )
    ordered: bool = Field(
        default=False, description="Messages of one orderKey are delivered one after the other."
    )
    rate_per_s: int = Field(default=0, ge=0, le=10_000, description="0 for no limit.")
    description: Text = ""


class NewEndpoint(Endpoint):
    """An endpoint to create."""

    id: Name | None = Field(default=None, description="Your own id; else one is made.")
    secret: Secret | None = Field(default=None, description="Your own secret; else one is made.")


class Rotation(_Camel):
    """A change of secret."""

    secret: Secret | None = Field(default=None, description="Your own secret; else one is made.")
    overlap_ms: int = Field(
        default=OVERLAP_MS,
        ge=0,
        le=OVERLAP_MS_MAX,
        description="How long messages are signed with the old secret, too.",
    )


class Message(_Camel):
    """A message to publish."""

    event_type: EventType
    payload: dict[str, Any] = Field(description="The body that endpoints get, as JSON.")
    order_key: Text = Field(default="", description="What it is about, where order matters.")

    @property
    def body(self) -> str:
        """What is posted and signed, byte for byte, at every try."""
        return json.dumps(self.payload, ensure_ascii=False, separators=(",", ":"))


class Recovery(_Camel):
    """What to make up for."""

    since: Instant
