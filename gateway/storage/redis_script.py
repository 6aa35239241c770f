"""The words of `admission.lua`: steps as arguments, and what it replies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from secrets import token_hex
from typing import Any

from gateway.core.ports import Order, Spent
from gateway.policy.entitlement import Account, Entitlement
from gateway.policy.verdict import Count, Open, Standing, Verdict
from gateway.storage.redis_link import Word

# One slot for all: calls of one tenant draw on several counters at once, and a lost epoch is everybody's.
EPOCH_KEY = "{anoman}:epoch"
NONE = -1
# That one step names: 7 ms of a busy Redis (measured). Lua's stack takes 8,000 words (LUAI_MAXCSTACK).
IDS_AT_ONCE = 2_000

_STANDS = 11  # members of the reply before those of accounts
_EACH = 4


@cache
def script() -> bytes:
    """The text of `admission.lua`."""
    return files("gateway.storage").joinpath("admission.lua").read_bytes()


@cache
def digest() -> str:
    """The name that Redis knows the script by."""
    return sha1(script(), usedforsecurity=False).hexdigest()


def evalsha(step: Iterable[Word]) -> tuple[Word, ...]:
    """The command that runs *step*."""
    return ("EVALSHA", digest(), 1, EPOCH_KEY, *step)


def admit(
    order: Order, limits: Entitlement, times_ms: tuple[int, int, int], at_ms: int = 0, *, owner: str = ""
) -> list[Word]:
    """
    Args:
        times_ms: How long places and holds last, and how long calls that draw on accounts wait for a new epoch.
        owner: The process that asks, see `held`.
    """
    return ["admit", at_ms, *times_ms, *_asked(order, limits, owner)]


def look(order: Order, limits: Entitlement, rejoin_ms: int, at_ms: int = 0) -> list[Word]:
    """As `admit`, taking nothing."""
    return ["look", at_ms, 0, 0, rejoin_ms, *_asked(order, limits, "")]


def _asked(order: Order, limits: Entitlement, owner: str) -> list[Word]:
    rate, tpm, inflight = limits.rate, limits.tpm, limits.inflight
    words: list[Word] = [
        order.request_id,
        limits.holder,
        *((rate.rpm, rate.capacity, rate.refill) if rate is not None else (NONE, 0, 0)),
        NONE if tpm is None else tpm,
        order.tokens,
        NONE if inflight is None else inflight,
        order.nano_usd.need,
        order.nano_usd.floor,
        order.weighted.need,
        order.weighted.floor,
        owner,
    ]
    for account in limits.accounts:
        words += account.name, account.period, int(account.is_money), account.limit, int(account.is_hard)
    return words


def verdict_of(reply: list[Any], limits: Entitlement) -> Verdict:
    """What an admission, or a look, came to."""
    step, at_ms, epoch, used, credits, opened_ms, tokens, running, retry_ms, money, weighted = reply[:_STANDS]
    counts, at = [], _STANDS
    if step != "wait":
        for _ in limits.accounts:
            spent, held, is_loaded, period = reply[at : at + _EACH]
            counts.append(Count(int(period), int(spent), int(held), bool(is_loaded)))
            at += _EACH
    tokens_opened_ms = int(reply[at]) if len(reply) > at else 0
    standing = Standing(used, credits, int(opened_ms), int(tokens), tokens_opened_ms, running, tuple(counts))
    return Verdict(step, int(at_ms), int(epoch), standing, retry_ms, int(money), int(weighted))


def settle(open_: Open, spent: Spent, at_ms: int = 0) -> list[Word]:
    """Replies the epoch."""
    holder = open_.holder if open_.has_place else ""
    words: list[Word] = ["settle", at_ms, open_.request_id, holder, spent.tokens, spent.nano_usd, spent.weighted]
    words.append(open_.epoch)
    for part in open_.parts:
        words += part.account.name, part.account.period, part.period, int(part.account.is_money)
    return words


def renew(requests: Iterable[Open], lease_ms: int, hold_ms: int, at_ms: int = 0) -> list[Word]:
    """Replies the ids of those that hold neither money nor tokens."""
    words: list[Word] = ["renew", at_ms, lease_ms, hold_ms]
    for open_ in requests:
        words += open_.request_id, open_.holder if open_.has_place else ""
    return words


def register(open_: Open, hold_ms: int, at_ms: int = 0, *, owner: str = "") -> list[Word]:
    """Replies the epoch."""
    words: list[Word] = ["register", at_ms, hold_ms, open_.request_id, open_.holder, owner]
    for part in open_.parts:
        words += part.account.name, part.account.period, part.period, int(part.account.is_money), part.amount
    return words


def held(owner: str, at_ms: int = 0) -> list[Word]:
    """Replies the ids of requests that hold something, of those that the process *owner* has admitted."""
    return ["held", at_ms, owner]


def pending(account: Account, at_ms: int = 0) -> list[Word]:
    """Replies the ids of requests that were booked before *account* is loaded."""
    return ["pending", at_ms, account.name, account.period]


def note(
    account: Account, period: int, recorded: Collection[str], *, epoch: int, word: str, at_ms: int = 0
) -> list[Word]:  # fmt: skip
    """
    A piece of what a `load` of many ids has, before it. Replies the epoch.

    Args:
        recorded: `IDS_AT_ONCE` at the most.
        word: Nobody else's.
    """
    return ["note", at_ms, epoch, account.name, account.period, period, word, *recorded]


def load(
    account: Account,
    period: int,
    spent: int,
    recorded: Collection[str],
    *,
    epoch: int,
    word: str = "",
    noted: int = 0,
    at_ms: int = 0,
) -> list[Word]:
    """
    Replies the epoch.

    Args:
        recorded: `IDS_AT_ONCE` at the most.
        noted: How many ids *word* has noted before.
    """
    return ["load", at_ms, epoch, account.name, account.period, period, word, noted, spent, *recorded]


def load_in_pieces(
    account: Account, period: int, spent: int, recorded: Sequence[str], *, epoch: int
) -> Iterator[list[Word]]:  # fmt: skip
    """The steps that load *account* with any number of ids, each of which Redis is soon done with."""
    word, rest = token_hex(8), len(recorded) // IDS_AT_ONCE * IDS_AT_ONCE
    for start in range(0, rest, IDS_AT_ONCE):
        yield note(account, period, recorded[start : start + IDS_AT_ONCE], epoch=epoch, word=word)
    yield load(account, period, spent, recorded[rest:], epoch=epoch, word=word, noted=rest)


def tick(run_id: str, at_ms: int = 0) -> list[Word]:
    """Replies the epoch, its birth and the time, the latter two in epoch milliseconds."""
    return ["tick", at_ms, run_id]
