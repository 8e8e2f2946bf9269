"""Settings, read once at the edge: environment first, then what the local launcher wrote.

Every setting is an environment variable with the prefix `HEADRACE_`, nested by `__`, for
example `HEADRACE_KAFKA__BOOTSTRAP_SERVERS`. The launcher writes the addresses of what it
started to `.headrace/stack.json` in the same shape; the environment wins over it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)


def home() -> Path:
    """The folder of everything local: `HEADRACE_HOME`, or `.headrace` in the project."""
    default = Path(__file__).resolve().parents[2] / ".headrace"
    return Path(os.environ.get("HEADRACE_HOME", default))


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Kafka(_Part):
    bootstrap_servers: str = "127.0.0.1:19092"
    config: dict[str, str] = Field(default_factory=dict)
    """Any further librdkafka setting, passed through to every client."""
    replication_factor: int = 1


class Registry(_Part):
    url: str = "http://127.0.0.1:18081/apis/ccompat/v7"


class Redis(_Part):
    url: SecretStr = SecretStr("redis://127.0.0.1:16379/0")


class ClickHouse(_Part):
    url: SecretStr = SecretStr("http://default@127.0.0.1:18123/default")


class Cassandra(_Part):
    contact_points: tuple[str, ...] = ("127.0.0.1",)
    port: int = 19042
    keyspace: str = "headrace"
    datacenter: str = "datacenter1"
    """The one that this process works in; reads and writes are durable at its quorum."""
    replication_factor: int = 1
    """Copies of every row, where the keyspace has still to be made: 3 in a ring."""
    user: str = ""
    password: SecretStr = SecretStr("")


class S3(_Part):
    url: str = "http://127.0.0.1:17070"
    access_key: SecretStr = SecretStr("")
    secret_key: SecretStr = SecretStr("")
    bucket: str = "headrace"
    region: str = "us-east-1"
    """What requests are signed for; only Amazon asks."""


class Snapshots(_Part):
    """Where deciders keep snapshots of their state. `local` is for one machine: an owner elsewhere
    does not find them and folds the whole log.
    """

    store: Literal["local", "s3"] = "local"
    folder: Path | None = None
    """Of the local store; `snapshots` in the home folder by default."""
    bucket: str = "headrace-snapshots"


class Prometheus(_Part):
    url: str = "http://127.0.0.1:19090"


class Alertmanager(_Part):
    url: str = "http://127.0.0.1:19093"


class Telemetry(_Part):
    """Logs and metrics: what is taken, and where alerts go."""

    rules_file: Path | None = None
    """TOML with drop and sampling rules (`connectors.telemetry.rules`); none keeps everything."""
    series_max: int = 10_000
    """Series of one metric; a new one past it is refused."""
    alert_rules_file: Path | None = None
    """TOML with alert rules over the log; the ones beside `infra.alerts` by default."""


class Outbound(_Part):
    """Calls to addresses that somebody else chose."""

    allow: tuple[str, ...] = ()
    """Networks (`127.0.0.0/8`) that may be called though they are not public; for local tests."""


class Codes(_Part):
    """Public forms of ids, and short codes (`streams.runtime.permutation`)."""

    secret: SecretStr = SecretStr("headrace-dev")
    """Hides their order. With another one, public ids that are out cannot be read back."""


class Ids(_Part):
    space: str = "main"
    """The id space that this process makes ids of; no two spaces are told apart by an id."""
    ttl_ms: int = 60_000
    """How long this process may make ids without a word with the log."""


class Links(_Part):
    """The URL shortener."""

    base_url: str = "http://127.0.0.1:18080"
    """What short URLs begin with."""
    networks_file: Path | None = None
    """MaxMind DB (`.mmdb`) for the countries of clicks; none: what the registries say, bundled."""
    forwarded: bool = False
    """Whether clients are behind a proxy of ours: the last address in X-Forwarded-For is theirs."""


class Pastes(_Part):
    """The pastebin."""

    inline_bytes_max: int = Field(default=16_384, ge=0, le=262_144)
    """A content up to so long goes into the log unless it is to vanish; 0: none ever does."""


class Feed(_Part):
    """The news feed. Feeds are folded by these, so another value wants a rebuild of `feed-home`."""

    followers_max: int = 10_000
    """With more followers an author's posts are not pushed to feeds but fetched by readers."""
    active_days: int = 14
    """Who has not read for so long is left out, and their feed filled when they come back."""

    @property
    def active_ms(self) -> int:
        """The same in milliseconds."""
        return self.active_days * 24 * 3_600_000


