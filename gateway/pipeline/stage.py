"""What a stage is: a step that every exchange passes before a provider is asked."""

from __future__ import annotations

from typing import Protocol

from gateway.core.exchange import Answer, Exchange
from gateway.core.receipt import Receipt


class Stage(Protocol):
    """One step. `settle` is called once per successful `admit`, newest first; it never awaits and never raises."""

    async def admit(self, exchange: Exchange) -> Answer | None:
        """Let *exchange* pass (None), answer it at once, or refuse it.

        Raises:
            GatewayError: The request is refused.
        """

    def settle(self, exchange: Exchange, receipt: Receipt) -> None: ...
