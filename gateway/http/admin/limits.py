"""Where the limits of a key stand, for whoever has the key."""

from __future__ import annotations

from typing import Protocol

from gateway.core.accounts import Key
from gateway.core.errors import INVALID_REQUEST, GatewayError
from gateway.http.admin.routes import AdminRequest, AdminRoute, Reply, json_reply


class Standings(Protocol):
    """What counts."""

    async def usage_limits(self, key: Key, session_id: str | None = None) -> dict[str, object]:
        """Every limit with what is used, held and left of it. Raises StoreUnavailable."""


class LimitsDesk:
    """The route of the limits."""

    def __init__(self, standings: Standings) -> None:
        self._standings = standings

    def routes(self) -> tuple[AdminRoute, ...]:
        """One row."""
        takes = frozenset({"session"})
        return (AdminRoute("GET", "usage/limits", "read", self.limits, takes, open_to_inference=True),)

    async def limits(self, asked: AdminRequest) -> Reply:
        """Those of the key that asks, with the budgets of a session where it names one."""
        if "inference" not in asked.key.rights:
            raise GatewayError(INVALID_REQUEST, "Ask with the inference key itself: admin keys have no limits.")
        return json_reply(await self._standings.usage_limits(asked.key, asked.query.get("session")))
