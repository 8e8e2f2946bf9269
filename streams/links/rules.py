"""Short links: who has which code, until when, and how many clicks are left.

A code has one writer, the owner of its partition, so an alias is taken once and a click cap is
exact. Codes without alias need no allocator: each partition counts for itself through one keyed
permutation and takes the codes that lie in it, so no two partitions ever take the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from schemas.links.codes import is_code
from schemas.links.events import (
    COMMANDS,
    CREATE_LINK,
    SWITCH_LINK,
    CreateLink,
    LinkChange,
    LinkChanged,
    SwitchLink,
    UseLink,
)
from streams.runtime.decider.rules import Command, Event, Rejected, Reply, State, Timer
from streams.runtime.kafka import partition_of
from streams.runtime.permutation import Codes

NEXT: Final = ""
TTL_MS_MAX: Final = 10 * 366 * 24 * 3_600_000


class Link(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A link as it stands; the fields are those of `LinkChanged`."""

    url: str
    owner: str
    permanent: bool
    expires_ms: int | None
    clicks_max: int | None
    used: int
    disabled: bool
    created_ms: int

    def changed(self, code: str, change: LinkChange, now_ms: int, next_number: int = -1) -> Any:
        """The event that leaves the link as this."""
        return LinkChanged(
            code=code,
            change=change,
            **{name: getattr(self, name) for name in self.__struct_fields__},
            next_number=next_number,
            recorded_at=now_ms,
        )


class LinkRules:
    """Pure; see `streams.runtime.decider.rules.Rules`. `codes` gives the permutation, which only
    new codes depend on: events hold the codes themselves.
    """

    version = 1
    tables: Mapping[str, Any] = {"links": Link, "next": int}

    def __init__(self, codes: Callable[[], Codes]) -> None:
        self._codes = codes

    def decide(self, state: State, command: Command) -> Any:
        match command.record:
            case CREATE_LINK.fullname:
                return self._create(state, command.row, command)
            case SWITCH_LINK.fullname:
                return _switch(state, command.row, command.time_ms)
            case _:
                return _use(state, command.row, command.time_ms)

    def expire(self, state: State, timer: Timer) -> Any:
        return state["links"][timer.name].changed(timer.name, "expired", timer.time_ms)

    def evolve(self, state: State, event: Event) -> None:
        row = event.row
        fields = {name: getattr(row, name) for name in Link.__struct_fields__}
        state["links"][row.code] = Link(**fields)
        if row.next_number >= 0:
            state["next"][NEXT] = row.next_number
        if row.change == "created" and row.expires_ms is not None:
            state.schedule(row.code, row.expires_ms)

    def reply(self, event: Event) -> Reply:
        row = event.row
        told = {
            "code": row.code,
            "longUrl": row.url,
            "permanent": row.permanent,
            "expiresAt": row.expires_ms,
            "clicksMax": row.clicks_max,
            "used": row.used,
            "disabled": row.disabled,
            "createdAt": row.created_ms,
        }
        return Reply(201 if row.change == "created" else 200, told)

    def _create(self, state: State, row: CreateLink, command: Command) -> LinkChanged:
        now_ms = command.time_ms
        if row.ttl_ms is not None and not 0 < row.ttl_ms <= TTL_MS_MAX:
            raise Rejected("bad_ttl", f"ttl must be 1 to {TTL_MS_MAX} ms", status=422)
        if row.clicks_max is not None and row.clicks_max < 1:
            raise Rejected("bad_cap", "clicksMax must be at least 1", status=422)
        expires_ms = None if row.ttl_ms is None else now_ms + row.ttl_ms
        link = Link(
            *(row.url, row.owner, row.permanent, expires_ms, row.clicks_max),
            used=0,
            disabled=False,
            created_ms=now_ms,
        )
        if not row.alias:
            code, next_number = self._free(state, command.key)
            return link.changed(code, "created", now_ms, next_number)  # type: ignore[no-any-return]
        if not is_code(row.code):
            raise Rejected("bad_alias", f"{row.code!r} cannot be an alias", status=422)
        if row.code in state["links"]:
            raise Rejected("alias_taken", f"{row.code!r} is taken")
        return link.changed(row.code, "created", now_ms)  # type: ignore[no-any-return]

    def _free(self, state: State, key: str) -> tuple[str, int]:
        """The next code of the partition that `key` lies in, and the number to go on from. One in
        `partitions` tries succeeds.
        """
        codes, partitions = self._codes(), COMMANDS.partitions
        own = partition_of(key, partitions)
        number = state["next"].get(NEXT) or 0
        while True:
            code = codes.code(number)
            number += 1
            if partition_of(code, partitions) == own and code not in state["links"]:
                return code, number


def _switch(state: State, row: SwitchLink, now_ms: int) -> Any:
    link = _found(state, row.code)
    if link.owner != row.owner:
        raise Rejected("not_yours", "only who made a link may change it", status=403)
    change: LinkChange = "disabled" if row.disabled else "enabled"
    return msgspec.structs.replace(link, disabled=row.disabled).changed(row.code, change, now_ms)


def _use(state: State, row: UseLink, now_ms: int) -> Any:
    link = _found(state, row.code)
    if link.disabled or (link.expires_ms is not None and link.expires_ms <= now_ms):
        raise Rejected("gone", "this link has expired or is disabled", status=410)
    if link.clicks_max is None or link.used >= link.clicks_max:
        raise Rejected("used_up", "this link has no clicks left", status=410)
    return msgspec.structs.replace(link, used=link.used + 1).changed(row.code, "used", now_ms)


def _found(state: State, code: str) -> Link:
    link: Link | None = state["links"].get(code)
    if link is None:
        raise Rejected("no_link", "there is no such link", status=404)
    return link
