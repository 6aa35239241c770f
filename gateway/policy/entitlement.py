"""What bounds the calls of a key: its limits and the counters that they are held against, by name."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from gateway.core.accounts import Budget, Key, Period, Scope, session_key
from gateway.core.money import usd_words
from gateway.core.ports import Draw, Order
from gateway.policy.rates import RateRule

NOTHING = Draw()


class Account(Struct, frozen=True, gc=False):
    """
    A counter of what is spent in each period.

    Attributes:
        name: Of the counter; whoever has the same name spends together.
        owner: What `scope` is counted by: a key's id, a tenant's, or the digest of a session.
        is_money: Whether it counts nano-USD; else weighted tokens.
        is_hard: Whether `limit` must not be passed; else it is only counted against it.
        overage_nano_usd_per_million: What of weighted tokens is beyond costs so much, which is told and booked nowhere.
    """

    name: str
    scope: Scope
    owner: str
    period: Period
    limit: int
    is_money: bool = True
    is_hard: bool = True
    overage_nano_usd_per_million: int | None = None

    def draw_of(self, order: Order) -> Draw:
        """What *order* asks of it."""
        if not self.is_hard:
            return NOTHING
        return order.nano_usd if self.is_money else order.weighted

    def amount_of(self, money: int, weighted: int) -> int:
        """What a call holds of it that was granted *money* and *weighted* tokens."""
        return (money if self.is_money else weighted) if self.is_hard else 0

    @property
    def words(self) -> str:
        """As in `5.00 USD per month for this key`, for those who meet the limit."""
        amount = usd_words(self.limit) if self.is_money else f"{self.limit} weighted tokens"
        spell = "in all" if self.period == "total" else f"per {self.period}"
        return f"{amount} {spell} for this {self.scope}"


class Entitlement(Struct, frozen=True, gc=False):
    """
    The limits of a key's calls, in one session where it has budgets of sessions.

    Attributes:
        holder: Whose minute and places they are: the key's id.
    """

    holder: str
    rate: RateRule | None
    tpm: int | None
    inflight: int | None
    accounts: tuple[Account, ...]

    @property
    def is_open(self) -> bool:
        """Whether nothing at all is counted."""
        return self.rate is None and self.tpm is None and self.inflight is None and not self.accounts

    @property
    def is_hard(self) -> bool:
        """Whether a limit of money or of an allowance bounds it: what must not be passed, come what may."""
        return any(account.is_hard for account in self.accounts)


def entitlement(key: Key, session_id: str | None) -> Entitlement:
    """
    That of *key*; budgets of sessions count only for calls that name their session.

    Of several budgets for the same scope and period the smallest counts.
    """
    tier = key.tier
    burst = tier.burst
    rate = None
    if tier.rpm is not None:
        rate = RateRule(tier.rpm, burst.capacity, burst.refill_per_min) if burst else RateRule(tier.rpm)
    return Entitlement(key.id, rate, tier.tpm, tier.inflight, _accounts(key, session_id))


def has_session_budget(key: Key) -> bool:
    """Whether what bounds *key* depends on the session."""
    return any(budget.scope == "session" for budget in key.budgets)


def _accounts(key: Key, session_id: str | None) -> tuple[Account, ...]:
    found: dict[str, Account] = {}
    for budget in key.budgets:
        account = _of_budget(key, budget, session_id)
        if account is None:
            continue
        known = found.get(account.name)
        if known is None or account.limit < known.limit:
            found[account.name] = account
    allowance, overage = key.tier.weighted_tokens_per_month, key.tier.overage_nano_usd_per_million
    if allowance is not None:
        found["allowance"] = Account(
            f"allowance:{key.tenant}", "tenant", key.tenant, "month", allowance,
            is_money=False, is_hard=overage is None, overage_nano_usd_per_million=overage,
        )  # fmt: skip
    return tuple(found.values())


def _of_budget(key: Key, budget: Budget, session_id: str | None) -> Account | None:
    owner = key.id if budget.scope == "key" else key.tenant
    if budget.scope == "session":
        if session_id is None:
            return None
        owner = session_key(key.tenant, session_id)
    name = f"{budget.scope}:{owner}:{budget.period}"
    return Account(name, budget.scope, owner, budget.period, budget.limit_nano_usd)


class Entitlements:
    """Those of the keys seen of late, for a key asks again and again."""

    _MOST = 10_000  # some 3 KB each; beyond, all are made anew

    def __init__(self, share: int = 1) -> None:
        self._share = share
        self._known: dict[str, tuple[Key, Entitlement]] = {}

    def of(self, key: Key, session_id: str | None) -> Entitlement:
        """As `entitlement`, or this process's part of it."""
        known = self._known.get(key.id)
        if known is not None and known[0] is key and (session_id is None or not has_session_budget(key)):
            return known[1]
        made = entitlement(key, session_id if has_session_budget(key) else None)
        if self._share > 1:
            made = part_of(made, self._share)
        if session_id is None or not has_session_budget(key):
            if len(self._known) >= self._MOST:
                self._known.clear()
            self._known[key.id] = key, made
        return made


def part_of(limits: Entitlement, share: int) -> Entitlement:
    """
    What one of *share* processes may admit that do not share their counters: minutes and places rounded up, so that
    each can serve at all, and what must not be passed rounded down.
    """
    rate = limits.rate
    return Entitlement(
        limits.holder,
        RateRule(_up(rate.rpm, share), _up(rate.capacity, share), _up(rate.refill, share)) if rate else None,
        _up(limits.tpm, share) if limits.tpm is not None else None,
        _up(limits.inflight, share) if limits.inflight is not None else None,
        tuple([replace(account, limit=account.limit // share) for account in limits.accounts]),
    )


def _up(number: int, share: int) -> int:
    return -(-number // share)
