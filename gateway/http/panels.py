"""One answer, several panels: where the pipeline's frames of each panel leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.dialects.openai_panels import PanelMark
from gateway.dialects.openai_stream import DONE, HEARTBEAT
from gateway.http.answer_headers import Headers
from gateway.http.sinks import StreamSink


class SharedStream:
    """
    The one stream that the panels of a run write to. Nothing here awaits between two bytes of a frame.

    Args:
        headers: Those of the 200, asked for when it is committed.
        clock_s: Monotonic seconds.
        panels: How many have to end before the stream does.
    """

    def __init__(
        self,
        sink: StreamSink,
        headers: Callable[[], Headers],
        *,
        heartbeat_s: float,
        clock_s: Callable[[], float],
        panels: int,
    ) -> None:
        self._sink = sink
        self._headers = headers
        self._heartbeat_s = heartbeat_s
        self._clock_s = clock_s
        self._left = panels
        self._begun = False  # whether a byte of the body has been written
        self._written_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def committed(self) -> bool:
        """Whether a panel has settled the 200."""
        return self._sink.committed

    @property
    def blocked(self) -> bool:
        """Whether the client reads slower than the panels write."""
        return self._sink.blocked

    def open(self) -> None:
        """Commit the 200, unless another panel has."""
        if not self._sink.committed:
            self._sink.open(self._headers())
            self._written_s = self._clock_s()
            self._arm(self._heartbeat_s)

    def write(self, frames: bytes) -> None:
        """Hand over whole frames of a panel that goes on. Raises ConnectionResetError."""
        self._begun, self._written_s = True, self._clock_s()
        self._sink.write(frames)

    async def drain(self) -> None:
        """Wait until the client has caught up."""
        await self._sink.drain()

    def end(self, frames: bytes) -> None:
        """Hand over the last frames of a panel; behind those of the last panel comes the terminator, in one piece."""
        self._left -= 1
        if self._left:
            self.write(frames)
        else:
            self.close()
            self._sink.close(frames + DONE)

    def beat(self) -> None:
        """A panel has been silent: a heartbeat where nothing at all has been written, else the stream's time counts."""
        if not self._begun:
            self.write(HEARTBEAT)

    def abort(self) -> None:
        """Drop the connection, so that the client cannot take any panel's answer for a whole one."""
        self._sink.abort()

    def close(self) -> None:
        """No more heartbeats."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, wait_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        """The time for a heartbeat has come, unless a panel has written meanwhile: then look again when it will be."""
        left_s = self._heartbeat_s - (self._clock_s() - self._written_s)
        if left_s <= 0:
            left_s = self._heartbeat_s
            if not self._sink.blocked:  # else there is enough on its way that the client has not taken
                try:
                    self.write(HEARTBEAT)
                except ConnectionError:
                    return  # the panels hear of it from the connection
        self._arm(left_s)


class PanelSink:
    """Implements the pipeline's `Sink` for one panel.

    Attributes:
        committed: Whether the panel itself has begun. That others have does not end its attempts.
        ended: Whether its last frames are handed over.
    """

    def __init__(self, stream: SharedStream, panel_id: str) -> None:
        self._stream = stream
        self._mark = PanelMark(panel_id)
        self._leave: Callable[[], None] | None = None
        self.committed = False
        self.ended = False

    def on_leave(self, leave: Callable[[], None]) -> None:
        """Have *leave* called when the client is seen to be gone, or the panel is cancelled; the newest one counts."""
        self._leave = leave

    def leave(self) -> None:
        """Nobody wants the rest of the panel's answer: what is under way for it ends here and now."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    def forget(self) -> None:
        """The panel is over: what would have been called holds its exchange, and that holds this sink."""
        self._leave = None

    @property
    def blocked(self) -> bool:
        """Whether the client reads slower than the panels write."""
        return self._stream.blocked

    def open(self, headers: Headers) -> None:
        """Begin; the headers of the 200 are the run's."""
        self.committed = True
        self._stream.open()

    def write(self, data: bytes) -> None:
        """Hand over whole frames in one piece, or a heartbeat, if the run needs one. Raises ConnectionResetError."""
        if data == HEARTBEAT:
            self._stream.beat()
        else:
            self._stream.write(self._mark(data))

    async def drain(self) -> None:
        """Wait until the client has caught up."""
        await self._stream.drain()

    def abort(self) -> None:
        """The client takes nothing any more, of no panel: drop the connection."""
        self._stream.abort()

    def close(self, data: bytes) -> None:
        """Hand over the last frames; the terminator is the run's, not the panel's. Raises ConnectionResetError."""
        self.ended = True
        self._stream.end(self._mark(data.removesuffix(DONE)))
