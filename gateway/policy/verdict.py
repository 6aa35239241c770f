"""What admission says of a call, and what is remembered of one that it let in."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gateway.core.ports import Order
from gateway.policy.entitlement import Account, Entitlement

Step = Literal["admitted", "rpm", "tpm", "inflight", "account", "load", "wait"]  # what it is, or what refuses it


class Part(Struct, frozen=True, gc=False):
    """What a request holds in one account, in the period of its admission."""

    account: Account
    period: int
    amount: int


class Open(Struct, frozen=True, gc=False):
    """
    A request that was admitted, as whoever admitted it remembers it.

    Attributes:
        has_place: Whether it holds one of those that run at once.
        epoch: Of the counters that it was admitted by.
    """

    request_id: str
    holder: str = ""
    has_place: bool = False
    parts: tuple[Part, ...] = ()
    epoch: int = 0


class Standing(Struct, frozen=True, gc=False):
    """
    Where an entitlement stands.

    Attributes:
        used: Requests of the minute that opened at `opened_ms`; `tokens_used` of that at `tokens_opened_ms`.
        tallies: Of each account, in order.
    """

    used: int = 0
    credits: int = 0
    opened_ms: int = 0
    tokens_used: int = 0
    tokens_opened_ms: int = 0
    running: int = 0
    tallies: tuple[Count, ...] = ()


class Count(Struct, frozen=True, gc=False):
    """What stands in one account in one period."""

    period: int
    used: int
    held: int
    is_loaded: bool

    def left_of(self, account: Account) -> int:
        """What of its limit is neither spent nor held; below 0 where more was spent than held."""
        return account.limit - self.used - self.held


class Verdict(Struct, frozen=True, gc=False):
    """
    What an admission came to; nothing is held unless it says `admitted`.

    Attributes:
        epoch: Of the counters: another one means that they were lost and made anew since.
        retry_ms: Until the minute ends that refused, or until the counters may be asked again.
        money: Nano-USD that are held of every budget; `weighted` of the allowance.
    """

    step: Step
    at_ms: int
    epoch: int
    standing: Standing = Standing()
    retry_ms: int = 0
    money: int = 0
    weighted: int = 0

    def open_of(self, order: Order, limits: Entitlement) -> Open:
        """What is to be remembered of *order*, which it admits."""
        parts = [
            Part(account, count.period, account.amount_of(self.money, self.weighted))
            for account, count in zip(limits.accounts, self.standing.tallies, strict=True)
        ]
        return Open(order.request_id, limits.holder, limits.inflight is not None, tuple(parts), self.epoch)
