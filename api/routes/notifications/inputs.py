"""What clients send about notifications. Names are camelCase on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from api.models import Id, Input, Instant, Text
from schemas.notifications.events import (
    Content,
    OptOut,
    SendNotification,
    SetPreferences,
    TemplatePublished,
)

PARAMS_CHARS_MAX = 16_384
SOURCE_CHARS_MAX = 65_536
RECIPIENTS_MAX = 1_000
WINDOW_MS_MIN, WINDOW_MS_MAX = 60_000, 7 * 24 * 3_600_000

Channel = Literal["email", "sms", "push"]
Channels = Annotated[list[Channel], Field(min_length=1, max_length=3)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
"""A template's name: the type of a notification."""
Key = Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,255}$")]
Token = Annotated[str, Field(pattern=r"^[A-Za-z0-9:_.=-]{1,400}$")]
Locale = Annotated[str, Field(pattern=r"^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8}){0,3}$")]
Email = Annotated[
    str, Field(max_length=254, pattern=r"^[^\s@<>(),;:\\\"\[\]\x00-\x1f\x7f]+@[A-Za-z0-9.-]+$")
]
Phone = Annotated[str, Field(pattern=r"^\+[1-9][0-9]{6,14}$")]


def _minutes(value: str) -> str:
    hour, minute = value.split(":")
    if int(hour) > 23 or int(minute) > 59:
        raise ValueError("a time of day, 00:00 to 23:59")
    return value


Clock = Annotated[str, Field(pattern=r"^[0-2][0-9]:[0-5][0-9]$"), AfterValidator(_minutes)]


class _Camel(Input):
    model_config = ConfigDict(alias_generator=to_camel)


def params_json(params: dict[str, Any]) -> str:
    """Parameters as canonical JSON: the same ones have the same text. Raises `ValueError`."""
    text = msgspec.json.encode(params, order="sorted").decode()
    if len(text) > PARAMS_CHARS_MAX:
        raise ValueError(f"params are longer than {PARAMS_CHARS_MAX} characters as JSON")
    return text


class Notification(_Camel):
    """One notification to one recipient."""

    user_id: Id
    type: Name = Field(description="Which template.")
    params: dict[str, Any] = Field(default_factory=dict, description="What goes into it.")
    idempotency_key: Key | None = Field(
        default=None,
        description="Your own name of it: under the same one a recipient gets it once, ever. "
        "The header `Idempotency-Key` serves as well.",
    )
    channels: Channels | None = Field(default=None, description="All of the template by default.")
    send_at: Instant | None = None
    expires_at: Instant | None = Field(
        default=None, description="Not to be sent from then on; by default the template says."
    )
    happened_at: Instant | None = Field(
        default=None, description="Places it in a digest's window; now by default."
    )
    digest_key: Id | None = Field(default=None, description="Which digest; the type by default.")

    @model_validator(mode="after")
    def _small(self) -> Notification:
        params_json(self.params)
        return self

    def command(
        self, id_: str, template: TemplatePublished, key: str, now_ms: int
    ) -> SendNotification:
        """The command, with what the template says about its kind."""
        lifetime = template.lifetime_ms
        begin = max(now_ms, self.send_at or 0)
        return SendNotification(
            notification_id=id_,
            user_id=self.user_id,
            template=template.template,
            template_version=template.version,
            priority=template.priority,
            channels=list(self.channels or ()),
            params=params_json(self.params),
            idempotency_key=key,
            happened_at=now_ms if self.happened_at is None else self.happened_at,
            send_at=self.send_at,
            expires_at=self.expires_at or (begin + lifetime if lifetime else None),
            digest_key=(self.digest_key or self.type) if template.digest_window_ms else "",
            digest_window_ms=template.digest_window_ms,
        )


class Choice(_Camel):
    """Something a recipient does not want."""

    channel: Literal["email", "sms", "push", "*"] = "*"
    category: Name | Literal["*"] = Field(
        default="*", description="A priority or a type; `*` for all. Codes are always sent."
    )


