"""What the pipeline works with: ports and numbers, chosen by the composition root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.core.catalog import Route
from gateway.core.errors import Failure
from gateway.core.exchange import Exchange
from gateway.core.ports import Ledger, Upstream
from gateway.core.receipt import Receipt, Tariff
from gateway.dialects.base import LaneRules
from gateway.pipeline.answering import Answering
from gateway.pipeline.drains import Drains
from gateway.policy.breaker import BreakerBoard
from gateway.policy.loads import LoadBoard
from gateway.policy.retry import RetryRules


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds a phase may take. Defaults are the contract's."""

    first_token_s: float = 60.0
    idle_s: float = 90.0
    heartbeat_s: float = 15.0
    commit_after_s: float = 20.0
    write_stall_s: float = 30.0
    non_stream_s: float = 100.0
    usage_grace_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Clock:
    """Time and chance, handed in so that tests own them."""

    monotonic_s: Callable[[], float]
    epoch_s: Callable[[], float]
    spread: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Services:
    """The composition root's choices.

    Attributes:
        ledgers: Each gets every receipt; the log line and the metrics are among them.
        report_failure: Told of every failed attempt; the only place that sees a failure's detail.
        headers: The headers of a 200; the receipt is None when a stream is committed.
        observe_gap: Told the seconds between two reads that moved a stream on.
        loads: How routes fare, for the strategies that look at it.
        drains: Who reads on what clients have left behind.
        answering: What looks at answers.
    """

    upstream: Upstream
    ledgers: tuple[Ledger, ...]
    board: BreakerBoard
    retry: RetryRules
    deadlines: Deadlines
    lanes: LaneRules
    tariff: Tariff
    clock: Clock
    report_failure: Callable[[Exchange, Route, Failure], None]
    headers: Callable[[Exchange, Receipt | None], tuple[tuple[str, str], ...]]
    observe_gap: Callable[[float], None]
    drains: Drains
    loads: LoadBoard = field(default_factory=LoadBoard)
    answering: Answering = field(default_factory=Answering)
