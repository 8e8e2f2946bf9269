"""Pastes: who may read one, for how long, and when nobody needs its content any more.

A paste has an id that lies in the partition of its content's hash, so one writer decides about
all pastes with the same content: it counts who needs the content, in the same event that makes or
ends a paste, and no count is ever kept in two places. Which object in the object store has the
content is decided there, too. A new upload is a new object, whatever its content; one that turns
out to be superfluous, or the last one of its content, is `dropped` at an offset after which no
paste can come to need it. So an object is deleted without asking anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from schemas.pastes.contents import CONTENT_BYTES_MAX, parts_of
from schemas.pastes.events import (
    CLAIM_PASTE,
    COMMANDS,
    CREATE_PASTE,
    DELETE_PASTE,
    NOTE_KEY,
    REPORT_PURGED,
    ClaimPaste,
    CreatePaste,
    DeletePaste,
    KeyNoted,
    ObjectDropped,
    PasteChange,
    PasteChanged,
    ReportPurged,
    ReviewObject,
    Visibility,
)
from schemas.pastes.locks import fits
from streams.runtime.decider.rules import Command, Event, Rejected, Reply, State, Timer
from streams.runtime.kafka import partition_of

MINUTE_MS: Final = 60_000
TTL_MS_MAX: Final = 10 * 366 * 24 * 60 * MINUTE_MS
UPLOAD_MS_MAX: Final = 30 * MINUTE_MS
"""A paste must be asked for so soon after its content was stored."""
ORPHAN_MS_MIN: Final = 60 * MINUTE_MS
"""What was stored so long ago can be found to be needed by nobody. The half hour between the two
is for clocks that differ: those of the servers that store, and that of the log."""


class Paste(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A paste as it stands; the fields are those of `PasteChanged`."""

    ended: str
    owner: str
    visibility: Visibility
    language: str
    sha256: str
    size: int
    created_ms: int
    expires_ms: int | None
    burn: bool
    lock: str
    object: str

    def expired(self, now_ms: int) -> bool:
        """Whether its time is over, decided or not."""
        return self.expires_ms is not None and self.expires_ms <= now_ms


