"""Where the payment provider is: `payments.toml` in the home folder (`HEADRACE_HOME`).

[psp]
url = "https://api.psp.example"
key = "…"
webhook_secrets = ["whsec_…"]      # several while one is replaced by another
timeout_ms = 10000
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from connectors.webhooks import key_of
from streams.runtime.settings import home


class PspSettings(BaseModel):
    """One account at the provider."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    key: SecretStr
    webhook_secrets: tuple[SecretStr, ...] = ()
    timeout_ms: int = Field(default=10_000, ge=1)

    @property
    def webhook_keys(self) -> tuple[bytes, ...]:
        """The keys that webhooks are signed with; raises `ValueError` for a secret that is none."""
        return tuple(key_of(secret.get_secret_value()) for secret in self.webhook_secrets)


class NoProvider(LookupError):
    """No provider is configured."""


def settings_file() -> Path:
    """Where the settings are."""
    return home() / "payments.toml"


def read(path: Path | None = None) -> PspSettings:
    """The settings; raises `NoProvider` where there are none, `ValueError` for wrong ones."""
    path = path or settings_file()
    if not path.is_file():
        raise NoProvider(f"no payment provider: {path} is missing")
    return PspSettings.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))["psp"])
