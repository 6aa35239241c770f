"""A ledger of this process, for tests that look at receipts."""

from __future__ import annotations

from collections import deque

from gateway.core.receipt import Receipt


class MemoryLedger:
    """The last *capacity* receipts (1,000 of about 1 KB each by default: a megabyte)."""

    def __init__(self, capacity: int = 1000) -> None:
        self._receipts: deque[Receipt] = deque(maxlen=capacity)

    def record(self, receipt: Receipt) -> None:
        self._receipts.append(receipt)

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """Oldest first."""
        return tuple(self._receipts)