class ApiLimits(_Part):
    """What one request, one client and all of them together may take of the API."""

    header_bytes_max: int = 16_384
    body_bytes_max: int = 1_000_000
    large_at_once: int = 8
    """Bodies that are larger, which only some paths take, in memory at a time and process."""
    receipt_timeout_ms: int = 10_000
    concurrency_max: int = 256
    rate_per_s: float = 20_000
    """Units a second and subject: a request costs one, a batch one an event."""
    rate_burst: int = 40_000


class Api(_Part):
    host: str = "127.0.0.1"
    port: int = 18080
    workers: int = 1
    """Processes that share the port; each has its part of the rates in `limits`."""
    connections_max: int = 16_384
    """Of one process, sockets included; as many as it may have open files, if those are fewer."""
    issuer: str = "headrace-dev"
    audience: str = "headrace"
    keys_file: Path | None = None
    """JWK set with the public keys that tokens are checked with; the dev issuer's by default."""
    keys_url: str | None = None
    """The same, fetched over HTTPS; wins over `keys_file`."""
    limits: ApiLimits = ApiLimits()


class Limiter(_Part):
    """The rate limiter of the API. Without rules (`limiter.rules`) it does nothing."""

    url: SecretStr | None = None
    """Redis with the counters; the one of `redis.url` by default."""
    cluster: bool = False
    """Whether the counters are on a Redis Cluster."""
    timeout_ms: int = 50
    """Past it the counters count as away, and the rules say what becomes of the request."""
    breaker_failures: int = 3
    """So many calls in a row that fail, and the counters are not called for a while."""
    breaker_open_ms: int = 1_000


class Settings(BaseSettings):
    """All settings. Unknown `HEADRACE_*` names are refused at start, by name."""

    model_config = SettingsConfigDict(
        env_prefix="HEADRACE_", env_nested_delimiter="__", extra="ignore", frozen=True
    )

    kafka: Kafka = Kafka()
    registry: Registry = Registry()
    redis: Redis = Redis()
    clickhouse: ClickHouse = ClickHouse()
    cassandra: Cassandra = Cassandra()
    s3: S3 = S3()
    snapshots: Snapshots = Snapshots()
    prometheus: Prometheus = Prometheus()
    alertmanager: Alertmanager = Alertmanager()
    telemetry: Telemetry = Telemetry()
    outbound: Outbound = Outbound()
    codes: Codes = Codes()
    ids: Ids = Ids()
    links: Links = Links()
    pastes: Pastes = Pastes()
    feed: Feed = Feed()
    api: Api = Api()
    limiter: Limiter = Limiter()
    log_level: str = "INFO"
    reader: Literal["auto", "native", "python"] = "auto"
    """What reads the log: the column reader where it is built (`auto`), only it, or never it."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        launched = InitSettingsSource(settings_cls, init_kwargs=_launched())
        return init_settings, env_settings, launched

    @classmethod
    def read(cls) -> Settings:
        """Read environment and launcher file; raise `ValueError` naming unknown variables."""
        top = {name.upper() for name in cls.model_fields} | {"HOME"}
        names = [n for n in os.environ if n.startswith("HEADRACE_")]
        unknown = [n for n in names if n.removeprefix("HEADRACE_").split("__")[0] not in top]
        if unknown:
            raise ValueError(f"unknown settings {sorted(unknown)}; known: {sorted(top)}")
        return cls()


def _launched() -> dict[str, Any]:
    file = home() / "stack.json"
    if not file.is_file():
        return {}
    content: dict[str, Any] = json.loads(file.read_text())
    return content
