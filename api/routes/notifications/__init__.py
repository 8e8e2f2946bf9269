"""Notifications: send, schedule, cancel; preferences and addresses; timelines; callbacks."""

from __future__ import annotations

from api.routes.notifications.callbacks import router as callbacks
from api.routes.notifications.recipients import router
from api.routes.notifications.sending import router as sending

__all__ = ["callbacks", "router", "sending"]
