"""Structured logs: the catalogue of events, the set-up, and the recorder of settled exchanges.

Levels mean: info is normal, warning is "we recovered", error is "a person should look". Lines carry key-values only,
never the content of a request or an answer, never a secret.
"""

from __future__ import annotations

import atexit
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Literal

import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from gateway.core.receipt import Receipt, row_of
from gateway.linewriter import LineWriter
from gateway.loglimit import LineLimiter
from gateway.loglines import (
    Render,
    RenderRow,
    clean,
    describe,
    render_console,
    render_console_row,
    render_json,
    render_json_row,
)

ROW_BYTES = 2048  # about what a receipt takes until its line is made, which has 900

Format = Literal["json", "console"]
Level = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Event:
    """A row of the catalogue: the level it is logged at and what it tells."""

    level: Level
    meaning: str


EVENTS: dict[str, Event] = {}


def _event(name: str, level: Level, meaning: str) -> str:
    EVENTS[name] = Event(level, meaning)
    return name


EXCHANGE_SETTLED = _event(
    "exchange.settled", "info", "A request has ended, one line each; warning when it failed or was interrupted."
)
REQUEST_REFUSED = _event(
    "request.refused", "info", "A request was refused before it became an exchange; repeated ones are only counted."
)
REQUEST_REPLAYED = _event(
    "request.replayed",
    "info",
    "A call was answered as before, by its Idempotency-Key; the id is that of the request that had done it.",
)
PROVIDER_FAILED = _event("provider.failed", "warning", "An attempt at a provider failed; another may have succeeded.")
PROVIDER_CREDENTIAL_REFUSED = _event(
    "provider.credential_refused", "error", "A provider does not accept our credential; it works again with another."
)
ROUTE_OPENED = _event(
    "route.opened",
    "warning",
    "A route failed too often; its breaker keeps calls away for a while. `#count` behind it: counts of tokens alone.",
)
ROUTE_CLOSED = _event("route.closed", "info", "A probe succeeded; the route is in use again.")
STORAGE_LOST = _event(
    "storage.lost", "error", "The database does not answer; known keys go on, and what is to be written waits."
)
STORAGE_FOUND = _event("storage.found", "info", "The database answers again.")
GUARD_FAILED = _event(
    "guard.failed",
    "error",
    "A guard had nothing to say of a call: `reason` is `late`, or the type of a bug of ours. The call was refused, or "
    "went on where the guard only watches ([guardrails.md](guardrails.md)).",
)
LIMITS_BLIND = _event(
    "limits.blind",
    "warning",
    "The Redis of the shared limits does not answer, or refuses: each process goes by its part of them, and calls that "
    "a budget bounds are refused ([limits.md](limits.md)).",
)
LIMITS_SHARED = _event("limits.shared", "info", "It answers again; `blind_s` is for how long it did not.")
LIMITS_DISPLACED = _event(
    "limits.displaced",
    "error",
    "Under a key of the shared limits was something else; that has another name now, and counters are loaded anew.",
)
STORAGE_UNPREPARED = _event(
    "storage.unprepared", "error", "The database has not the tables of this version; keys of the file are served."
)
KEY_UNUSABLE = _event(
    "key.unusable", "error", "A key of the database is refused: its tier is nowhere, or a limit makes no sense."
)
SERVER_STARTED = _event("server.started", "info", "The process listens.")
SERVER_DRAINING = _event("server.draining", "info", "The process takes no new requests and lets the running ones end.")
SERVER_STOPPED = _event("server.stopped", "info", "Everything is settled; the process exits.")
SETTINGS_RELOADED = _event("settings.reloaded", "info", "The configuration was read again and is in force.")
SETTINGS_REFUSED = _event("settings.refused", "error", "The new configuration is wrong; the old one stays in force.")
BODIES_DROPPED = _event(
    "bodies.dropped", "warning", "Requests and answers that a key lets us keep were not: the database is slow or away."
)
INTERNAL_ERROR = _event("internal.error", "error", "A bug of ours: an exception that nobody expected.")
LEDGER_REFUSING = _event(
    "ledger.refusing", "error", "The journal cannot be written: calls are refused, as nobody could say what they cost."
)
LEDGER_ACCEPTING = _event("ledger.accepting", "info", "The journal is written again, and calls are served.")
LEDGER_DELAYED = _event(
    "ledger.delayed", "error", "The database takes no rows; they wait in the journal, and nothing is lost."
)
LEDGER_CAUGHT_UP = _event("ledger.caught_up", "info", "The database takes rows again.")
LEDGER_DAMAGED = _event(
    "ledger.damaged",
    "error",
    "A file of the journal is not what was written; what could be read was taken, and a copy is kept for you.",
)
LEDGER_TORN = _event(
    "ledger.torn",
    "info",
    "The last record of a process that was killed is not whole: nothing had been sent, or told, on the strength of it.",
)
LEDGER_UNREADABLE = _event(
    "ledger.unreadable", "error", "A journal cannot be read; it is tried again and again, and nothing of it is removed."
)
LEDGER_DISPLACED = _event(
    "ledger.displaced",
    "error",
    "Under a key of the journal in Redis was something else; that has another name now, and the journal goes on.",
)
LEDGER_BURIED = _event(
    "ledger.buried", "error", "The database refused a row for what is in it; it stands in `dead_letters`."
)
LEDGER_ADOPTED = _event(
    "ledger.adopted", "warning", "The journal of a process that had died was taken over and brought to its end."
)
LOG_DROPPED = _event("log.dropped", "warning", "The output could not take the log; that many lines are missing here.")
LIBRARY_REPORTED = _event("library.reported", "warning", "A library logged something; its level and name are kept.")


