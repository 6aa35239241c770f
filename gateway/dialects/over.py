"""Lanes that stand in front of another one, and change or keep what it says."""

from __future__ import annotations

from gateway.core.errors import Failure
from gateway.dialects.base import Lane


class Over:
    """A lane in front of which something stands: everything that it says of itself is the lane's own."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    @property
    def note(self) -> str | None:
        return self._lane.note

    @note.setter
    def note(self, note: str | None) -> None:
        self._lane.note = note

    @property
    def started(self) -> bool:
        return self._lane.started

    @property
    def complete(self) -> bool:
        return self._lane.complete

    @property
    def ended(self) -> bool:
        return self._lane.ended

    @property
    def failure(self) -> Failure | None:
        return self._lane.failure

    @property
    def progress(self) -> int:
        return self._lane.progress

    @property
    def talking(self) -> bool:
        return self._lane.talking

    @property
    def deltas(self) -> int:
        return self._lane.deltas

    @property
    def response_id(self) -> str | None:
        return self._lane.response_id
