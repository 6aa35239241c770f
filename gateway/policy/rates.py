"""Requests and tokens per minute: fixed windows that open with a key's first request, and the credits of a burst."""

from __future__ import annotations

from msgspec import Struct

MINUTE_MS = 60_000  # "per minute" is what the limits are sold as


class RateRule(Struct, frozen=True, gc=False):
    """
    Attributes:
        rpm: Requests per minute.
        capacity: The most credits that can be saved up; 0 where there is no burst.
        refill: The most that a minute with unused requests earns.
    """

    rpm: int
    capacity: int = 0
    refill: int = 0

    @property
    def earned(self) -> int:
        """Credits that a minute without any request earns."""
        return min(self.rpm, self.refill)


class Rate(Struct, frozen=True, gc=False):
    """A minute of one key: when it opened, the requests admitted since, and the credits it has left."""

    opened_ms: int
    used: int
    credits: int

    @property
    def ends_ms(self) -> int:
        return self.opened_ms + MINUTE_MS


def current(rate: Rate | None, now_ms: int, rule: RateRule) -> Rate:
    """
    The minute that a request at *now_ms* falls in; a new one where the last has ended.

    The requests that were left over then have earned credits, and so has each whole minute without any. A clock that
    was put back is followed, and gives nothing away.
    """
    if rate is None:
        return Rate(now_ms, 0, rule.capacity)
    if rate.opened_ms > now_ms:
        return Rate(now_ms, rate.used, min(rate.credits, rule.capacity))
    idle = (now_ms - rate.opened_ms) // MINUTE_MS
    if idle == 0:
        return Rate(rate.opened_ms, rate.used, min(rate.credits, rule.capacity))
    earned = min(max(0, rule.rpm - rate.used), rule.refill) + (idle - 1) * rule.earned
    return Rate(now_ms, 0, min(rule.capacity, rate.credits + earned))


def take(rate: Rate, rule: RateRule) -> Rate | None:
    """*rate* with one more request; None where it has no place. Beyond the rate, up to twice, each costs a credit."""
    if rate.used < rule.rpm:
        return Rate(rate.opened_ms, rate.used + 1, rate.credits)
    if rate.credits > 0 and rate.used < 2 * rule.rpm:
        return Rate(rate.opened_ms, rate.used + 1, rate.credits - 1)
    return None


def forgotten_ms(rate: Rate, rule: RateRule) -> int:
    """From when on *rate* is as good as none: its minute is over, and the credits are all there again."""
    missing = rule.capacity - rate.credits
    if missing <= 0:
        return rate.ends_ms
    return rate.ends_ms + MINUTE_MS * -(-missing // max(1, rule.earned))


class Tokens(Struct, frozen=True, gc=False):
    """A minute of tokens: when it opened, and those reserved or spent since."""

    opened_ms: int
    used: int

    @property
    def ends_ms(self) -> int:
        return self.opened_ms + MINUTE_MS


def current_tokens(tokens: Tokens | None, now_ms: int) -> Tokens:
    """As `current`."""
    if tokens is None or now_ms >= tokens.ends_ms:
        return Tokens(now_ms, 0)
    return tokens if tokens.opened_ms <= now_ms else Tokens(now_ms, tokens.used)
