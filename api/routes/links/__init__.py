"""Short links: made and switched by their owners, followed by everybody, counted for anybody."""

from __future__ import annotations

from api.routes.links import redirect, urls

ROUTERS = (urls.writes, urls.router, redirect.router)
"""The redirect last: its path is any one word."""
