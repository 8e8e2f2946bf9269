"""Which providers there are: `notifications.toml` in the home folder (`HEADRACE_HOME`).

    [[provider]]
    name = "mail-a"              # order is the order of failover, within a channel
    channel = "email"
    host = "smtp.example.org"    # email: host, port, sender, username, password, start_tls
    port = 587
    sender = "Shop <shop@example.org>"
    rate_per_s = 200

    [[provider]]
    name = "sms-a"
    channel = "sms"
    url = "https://sms.example.org/messages"   # sms, push: url, key
    key = "…"
    callback_secrets = ["…"]

A provider's rate is one for all lanes of a process, and each lane has its share (`SHARES`), so
that a campaign cannot use up what one-time codes need. Run n worker processes with a lane, and
each is to be given an n-th.
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from connectors.notifications.bucket import Breaker, Bucket
from connectors.notifications.failover import Failover, Line
from connectors.notifications.http import HttpProvider
from connectors.notifications.message import Provider
from connectors.notifications.smtp import SmtpProvider
from connectors.notifications.templates import CHANNELS
from streams.runtime.settings import home

SHARES = {"otp": 0.5, "transactional": 0.3, "marketing": 0.2}
"""Of a provider's rate, by lane."""
BREAKER_FAILURES = 5
BREAKER_OPEN_MS = 10_000.0


class ProviderSettings(BaseModel):
    """One account at one provider."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9-]{1,64}$")
    channel: Literal["email", "sms", "push"]
    rate_per_s: float = Field(default=100.0, gt=0)
    burst: int = Field(default=20, ge=1)
    timeout_ms: int = Field(default=5_000, ge=1)
    host: str = ""
    port: int = 25
    sender: str = ""
    username: str | None = None
    password: SecretStr | None = None
    start_tls: bool = False
    url: str = ""
    key: SecretStr = SecretStr("")
    callback_secrets: tuple[SecretStr, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> ProviderSettings:
        needed = ("host", "sender") if self.channel == "email" else ("url",)
        missing = [name for name in needed if not getattr(self, name)]
        if missing:
            raise ValueError(f"{self.name}: {' and '.join(missing)} missing")
        return self

    def open(self) -> Provider:
        """The adapter. Connects when it first sends."""
        timeout_s = self.timeout_ms / 1_000
        if self.channel != "email":
            return HttpProvider(
                self.name, self.url, self.key.get_secret_value(), timeout_s=timeout_s
            )
        return SmtpProvider(
            self.name,
            self.host,
            self.port,
            self.sender,
            username=self.username,
            password=None if self.password is None else self.password.get_secret_value(),
            start_tls=self.start_tls,
            timeout_s=timeout_s,
        )


class NotificationSettings(BaseModel):
    """All providers, in the order of failover."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    provider: tuple[ProviderSettings, ...] = ()

    @classmethod
    def read(cls, file: Path | None = None) -> NotificationSettings:
        """From `notifications.toml`; none where there is no file. Raises `ValueError`."""
        file = file or home() / "notifications.toml"
        if not file.is_file():
            return cls()
        return cls.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))

    def secrets(self, provider: str) -> tuple[str, ...]:
        """What a provider signs its callbacks with; none for one that has no callbacks."""
        found = [one for one in self.provider if one.name == provider]
        return tuple(s.get_secret_value() for one in found for s in one.callback_secrets)

    def open(self, lane: str) -> Mapping[str, Failover]:
        """The providers of every channel, with the lane's share of their rates."""
        return {
            channel: Failover(
                [_line(one, SHARES[lane]) for one in self.provider if one.channel == channel]
            )
            for channel in CHANNELS
        }


def _line(settings: ProviderSettings, share: float) -> Line:
    burst = max(1, int(settings.burst * share))
    return Line(
        settings.open(),
        Bucket(settings.rate_per_s * share, burst, _now_ms),
        Breaker(BREAKER_FAILURES, BREAKER_OPEN_MS, _now_ms),
    )


def _now_ms() -> float:
    return time.monotonic() * 1_000