class QuietHours(_Camel):
    """When not to disturb, by the recipient's clock."""

    start: Clock = Field(examples=["22:00"])
    end: Clock = Field(examples=["07:00"])
    timezone: Text = Field(examples=["Europe/Berlin"])
    hold: Literal["marketing", "transactional"] = Field(
        default="marketing", description="The most urgent priority to hold back."
    )


class Preferences(_Camel):
    """All preferences of a recipient; what is left out is not wanted any more."""

    opt_outs: Annotated[list[Choice], Field(max_length=100)] = Field(default_factory=list)
    quiet_hours: QuietHours | None = None
    locale: Locale | None = None

    def command(self, user_id: str) -> SetPreferences:
        """The command."""
        quiet = self.quiet_hours
        return SetPreferences(
            user_id=user_id,
            opt_outs=[OptOut(channel=one.channel, category=one.category) for one in self.opt_outs],
            quiet_scope=quiet.hold if quiet else "none",
            quiet_start=_minute(quiet.start) if quiet else 0,
            quiet_end=_minute(quiet.end) if quiet else 0,
            timezone=quiet.timezone if quiet else "UTC",
            locale=self.locale or "",
        )


def _minute(clock: str) -> int:
    hour, minute = clock.split(":")
    return int(hour) * 60 + int(minute)


class Contact(_Camel):
    """Where a recipient is reached."""

    email: Email | None = None
    phone: Phone | None = None


class Device(_Camel):
    """A device that can be pushed to."""

    platform: Literal["android", "ios", "web"]


Source = Annotated[str, Field(max_length=SOURCE_CHARS_MAX)]


class Texts(_Camel):
    """The texts of one channel in one language; Jinja2."""

    channel: Channel
    locale: Locale
    subject: Annotated[str, Field(max_length=1_000)] = ""
    text: Source
    html: Source = ""

    def content(self) -> Content:
        """As the event has it."""
        return Content(
            channel=self.channel,
            locale=self.locale,
            subject=self.subject,
            text=self.text,
            html=self.html,
        )


class Template(_Camel):
    """The texts of a type of notification."""

    priority: Literal["otp", "transactional", "marketing"]
    default_locale: Locale
    contents: Annotated[list[Texts], Field(min_length=1, max_length=300)]
    digest_window_ms: Annotated[int, Field(ge=WINDOW_MS_MIN, le=WINDOW_MS_MAX)] | None = None
    lifetime_ms: Annotated[int, Field(ge=1_000, le=WINDOW_MS_MAX)] | None = None

    @model_validator(mode="after")
    def _no_late_codes(self) -> Template:
        if self.priority == "otp" and self.digest_window_ms:
            raise ValueError("one-time codes are not gathered")
        return self

    def event(self, name: str, now_ms: int) -> TemplatePublished:
        """The event, without its version."""
        return TemplatePublished(
            template=name,
            version="",
            priority=self.priority,
            default_locale=self.default_locale,
            contents=[one.content() for one in self.contents],
            digest_window_ms=self.digest_window_ms or 0,
            lifetime_ms=self.lifetime_ms or 0,
            published_at=now_ms,
        )


class Campaign(_Camel):
    """A part of a campaign: the same notification to many."""

    campaign_id: Id = Field(description="Under the same one a recipient gets it once, ever.")
    part: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=0, description="Number of the part; send each as often as needed."
    )
    type: Name
    params: dict[str, Any] = Field(default_factory=dict)
    channels: Channels | None = None
    user_ids: Annotated[list[Id], Field(min_length=1, max_length=RECIPIENTS_MAX)]
    send_at: Instant | None = None
    expires_at: Instant | None = None

    @model_validator(mode="after")
    def _small(self) -> Campaign:
        params_json(self.params)
        return self
