"""Calls of tools that wait for their results: the turn that follows answers each of them, and nothing else."""

from __future__ import annotations

from gateway.dialects.validate import refuse


class OpenCalls:
    """The calls of the last turn of the assistant that have no result yet, by the client's ids, with their places."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}

    def call(self, call_id: str, place: str) -> None:
        """The assistant calls. Raises GatewayError if the same turn has that id already."""
        if call_id in self._places:
            raise refuse(place, f"{place}: two calls of one turn have the same id.")
        self._places[call_id] = place

    def answer(self, call_id: str, place: str) -> None:
        """A result has come. Raises GatewayError if no call waits for it."""
        if self._places.pop(call_id, None) is None:
            raise refuse(place, f"{place}: no tool call of the turn before waits for this result.")

    def close(self) -> None:
        """The turn of the results is over. Raises GatewayError if one is missing."""
        for place in self._places.values():
            raise refuse(place, f"{place}: the messages that follow have no result for this tool call.")
