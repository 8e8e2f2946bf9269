"""Pastes: made and deleted by their owners, read by whoever may."""

from __future__ import annotations

from typing import Final

from api.routes.pastes import lists, reading, writing
from schemas.pastes.contents import CONTENT_BYTES_MAX

ROUTERS = (writing.router, lists.router, reading.router)
LARGE: Final = {"/v1/pastes": 2 * CONTENT_BYTES_MAX + 65_536}
"""Paths that take larger bodies than others, and how large: JSON may write a character of three
bytes as an escape of six."""
