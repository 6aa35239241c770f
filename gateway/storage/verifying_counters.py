"""Whether the counters in Redis say what the ledger does, and what puts them right."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar, get_args

from msgspec import Struct
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.accounts import Period, Scope
from gateway.policy.periods import number_of, start_ms
from gateway.storage.redis_clearing import WRONG_TYPE, put_aside
from gateway.storage.redis_link import Link, RedisFailed
from gateway.storage.redis_script import EPOCH_KEY
from gateway.storage.spending import charged_to
from gateway.storage.tables import ledger

T = TypeVar("T")
Read = Callable[[Callable[[AsyncConnection], Awaitable[T]]], Awaitable[T]]

REPLY_S = 5.0  # of a command: nobody waits for it but who runs the check
# A call is in the counters some moments before it is in the ledger: the drainer writes every 0.25 s, and takes longer
# where the database does. What differs is looked at so often, so far apart, before it counts.
LOOKS = 5
BETWEEN_S = 1.0
# Redis's clock decides when a period begins: one that is no more than this ahead of ours is none that was put forward.
SKEW_MS = 60_000
_PREFIX = f"{EPOCH_KEY.removesuffix('epoch')}account:"
_FIELDS = ("epoch", "period", "used", "loaded", "held")
_EPOCH = "epoch"  # stands for its key where that cannot be read
_NUMBER = re.compile(r"-?[0-9]{1,16}")  # below 2^53, as `admission.lua` has it
_AT_ONCE = 500
# Sets what was used, unless a call has changed it since we looked, or its period or the whole epoch is over.
_SET = """
local f = redis.call('HMGET', KEYS[1], 'epoch', 'period', 'used')
if f[1] ~= ARGV[1] or f[2] ~= ARGV[2] or f[3] ~= ARGV[3] then return 0 end
redis.call('HSET', KEYS[1], 'used', ARGV[4])
return 1
"""


class Counter(Struct, frozen=True):
    """
    A counter of the current period, or of one that has not begun, as Redis has it, beside the ledger.

    Attributes:
        name: As in `policy.entitlement.Account`.
        used: In Redis; nano-USD, or weighted tokens of an allowance. None where something there is no number.
        charged: What the ledger has of the current period.
        is_ahead: Redis's clock was put forward when it was counted, or is still.
    """

    name: str
    epoch: str
    period: str
    used: int | None
    charged: int
    is_ahead: bool = False

    @property
    def can_be_set(self) -> bool:
        """Else counting has to begin anew."""
        return self.used is not None and not self.is_ahead


async def check_counters(link: Link, read: Read[Any], now_ms: Callable[[], int]) -> tuple[int, list[Counter]]:
    """
    How many counters of current periods there are, or of such as have not begun, and those that stay different from
    the ledger.

    Raises:
        RedisFailed: It does not answer.
    """
    names = [name async for name in _names(link)]
    found = await _differing(link, read, now_ms(), names)
    count = found[0]
    for _ in range(LOOKS - 1):
        if not found[1]:
            break
        await asyncio.sleep(BETWEEN_S)
        found = await _differing(link, read, now_ms(), [counter.name for counter in found[1]])
    return count, found[1]


async def still_so(
    link: Link, read: Read[Any], now_ms: Callable[[], int], counters: list[Counter]
) -> tuple[list[Counter], list[Counter]]:  # fmt: skip
    """
    Those of *counters* that no call has changed since, beside what the ledger charged by now; and those that differ
    still, but were changed.
    """
    seen = {(one.name, one.epoch, one.period, one.used) for one in counters}
    _, found = await _differing(link, read, now_ms(), [one.name for one in counters])
    same = [one for one in found if (one.name, one.epoch, one.period, one.used) in seen]
    return same, [one for one in found if one not in same]


async def repair(link: Link, counters: list[Counter]) -> list[Counter]:
    """
    Set what was used of *counters* to what was charged; those that calls have changed meanwhile are left. What cannot
    be read, or is of a period that has not begun, is put aside, and counting begins anew: the next call loads from the
    ledger.
    """
    left = []
    for one in counters:
        if one.used is None or not one.can_be_set:
            continue
        words = (_PREFIX + one.name, one.epoch, one.period, one.used, one.charged)
        if not await link.ask("EVAL", _SET, 1, *words, timeout_s=REPLY_S):
            left.append(one)
    for one in counters:
        if not one.can_be_set:
            await put_aside(link, EPOCH_KEY if one.name == _EPOCH else _PREFIX + one.name, timeout_s=REPLY_S)
    return left


async def _names(link: Link) -> AsyncIterator[str]:
    """Names of all counters; their keys have companions, which are named behind them."""
    cursor, seen = "0", set[str]()
    while True:
        cursor, keys = await link.ask("SCAN", cursor, "MATCH", f"{_PREFIX}*", "COUNT", _AT_ONCE, timeout_s=REPLY_S)
        for name in {key.removeprefix(_PREFIX) for key in keys} - seen:
            seen.add(name)
            if _account(name) is not None:
                yield name
        if cursor == "0":
            return


def _account(name: str) -> tuple[Scope, str, Period, ColumnElement[Any]] | None:
    """Whose counter it is, of what period, and what of the ledger it counts; None for what is no counter."""
    kind, _, rest = name.partition(":")
    if kind == "allowance" and rest and ":" not in rest:
        return "tenant", rest, "month", ledger.c.weighted_tokens
    owner, _, period = rest.partition(":")
    for scope in get_args(Scope):
        for known in get_args(Period):
            if (kind, period) == (scope, known) and owner:
                return scope, owner, known, ledger.c.cost_nano_usd
    return None


async def _differing(link: Link, read: Read[Any], now_ms: int, names: list[str]) -> tuple[int, list[Counter]]:
    count, found = 0, []
    known = await _stored(link, EPOCH_KEY, ("id", "born"))
    if not _are_numbers(known) and known != [None, None]:
        found.append(Counter(_EPOCH, "", "", None, 0))
    for name in names:
        account = _account(name)
        stored = await _stored(link, _PREFIX + name, _FIELDS)
        if account is None or (stored and (stored[:1] != known[:1] or stored[3] == "0")):
            continue  # of an epoch that is over, or not loaded yet: it admits nothing before it is
        scope, owner, period, column = account
        number = number_of(period, now_ms)
        is_sound = stored[3:4] == ["1"] and _are_numbers([stored[1], stored[2], stored[4]])
        counted = int(stored[1]) if is_sound else number
        if counted < number or number < counted <= number_of(period, now_ms + SKEW_MS):
            continue  # of a period that is over, or begins just now
        charged = await read(_charged(charged_to(scope, owner, start_ms(period, number)), column))
        count += 1
        if not is_sound:
            found.append(Counter(name, "", "", None, charged))
        elif charged != int(stored[2]) or counted > number:
            found.append(Counter(name, stored[0], stored[1], int(stored[2]), charged, is_ahead=counted > number))
    return count, found


async def _stored(link: Link, key: str, fields: Sequence[str]) -> list[Any]:
    """Those of the hash *key*; none where it is no hash."""
    try:
        return list(await link.ask("HMGET", key, *fields, timeout_s=REPLY_S))
    except RedisFailed as exc:
        if exc.code != WRONG_TYPE:
            raise
        return []


def _are_numbers(stored: Sequence[Any]) -> bool:
    return bool(stored) and all(text is not None and _NUMBER.fullmatch(text) for text in stored)


def _charged(rows: ColumnElement[bool], column: ColumnElement[Any]) -> Callable[[AsyncConnection], Awaitable[int]]:
    chosen = select(func.coalesce(func.sum(column), 0)).where(rows)

    async def step(connection: AsyncConnection) -> int:
        return int((await connection.execute(chosen)).scalar_one())

    return step
