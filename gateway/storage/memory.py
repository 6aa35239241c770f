"""The stores of a single process: keys from the configuration, counters and receipts in memory."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping

from gateway.core.accounts import Key
from gateway.core.credentials import digest_of
from gateway.core.errors import INFLIGHT_CAP, RATE_LIMIT_EXCEEDED
from gateway.core.exchange import Limits
from gateway.core.ports import Admitted, Order, Refused, Spent
from gateway.core.receipt import Receipt
from gateway.policy.window import Verdict, Window, take

_INFLIGHT_RETRY_S = float(INFLIGHT_CAP.retry_after_s or 1)  # nobody knows when a running request will end


class MemoryKeys:
    """
    Keys by the SHA-256 digest of their secret.

    Only digests are kept. A look-up takes the same path for a known, unknown, malformed or empty secret, and its time
    tells nothing of how much of a secret was right. Secrets are random, so a slow hash would only slow us down.

    Args:
        table: Keys by plain secret.

    Raises:
        ValueError: A secret of *table* is empty.
    """

    def __init__(self, table: Mapping[str, Key]) -> None:
        self._keys: dict[bytes, Key] = {}
        self.replace(table)

    async def find(self, secret: str) -> Key | None:
        return self.get(digest_of(secret))

    def get(self, digest: bytes) -> Key | None:
        """The key whose secret has *digest*."""
        return self._keys.get(digest)

    def replace(self, table: Mapping[str, Key]) -> None:
        """Take *table* instead, in one step; the old one stays when *table* is refused."""
        if "" in table:
            raise ValueError("a key's secret is empty")
        self._keys = {digest_of(secret): key for secret, key in table.items()}


class MemoryCounters:
    """
    Requests per minute and at once, per key id.

    `admit` does not await, so two requests can never both take the last place. Windows are dropped when they have
    ended, so memory is bounded by the keys seen in the last minute.

    Args:
        clock_s: Monotonic seconds.
        share: Worker processes that serve the same keys. Each enforces its part of a limit, rounded up, so that
            together they admit the limit and at most `share - 1` more. What is left is this process's part.
    """

    def __init__(self, clock_s: Callable[[], float], share: int = 1) -> None:
        if share < 1:
            raise ValueError("share must be at least 1")
        self._clock_s = clock_s
        self._share = share
        self._windows: OrderedDict[str, Window] = OrderedDict()  # in the order of opening
        self._running: dict[str, set[str]] = {}
        self._holders: dict[str, str] = {}  # key by request

    async def admit(self, order: Order) -> Admitted | Refused:
        """
        Take a place of the order's key for its request. A refusal spends nothing.

        Raises:
            ValueError: The request holds a place already: it would be counted once and released once for two requests.
        """
        key, request_id = order.key, order.request_id
        now_s = self._clock_s()
        running = self._running.get(key.id, set())
        if request_id in running:
            raise ValueError("the request holds a place already")
        window, verdict = self._take(key, now_s)
        if not verdict.allowed:
            return Refused(RATE_LIMIT_EXCEEDED, verdict.retry_after_s, Limits(key.tier.rpm, 0))
        remaining = None if key.tier.rpm is None else verdict.remaining
        cap = key.tier.inflight
        if cap is not None and len(running) >= self._part(cap):
            unspent = None if remaining is None else remaining + 1
            return Refused(INFLIGHT_CAP, _INFLIGHT_RETRY_S, Limits(key.tier.rpm, unspent))
        if window is not None:
            self._windows[key.id] = window  # ended ones are gone, so a new window always comes last
        running.add(request_id)
        self._running[key.id] = running
        self._holders[request_id] = key.id
        return Admitted(Limits(key.tier.rpm, remaining), now_s, order.nano_usd.need, order.weighted.need)

    def settle(self, request_id: str, spent: Spent) -> None:
        """Give the place of *request_id* back; one that is not held changes nothing."""
        key_id = self._holders.pop(request_id, None)
        if key_id is None:
            return
        running = self._running[key_id]
        running.remove(request_id)
        if not running:
            del self._running[key_id]

    def standing(self, key: Key) -> Limits:
        return Limits(key.tier.rpm)

    def __len__(self) -> int:
        """Entries held: what the memory bound is about."""
        return len(self._windows) + len(self._running)

    def _part(self, limit: int) -> int:
        return -(-limit // self._share)

    def _take(self, key: Key, now_s: float) -> tuple[Window | None, Verdict]:
        self._drop_ended(now_s)
        if key.tier.rpm is None:
            return None, Verdict(allowed=True, remaining=0)
        return take(self._windows.get(key.id), now_s, self._part(key.tier.rpm))

    def _drop_ended(self, now_s: float) -> None:
        windows = self._windows
        while windows and now_s >= next(iter(windows.values())).ends_s:
            windows.popitem(last=False)


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
