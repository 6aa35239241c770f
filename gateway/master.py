"""Several serving processes: gunicorn's master, run in this process and taught our signals.

The master forks `GatewayWorker`s, replaces those that die, kills those whose loop hangs, and serves nothing itself. It
never starts a thread or an event loop, so that it can fork at any time. Signals to the master:

- SIGTERM, SIGINT, SIGQUIT: every worker drains, then all exit with 0. Further ones change nothing.
- SIGHUP: every worker reads its settings again. gunicorn would start new workers, and a bad file would end the service.
- What else gunicorn knows (another number of workers, re-execution) is ignored: limits are divided by that number.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer

from gateway import telemetry as events
from gateway.loglines import clean, render_console, render_json
from gateway.metrics import mark_process_dead, prepare_multiprocess
from gateway.settings import LoggingSettings, Settings, SettingsError
from gateway.siblings import Channel, open_channels
from gateway.telemetry import Level
from gateway.worker import HANDLED, GatewayWorker

HANG_S = 30  # gunicorn's own default: a loop that has not turned for so long will not again
KILL_S = 0.5  # kept of `exit_s` to kill and reap workers that overstay; that takes milliseconds


class MasterLog:
    """
    Log lines of the master, and what gunicorn says from warning on; in the interface of gunicorn's logger.

    It writes at once, because a thread must not exist when the master forks. A line that the output cannot take now is
    lost: the master must never wait for whoever reads the log.
    """

    def __init__(self, settings: LoggingSettings) -> None:
        self._render = render_json if settings.format == "json" else render_console
        self._threshold = logging.getLevelNamesMapping()[settings.level.upper()]
        self._output = sys.stdout.fileno()
        self._writable = select.poll()
        self._writable.register(self._output, select.POLLOUT)
        self.cfg: Any = None

    def report(self, level: Level, event: str, fields: dict[str, Any]) -> None:
        """Write one line; takes *fields* over."""
        if logging.getLevelNamesMapping()[level.upper()] < self._threshold or not self._writable.poll(0):
            return
        try:
            os.write(self._output, self._render(None, level, {"event": event, **fields}))
        except OSError:
            pass  # nobody reads it any more, or the disk is full

    def _library(self, level: Level, message: str, args: tuple[Any, ...]) -> None:
        text = clean(str(message) % args if args else str(message))
        self.report(level, events.LIBRARY_REPORTED, {"logger": "gunicorn", "message": text})

    def warning(self, message: str, *args: Any, **_more: Any) -> None:
        self._library("warning", message, args)

    def error(self, message: str, *args: Any, **_more: Any) -> None:
        self._library("error", message, args)

    critical = error

    def exception(self, _message: str, *_args: Any, **_more: Any) -> None:
        self.report("error", events.INTERNAL_ERROR, {"pid": os.getpid(), "exc_info": sys.exc_info()})

    def debug(self, _message: str, *_args: Any, **_more: Any) -> None:
        """Not told: its lines say what ours say, or are of use to gunicorn's authors."""

    info = debug

    def setup(self, cfg: Any) -> None:
        self.cfg = cfg

    def reopen_files(self) -> None:
        """Nothing: there is only standard output."""

    close_on_exec = reopen_files