class Content(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a content is (empty: in an event), and how many pastes need it."""

    object: str
    references: int


NOWHERE: Final = Content("", 0)


class PasteRules:
    """Pure; see `streams.runtime.decider.rules.Rules`."""

    version = 1
    tables: Mapping[str, Any] = {"pastes": Paste, "contents": Content}

    def decide(self, state: State, command: Command) -> Any:
        row, now_ms = command.row, command.time_ms
        match command.record:
            case CREATE_PASTE.fullname:
                return _create(state, row, now_ms)
            case CLAIM_PASTE.fullname:
                return _claim(state, row, now_ms)
            case DELETE_PASTE.fullname:
                return _delete(state, row, now_ms)
            case REPORT_PURGED.fullname:
                return _purged(state, row, now_ms)
            case NOTE_KEY.fullname:
                return KeyNoted(row.id, now_ms)
            case _:
                return _review(state, row, now_ms)

    def expire(self, state: State, timer: Timer) -> Any:
        return _end(state, timer.name, state["pastes"][timer.name], "expired", timer.time_ms)

    def evolve(self, state: State, event: Event) -> None:
        row = event.row
        if not isinstance(row, PasteChanged):
            return
        pastes, contents = state["pastes"], state["contents"]
        if row.change != "purged":
            if row.references:
                contents[row.sha256] = Content(row.object, row.references)
            else:
                del contents[row.sha256]
        if row.ended and (row.change == "purged" or not row.dropped):
            del pastes[row.id]
        else:
            fields = {name: getattr(row, name) for name in Paste.__struct_fields__}
            pastes[row.id] = Paste(**fields)
        if row.change == "created" and row.expires_ms is not None:
            state.schedule(row.id, row.expires_ms)
        elif row.ended:
            state.cancel(row.id)

    def reply(self, event: Event) -> Reply:
        row = event.row
        if not isinstance(row, PasteChanged):
            return Reply(200, {"id": row.id})
        told = {
            "id": row.id,
            "change": row.change,
            "sha256": row.sha256,
            "size": row.size,
            "language": row.language,
            "visibility": row.visibility,
            "createdAt": row.created_ms,
            "expiresAt": row.expires_ms,
            "burnAfterRead": row.burn,
            "password": bool(row.lock),
        }
        return Reply(201 if row.change == "created" else 200, told)


def _create(state: State, row: CreatePaste, now_ms: int) -> PasteChanged:
    _check(row, now_ms)
    if row.paste in state["pastes"]:
        raise Rejected("id_taken", "there is a paste of that id: ask again with another")
    known = state["contents"].get(row.id) or NOWHERE
    stored = row.object if known is NOWHERE else known.object
    paste = Paste(
        ended="",
        owner=row.owner,
        visibility=row.visibility,
        language=row.language,
        sha256=row.id,
        size=row.size,
        created_ms=now_ms,
        expires_ms=None if row.ttl_ms is None else now_ms + row.ttl_ms,
        burn=row.burn,
        lock=row.lock,
        object=stored,
    )
    return _changed(
        *(row.paste, paste, "created", now_ms),
        references=known.references + 1,
        dropped="" if row.object == stored else row.object,
        content=row.content if known is NOWHERE else None,
    )


def _check(row: CreatePaste, now_ms: int) -> None:
    """Raise `Rejected` for what makes no paste, whatever the state."""
    if row.size > CONTENT_BYTES_MAX:
        detail = f"a paste has at most {CONTENT_BYTES_MAX} bytes"
        raise Rejected("content_too_large", detail, status=413)
    if row.ttl_ms is not None and not 0 < row.ttl_ms <= TTL_MS_MAX:
        raise Rejected("bad_ttl", f"expiresIn must be 1 to {TTL_MS_MAX} ms", status=422)
    if partition_of(row.paste, COMMANDS.partitions) != partition_of(row.id, COMMANDS.partitions):
        raise Rejected("bad_id", "the id does not lie where the content does", status=422)
    if row.content is not None and (row.burn or row.ttl_ms is not None):
        detail = "what is to vanish is not written where nothing can be deleted"
        raise Rejected("would_stay", detail, status=422)
    if (row.content is None) != bool(row.object):
        raise Rejected("no_content", "the content is in the event or in an object", status=422)
    if row.object:
        stored = parts_of(row.object)
        if stored is None or stored[0] != row.id:
            raise Rejected("bad_object", "the object is not one of this content", status=422)
        if now_ms - stored[1] > UPLOAD_MS_MAX:
            raise Rejected("stale_upload", "the content was stored too long ago: send it again")


def _claim(state: State, row: ClaimPaste, now_ms: int) -> PasteChanged:
    paste = _readable(state, row.id, now_ms)
    if not fits(paste.lock, row.proof):
        raise Rejected("wrong_password", "that is not the password of this paste", status=403)
    if not paste.burn:
        raise Rejected("not_to_burn", "this paste can be read any number of times")
    return _end(state, row.id, paste, "burned", now_ms)


def _delete(state: State, row: DeletePaste, now_ms: int) -> PasteChanged:
    paste = _readable(state, row.id, now_ms)
    if paste.owner != row.owner:
        raise Rejected("not_yours", "only who made a paste may delete it", status=403)
    return _end(state, row.id, paste, "deleted", now_ms)


def _readable(state: State, name: str, now_ms: int) -> Paste:
    paste: Paste | None = state["pastes"].get(name)
    if (
        paste is None
        or paste.ended
        or (paste.expires_ms is not None and paste.expires_ms <= now_ms)
    ):
        raise Rejected("gone", "there is no such paste any more", status=410)
    return paste


def _end(state: State, name: str, paste: Paste, change: PasteChange, now_ms: int) -> PasteChanged:
    left = state["contents"][paste.sha256].references - 1
    ended = msgspec.structs.replace(paste, ended=change)
    dropped = "" if left else paste.object
    return _changed(name, ended, change, now_ms, references=left, dropped=dropped)


def _purged(state: State, row: ReportPurged, now_ms: int) -> PasteChanged:
    paste: Paste | None = state["pastes"].get(row.id)
    if paste is None or not paste.ended or paste.object != row.object:
        raise Rejected("nothing_to_purge", "nothing of this paste was to be deleted")
    return _changed(row.id, paste, "purged", now_ms, references=0, dropped="")


def _review(state: State, row: ReviewObject, now_ms: int) -> ObjectDropped:
    named = parts_of(row.object)
    if named is None or named[0] != row.id:
        raise Rejected("bad_object", "the object is not one of this content", status=422)
    if (state["contents"].get(row.id) or NOWHERE).object == row.object:
        raise Rejected("in_use", "a paste needs this object")
    if now_ms - named[1] < ORPHAN_MS_MIN:
        raise Rejected("too_young", "a paste may still be made of this object")
    return ObjectDropped(row.id, row.object, now_ms)


def _changed(
    name: str,
    paste: Paste,
    change: PasteChange,
    now_ms: int,
    *,
    references: int,
    dropped: str,
    content: str | None = None,
) -> PasteChanged:
    """The event that leaves the paste as this."""
    return PasteChanged(
        id=name,
        change=change,
        **{field: getattr(paste, field) for field in Paste.__struct_fields__},
        content=content,
        references=references,
        dropped=dropped,
        recorded_at=now_ms,
    )
