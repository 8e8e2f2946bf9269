"""Templates at the edge: found, compiled, and tried on the parameters before anything is sent."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from http import HTTPStatus
from typing import Protocol

import msgspec

from api.positions import AppliedSource
from api.problem import InputError, Problem
from connectors.notifications.templates import Template, TemplateError
from schemas.notifications.events import TemplatePublished

BELIEVED_S = 1.0
"""How long the current version of a template is believed."""
KEPT_MAX = 1_000


class TemplateReads(AppliedSource, Protocol):
    """What is asked about templates; `sinks.notifications.reader.TemplatesReader` answers."""

    async def template(self, name: str, version: str = "") -> TemplatePublished | None:
        """A version of a template, the current one by default; None where there is none."""
        ...


class Compiled:
    """The current templates, compiled, for a moment."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[float, Template]] = OrderedDict()

    async def find(self, reads: TemplateReads, name: str) -> Template:
        """The template. Raises the 400 problem where there is none."""
        until_s, template = self._kept.get(name, (0.0, None))
        if template is None or until_s < time.monotonic():
            published = await reads.template(name)
            if published is None:
                raise bad_template(f"there is no type {name}", "#/type")
            if template is None or template.published != published:
                template = Template(published)
            self._kept[name] = (time.monotonic() + BELIEVED_S, template)
            self._kept.move_to_end(name)
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return template


def tried(template: Template, channels: Sequence[str] | None, params: str) -> list[str]:
    """The channels to use, after every text was rendered once. Raises the 400 problem.

    A digest is tried with one item: what holds for one holds for many.
    """
    wanted = list(channels or template.channels)
    for channel in wanted:
        if channel not in template.channels:
            name = template.published.template
            raise bad_template(f"{name} has no text for {channel}", "#/channels")
    try:
        template.check(wanted, _gathered(params) if template.published.digest_window_ms else params)
    except TemplateError as error:
        raise bad_template(str(error), "#/params") from None
    return wanted


def bad_template(detail: str, pointer: str) -> Problem:
    """400: the template, or what it was given, cannot be rendered."""
    wrong = InputError(detail=detail, pointer=pointer)
    return Problem(HTTPStatus.BAD_REQUEST, "template-error", detail, errors=[wrong])


def _gathered(params: str) -> str:
    digest = {
        "count": 1,
        "items": [msgspec.Raw(params.encode())],
        "more": 0,
        "window_start": 0,
        "window_end": 0,
    }
    return msgspec.json.encode(digest).decode()