class Service(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """What the master and its workers know. A worker gets it as it is at its fork.

    Attributes:
        settings: Those in force; a reload replaces them.
        listener: Shared by all workers; the kernel hands each connection to one of them.
        metrics_directory: Prepared; see `gateway.metrics`.
        channels: The way to each worker, by its slot.
    """

    def __init__(
        self,
        settings: Settings,
        reread: Callable[[], Settings],
        listener: socket.socket,
        metrics_directory: Path,
        channels: Sequence[Channel],
    ) -> None:
        self.settings = settings
        self.reread = reread
        self.listener = listener
        self.metrics_directory = metrics_directory
        self.channels = channels
        self.log = MasterLog(settings.logging)
        super().__init__()

    def load_config(self) -> None:
        """Everything gunicorn is told. It reads no file and no variable of its own for us."""
        choices = {
            "bind": f"fd://{self.listener.fileno()}",
            "workers": self.settings.server.workers,
            "worker_class": GatewayWorker,
            "timeout": HANG_S,
            "proc_name": "gateway",
            "pre_fork": give_slot,
            "child_exit": lambda _server, worker: mark_process_dead(worker.pid, self.metrics_directory),
            "control_socket_disable": True,  # it would be served by a thread of the master
        }
        for name, value in choices.items():
            self.cfg.set(name, value)

    def reload(self) -> None:
        """
        Read the settings for workers to come. Wrong ones change nothing; the workers tell what is wrong with them.

        The number of workers stays what it is.
        """
        try:
            fresh = self.reread()
        except SettingsError:
            return
        except Exception as exc:  # a bug of ours in reading must not end what serves
            self.log.report("error", events.INTERNAL_ERROR, {"pid": os.getpid(), "exc_info": exc})
            return
        server = dataclasses.replace(fresh.server, workers=self.settings.server.workers)
        self.settings = dataclasses.replace(fresh, server=server)

    def run(self) -> None:
        """Serve until SIGTERM. Raises SystemExit, in the master as well as in every worker."""
        Master(self).run()


def give_slot(master: Master, worker: GatewayWorker) -> None:
    """Put *worker*, about to be forked, in the place of one that has died, or in the next one at the start."""
    taken = {other.slot for other in master.WORKERS.values()}
    worker.slot = min(set(range(master.num_workers)) - taken)
    worker.succeeds = worker.slot in master.given
    master.given.add(worker.slot)


class Master(Arbiter):  # type: ignore[misc]  # gunicorn has no types
    """
    gunicorn's master with our meaning of signals.

    Attributes:
        given: The slots that have had a worker.
    """

    SIGNALS = HANDLED
    IGNORED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTTIN, signal.SIGTTOU, signal.SIGWINCH)

    def __init__(self, app: Service) -> None:
        self.given: set[int] = set()
        super().__init__(app)
        self.LISTENERS = [app.listener]

    def setup(self, app: Service) -> None:
        self.log = app.log
        super().setup(app)

    def init_signals(self) -> None:
        super().init_signals()
        for number in self.IGNORED:
            signal.signal(number, signal.SIG_IGN)

    def spawn_worker(self) -> Any:
        """Fork with signals blocked: one that came before the child's own handlers would be lost in a copied queue."""
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        try:
            return super().spawn_worker()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)

    def handle_hup(self) -> None:
        self.app.reload()
        self.kill_workers(signal.SIGHUP)

    def handle_int(self) -> None:
        self.handle_term()

    handle_quit = handle_int

    def stop(self, graceful: bool = True) -> None:
        """Let the workers drain, whatever *graceful* says; kill what is left shortly before `exit_s` is over."""
        deadline_s = time.monotonic() + max(0.0, self.app.settings.server.exit_s - KILL_S)
        for listener in self.LISTENERS:
            listener.close()
        self.LISTENERS = []
        self.kill_workers(signal.SIGTERM)
        self._await_workers(deadline_s)
        if self.WORKERS:
            self.log.error("%s workers did not end in time and are killed.", len(self.WORKERS))
            self.kill_workers(signal.SIGKILL)
            self._await_workers(time.monotonic() + KILL_S)
        for number in HANDLED:  # a late one must not end the interpreter's own end
            signal.signal(number, signal.SIG_IGN)

    def _await_workers(self, deadline_s: float) -> None:
        """Reap until no worker is left. Signals only wake this up; what they ask for is under way already."""
        self._reap()
        while self.WORKERS and (left_s := deadline_s - time.monotonic()) > 0:
            self.wait_for_signals(timeout=left_s)
            self._reap()

    def _reap(self) -> None:
        try:
            self.reap_workers()
        except HaltServer:
            pass  # one more that could not start: we are stopping, and the next call reaps the rest


def serve_workers(
    settings: Settings, reread: Callable[[], Settings], listener: socket.socket, metrics_directory: Path
) -> None:
    """
    Serve on *listener* in `settings.server.workers` processes until SIGTERM.

    Args:
        reread: Gives fresh settings for a reload, or raises SettingsError.
        metrics_directory: Where the workers share their metrics; PROMETHEUS_MULTIPROC_DIR names it. Removed at the end.

    Raises:
        SystemExit: Always, in the master and in every worker.
    """
    master = os.getpid()
    channels = open_channels(settings.server.workers)
    try:
        prepare_multiprocess(metrics_directory)
        Service(settings, reread, listener, metrics_directory, channels).run()
    finally:
        for channel in channels:
            channel.close()
        if os.getpid() == master:  # every worker comes through here too, on its way out
            shutil.rmtree(metrics_directory, ignore_errors=True)
