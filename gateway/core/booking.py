"""What is known of an exchange when it is admitted, and what providers have done for it: the facts of the ledger."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from msgspec import Struct

from gateway.core.money import Price, Weight
from gateway.core.usage import NO_USAGE, Basis, Usage

AttemptResult = Literal["open", "ok", "failed", "cancelled"]


class Way(Struct, frozen=True, gc=False, array_like=True):
    """A route as the ledger names it: provider, the model's name there, the provider's type, region and factor."""

    provider: str
    model: str
    type: str
    region: str
    weight: Weight


class Admission(Struct, frozen=True, gc=False, array_like=True):
    """
    Everything from which the rows of an exchange can be drawn up, should nothing else of it be left.

    No word of a prompt is in it. New members go to the end, with a default: records outlive the version that wrote
    them.

    Attributes:
        session_key: See `accounts.session_key`.
        prompt_tokens: Our count, or less.
        price: That of the moment of admission, and `price_version` its name.
        weights: The factors of the model's class, and of calls that a provider's prompt cache did not or did serve.
        ways: Every route that may be asked.
        admitted_ms: Epoch milliseconds by the clock of the counters; `started_ms` by ours.
        user: As in `Receipt`, like `session_id` and `agent_id`: a session's totals are the sums of its calls, whatever
            became of their processes.
    """

    request_id: str
    trace_id: str
    tenant: str
    key_id: str
    session_key: str | None
    endpoint: str
    model: str
    stream: bool
    region: str
    reserved_nano_usd: int
    prompt_tokens: int
    price: Price
    price_version: str
    weights: tuple[Weight, Weight, Weight]
    ways: tuple[Way, ...]
    admitted_ms: int
    started_ms: int
    source: str | None = None
    user: str | None = None
    session_id: str | None = None
    agent_id: str | None = None


class Sent(Struct, frozen=True, gc=False, array_like=True):
    """
    An attempt that reached a provider, and what that will bill for it.

    Attributes:
        attempt: Its number among those of the exchange that were sent, from 0.
    """

    attempt: int
    provider: str
    model: str
    type: str
    region: str
    result: AttemptResult
    usage: Usage = NO_USAGE
    basis: Basis = "none"
    cost_nano_usd: int = 0


class Booking(Struct, frozen=True, gc=False, array_like=True):
    """What the ledger has of an exchange that was admitted, besides what its receipt says anyway.

    Attributes:
        is_reconciled: Whether it was drawn up from what a dead process has left behind.
    """

    reserved_nano_usd: int
    price_version: str
    session_key: str | None
    admitted_ms: int
    sent: tuple[Sent, ...] = ()
    is_reconciled: bool = False


@lru_cache(maxsize=4096)  # of every price in the catalogue; making it takes 8 us, asking for it a twentieth
def version_of(price: Price) -> str:
    """The name of *price* in the ledger."""
    return price.version
