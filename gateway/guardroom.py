"""The guards of this process: their engines, what they remember, and who hears of them."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

from gateway import telemetry as events
from gateway.core.guarding import GuardName
from gateway.core.ports import Upstream
from gateway.guards.table import make_engines
from gateway.metrics import MetricsRecorder
from gateway.pipeline.answering import Answering
from gateway.pipeline.moderating import Moderation
from gateway.pipeline.scanning import Means, Memory, Scanner
from gateway.pipeline.stages.guard import Guard, GuardWatch
from gateway.pipeline.turns import AT_ONCE, Turns
from gateway.providers.presets import PRESETS
from gateway.settings import Settings, moderation_provider
from gateway.telemetry import Telemetry


def open_guards(telemetry: Telemetry, metrics: MetricsRecorder) -> tuple[Guard, Answering]:
    """The stage of calls and what looks at answers. What they remember outlives a reload of the settings."""
    engines = make_engines()
    means = Means(Turns(ThreadPoolExecutor(AT_ONCE, thread_name_prefix="guards")), time.monotonic)
    scanner = Scanner(engines, Memory(os.urandom(16)), means)

    def failed(request_id: str, guard: GuardName, reason: str) -> None:
        telemetry.log.error(events.GUARD_FAILED, request_id=request_id, guard=guard, reason=reason)

    guard = Guard(scanner, GuardWatch(metrics.observe_guard, failed), time.monotonic)
    return guard, Answering(engines, means, failed)


def moderation_of(settings: Settings, upstream: Upstream) -> Moderation | None:
    """Who is asked for `moderation`; None where *settings* name nobody."""
    provider = moderation_provider(settings, PRESETS)
    return Moderation(provider, settings.moderation.model, upstream) if provider is not None else None
