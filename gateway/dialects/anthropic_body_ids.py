"""Ids of tool calls as Anthropic wants them: of few characters, never twice, each answered in the turn that follows."""

from __future__ import annotations

import re

from gateway.dialects.open_calls import OpenCalls

_FITS = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # by the API's own refusals; other vendors' ids have dots and colons


class CallIds:
    """
    The ids of a conversation, in its order.

    One that the API would refuse, or that was used before, is replaced by the number of its call: the same each time
    that the conversation is sent, so that prompt caches go on to match.
    """

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._open = OpenCalls()
        self._written: dict[str, str] = {}

    def call(self, call_id: str, place: str) -> str:
        """The id to write for a call. Raises GatewayError if the same turn has it already."""
        self._open.call(call_id, place)
        fits = _FITS.fullmatch(call_id) and call_id not in self._used
        written = call_id if fits else f"call_{len(self._used)}"
        while written in self._used:
            written += "_"
        self._used.add(written)
        self._written[call_id] = written
        return written

    def answer(self, call_id: str, place: str) -> str:
        """The id to write for a result. Raises GatewayError if no call waits for it."""
        self._open.answer(call_id, place)
        return self._written[call_id]

    def close(self) -> None:
        """The turn of the results is over. Raises GatewayError if one is missing."""
        self._open.close()
