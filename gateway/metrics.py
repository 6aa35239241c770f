"""Prometheus metrics: a recorder that is fed with receipts and a few direct calls, and their text form.

Labels come from our own tables and the operator's configuration. No tenant, key, model or word of a client is ever one.

With several worker processes the values live in files that every process can read (the client library's multi-process
mode), so that any worker can answer for all. The library chooses the mode when it is first imported, by the environment
variable PROMETHEUS_MULTIPROC_DIR: whoever starts the workers sets it for them.
"""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path

# The ignores of `no-untyped-call` below have one reason: the library annotates only a part of its functions.
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client import values as client_values
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.multiprocess import mark_process_dead as forget_live_gauges
from prometheus_client.values import close_all_multiprocess_files

from gateway.core.guarding import GUARDS, GuardName
from gateway.core.receipt import Receipt

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Seconds. Bounds sit where a promise or a limit does: 30 s router limit, 60 s first token, 90 s idle, 100 s in all.
_ANSWER_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 6.0, 12.0, 20.0, 30.0, 60.0, 100.0)
_GAP_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 30.0, 60.0, 90.0)
# Ours: first byte is to be delayed by 1.3 ms at most in the middle.
_OVERHEAD_S = (0.0005, 0.001, 0.0013, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)
# Promise: 50 ms; goals: 3 ms in the middle, 20 ms at the 99th percentile.
# A disk's: 0.2 to 10 ms; beyond two seconds calls are refused.
_COMMIT_S = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)
_CANCEL_S = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.5, 2.0)

# All guards together may take 1.5 ms of a short prompt; a policy's deadline is 0.3 s.
_GUARD_S = (0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.0015, 0.005, 0.02, 0.1, 0.3, 1.0)

MAX_RECEIPTS = 32  # not counted yet: it takes some 0.1 ms to count them


# Of Redis (its documentation, "Redis serialization protocol" and the texts of server.c), besides our own two: replies
# of a proxy in between could make a series each.
LIMITS_FAILURES = frozenset({
    "timeout", "lost", "NOSCRIPT", "READONLY", "OOM", "LOADING", "MASTERDOWN", "MISCONF", "BUSY", "NOAUTH", "WRONGPASS",
    "NOPERM", "MOVED", "CLUSTERDOWN", "ERR",
})  # fmt: skip


