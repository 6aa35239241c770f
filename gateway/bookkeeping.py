"""The journal of a serving process, as the settings want it, and who is told of its troubles."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from sqlalchemy import make_url

from gateway import telemetry as events
from gateway.aio import Tasks
from gateway.loglines import clean
from gateway.metrics import MetricsRecorder
from gateway.settings import Settings
from gateway.storage.journal.carrying import Carrier, CarrierReports
from gateway.storage.journal.keeping import KeeperReports, SpoolKeeper, SpoolRules
from gateway.storage.journal.segments import Damage
from gateway.storage.journal.spool import Reports
from gateway.storage.open import Stores
from gateway.storage.writing import BookWriter
from gateway.telemetry import Telemetry

DIRECTORY = "gateway-spool"  # in the working directory, where the database is no file


def spool_directory(settings: Settings) -> Path:
    """Where the journals of `spool` are."""
    if settings.ledger.directory:
        return Path(settings.ledger.directory)
    url = make_url(settings.storage.database_url)
    in_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
    return Path(f"{url.database}-spool" if in_file else DIRECTORY)


def open_journal(
    settings: Settings, stores: Stores, telemetry: Telemetry, metrics: MetricsRecorder, tasks: Tasks
) -> SpoolKeeper:
    """
    The journal of this process. To be called inside the running loop.

    Raises:
        OSError: Its directory cannot be written to.
    """
    pid, started_ns = os.getpid(), time.time_ns()
    rules = SpoolRules(
        root=spool_directory(settings),
        name=f"{pid}-{started_ns:x}",
        writer=f"{socket.gethostname()}:{pid}:{started_ns // 10**9}",
        fsync=settings.ledger.fsync,
        bill_interrupted=settings.stream.bill_interrupted,
    )
    reporter = _Reporter(telemetry, metrics)
    carrier = Carrier(
        BookWriter(stores.database, lambda: time.time_ns() // 10**6),
        CarrierReports(reporter.delayed, reporter.caught_up, reporter.buried),
    )
    return SpoolKeeper(
        rules,
        carrier,
        stores.counters,
        reports=Reports(reporter.refusing, reporter.accepting, metrics.observe_commit),
        keeper_reports=KeeperReports(reporter.damaged, reporter.adopted),
        epoch_s=time.time,
        tasks=tasks,
    )


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

    def adopted(self, writer: str, ended: int, reconciled: int) -> None:
        self._metrics.reconciled(reconciled)
        self._log.warning(events.LEDGER_ADOPTED, writer=writer, ended=ended, reconciled=reconciled)


def _words(cause: BaseException) -> str:
    return clean(f"{type(cause).__name__}: {cause}")
