"""A client in memory that notes what it hears, and when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable


class ScriptedSink:
    """
    Implements `Sink` for a client of the OpenAI dialect.

    Attributes:
        heard: What the client got, as (loop seconds, word); see `words`. `200`, `end` and `abort` are the connection's.
            An `end` that stays in the buffers of a client that does not read is not heard.
        gone: The client has left, so that writing to it fails.
    """

    def __init__(self) -> None:
        self.heard: list[tuple[float, str]] = []
        self.gone = False
        self.committed = False
        self._reads = True
        self._is_closed = False
        self._leave: Callable[[], None] | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()

    @property
    def blocked(self) -> bool:
        return not self._flowing.is_set()

    def on_leave(self, leave: Callable[[], None]) -> None:
        self._leave = leave

    def leave(self) -> None:
        """The client is seen to be gone; whoever plays the server cancels the exchange in the same moment."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    def stop_reading(self) -> None:
        """The next write finds the buffers full."""
        self._reads = False

    def read_on(self) -> None:
        self._reads = True
        self._flowing.set()
        self._hear_end()

    def open(self, headers: tuple[tuple[str, str], ...]) -> None:
        assert not self.committed, "two heads"
        self.committed = True
        self._hear("200")

    def write(self, data: bytes) -> None:
        if self.gone:
            raise ConnectionResetError
        for word in words(data):
            self._hear(word)
        if not self._reads:
            self._flowing.clear()

    async def drain(self) -> None:
        await self._flowing.wait()
        if self.gone:
            raise ConnectionResetError

    def close(self, data: bytes) -> None:
        self.write(data)
        self._is_closed = True
        self._hear_end()

    def abort(self) -> None:
        self._hear("abort")

    def _hear_end(self) -> None:
        if self._is_closed and not self.blocked:
            self._is_closed = False
            self._hear("end")

    def _hear(self, word: str) -> None:
        self.heard.append((asyncio.get_running_loop().time(), word))


def words(data: bytes) -> list[str]:
    """One word for each whole frame of *data*: its text, `role`, `finish`, `metadata`, `error <class>`, `ping`, ..."""
    *frames, rest = data.decode().split("\n\n")
    assert not rest, "half a frame"
    return [_word(frame) for frame in frames]


def _word(frame: str) -> str:
    payload = frame.removeprefix("data: ")
    if not payload.startswith("{"):
        return payload.lstrip(": ")
    event = json.loads(payload)
    if "error" in event:
        return f"error {event['error']['_anoman']['failure_class']}"
    if event["object"] == "anoman.metadata":
        return "metadata"
    (choice,) = event["choices"]
    if choice["finish_reason"]:
        return "finish"
    return choice["delta"].get("content") or "role"
