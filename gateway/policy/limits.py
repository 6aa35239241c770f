"""Limits as callers are told of them: in answers, in headers, and on their own page."""

from __future__ import annotations

from datetime import UTC, datetime

from gateway.core.errors import (
    BUDGET_EXCEEDED,
    INFLIGHT_CAP,
    LIMITS_UNAVAILABLE,
    RATE_LIMIT_EXCEEDED,
    TOKEN_LIMIT_EXCEEDED,
    ErrorKind,
)
from gateway.core.exchange import Limits
from gateway.core.money import format_nano, per_million
from gateway.core.ports import Admitted, Left, Met, Refused
from gateway.policy.entitlement import Account, Entitlement
from gateway.policy.periods import end_ms
from gateway.policy.rates import MINUTE_MS
from gateway.policy.verdict import Count, Standing, Step, Verdict


def answer(verdict: Verdict, limits: Entitlement, whole: Entitlement) -> Admitted | Refused:
    """
    *verdict*, which neither waits nor loads, as the pipeline is told of it.

    Args:
        limits: What was enforced.
        whole: The limits as they are told: all of what *limits* may be a process's part of.
    """
    shown = limits_of(verdict.standing, limits, whole, verdict.weighted)
    if verdict.step == "admitted":
        used_up = _used_up(verdict.standing, limits, whole)
        return Admitted(shown, verdict.at_ms / 1000, verdict.money, verdict.weighted, *used_up)
    if verdict.step == "account":
        return Refused(BUDGET_EXCEEDED, None, shown, met="budget", lefts=_lefts(verdict.standing, limits, whole))
    kind, words, met = _met(verdict.step, whole)
    retry_s = verdict.retry_ms / 1000 if verdict.retry_ms else None
    return Refused(kind, retry_s if retry_s is not None else kind.retry_after_s, shown, words, met)


def _lefts(standing: Standing, limits: Entitlement, whole: Entitlement) -> tuple[Left, ...]:
    """What is left of every account that must not be passed and is loaded."""
    counted = zip(limits.accounts, whole.accounts, standing.tallies, strict=True)
    return tuple([
        Left(
            told.words,
            "budget" if mine.is_money else "allowance",
            max(0, count.left_of(mine)),
            count.held,
            is_part=mine.limit < told.limit,
        )
        for mine, told, count in counted
        if mine.is_hard and count.is_loaded
    ])  # fmt: skip


def limits_of(
    standing: Standing, limits: Entitlement, whole: Entitlement, own_weighted: int = 0, *, is_blind: bool = False
) -> Limits:  # fmt: skip
    """
    What callers are shown of *standing*: how much there is of *whole*, and what is left of *limits*.

    Args:
        own_weighted: What the call itself holds of the allowance: what remains of it is told without.
    """
    rate, tpm = limits.rate, limits.tpm
    bursts = rate is not None and rate.capacity > 0
    allowance, remaining = None, None
    for account, all_of_it, count in zip(limits.accounts, whole.accounts, standing.tallies, strict=False):
        if not account.is_money and count.is_loaded:
            allowance, remaining = all_of_it.limit, count.left_of(account) + account.amount_of(0, own_weighted)
    return Limits(
        rpm=whole.rate.rpm if whole.rate else None,
        rpm_remaining=max(0, rate.rpm - standing.used) if rate else None,
        tpm=whole.tpm,
        tpm_remaining=max(0, tpm - standing.tokens_used) if tpm is not None else None,
        burst_active=rate is not None and standing.used > rate.rpm,
        burst_credits=standing.credits if bursts else None,
        burst_capacity=whole.rate.capacity if whole.rate is not None and bursts else None,
        weighted=allowance,
        weighted_remaining=remaining,
        is_blind=is_blind,
    )


def refused_blind(limits: Entitlement) -> Refused:
    """The answer to a call whose limits cannot be told."""
    return Refused(LIMITS_UNAVAILABLE, LIMITS_UNAVAILABLE.retry_after_s, _unseen(limits))


