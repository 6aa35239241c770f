"""Programs under test: pinned, bounded, and read through /proc."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_STOP_S = 5.0
_libc = ctypes.CDLL(None)
_PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)


def open_file_limit() -> int:
    """Raise the limit of open files to the allowed maximum and say what it is."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _prepare(core: int) -> Callable[[], None]:
    def in_child() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nothing outlives the bench
        os.sched_setaffinity(0, {core})
        open_file_limit()

    return in_child


class Program:
    """A running program with its process tree."""

    def __init__(self, command: Sequence[str], *, core: int, env: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=_prepare(core),
            )
        self._tree: tuple[int, ...] = (self._process.pid,)

    async def listening(self, port: int, seconds: float) -> bool:
        """Wait until *port* takes connections; False when the program ended or time is up."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                await asyncio.sleep(0.05)
            else:
                return True
        return False

    def last_words(self) -> str:
        """The end of what it printed."""
        return self._log.read_text(errors="replace")[-1500:]

    def refresh(self) -> None:
        """Look for children again; do so before a window, not inside it."""
        self._tree = tuple(_tree(self._process.pid))

    def cpu_s(self) -> float:
        """Seconds on a core, all threads of the tree."""
        return self._schedstat(0)

    def waited_s(self) -> float:
        """Seconds in which a thread of the tree could have run but its core was taken."""
        return self._schedstat(1)

    def _schedstat(self, place: int) -> float:
        """A sum of schedstat's nanoseconds (kernel documentation, scheduler/sched-stats: on core, in the run queue)."""
        total = 0
        for pid in self._tree:
            with contextlib.suppress(OSError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/schedstat", "rb") as file:
                        total += int(file.read().split()[place])
        return total / 1e9

    def pss_kb(self) -> int:
        """Proportional set size of the tree."""
        total = 0
        for pid in self._tree:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                found = _PSS.search(file.read())
                total += int(found[1]) if found else 0
        return total

    def stop(self) -> None:
        """SIGTERM to its session, SIGKILL when that takes longer than five seconds."""
        for name in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, name)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_S)


def _tree(root: int) -> list[int]:
    children = defaultdict[int, list[int]](list)
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
                children[parent].append(int(entry))
    found, todo = list[int](), [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children[pid]
    return found


_SPIN = """
import os, sys, time
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for _ in range(999_999):
        pass
"""


class Spinner:
    """Keeps the load's core busy with idle-class work while CPU is measured.

    Where two cores are threads of one physical core, work on one of them takes up to 1.5 times the CPU time while the
    other is busy. With the spinner it is always busy, whatever the candidate. It lengthens latency tails, so only CPU
    figures are taken with it.

    It stays in our session: a new one would be a scheduling group of its own (autogroup, sched(7)), and groups share a
    core evenly whatever the class of the tasks in them.
    """

    def __init__(self, core: int, seconds: float) -> None:
        command = [sys.executable, "-c", _SPIN, str(seconds)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_prepare(core))

    def __enter__(self) -> Spinner:
        """It spins already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop spinning."""
        self._process.kill()
        self._process.wait()


def free_port() -> int:
    """A loopback port nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
