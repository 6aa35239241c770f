"""One of several serving processes: what gunicorn's master forks and watches. See `gateway.master`."""

from __future__ import annotations

import asyncio
import io
import os
import select
import signal
import sys
from types import FrameType
from typing import IO, Any, cast

import uvloop
from gunicorn.workers.base import Worker

from gateway import telemetry as events
from gateway.aio import Tasks
from gateway.app import App
from gateway.metrics import MetricsRecorder, close_multiprocess
from gateway.siblings import Siblings
from gateway.telemetry import Telemetry, configure

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
HEARTBEAT_S = 1.0  # a thirtieth of the silence after which the master kills a worker
BOOT_FAILED = 3  # gunicorn's own code: the master gives up instead of trying for ever
CRASHED = 1  # after it has served: the master starts another


class SharedOutput(io.RawIOBase):
    """
    A descriptor that several processes write lines to.

    One `write` passes on as many whole lines as the kernel takes in one piece: longer writes to a full pipe let lines
    of other processes in between (POSIX, `write`: atomic up to PIPE_BUF bytes). A line longer than that is risked.
    """

    def __init__(self, descriptor: int) -> None:
        self._raw = io.FileIO(descriptor, "wb", closefd=False)

    def write(self, data: Any) -> int | None:
        """Write the first lines of *data*; returns how many bytes went out, None if the descriptor would block."""
        lines = bytes(data[: select.PIPE_BUF]).rfind(b"\n") + 1
        return self._raw.write(data[: lines or bytes(data).find(b"\n") + 1 or len(data)])


class GatewayWorker(Worker):  # type: ignore[misc]  # gunicorn has no types
    """
    One `App` on the inherited sockets, with our signals, our drain and a heartbeat for the master.

    Everything here runs after the fork, `__init__` excepted: no thread and no event loop exists before.

    Attributes:
        slot: Its place among the workers; the master gives it one before the fork.
        succeeds: Whether another worker had this place before.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.slot = 0
        self.succeeds = False
        self._serving: App | None = None
        self._early: list[int] = []

    def init_signals(self) -> None:
        """Take signals from the first moment on; the master forks with `HANDLED` blocked, so that none is lost."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in HANDLED:
            signal.signal(number, self._take)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)

    def _take(self, number: int, _frame: FrameType | None = None) -> None:
        """Act on a signal that comes before `App.serve` takes them over, or keep it until there is an App."""
        if self._serving is None:
            self._early.append(number)
        elif number == signal.SIGHUP:
            self._serving.reload()
        else:
            self._serving.stop()

    def load_wsgi(self) -> None:
        """Nothing: there is no WSGI application, `run` makes its App inside the event loop."""

    def init_process(self) -> None:
        """
        Serve, and turn every failure into a log line and an exit code.

        Raises:
            SystemExit: With `BOOT_FAILED` or `CRASHED`. gunicorn would print what it does not know to standard error.
        """
        try:
            super().init_process()
        except Exception as exc:
            self.log.report("error", events.INTERNAL_ERROR, {"pid": os.getpid(), "exc_info": exc})
            served = self._serving is not None and self._serving.started
            sys.exit(CRASHED if served else BOOT_FAILED)

    def run(self) -> None:
        """Serve until told to stop, or until the master is gone."""
        settings, metrics = self.app.settings, MetricsRecorder(self.app.metrics_directory)
        telemetry = configure(
            settings.logging.format,
            settings.logging.level,
            # A raw stream is all that is used of it, but the standard library's types keep the two families apart.
            cast("IO[Any]", SharedOutput(sys.stdout.fileno())),
            on_drop=metrics.lines_dropped,
        )
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(telemetry, metrics))
        finally:
            for sock in self.sockets:
                sock.close()
            telemetry.close()
            close_multiprocess()

    async def _serve(self, telemetry: Telemetry, metrics: MetricsRecorder) -> None:
        siblings = Siblings(self.slot, self.app.channels, succeeds=self.succeeds)
        self._serving = app = App(self.app.settings, self.app.reread, telemetry, metrics, siblings)
        for number in self._early:
            self._take(number)
        tasks = Tasks(lambda task, exc: telemetry.log.error(events.INTERNAL_ERROR, task=task, exc_info=exc))
        heartbeat = tasks.spawn(self._beat(app), name="heartbeat")
        try:
            await app.serve(self.sockets)
        finally:
            heartbeat.cancel()

    async def _beat(self, app: App) -> None:
        """Tell the master that the loop turns, all through the drain; without a master, drain and go."""
        while True:
            self.notify()
            if os.getppid() != self.ppid:
                app.stop()
            await asyncio.sleep(HEARTBEAT_S)
