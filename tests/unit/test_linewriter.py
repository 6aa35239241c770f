"""The thread between the event loop and the log's output."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO

import pytest

from gateway.linewriter import LineWriter


def note(count: int) -> bytes:
    return b"dropped %d\n" % count


def writer_on(stream: IO[bytes], drops: list[int] | None = None, max_bytes: int = 1000) -> LineWriter:
    seen = drops if drops is not None else []
    return LineWriter(stream, note=note, on_drop=seen.append, max_bytes=max_bytes, delay_s=0.001)


class Gate(io.BytesIO):
    """A stream in memory whose writes wait until it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.opened = threading.Event(), threading.Event()

    def write(self, data: bytes) -> int:  # type: ignore[override]  # bytes-like is enough here
        self.entered.set()
        assert self.opened.wait(10)
        return super().write(data)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read_end, write_end = os.pipe()
    yield read_end, write_end
    for descriptor in (read_end, write_end):
        try:
            os.close(descriptor)
        except OSError:
            pass


def test_lines_arrive_in_order() -> None:
    """What was written before `close` is in the stream after it, in order."""
    stream = io.BytesIO()
    writer = writer_on(stream, max_bytes=100_000)
    for number in range(1000):
        writer.write(b"%d\n" % number)

    assert writer.close()
    assert stream.getvalue() == b"".join(b"%d\n" % number for number in range(1000))


def test_lines_made_later_keep_their_place() -> None:
    """A line that is made when it is written stands where it was queued."""
    stream = io.BytesIO()
    writer = writer_on(stream)
    made: list[threading.Thread] = []

    def render() -> bytes:
        made.append(threading.current_thread())
        return b"two\n"

    writer.write(b"one\n")
    writer.write_later(render, 4)
    writer.write(b"three\n")

    assert writer.close()
    assert stream.getvalue() == b"one\ntwo\nthree\n"
    assert made != [threading.current_thread()]


def test_lines_made_later_count() -> None:
    """They fill the queue by the size that is given for them, and are dropped like others."""
    drops: list[int] = []
    gate = Gate()
    writer = writer_on(gate, drops, max_bytes=100)
    writer.write(b"first\n")
    assert gate.entered.wait(10)

    for _ in range(3):
        writer.write_later(lambda: b"x\n", 40)
    gate.opened.set()

    assert writer.close()
    assert drops == [1]
    assert gate.getvalue() == b"first\nx\nx\n" + note(1)


def test_lines_go_out_without_close(pipe: tuple[int, int]) -> None:
    """A line is out within the delay, without anybody asking."""
    writer = writer_on(os.fdopen(pipe[1], "wb", closefd=False))
    writer.write(b"hello\n")

    assert os.read(pipe[0], 100) == b"hello\n"
    writer.close()


def test_blocked_output_blocks_nobody_and_is_told_of() -> None:
    """While the output is blocked lines are taken, then dropped and counted; afterwards a note says how many."""
    stream, drops = Gate(), list[int]()
    writer = writer_on(stream, drops, max_bytes=100)
    writer.write(b"first\n")
    assert stream.entered.wait(10)
    started_s = time.monotonic()
    for _ in range(25):
        writer.write(b"123456789\n")
    took_s = time.monotonic() - started_s
    dropped_then, sum_then = writer.dropped, sum(drops)
    stream.opened.set()
    assert writer.close()

    assert (dropped_then, sum_then, took_s < 1) == (15, 15, True)
    assert stream.getvalue() == b"first\n" + b"123456789\n" * 10 + b"dropped 15\n"


def test_note_comes_once() -> None:
    """Lines after the recovery are not told of again."""
    stream = io.BytesIO()
    writer = writer_on(stream, max_bytes=10)
    writer.write(b"longer than ten\n")
    writer.write(b"short\n")
    while b"dropped" not in stream.getvalue():
        time.sleep(0.001)
    writer.write(b"again\n")
    writer.close()

    assert sorted(stream.getvalue().splitlines()) == [b"again", b"dropped 1", b"short"]


