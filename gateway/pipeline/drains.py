"""The answers that are being read on after their clients have left, as tasks of the house."""

from __future__ import annotations

from typing import Protocol

from gateway.aio import Tasks

MAX_DRAINS = 256  # of a process. They hold a request and a connection each, and no socket of a client bounds them


class Reading(Protocol):
    """An answer that is read on."""

    async def run(self) -> None: ...

    def conclude(self) -> None:
        """Stop and settle, if that has not been done. It settles even if it raises a bug of ours."""


class Drains:
    """
    Those that are under way.

    Args:
        tasks: Theirs alone.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def has_room(self) -> bool:
        """Whether one more may be read on; otherwise the provider is left with its client, as without drain."""
        return not self._is_closed and len(self._tasks) < MAX_DRAINS

    def start(self, reading: Reading) -> None:
        """Read on. It is concluded whatever becomes of its task, even if that never gets to begin."""
        task = self._tasks.spawn(reading.run(), name="drain")
        task.add_done_callback(lambda _: reading.conclude())

    async def close(self, timeout_s: float) -> None:
        """Take no more, wait for those there are, and after *timeout_s* settle what they have."""
        self._is_closed = True
        await self._tasks.drain(max(0.0, timeout_s))
