"""Metrics of one process, and of several together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from prometheus_client import values
from prometheus_client.parser import text_string_to_metric_families

from gateway.core.guarding import Verdict
from gateway.core.usage import Usage
from gateway.metrics import MetricsRecorder, mark_process_dead, prepare_multiprocess
from tests.unit.receipts import receipt


def samples(text: bytes) -> dict[str, float]:
    """Every sample by name and labels, as in `name{label=value}`."""
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def shown(metrics: MetricsRecorder) -> bytes:
    """What a scrape shows: everything recorded so far."""
    metrics.pour()
    return metrics.render()


def test_receipt_is_counted() -> None:
    """A receipt moves requests, attempts, tokens and times."""
    metrics = MetricsRecorder()
    metrics.record(receipt())
    metrics.record(receipt(outcome="cancelled", usage_basis="estimated", usage=Usage(5, 1), attempts=(), cancel_ms=4.0))
    found = samples(shown(metrics))

    expected = {
        "gateway_requests_total{endpoint=/v1/chat/completions,outcome=completed}": 1,
        "gateway_requests_total{endpoint=/v1/chat/completions,outcome=cancelled}": 1,
        "gateway_upstream_attempts_total{provider=azure,result=failed}": 1,
        "gateway_upstream_attempts_total{provider=openai,result=ok}": 1,
        "gateway_usage_tokens_total{kind=prompt}": 16,
        "gateway_usage_tokens_total{kind=completion}": 23,
        "gateway_usage_tokens_total{kind=cached}": 3,
        "gateway_estimated_usage_total": 1,
        "gateway_ttfb_seconds_count": 2,
        "gateway_ttfb_seconds_sum": 0.08,
        "gateway_ttft_seconds_bucket{le=0.4}": 2,
        "gateway_overhead_seconds_bucket{le=0.001}": 2,
        "gateway_cancel_seconds_count": 1,
        "gateway_cancel_seconds_bucket{le=0.003}": 0,
        "gateway_cancel_seconds_bucket{le=0.005}": 1,
    }
    assert {name: found.get(name) for name in expected} == expected


def test_admissions_are_counted() -> None:
    """By verdict, and poured with the rest."""
    metrics = MetricsRecorder()
    for verdict in ("admitted", "admitted", "budget"):
        metrics.decided(verdict)
    found = samples(shown(metrics))

    assert found["gateway_admissions_total{verdict=admitted}"] == 2
    assert found["gateway_admissions_total{verdict=budget}"] == 1


def test_guards_are_counted() -> None:
    """What each said, and how long each took."""
    metrics = MetricsRecorder()
    metrics.record(receipt(verdicts={"pii": Verdict("redact", 1.0, {"nik": 2}), "injection": Verdict("pass", 0.1)}))
    metrics.observe_guard("pii", 2**-11)
    metrics.observe_guard("pii", 0.25)

    found = samples(shown(metrics))

    expected = {
        "gateway_guard_verdicts_total{guard=pii,status=redact}": 1,
        "gateway_guard_verdicts_total{guard=injection,status=pass}": 1,
        "gateway_guard_seconds_bucket{guard=pii,le=0.0005}": 1,
        "gateway_guard_seconds_count{guard=pii}": 2,
        "gateway_guard_seconds_sum{guard=pii}": 0.25 + 2**-11,
    }
    assert {name: found.get(name) for name in expected} == expected


def test_refused_request_has_no_times() -> None:
    """A request that never reached a provider is counted, and distorts no distribution."""
    metrics = MetricsRecorder()
    metrics.record(receipt(outcome="rejected", provider=None, attempts=(), ttfb_ms=None, ttft_ms=None, usage=Usage()))
    found = samples(shown(metrics))

    assert found["gateway_requests_total{endpoint=/v1/chat/completions,outcome=rejected}"] == 1
    assert {found[f"gateway_{name}_seconds_count"] for name in ("ttfb", "ttft", "overhead", "cancel")} == {0}


def test_direct_calls() -> None:
    """Open streams go up and down; refused credentials and lost log lines are counted."""
    metrics = MetricsRecorder()
    metrics.stream_opened()
    metrics.stream_opened()
    metrics.stream_closed()
    metrics.credential_refused("openai")
    metrics.lines_dropped(7)
    found = samples(shown(metrics))

    assert (
        found["gateway_open_streams"],
        found["gateway_credential_refused_total{provider=openai}"],
        found["gateway_log_lines_dropped_total"],
    ) == (1, 1, 7)


def test_gaps_are_exact_once_poured() -> None:
    """Every gap lands in its bucket (bounds included, as Prometheus has it) and in the sum."""
    metrics = MetricsRecorder()
    for gap_s in (0.0005, 0.001, 0.0011, 0.03, 90.0, 91.0):
        metrics.observe_gap(gap_s)
    before = samples(metrics.render())["gateway_frame_gap_seconds_count"]
    found = samples(shown(metrics))

    bounds = ("0.001", "0.002", "0.02", "0.05", "90.0", "+Inf")
    assert (before, [found[f"gateway_frame_gap_seconds_bucket{{le={bound}}}"] for bound in bounds]) == (
        0, [2, 3, 3, 4, 5, 6],
    )
    assert found["gateway_frame_gap_seconds_sum"] == pytest.approx(181.0326)


def test_nothing_is_poured_twice() -> None:
    """Pouring again adds nothing."""
    metrics = MetricsRecorder()
    metrics.record(receipt())
    metrics.observe_gap(0.02)

    assert samples(shown(metrics)) == samples(shown(metrics))


def test_nothing_of_clients_is_a_label() -> None:
    """Tenant, key, model, user and session of a client are nowhere in the text."""
    metrics = MetricsRecorder()
    fields = ("tenant", "key_id", "model", "provider_model", "user", "session_id", "agent_id", "request_id", "trace_id")
    metrics.record(receipt(**dict.fromkeys(fields, "canary"), attempts=(("openai", "canary", "ok"),)))

    assert b"canary" not in shown(metrics)


def test_disagreement_of_modes_is_an_error(tmp_path: Path) -> None:
    """Workers that would silently count for themselves do not start."""
    with pytest.raises(RuntimeError, match="PROMETHEUS_MULTIPROC_DIR"):
        MetricsRecorder(tmp_path)


WORKER = """
import sys
from pathlib import Path
from gateway.metrics import MetricsRecorder
from tests.unit.receipts import receipt
metrics = MetricsRecorder(Path(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    metrics.record(receipt())
    metrics.stream_opened()
    metrics.observe_gap(0.02)
metrics.pour()
print("ready", flush=True)
for line in sys.stdin:
    text = metrics.render()
    sys.stdout.buffer.write(b"%d\\n" % len(text) + text)
    sys.stdout.buffer.flush()
"""

PREPARE = """
import sys
from pathlib import Path
from gateway.metrics import prepare_multiprocess
prepare_multiprocess(Path(sys.argv[1]))
"""

FORKING = """
import os, sys
from pathlib import Path
from gateway.metrics import MetricsRecorder, prepare_multiprocess
directory = Path(sys.argv[1])
os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)
prepare_multiprocess(directory)
children = []
for count in (2, 3):
    pid = os.fork()
    if pid == 0:
        metrics = MetricsRecorder(directory)
        for _ in range(count):
            metrics.credential_refused("openai")
        os._exit(0)
    children.append(pid)
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
sys.stdout.buffer.write(MetricsRecorder(directory).render())
"""


class Worker:
    """A real process with metrics of its own in the shared directory."""

    def __init__(self, directory: Path, count: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(directory), str(count)],
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(directory)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._out.readline() == b"ready\n"

    @property
    def _out(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def render(self) -> dict[str, float]:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return samples(self._out.read(int(self._out.readline())))

    def end(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=10)


def test_any_worker_answers_for_all(tmp_path: Path) -> None:
    """With two processes each renders the sum; a dead one leaves its counts, and takes its open streams along."""
    directory = tmp_path / "metrics"
    prepare = subprocess.run([sys.executable, "-c", PREPARE, str(directory)], timeout=60, check=False)
    first, second = Worker(directory, 3), Worker(directory, 4)
    try:
        both = first.render(), second.render()
        second.end()
        mark_process_dead(second.process.pid, directory)
        after = first.render()
    finally:
        first.end()
        second.end()

    names = (
        "gateway_requests_total{endpoint=/v1/chat/completions,outcome=completed}",
        "gateway_ttfb_seconds_count",
        "gateway_open_streams",
    )
    assert prepare.returncode == 0
    assert [[found[name] for name in names] for found in (*both, after)] == [[7, 7, 7], [7, 7, 7], [7, 7, 3]]
    assert both[0]["gateway_frame_gap_seconds_count"] == 7


def test_workers_may_be_forked(tmp_path: Path) -> None:
    """A launcher that imported the library before it chose the mode can still fork workers that share their values."""
    done = subprocess.run(
        [sys.executable, "-c", FORKING, str(tmp_path)], capture_output=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert samples(done.stdout)["gateway_credential_refused_total{provider=openai}"] == 5


def test_earlier_run_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of a run before this one are not added to it; other files are not touched."""
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)  # switched over below; undone by the fixture
    directory = tmp_path / "new" / "metrics"
    prepare_multiprocess(directory)
    for name in ("counter_1.db", "gauge_livesum_1.db", "notes.txt"):
        (directory / name).write_bytes(b"")
    prepare_multiprocess(directory)

    assert ([file.name for file in directory.iterdir()], directory.stat().st_mode & 0o777) == (["notes.txt"], 0o700)
