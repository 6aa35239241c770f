"""The one place where an exchange ends: a plain function, called once, with no await in it."""

from __future__ import annotations

from gateway.core.exchange import Exchange, Outcome
from gateway.core.receipt import Receipt, draw_up
from gateway.dialects.base import Lane
from gateway.dialects.continuation import ContinuedLane
from gateway.dialects.edited import unedited
from gateway.pipeline.services import Services
from gateway.pipeline.stage import Stage


def measure(exchange: Exchange, lane: Lane) -> None:
    """What *lane* has counted goes into the books of *exchange*."""
    exchange.usage, exchange.basis = lane.measure()
    exchange.response_id = lane.response_id
    lane = unedited(lane)
    if isinstance(lane, ContinuedLane):
        exchange.attempts[-1].usage = lane.parts()[1]


class Settlement:
    """
    Settles one exchange exactly once, whoever comes first: the relay at the terminator, a cancellation, an error.

    Between "it is over" and "it is recorded" nothing is awaited, so a second cancellation cannot split the two.
    """

    def __init__(self, exchange: Exchange, services: Services) -> None:
        self._exchange = exchange
        self._services = services
        self._admitted: list[Stage] = []
        self._receipt: Receipt | None = None
        self.is_deferred = False  # whoever reads the answer on will settle, not those whose task ends meanwhile

    @property
    def is_settled(self) -> bool:
        """Whether the receipt is out."""
        return self._receipt is not None

    def admitted(self, stage: Stage) -> None:
        """*stage* let the exchange pass and will be settled."""
        self._admitted.append(stage)

    def settle(self, outcome: Outcome) -> Receipt:
        """The receipt; the first call decides, every later one returns the same."""
        if self._receipt is None:
            services, exchange = self._services, self._exchange
            now_s, epoch_s = services.clock.monotonic_s(), services.clock.epoch_s()
            self._receipt = draw_up(exchange, outcome, now_s=now_s, epoch_s=epoch_s, tariff=services.tariff)
            for stage in reversed(self._admitted):
                stage.settle(exchange, self._receipt)
            for ledger in services.ledgers:
                ledger.record(self._receipt)
        return self._receipt
