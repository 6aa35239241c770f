"""The journal of a serving process, as the settings want it, and who is told of its troubles."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sqlalchemy import make_url

from gateway import telemetry as events
from gateway.aio import Tasks
from gateway.core.ports import Journal
from gateway.core.reading import DAY_MS
from gateway.loglines import clean
from gateway.metrics import MetricsRecorder
from gateway.settings import Settings
from gateway.storage.bodies import BodyRules, BodyShelf
from gateway.storage.database import sqlite_file
from gateway.storage.journal.carrying import Carrier, CarrierReports
from gateway.storage.journal.keeping import KeeperReports, SpoolKeeper, SpoolRules
from gateway.storage.journal.segments import Damage
from gateway.storage.journal.spool import Reports
from gateway.storage.journal.streams import StreamKeeper, StreamReports, StreamRules
from gateway.storage.open import Stores
from gateway.storage.retention import Janitor, Retention
from gateway.storage.writing import BookWriter
from gateway.telemetry import Telemetry

DIRECTORY = "gateway-spool"  # in the working directory, where the database is no file


def spool_directory(settings: Settings) -> Path:
    """Where the journals of `spool` are."""
    if settings.ledger.directory:
        return Path(settings.ledger.directory)
    file = sqlite_file(make_url(settings.storage.database_url))
    return Path(DIRECTORY if file is None else f"{file}-spool")


class Keeper(Journal, Protocol):
    """A journal at work."""

    async def taken_over(self) -> None:
        """Return when everything that dead processes had left behind at the start is in the database."""

    @property
    def backlog(self) -> int:
        """Ends that the database does not have yet."""

    @property
    def lag_s(self) -> float:
        """The age of the oldest of them."""

    def start(self) -> None:
        """Begin to empty journals."""

    async def close(self, timeout_s: float) -> None:
        """Stop, and bring into the database what can be in *timeout_s*."""


@dataclass(frozen=True, slots=True)
class Writer:
    """A process, among all that there ever are: `name` is what the ledger calls it."""

    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    started_ns: int = field(default_factory=time.time_ns)

    @property
    def name(self) -> str:
        return f"{self.host}:{self.pid}:{self.started_ns // 10**9}"


def open_journal(
    settings: Settings,
    stores: Stores,
    telemetry: Telemetry,
    metrics: MetricsRecorder,
    tasks: Tasks,
    *,
    of: Writer,
    bill_interrupted: Callable[[], bool],
) -> Keeper:
    """
    The journal of this process. To be called inside the running loop.

    Args:
        bill_interrupted: The setting of that name, as it is in force.

    Raises:
        OSError: Its directory cannot be written to.
    """
    writer, own = of.name, f"{of.pid}-{of.started_ns:x}"
    reporter = _Reporter(telemetry, metrics)
    reports = Reports(reporter.refusing, reporter.accepting, metrics.observe_commit)
    carrier = Carrier(
        BookWriter(stores.database, lambda: time.time_ns() // 10**6),
        CarrierReports(reporter.delayed, reporter.caught_up, reporter.buried),
    )
    if settings.ledger.durability == "redis-stream":
        return StreamKeeper(
            StreamRules(f"{of.host}-{own}", writer, bill_interrupted),
            settings.storage.redis_url,
            carrier,
            stores.counters,
            reports=reports,
            stream_reports=StreamReports(reporter.adopted, reporter.displaced),
            epoch_s=time.time,
            tasks=tasks,
        )
    return SpoolKeeper(
        SpoolRules(spool_directory(settings), own, writer, settings.ledger.fsync, bill_interrupted),
        carrier,
        stores.counters,
        reports=reports,
        keeper_reports=KeeperReports(reporter.damaged, reporter.adopted, reporter.torn, reporter.unreadable),
        epoch_s=time.time,
        tasks=tasks,
    )


def open_shelf(
    settings: Settings, stores: Stores, telemetry: Telemetry, tasks: Tasks, *, redact: Callable[[str], str]
) -> BodyShelf:
    """Where requests and answers wait for the database, of keys that allow it."""

    def dropped(count: int) -> None:
        telemetry.log.warning(events.BODIES_DROPPED, count=count)

    return BodyShelf(
        stores.database, body_rules(settings), redact=redact, on_drop=dropped, tasks=tasks, now_ms=_now_ms
    )  # fmt: skip


def body_rules(settings: Settings) -> BodyRules:
    """For how long bodies are kept, and how much of them."""
    return BodyRules(settings.traces.max_body_bytes, settings.traces.body_retention_days * DAY_MS)


def open_janitor(settings: Settings, stores: Stores) -> Janitor:
    """Who deletes what has been kept for long enough."""
    return Janitor(stores.database, Retention(settings.traces.retention_days), now_ms=_now_ms, spread=random.random)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class _Reporter:
    """What the journal tells, as log lines and counts."""

    def __init__(self, telemetry: Telemetry, metrics: MetricsRecorder) -> None:
        self._log = telemetry.log
        self._metrics = metrics

    def refusing(self, cause: BaseException) -> None:
        self._log.error(events.LEDGER_REFUSING, reason=_words(cause))

    def accepting(self) -> None:
        self._log.info(events.LEDGER_ACCEPTING)

    def delayed(self, cause: BaseException) -> None:
        self._log.error(events.LEDGER_DELAYED, reason=_words(cause))

    def caught_up(self) -> None:
        self._log.info(events.LEDGER_CAUGHT_UP)

    def buried(self, request_id: str, reason: str) -> None:
        self._metrics.buried()
        self._log.error(events.LEDGER_BURIED, request_id=request_id, reason=reason)

    def damaged(self, path: str, damage: Damage) -> None:
        self._log.error(
            events.LEDGER_DAMAGED, file=path, offset=damage.offset, bytes=damage.length, is_tail=damage.is_tail
        )

    def torn(self, writer: str, damage: Damage) -> None:
        self._log.info(events.LEDGER_TORN, writer=writer, offset=damage.offset, bytes=damage.length)

    def adopted(self, writer: str, ended: int, reconciled: int) -> None:
        self._metrics.reconciled(reconciled)
        self._log.warning(events.LEDGER_ADOPTED, writer=writer, ended=ended, reconciled=reconciled)

    def displaced(self, key: str, new_key: str) -> None:
        self._log.error(events.LEDGER_DISPLACED, key=key, new_key=new_key)

    def unreadable(self, path: str, cause: OSError) -> None:
        self._log.error(events.LEDGER_UNREADABLE, file=path, reason=_words(cause))


def _words(cause: BaseException) -> str:
    return clean(f"{type(cause).__name__}: {cause}")