def test_close_gives_up_on_a_blocked_output() -> None:
    """Shutdown waits a bounded time for an output that nobody reads."""
    stream = Gate()
    writer = writer_on(stream)
    writer.write(b"stuck\n")
    started_s = time.monotonic()
    flushed = writer.close(0.05)
    took_s = time.monotonic() - started_s
    stream.opened.set()

    assert (flushed, took_s < 2) == (False, True)


def test_closed_writer_drops() -> None:
    """A line after `close` is counted, not kept for ever."""
    stream, drops = io.BytesIO(), list[int]()
    writer = writer_on(stream, drops)
    closed = writer.close()
    writer.write(b"late\n")

    assert (closed, stream.getvalue(), drops) == (True, b"", [1])


def test_broken_output_is_survived(pipe: tuple[int, int]) -> None:
    """When the reader is gone, lines count as dropped and the thread lives on."""
    os.close(pipe[0])
    drops: list[int] = []
    writer = writer_on(os.fdopen(pipe[1], "wb", closefd=False), drops)
    writer.write(b"one\n")
    while not drops:
        time.sleep(0.001)
    writer.write(b"two\n")

    assert writer.close()
    assert sum(drops) == 2


def test_non_blocking_output_is_written_completely(pipe: tuple[int, int]) -> None:
    """A full pipe in non-blocking mode delays lines, and tears or loses none."""
    os.set_blocking(pipe[1], False)
    writer = writer_on(os.fdopen(pipe[1], "wb", closefd=False), max_bytes=1 << 20)
    lines = b"".join(b"%07d\n" % number for number in range(40_000))  # five times a pipe's usual 64 KiB
    writer.write(lines)
    received = b""
    while len(received) < len(lines):
        received += os.read(pipe[0], 65536)

    assert received == lines
    writer.close()


FORK = """
import os, sys
from gateway.linewriter import LineWriter
writer = LineWriter(sys.stdout, note=lambda count: b"", on_drop=lambda count: None, delay_s=0.2)
writer.write(b"parent\\n")
pid = os.fork()
if pid == 0:
    writer.write(b"child\\n")
    os._exit(0 if writer.close() else 1)
_, status = os.waitpid(pid, 0)
sys.exit(status or not writer.close())
"""

STUCK = """
import sys
from gateway.linewriter import LineWriter
writer = LineWriter(sys.stdout, note=lambda count: b"", on_drop=lambda count: None)
writer.write(b"x" * 1_000_000)
sys.exit(3 if not writer.close(0.2) else 4)
"""


def test_missing_thread_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the system has no thread to give, a line waits for the next one instead of raising."""
    stream = io.BytesIO()
    writer = writer_on(stream)
    start = threading.Thread.start
    answers = [RuntimeError("can't start new thread")]

    def scarce(thread: threading.Thread) -> None:
        if answers:
            raise answers.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    writer.write(b"one\n")
    writer.write(b"two\n")
    writer.close()

    assert stream.getvalue() == b"one\ntwo\n"


def test_forked_process_writes_its_own_lines_once() -> None:
    """A child starts with an empty queue and a live thread: its lines come, and the parent's come once."""
    quiet = "-Wignore::DeprecationWarning"  # Python 3.12 and later warn of any fork beside a thread
    done = subprocess.run([sys.executable, quiet, "-c", FORK], capture_output=True, timeout=30, check=False)

    assert (done.returncode, sorted(done.stdout.split()), done.stderr) == (0, [b"child", b"parent"], b"")


def test_process_with_a_blocked_output_exits_cleanly() -> None:
    """A thread that hangs in a write does not keep the interpreter from leaving, nor crash it."""
    process = subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    code = process.wait(30)
    assert process.stdout is not None
    assert process.stderr is not None
    errors = process.stderr.read()
    process.stdout.close()
    process.stderr.close()

    assert (code, errors) == (3, b"")
