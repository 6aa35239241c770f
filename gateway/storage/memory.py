"""The stores of a single process: keys from the configuration, counters in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec.structs import replace

from gateway.core.accounts import Key, Scope
from gateway.core.credentials import digest_of
from gateway.core.exchange import Limits
from gateway.core.ports import Admitted, Booked, Order, Refused, Spending, Spent, StoreUnavailable
from gateway.policy.admission import KEPT_MS, Admission
from gateway.policy.entitlement import Account, Entitlement, Entitlements
from gateway.policy.limits import answer, limits_of, refused_blind, usage
from gateway.policy.periods import start_ms
from gateway.policy.verdict import Count, Open, Verdict

FOR_EVER_MS = 10**15  # what this process holds ends with it


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


class NoSpending:
    """Implements `Spending` where nothing has been spent, or nothing is kept of it."""

    async def booked(self, scope: Scope, owner: str, since_ms: int, ids: Collection[str]) -> Booked:
        return Booked()


async def charged_of(spending: Spending, account: Account, period: int) -> int:
    """What the ledger has of *account*, nano-USD or weighted tokens. Raises StoreUnavailable."""
    return amount_of(await spending.booked(account.scope, account.owner, start_ms(account.period, period), ()), account)


def amount_of(booked: Booked, account: Account) -> int:
    """Of *booked*, what *account* counts."""
    return booked.nano_usd if account.is_money else booked.weighted


class MemoryCounters:
    """
    Everything that keys are limited in, counted in this process.

    Nothing is awaited between a check and what it takes, so two requests can never both take the last place. What an
    account has spent is loaded when it is first drawn on. Memory is bounded by the keys seen of late.

    Args:
        clock_s: Epoch seconds that never go back.
        share: Worker processes that serve the same keys. Each enforces its part of a limit (`part_of`); what is left
            is this process's part.
        succeeds: Whether it takes the place of one of them that has ended: what that had spent of its part cannot be
            told from what the others did, so all of it counts against this one's. So does what is loaded later than
            accounts are kept: this process may have used its part up before.
    """

    is_far = False

    def __init__(
        self, clock_s: Callable[[], float], share: int = 1, spending: Spending | None = None, *, succeeds: bool = False
    ) -> None:
        if share < 1:
            raise ValueError("share must be at least 1")
        self._clock_s = clock_s
        self._share = share
        self._shared_until_ms = 0 if succeeds else self._now_ms() + KEPT_MS
        self._spending = spending or NoSpending()
        self._machine = Admission(lease_ms=FOR_EVER_MS, hold_ms=FOR_EVER_MS)
        self._entitlements = Entitlements(share)
        self._whole = Entitlements()
        self._open: dict[str, Open] = {}

    async def admit(self, order: Order) -> Admitted | Refused:
        """
        Take all that *order* needs, or nothing. A refusal spends nothing.

        Raises:
            ValueError: The request holds a place already: it would be counted once and released once for two requests.
        """
        if order.request_id in self._open:
            raise ValueError("the request holds a place already")
        limits = self._entitlements.of(order.key, order.session_id)
        verdict = self._machine.admit(order, limits, self._now_ms())
        while verdict.step == "load":
            try:
                await self._load(limits, verdict)
            except StoreUnavailable:
                return refused_blind(limits)
            verdict = self._machine.admit(order, limits, self._now_ms())
        if verdict.step == "admitted":
            self._open[order.request_id] = verdict.open_of(order, limits)
        return answer(verdict, limits, self._whole.of(order.key, order.session_id))

    def settle(self, request_id: str, spent: Spent, *, key_id: str = "") -> None:
        """Give back what *request_id* holds, and book; one that holds nothing changes nothing."""
        open_ = self._open.pop(request_id, None)
        if open_ is not None:
            self._machine.settle(open_, spent, self._now_ms())

    def written(self, request_ids: Iterable[str]) -> None:
        """Nothing: these counters are lost only with all that was settled in them."""

    async def held_by(self, owner: str) -> Collection[str]:
        """None: what a process holds ends with it."""
        return ()

    def standing(self, key: Key) -> Limits:
        limits = self._entitlements.of(key, None)
        return limits_of(self._machine.standing(limits, self._now_ms()), limits, self._whole.of(key, None))

    async def usage_limits(self, key: Key, session_id: str | None = None) -> dict[str, object]:
        """
        Every limit of *key*: see `policy.limits.usage`. Raises StoreUnavailable.

        Of several processes each knows its own minutes and places alone, and what its own calls hold; what all of them
        have spent is in the ledger.
        """
        limits, now_ms = self._entitlements.of(key, session_id), self._now_ms()
        standing, whole = self._machine.standing(limits, now_ms), self._whole.of(key, session_id)
        counts = []  # nothing is kept of a look: sessions may be called anything
        for account, count in zip(limits.accounts, standing.tallies, strict=True):
            is_known = count.is_loaded and self._share == 1
            spent = count.used if is_known else await charged_of(self._spending, account, count.period)
            counts.append(Count(count.period, spent, count.held, is_loaded=True))
        shown = replace(limits, accounts=whole.accounts)
        return usage(shown, replace(standing, tallies=tuple(counts)), now_ms, processes=self._share)

    async def start(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Nothing to tell anybody."""

    def __len__(self) -> int:
        """Entries held: what the memory bound is about."""
        return len(self._machine) + len(self._open)

    def _now_ms(self) -> int:
        return int(self._clock_s() * 1000)

    async def _load(self, limits: Entitlement, verdict: Verdict) -> None:
        """Load what is not. Several calls may do so at once: the first that is done counts."""
        for account, count in zip(limits.accounts, verdict.standing.tallies, strict=True):
            if not count.is_loaded:
                spent = await self._spent(account, count.period)
                self._machine.load(account, count.period, spent, (), self._now_ms())

    async def _spent(self, account: Account, period: int) -> int:
        """What counts of *account* as spent by this process. Raises StoreUnavailable."""
        spent = await charged_of(self._spending, account, period)
        return -(-spent // (self._share if self._now_ms() < self._shared_until_ms else 1))