_NUMBERS: dict[Level, int] = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _Output:
    """What structlog hands rendered lines to: a method per level, all the same."""

    def __init__(self, writer: LineWriter) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = writer.write


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The logging of this process. `log` is the fast way in; `structlog.get_logger()` writes to the same place."""

    log: FilteringBoundLogger
    writer: LineWriter
    _render_row: RenderRow
    _threshold: int
    _libraries: _LibraryHandler
    _restore: Callable[[], None]

    def emit_row(self, level: Level, event: str, make_row: Callable[[], Struct]) -> None:
        """
        Log *event* with the fields of what *make_row* gives.

        Past structlog, to which passing 29 keywords on costs 4 us, and by the thread that writes: one line after the
        other, a row costs it a third of what it would cost between two requests.
        """
        if _NUMBERS[level] >= self._threshold:
            epoch_s = time.time()
            self.writer.write_later(lambda: self._render_row(level, event, make_row(), epoch_s), ROW_BYTES)

    def flush_libraries(self) -> None:
        """Tell of the library lines that were suppressed and not told of yet: once a second, and at the end."""
        self._libraries.flush_suppressed()

    def close(self) -> bool:
        """Write out what is queued, for at most two seconds, and let libraries log as before; whether all went out."""
        self._libraries.flush_suppressed()
        self._restore()
        atexit.unregister(self.writer.close)
        return self.writer.close()


def configure(
    format: Format, level: str, stream: IO[Any], *, on_drop: Callable[[int], None] = lambda count: None
) -> Telemetry:
    """
    Set up logging for this process. Call it once per process, after the last fork.

    Args:
        level: `debug`, `info`, `warning`, `error` or `critical`; what is below is not even rendered.
        stream: Where lines go, see `LineWriter`.
        on_drop: Told of every dropped line at once, for the metrics.

    Raises:
        KeyError: No such level.
    """
    threshold = logging.getLevelNamesMapping()[level.upper()]
    render: Render = render_json if format == "json" else render_console
    render_row: RenderRow = render_json_row if format == "json" else render_console_row
    writer = LineWriter(
        stream, note=lambda count: render(None, "warning", {"event": LOG_DROPPED, "lines": count}), on_drop=on_drop
    )
    atexit.register(writer.close)  # the last words of a crash are the ones that matter
    output = _Output(writer)
    wrapper = structlog.make_filtering_bound_logger(threshold)
    structlog.configure(processors=[render], wrapper_class=wrapper, logger_factory=lambda *args: output)
    log: FilteringBoundLogger = structlog.wrap_logger(output).bind()  # bound: no look-up of the set-up at every line
    libraries = _LibraryHandler(log)
    return Telemetry(log, writer, render_row, threshold, libraries, _route_libraries(libraries, threshold))


class LogRecorder:
    """A ledger that is a log line per receipt."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def record(self, receipt: Receipt) -> None:
        level: Level = "warning" if receipt.outcome in ("interrupted", "failed") else "info"
        self._telemetry.emit_row(level, EXCHANGE_SETTLED, partial(row_of, receipt))


