"""The guards of this process: their engines, what they remember, and who hears of them."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

from gateway import telemetry as events
from gateway.core.guarding import GuardName
from gateway.guards.table import make_engines
from gateway.metrics import MetricsRecorder
from gateway.pipeline.scanning import Means, Memory, Scanner
from gateway.pipeline.stages.guard import Guard, GuardWatch
from gateway.telemetry import Telemetry

THREADS = 2  # for long texts: one that is read to its end must not keep all others waiting


def open_guard(telemetry: Telemetry, metrics: MetricsRecorder) -> Guard:
    """The stage, with an engine of each guard. What they remember outlives a reload of the settings."""
    threads = ThreadPoolExecutor(THREADS, thread_name_prefix="guards")
    scanner = Scanner(make_engines(), Memory(os.urandom(16)), Means(threads, time.monotonic))

    def failed(request_id: str, guard: GuardName, reason: str) -> None:
        telemetry.log.error(events.GUARD_FAILED, request_id=request_id, guard=guard, reason=reason)

    return Guard(scanner, GuardWatch(metrics.observe_guard, failed), time.monotonic)