def admitted_blind(limits: Entitlement, at_s: float) -> Admitted:
    """The same to one of a key that is let in then."""
    return Admitted(_unseen(limits), at_s)


def _unseen(limits: Entitlement) -> Limits:
    return Limits(rpm=limits.rate.rpm if limits.rate else None, tpm=limits.tpm, is_blind=True)


def _used_up(standing: Standing, limits: Entitlement, whole: Entitlement) -> tuple[str, str]:
    """The first budget of which nothing is left, and the allowance where nothing is, in words."""
    found = {True: "", False: ""}
    for account, told, count in zip(limits.accounts, whole.accounts, standing.tallies, strict=True):
        if account.is_hard and not found[account.is_money] and count.left_of(account) <= 0:
            found[account.is_money] = told.words
    return found[True], found[False]


def _met(step: Step, limits: Entitlement) -> tuple[ErrorKind, str, Met]:
    if step == "tpm":
        return TOKEN_LIMIT_EXCEEDED, f"{limits.tpm} tokens per minute", "tpm"
    if step == "inflight":
        return INFLIGHT_CAP, f"{limits.inflight} at once", "inflight"
    assert limits.rate is not None, "nothing else has a minute"
    return RATE_LIMIT_EXCEEDED, f"{limits.rate.rpm} per minute", "rpm"


def usage(limits: Entitlement, standing: Standing, at_ms: int, *, processes: int = 1) -> dict[str, object]:
    """
    Every limit with what is used, held and left of it, for its owner; times as RFC 3339, money as decimals.

    Args:
        processes: Among how many the rates and places are divided, of which *limits* has one's part. Accounts are told
            whole; what of them is held is that one's.
    """
    rows: list[dict[str, object]] = []
    rate = limits.rate
    if rate is not None:
        ends_ms = standing.opened_ms + MINUTE_MS
        rows.append(_row("requests_per_minute", rate.rpm, standing.used, ends_ms=ends_ms))
        if rate.capacity:
            rows.append(_row("burst_credits", rate.capacity, rate.capacity - standing.credits))
    if limits.tpm is not None:
        ends_ms = standing.tokens_opened_ms + MINUTE_MS
        rows.append(_row("tokens_per_minute", limits.tpm, standing.tokens_used, ends_ms=ends_ms))
    if limits.inflight is not None:
        rows.append(_row("requests_at_once", limits.inflight, held=standing.running))
    for account, count in zip(limits.accounts, standing.tallies, strict=True):
        rows.append(_account_row(account, count))
    rates = len(rows) - len(limits.accounts)
    told = [{**row, "is_part": processes > 1 and at < rates} for at, row in enumerate(rows)]
    return {"object": "list", "at": _rfc3339(at_ms), "data": told}


def _account_row(account: Account, count: Count) -> dict[str, object]:
    spell = "total" if account.period == "total" else f"per_{account.period}"
    name = f"usd_{spell}" if account.is_money else f"weighted_tokens_{spell}"
    ends_ms = end_ms(account.period, count.period)
    row = _row(name, account.limit, count.used, held=count.held, ends_ms=ends_ms, scope=account.scope)
    if account.overage_nano_usd_per_million is not None:
        beyond = max(0, count.used - account.limit)
        row |= {"beyond": beyond, "overage_usd": format_nano(per_million(beyond, account.overage_nano_usd_per_million))}
    if account.is_money:
        row |= {key: format_nano(value) for key, value in row.items() if isinstance(value, int)}
    return row


def _row(
    name: str, limit: int, used: int = 0, *, held: int = 0, ends_ms: int | None = None, scope: str = "key"
) -> dict[str, object]:  # fmt: skip
    return {
        "limit": name,
        "scope": scope,
        "max": limit,
        "used": used,
        "held": held,
        "remaining": max(0, limit - used - held),
        "resets_at": None if ends_ms is None else _rfc3339(ends_ms),
    }


def _rfc3339(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