class RefusalLog:
    """Writes `request.refused` lines, few enough that a flood of bad requests is no flood of lines."""

    def __init__(self, log: FilteringBoundLogger, clock_s: Callable[[], float], per_s: int = 5) -> None:
        self._log = log
        self._limiter = LineLimiter(clock_s, per_s)

    def write(self, reason: str, **fields: Any) -> None:
        """One line for *reason* (a word of ours), with `suppressed` when some before it were not written."""
        suppressed = self._limiter.admit(reason)
        if suppressed is None:
            return
        if suppressed:
            fields["suppressed"] = suppressed
        self._log.info(REQUEST_REFUSED, reason=reason, **fields)

    def flush(self) -> None:
        """Tell of what was suppressed and not told of yet: once a second, and at the end."""
        for reason, suppressed in self._limiter.pending().items():
            self._log.info(REQUEST_REFUSED, reason=reason, suppressed=suppressed)


class _LibraryHandler(logging.Handler):
    """Standard-library log records as lines of ours: first line only, secrets masked, repeated ones limited."""

    # Their words quote the request: parser errors show the offending header line, `Authorization` included.
    _WORDLESS = ("aiohttp.server", "aiohttp.web", "aiohttp.access")

    def __init__(self, log: FilteringBoundLogger) -> None:
        super().__init__()
        self._log = log
        self._limiter = LineLimiter(time.monotonic)

    def emit(self, record: logging.LogRecord) -> None:
        suppressed = self._limiter.admit(f"{record.name}:{record.levelname}")
        if suppressed is None:
            return
        fields: dict[str, Any] = {"logger": record.name}
        wordless = record.name.startswith(self._WORDLESS)
        if not wordless:
            fields["message"] = clean(_message(record))
        if record.exc_info and record.exc_info[1] is not None:
            exc = record.exc_info[1]
            fields["exception"] = describe(exc, words=lambda text: "") if wordless else describe(exc)
        if suppressed:
            fields["suppressed"] = suppressed
        self._write(record.levelname, LIBRARY_REPORTED, **fields)

    def flush_suppressed(self) -> None:
        """A line per logger and level of which lines were suppressed and not told of yet."""
        self.acquire()  # the lock that `emit` is called under: other threads log too
        try:
            pending = self._limiter.pending()
        finally:
            self.release()
        for reason, suppressed in pending.items():
            logger, _, levelname = reason.rpartition(":")
            self._write(levelname, LIBRARY_REPORTED, logger=logger or "other", suppressed=suppressed)

    def _write(self, levelname: str, event: str, **fields: Any) -> None:
        (self._log.error if levelname in ("ERROR", "CRITICAL") else self._log.warning)(event, **fields)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):  # arguments that do not fit: the library's mistake
        return str(record.msg)


def _route_libraries(handler: _LibraryHandler, threshold: int) -> Callable[[], None]:
    """Send what libraries log from warning on to *handler*; returns what undoes it."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = [handler]
    root.setLevel(max(threshold, logging.WARNING))

    def restore() -> None:
        root.handlers[:] = before
        root.setLevel(level)

    return restore
