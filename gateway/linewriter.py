"""Log lines out of a thread, so that an output that is not read can never stop the event loop."""

from __future__ import annotations

import io
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import IO, Any

MAX_BYTES = 8 * 1024 * 1024  # some 10,000 lines of `exchange.settled`: seconds of full load
DELAY_S = 0.02  # a line is out within this, and a busy process makes at most 50 writes per second
CLOSE_S = 1.0  # what shutdown can spare


class LineWriter:
    """
    Takes whole lines at once and writes them in batches from a daemon thread, which starts with the first line.

    Lines that do not fit the queue are dropped and counted; when the output flows again, a note says how many. A
    process forked from this one starts with an empty queue and a thread of its own.

    Args:
        stream: Where lines go: anything with a file descriptor, which is then written to past the stream's own buffer
            (a thread stuck in that buffer would abort the interpreter at exit), or else a binary stream.
        note: Renders the line that tells of so many dropped ones.
        on_drop: Called with a number of lines as soon as they are dropped, in whatever thread; must not block or raise.
        max_bytes: Bound of the queue. As much again may be on its way out.
    """

    def __init__(
        self,
        stream: IO[Any],
        *,
        note: Callable[[int], bytes],
        on_drop: Callable[[int], None],
        max_bytes: int = MAX_BYTES,
        delay_s: float = DELAY_S,
    ) -> None:
        self._raw = _unbuffered(stream)
        self._note = note
        self._on_drop = on_drop
        self._max_bytes = max_bytes
        self._delay_s = delay_s
        self._dropped = 0
        self._told = 0
        self._closed = False
        self._reset()
        forked = weakref.WeakMethod(self._reset)  # a hook cannot be taken back: it must not keep the writer alive
        os.register_at_fork(after_in_child=lambda: reset() if (reset := forked()) else None)

    def _reset(self) -> None:
        # Re-entrant: a signal handler or a finalizer may log while this very thread holds the lock.
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._lines: list[bytes | Callable[[], bytes]] = []
        self._bytes = 0

    @property
    def dropped(self) -> int:
        """Lines dropped so far."""
        return self._dropped

    def write(self, line: bytes) -> None:
        """Queue *line*, its newline included. Never blocks, never raises."""
        self._queue(line, len(line))

    def write_later(self, render: Callable[[], bytes], size: int) -> None:
        """
        Queue a line that *render* makes when its turn to be written comes; it must not raise. Never blocks.

        Args:
            size: About how many bytes what is queued for it takes.
        """
        self._queue(render, size)

    def _queue(self, line: bytes | Callable[[], bytes], size: int) -> None:
        with self._lock:
            fits = self._bytes + size <= self._max_bytes and not self._closed
            if fits:
                self._lines.append(line)
                self._bytes += size
            else:
                self._dropped += 1
            if self._thread is None and not self._closed:
                self._start()
        if not self._wake.is_set():
            self._wake.set()
        if not fits:
            self._on_drop(1)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread to be had, or the interpreter is leaving: the next line tries again
            return
        self._thread = thread

    def close(self, timeout_s: float = CLOSE_S) -> bool:
        """Write out what is queued, for at most *timeout_s*; whether all of it went out. Later lines are dropped."""
        self._closed = True
        self._closing.set()
        self._wake.set()
        thread = self._thread
        if thread is None:
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def _run(self) -> None:
        closing = False
        while not closing:
            self._wake.wait()
            self._wake.clear()
            closing = self._closing.wait(self._delay_s)  # read before the lines, so that the last ones are among them
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            lines, self._lines, self._bytes = self._lines, [], 0
            dropped = self._dropped
        if lines and not self._send(b"".join([line if isinstance(line, bytes) else line() for line in lines])):
            with self._lock:
                self._dropped += len(lines)
            self._on_drop(len(lines))
        elif dropped > self._told and self._send(self._note(dropped - self._told)):
            self._told = dropped

    def _send(self, data: bytes) -> bool:
        left = memoryview(data)
        try:
            while left:
                written = self._raw.write(left)
                if written is None:  # the descriptor was made non-blocking by somebody it is shared with
                    time.sleep(self._delay_s)
                else:
                    left = left[written:]
        except (OSError, ValueError):  # nobody reads it any more, the disk is full, or the stream is closed
            return False
        return True


def _unbuffered(stream: IO[Any]) -> IO[bytes] | io.FileIO:
    try:
        descriptor = stream.fileno()
    except (AttributeError, OSError):  # a stream in memory
        return stream
    stream.flush()
    return io.FileIO(descriptor, "wb", closefd=False)
