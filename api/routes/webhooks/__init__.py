"""Webhooks: a tenant's endpoints, its messages, and what became of them."""

from __future__ import annotations

from api.routes.webhooks.endpoints import router as endpoints
from api.routes.webhooks.messages import router as messages

__all__ = ["endpoints", "messages"]
