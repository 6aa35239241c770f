"""The headers that answers carry."""

from __future__ import annotations

from gateway.core.exchange import Exchange, Limits
from gateway.core.receipt import Receipt
from gateway.core.verdicts import Verdicts, summary
from gateway.wire.headers import header_value

Headers = tuple[tuple[str, str], ...]

SERVER_NAME = "anoman"  # the product alone: a version would help only those who look for a weak one

_GUARD = "x-anoman-guardrail-"
_ALWAYS_TOLD = ("injection", "pii")
_NOT_RUN: Headers = tuple([(f"{_GUARD}{name}", "off") for name in _ALWAYS_TOLD])


def limit_headers(limits: Limits) -> Headers:
    """Where the key stands; nothing for a key without a limit. What is left cannot be told where nobody counted."""
    headers: Headers = ()
    if limits.rpm is not None:
        headers = (("x-anoman-rate-limit-rpm", str(limits.rpm)),)
        if limits.rpm_remaining is not None:
            headers += (("x-anoman-rate-remaining-rpm", str(limits.rpm_remaining)),)
    if limits.tpm is not None:
        headers += (("x-anoman-rate-limit-tpm", str(limits.tpm)),)
        if limits.tpm_remaining is not None:
            headers += (("x-anoman-rate-remaining-tpm", str(limits.tpm_remaining)),)
    if limits.burst_active:
        headers += (("x-anoman-burst-active", "true"),)
    if limits.is_blind:
        headers += (("x-anoman-limits", "local"),)
    return headers


def constant_headers(region: str) -> Headers:
    """What every 200 of an inference route carries, whatever it answers."""
    return (("x-anoman-region", header_value(region.upper())),)


def guard_headers(verdicts: Verdicts) -> Headers:
    """What guards said, those that did not look included where they are always told of."""
    if not verdicts:
        return _NOT_RUN
    said = dict.fromkeys(_ALWAYS_TOLD, "off") | {name: summary(name, one) for name, one in verdicts.items()}
    return tuple([(f"{_GUARD}{name.replace('_', '-')}", text) for name, text in said.items()])


def refusal_headers(exchange: Exchange) -> Headers:
    """What an error carries that *exchange* ended in: its key's limits, and what guards said as far as they looked."""
    return limit_headers(exchange.limits) + (guard_headers(exchange.verdicts) if exchange.verdicts else ())


def success_headers(exchange: Exchange, receipt: Receipt | None, constant: Headers) -> Headers:
    """
    What a 200 of an inference route carries.

    Args:
        constant: The `constant_headers` of this gateway.
        receipt: Of a JSON answer; None when a stream is committed, since its receipt is yet to be drawn up.
    """
    cached = receipt is not None and receipt.usage.cached_tokens > 0
    headers: Headers = (
        *constant,
        *guard_headers(exchange.verdicts),
        ("x-anoman-cache", "provider" if cached else "none"),
        *limit_headers(exchange.limits),
        ("x-request-id", exchange.request_id),
        ("request-id", exchange.request_id),
    )
    if receipt is None or not exchange.call.options.strip_extension:
        return headers
    return (
        *headers,
        ("x-anoman-cost-usd", receipt.cost_usd),
        ("x-anoman-weighted-tokens", str(receipt.weighted_tokens)),
    )