class MetricsRecorder:
    """
    Every metric of one process, as a ledger and more. Calls cost microseconds and never block; one thread makes them.

    Args:
        multiprocess_dir: The directory given to `prepare_multiprocess`, where several workers share their values.

    Raises:
        RuntimeError: *multiprocess_dir* is given, but the client library was imported without its environment variable
            (or the other way round): workers would silently count for themselves.
    """

    def __init__(self, multiprocess_dir: Path | None = None) -> None:
        if client_values.ValueClass._multiprocess is not (multiprocess_dir is not None):
            raise RuntimeError("PROMETHEUS_MULTIPROC_DIR and the multi-process setting disagree")
        disable_created_metrics()  # type: ignore[no-untyped-call]  # else one more series per counter, for nobody
        self._directory = multiprocess_dir
        self._registry = CollectorRegistry()
        self._make_counters()
        self._make_histograms()
        self._streams = Gauge(
            "gateway_open_streams",
            "Streams asked for and not over yet.",
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self._backlog = Gauge(
            "gateway_ledger_backlog",
            "Exchanges that have ended and that the database does not have yet.",
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self._lag = Gauge(
            "gateway_ledger_lag_seconds",
            "Age of the oldest of these.",
            registry=self._registry,
            multiprocess_mode="livemax",
        )
        self._sums: dict[tuple[Counter, str, str], int] = {}
        self._receipts: list[Receipt] = []

    def _make_counters(self) -> None:
        def counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(name, documentation, labels, registry=self._registry)

        self._requests = counter("gateway_requests", "Requests by endpoint and outcome.", "endpoint", "outcome")
        self._attempts = counter("gateway_upstream_attempts", "Attempts at providers.", "provider", "result")
        self._refused = counter("gateway_credential_refused", "Attempts refused for our credential.", "provider")
        self._estimated = counter("gateway_estimated_usage", "Exchanges whose usage no provider told.")
        self._dropped = counter("gateway_log_lines_dropped", "Log lines lost because the output was not read.")
        self._buried = counter("gateway_dead_letters", "Exchanges that the database refused for what is in them.")
        self._reconciled = counter("gateway_reconciled", "Exchanges that were brought to an end for a dead process.")
        self._admissions = counter("gateway_admissions", "Decisions by a key's limits.", "verdict")
        self._limits_failed = counter("gateway_limits_failures", "Failures of the shared counters.", "code")
        self._limits_blind = counter("gateway_limits_blind_seconds", "Time without the shared counters, once over.")
        self._verdicts = counter("gateway_guard_verdicts", "What guards said of calls.", "guard", "status")
        self._tokens = counter("gateway_usage_tokens", "Tokens by kind.", "kind")

    def _make_histograms(self) -> None:
        def histogram(name: str, documentation: str, bounds: tuple[float, ...]) -> _Sums:
            return _Sums(Histogram(name, documentation, registry=self._registry, buckets=bounds))

        self._ttfb = histogram("gateway_ttfb_seconds", "Request to first byte.", _ANSWER_S)
        self._ttft = histogram("gateway_ttft_seconds", "Request to first token.", _ANSWER_S)
        self._overhead = histogram("gateway_overhead_seconds", "Our share of the time to first byte.", _OVERHEAD_S)
        self._cancel = histogram("gateway_cancel_seconds", "Client gone to exchange settled.", _CANCEL_S)
        self._commits = histogram("gateway_ledger_commit_seconds", "Group of records to the disk.", _COMMIT_S)
        self._gaps = histogram("gateway_frame_gap_seconds", "Between two frames of a stream.", _GAP_S)
        of_guards = Histogram(
            "gateway_guard_seconds", "A guard's look at a call.", ("guard",), registry=self._registry, buckets=_GUARD_S
        )
        self._guards = {name: _Sums(of_guards.labels(name)) for name in GUARDS}
        whole = (self._ttfb, self._ttft, self._overhead, self._cancel, self._commits, self._gaps)
        self._histograms = (*whole, *self._guards.values())
        self.observe_commit = self._commits.observe
        self.observe_gap = self._gaps.observe

    def record(self, receipt: Receipt) -> None:
        """Count a settled exchange: not at once, for many in a row cost a third of what they do one by one."""
        self._receipts.append(receipt)
        if len(self._receipts) >= MAX_RECEIPTS:
            self._count_receipts()

    def _count_receipts(self) -> None:
        receipts, self._receipts = self._receipts, []
        for receipt in receipts:
            self._count(receipt)

    def _count(self, receipt: Receipt) -> None:
        self._add(self._requests, receipt.endpoint, receipt.outcome)
        for provider, _, result in receipt.attempts:
            self._add(self._attempts, provider, result)
        for guard, verdict in receipt.verdicts.items():
            self._add(self._verdicts, guard, verdict.status)
        self._count_tokens(receipt)
        _observe_ms(self._ttfb, receipt.ttfb_ms)
        _observe_ms(self._ttft, receipt.ttft_ms)
        _observe_ms(self._cancel, receipt.cancel_ms)
        if receipt.provider is not None:  # a refusal has no first byte of a provider to be late for
            _observe_ms(self._overhead, receipt.overhead_ms)

    def pour(self) -> None:
        """Bring everything recorded so far into the library's values. To be called by the thread that records."""
        self._count_receipts()
        sums, self._sums = self._sums, {}
        for (metric, first, second), count in sums.items():
            labels = [label for label in (first, second) if label]
            (metric.labels(*labels) if labels else metric).inc(count)
        for histogram in self._histograms:
            histogram.pour()

    def _add(self, metric: Counter, first: str = "", second: str = "", count: int = 1) -> None:
        place = (metric, first, second)
        self._sums[place] = self._sums.get(place, 0) + count

    def _count_tokens(self, receipt: Receipt) -> None:
        usage = receipt.usage
        if receipt.usage_basis == "estimated":
            self._add(self._estimated)
        counts = (
            ("prompt", usage.prompt_tokens),
            ("completion", usage.completion_tokens),
            ("cached", usage.cached_tokens),
            ("cache_write", usage.cache_write_tokens),
            ("reasoning", usage.reasoning_tokens),
        )
        for kind, count in counts:
            if count:
                self._add(self._tokens, kind, count=count)

    def stream_opened(self) -> None:
        self._streams.inc()

    def stream_closed(self) -> None:
        self._streams.dec()

    def ledger_stands(self, backlog: int, lag_s: float) -> None:
        """How far the database is behind."""
        self._backlog.set(backlog)
        self._lag.set(lag_s)

    def buried(self) -> None:
        self._buried.inc()

    def reconciled(self, count: int) -> None:
        self._reconciled.inc(count)

    def credential_refused(self, provider: str) -> None:
        self._refused.labels(provider).inc()

    def decided(self, verdict: str) -> None:
        """A call was `admitted`, or a limit was met (`core.ports.Met`)."""
        self._add(self._admissions, verdict)

    def observe_guard(self, guard: GuardName, value_s: float) -> None:
        """A guard took so long for a call, or for what was new in it."""
        self._guards[guard].observe(value_s)

    def limits_failed(self, code: str) -> None:
        """A command to the shared counters had no good reply: the first word of the error, `timeout` or `lost`."""
        self._limits_failed.labels(code if code in LIMITS_FAILURES else "other").inc()

    def limits_blind(self, seconds: float) -> None:
        """The shared counters answer again, after so many seconds."""
        self._limits_blind.inc(seconds)

    def lines_dropped(self, count: int) -> None:
        """May be called from any thread."""
        self._dropped.inc(count)

    def render(self) -> bytes:
        """All metrics as `CONTENT_TYPE`, of all workers where there are several. Milliseconds: call it in a thread."""
        registry = self._registry
        if self._directory is not None:
            registry = CollectorRegistry()
            MultiProcessCollector(registry, path=str(self._directory))  # type: ignore[no-untyped-call]
        return generate_latest(registry)


class _Sums:
    """
    A histogram that is fed once per frame, or several times per request.

    The library's `observe` costs 1.1 us, and 3.1 us in multi-process mode (measured); plain counts cost 0.2 us. They
    are poured into the histogram when somebody wants to see it.
    """

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._bounds = tuple(histogram._upper_bounds)  # the last is infinity
        self._counts = [0] * len(self._bounds)
        self._sum_s = 0.0

    def observe(self, value_s: float) -> None:
        """Count a value of *value_s* seconds."""
        self._counts[bisect_left(self._bounds, value_s)] += 1
        self._sum_s += value_s

    def pour(self) -> None:
        for index, count in enumerate(self._counts):
            if count:
                self._histogram._buckets[index].inc(count)
                self._counts[index] = 0
        self._histogram._sum.inc(self._sum_s)
        self._sum_s = 0.0


def _observe_ms(histogram: _Sums, value_ms: float | None) -> None:
    if value_ms is not None:
        histogram.observe(value_ms / 1000)


def prepare_multiprocess(directory: Path) -> None:
    """
    Make *directory* ready for the workers' values: create it and take away what an earlier run left there.

    Call it in the launcher, before any worker starts and before it makes values of its own. A launcher that forks its
    workers, and imported the client library before it set the environment variable, is switched over here.

    Raises:
        OSError: The directory cannot be made or emptied.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in directory.glob("*.db"):
        file.unlink()
    if not client_values.ValueClass._multiprocess:
        client_values.ValueClass = client_values.MultiProcessValue()  # type: ignore[no-untyped-call]


def mark_process_dead(pid: int, directory: Path) -> None:
    """Take the gauges of a worker that has ended out of the sums. Its counts stay. Call it where workers are reaped."""
    forget_live_gauges(pid, str(directory))  # type: ignore[no-untyped-call]


def close_multiprocess() -> None:
    """Close the files of this process's values; none may change after that. The last act of a worker."""
    close_all_multiprocess_files()  # type: ignore[no-untyped-call]
