"""What happened, once: the settled facts of an exchange and everything that is rendered from them.

`_anoman` in answers, the log line and the ledger row are renderings of one `Receipt`, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from gateway.core.billing import billed, is_charged
from gateway.core.booking import AttemptResult, Booking, Sent
from gateway.core.call import Params
from gateway.core.catalog import Mode, OnCancel, Provider, Route
from gateway.core.exchange import NO_LIMITS, Attempt, Exchange, Limits, Outcome, Source
from gateway.core.money import Price, Weight, charged, format_nano, weigh, weigh_parts
from gateway.core.usage import NO_USAGE, Basis, Usage
from gateway.core.verdicts import NO_VERDICTS, Verdicts, guardrails, lines


class Receipt(Struct, frozen=True, gc=False):
    """The settled facts. Field names are those of the `exchange.settled` log line and of the trace row.

    Attributes:
        attempts: Each one's provider, the model's name there, and how it ended.
        on_cancel: Whether the provider was left with the client or read on; None where no client left a provider.
        total_ms: From its beginning to its end, and `overhead_ms` what of that was ours; None where its process was
            killed.
        cancel_ms: How long the provider was kept after the client had left, where it was to be left.
        parts: Of a stream that a second provider continued, what each has counted, as (provider, model, usage); empty
            for any other. `usage` is the caller's whole: its own prompt once, and the answer of both.
        user: Who the caller says it acts for. Like `session_id`, `agent_id` and `metadata` of its own choice, cleaned
            and bounded.
        response_id: What the client knows the answer by: the provider's name for it, or ours where it was translated.
        started_ms: When the request came, by the wall clock, in milliseconds of the epoch; so `settled_ms`.
        verdicts: What guards said of it, as far as they had looked.
        booking: What the ledger has of it besides; None where it was not admitted, or costs nothing in any case.
    """

    request_id: str
    trace_id: str
    tenant: str
    key_id: str
    endpoint: str
    model: str
    provider: str | None
    provider_model: str | None
    provider_type: str | None
    provider_region: str | None
    region: str
    attempts: tuple[tuple[str, str, AttemptResult], ...]
    outcome: Outcome
    routing_mode: str
    failure_class: str | None
    failure_reason: str | None
    error_code: str | None
    status: int
    usage: Usage
    usage_basis: Basis
    weighted_tokens: int
    cost_nano_usd: int
    note: str | None
    params: Params
    user: str | None
    session_id: str | None
    agent_id: str | None
    ttfb_ms: float | None
    ttft_ms: float | None
    total_ms: float | None
    overhead_ms: float | None
    cancel_ms: float | None
    on_cancel: OnCancel | None = None
    parts: tuple[tuple[str, str, Usage], ...] = ()
    source: Source | None = None
    stream: bool = False
    response_id: str | None = None
    metadata: Mapping[str, str] = {}
    started_ms: int = 0
    settled_ms: int = 0
    booking: Booking | None = None
    limits: Limits = NO_LIMITS
    verdicts: Verdicts = NO_VERDICTS

    @property
    def cost_usd(self) -> str:
        """Exact decimal of USD, at least six places."""
        return format_nano(self.cost_nano_usd)


@dataclass(frozen=True, slots=True)
class Tariff:
    """What a receipt is drawn up by besides the exchange: mode factors, policy for broken streams, our region."""

    modes: Mapping[Mode, Weight]
    bill_interrupted: bool
    region: str


def precall_extension(provider: Provider, region: str, verdicts: Verdicts = NO_VERDICTS) -> dict[str, Any]:
    """The part of `_anoman` that is known before the first token."""
    return {"guardrails": guardrails(verdicts), **_about(region, provider.type, provider.region.upper(), NO_USAGE)}


def extension(receipt: Receipt) -> dict[str, Any]:
    """The `_anoman` block of a completed answer, in the documents' order."""
    about = _about(receipt.region, receipt.provider_type, receipt.provider_region, receipt.usage)
    if receipt.parts:
        about["routing"]["continued"] = True
    return {
        "guardrails": guardrails(receipt.verdicts),
        **about,
        "cost_usd": receipt.cost_usd,
        "weighted_tokens": receipt.weighted_tokens,
        "burst": _burst(receipt.limits),
        "billing": _billing(receipt),
        "usage_basis": receipt.usage_basis,
        "params": {"translated": receipt.params.translated, "dropped": receipt.params.dropped},
        "trace_id": receipt.trace_id,
        "overhead_ms": receipt.overhead_ms,
    }


def _burst(limits: Limits) -> dict[str, Any]:
    """Whether the call came in by burst credits, and how many of them are left where there is a burst."""
    if limits.burst_capacity is None:
        return {"active": False}
    return {"active": limits.burst_active, "credits": limits.burst_credits, "capacity": limits.burst_capacity}


def _billing(receipt: Receipt) -> dict[str, Any] | None:
    """What remains of the allowance after the call, and whether it goes beyond; None where there is none."""
    limits = receipt.limits
    if limits.weighted is None or limits.weighted_remaining is None:
        return None
    remaining = limits.weighted_remaining - receipt.weighted_tokens
    return {"allowance": limits.weighted, "remaining": max(0, remaining), "overage": remaining < 0}


def _about(region: str, provider_type: str | None, provider_region: str | None, usage: Usage) -> dict[str, Any]:
    """What follows in every `_anoman`. The gateway's region is in lower case, a provider's in upper case.

    A provider's own prompt cache is a hit of type `provider`.
    """
    return {
        "routing": {
            "mode": "realtime",
            "region": region.lower(),
            "provider_type": provider_type,
            "provider_region": provider_region,
        },
        "cache": {"hit": True, "type": "provider"} if usage.cached_tokens else {"hit": False, "type": "none"},
    }


class Row(Struct, frozen=True, gc=False):
    """A receipt as the `exchange.settled` line has it, names and order included; the later trace row has the same.

    Attributes:
        source: Not written for calls that a client made by itself.
        guards: What those said that looked; not written where none did.
    """

    request_id: str
    trace_id: str
    tenant: str
    key_id: str
    endpoint: str
    model: str
    provider: str | None
    provider_model: str | None
    attempts: tuple[str, ...]
    outcome: Outcome
    routing_mode: str
    failure_class: str | None
    failure_reason: str | None
    error_code: str | None
    status: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    usage_basis: Basis
    weighted_tokens: int
    cost_usd: str
    note: str | None
    ttfb_ms: float | None
    ttft_ms: float | None
    total_ms: float | None
    overhead_ms: float | None
    cancel_ms: float | None
    on_cancel: OnCancel | None
    continued: bool
    parts: tuple[str, ...]
    session_id: str | None
    agent_id: str | None
    user: str | None
    source: Source | UnsetType = UNSET
    guards: tuple[str, ...] | UnsetType = UNSET


def row_of(receipt: Receipt) -> Row:
    """The row of *receipt*; an attempt as in `openai/gpt-4o:ok`, a part as in `openai/gpt-4o:11+7` tokens."""
    usage = receipt.usage
    return Row(
        request_id=receipt.request_id,
        trace_id=receipt.trace_id,
        tenant=receipt.tenant,
        key_id=receipt.key_id,
        endpoint=receipt.endpoint,
        model=receipt.model,
        provider=receipt.provider,
        provider_model=receipt.provider_model,
        attempts=tuple([f"{provider}/{model}:{result}" for provider, model, result in receipt.attempts]),
        outcome=receipt.outcome,
        routing_mode=receipt.routing_mode,
        failure_class=receipt.failure_class,
        failure_reason=receipt.failure_reason,
        error_code=receipt.error_code,
        status=receipt.status,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        usage_basis=receipt.usage_basis,
        weighted_tokens=receipt.weighted_tokens,
        cost_usd=receipt.cost_usd,
        note=receipt.note,
        ttfb_ms=receipt.ttfb_ms,
        ttft_ms=receipt.ttft_ms,
        total_ms=receipt.total_ms,
        overhead_ms=receipt.overhead_ms,
        cancel_ms=receipt.cancel_ms,
        on_cancel=receipt.on_cancel,
        continued=bool(receipt.parts),
        parts=tuple([f"{name}/{model}:{u.prompt_tokens}+{u.completion_tokens}" for name, model, u in receipt.parts]),
        session_id=receipt.session_id,
        agent_id=receipt.agent_id,
        user=receipt.user,
        source=receipt.source or UNSET,
        guards=lines(receipt.verdicts) or UNSET,
    )


def draw_up(exchange: Exchange, outcome: Outcome, *, now_s: float, epoch_s: float, tariff: Tariff) -> Receipt:
    """The receipt of *exchange* as it stands at *now_s*, which the wall clock calls *epoch_s*.

    Refused and failed exchanges cost nothing, and neither does one that broke before a token of the answer was here.
    The price is that of the moment in which the exchange began, however long it took.
    """
    usage, basis = exchange.usage, exchange.basis
    route, call, (user, metadata) = exchange.route, exchange.call, exchange.caller
    if outcome in ("rejected", "failed"):
        usage, basis = NO_USAGE, "none"
    parts = _parts(exchange)
    started_epoch_s = epoch_s - (now_s - exchange.started_s)
    is_paid = is_charged(_ending(exchange, outcome), usage, bill_interrupted=tariff.bill_interrupted)
    weighted, cost = _owed(exchange, usage, parts, tariff, started_epoch_s) if is_paid else (0, 0)
    provider = route.provider if route else None
    return Receipt(
        request_id=exchange.request_id,
        trace_id=exchange.trace_id,
        tenant=exchange.key.tenant,
        key_id=exchange.key.id,
        endpoint=exchange.endpoint,
        model=call.slug,
        provider=provider.name if provider else None,
        provider_model=route.model if route else None,
        provider_type=provider.type if provider else None,
        provider_region=provider.region.upper() if provider else None,
        region=tariff.region,
        attempts=tuple([(tried.route.provider.name, tried.route.model, tried.result) for tried in exchange.attempts]),
        outcome=outcome,
        routing_mode=routing_mode(call.stream, outcome),
        failure_class=exchange.failure.failure_class if exchange.failure else None,
        failure_reason=exchange.failure.reason if exchange.failure else None,
        error_code=exchange.error_code,
        status=exchange.status,
        usage=usage,
        usage_basis=basis,
        weighted_tokens=weighted,
        cost_nano_usd=cost,
        note=exchange.note,
        params=exchange.params,
        user=user,
        session_id=call.options.session_id,
        agent_id=call.options.agent_id,
        ttfb_ms=_ms(exchange.started_s, exchange.committed_s),
        ttft_ms=_ms(exchange.started_s, exchange.first_token_s),
        total_ms=_ms(exchange.started_s, now_s) or 0.0,
        overhead_ms=_overhead_ms(exchange, now_s),
        cancel_ms=_ms(exchange.gone_s, now_s) if exchange.on_cancel != "drain" else None,
        on_cancel=exchange.on_cancel or ("abort" if outcome == "cancelled" and exchange.attempts else None),
        parts=tuple([(one.route.provider.name, one.route.model, one.usage) for one in parts if one.usage is not None]),
        source=exchange.source,
        stream=call.stream,
        response_id=exchange.response_id,
        metadata=metadata,
        started_ms=int(started_epoch_s * 1000),
        limits=exchange.limits,
        verdicts=exchange.verdicts,
        settled_ms=int(epoch_s * 1000),
        booking=_booking(exchange, usage, basis),
    )


def _parts(exchange: Exchange) -> list[Attempt]:
    """The attempts that made the answer together; none where the first, if it broke, found nobody to go on."""
    counted = [tried for tried in exchange.attempts if tried.usage is not None]
    return counted if len(counted) > 1 else []


def _ending(exchange: Exchange, outcome: Outcome) -> Outcome:
    """As what it is paid for: what we stopped ourselves was delivered, and is like what a client stopped."""
    stopped = exchange.failure is not None and exchange.failure.failure_class == "policy_stop"
    return "cancelled" if stopped and outcome == "interrupted" else outcome


def _owed(
    exchange: Exchange, usage: Usage, parts: list[Attempt], tariff: Tariff, started_epoch_s: float
) -> tuple[int, int]:
    """Weighted tokens and nano-USD of *usage*."""
    route, model = exchange.route, exchange.model
    if route is None or model is None:
        return 0, 0
    weighted = _weighted(route, usage, parts, (model.weight, tariff.modes[_mode(usage)]))
    return weighted, charged((exchange.price or model.price_at(started_epoch_s)).cost(usage))


def _booking(exchange: Exchange, usage: Usage, basis: Basis) -> Booking | None:
    """What the ledger has of *exchange*, which has come to *usage*."""
    admission = exchange.admission
    if admission is None:
        return None
    prompt_tokens = usage.prompt_tokens or admission.prompt_tokens
    tried = [attempt for attempt in exchange.attempts if attempt.was_sent]
    is_shared = any(attempt.usage is not None for attempt in tried)  # then each has its own, else the last has all
    last = exchange.attempts[-1] if tried and not is_shared else None
    sent = tuple([
        _sent(number, attempt, (usage if attempt is last else NO_USAGE, basis), prompt_tokens, admission.price)
        for number, attempt in enumerate(tried)
    ])  # fmt: skip
    return Booking(
        admission.reserved_nano_usd, admission.price_version, admission.session_key, admission.admitted_ms, sent
    )


def _sent(number: int, tried: Attempt, counted: tuple[Usage, Basis], prompt_tokens: int, price: Price) -> Sent:
    """
    What *tried* costs.

    Args:
        counted: What the exchange has come to, where it was the last one: if any has answered, it has.
    """
    usage, basis = counted if tried.usage is None else (tried.usage, counted[1])
    if usage == NO_USAGE:
        usage, basis = billed(tried.result, tried.failure.reason if tried.failure else None, prompt_tokens)
    provider = tried.route.provider
    return Sent(
        number,
        provider.name,
        tried.route.model,
        provider.type,
        provider.region.upper(),
        tried.result,
        usage,
        basis,
        charged(price.cost(usage)),
    )


def _mode(usage: Usage) -> Mode:
    return "provider_cache" if usage.cached_tokens else "realtime"


def _weighted(route: Route, usage: Usage, parts: list[Attempt], weights: tuple[Weight, ...]) -> int:
    if parts:
        return _weigh_parts(parts, usage, weights)
    return weigh(usage.total_tokens, route.provider.weight, *weights)


def _weigh_parts(parts: list[Attempt], usage: Usage, weights: tuple[Weight, ...]) -> int:
    """Each provider's part by its own factor: the prompt and its text of the first, of the second the rest."""
    first = parts[0].usage or NO_USAGE
    return weigh_parts(
        (first.total_tokens, (parts[0].route.provider.weight, *weights)),
        (usage.total_tokens - first.total_tokens, (parts[-1].route.provider.weight, *weights)),
    )


def routing_mode(stream: bool, outcome: Outcome) -> str:
    """By what an exchange is told from others in reports: whether it was a stream, and whether it was left or broke."""
    if outcome == "cancelled":
        return "streaming_cancelled"
    if not stream:
        return "realtime"
    return "streaming_interrupted" if outcome == "interrupted" else "streaming"


def _ms(start_s: float | None, end_s: float | None) -> float | None:
    if start_s is None or end_s is None:
        return None
    return _rounded_ms(end_s - start_s)


def _overhead_ms(exchange: Exchange, now_s: float) -> float:
    """Our own share of the time to the first byte: before the provider was asked, and after it had answered."""
    before = (exchange.dispatched_s or now_s) - exchange.started_s
    after = 0.0
    if exchange.answered_s is not None:
        after = (exchange.committed_s or now_s) - exchange.answered_s
    return _rounded_ms(before + after)


def _rounded_ms(span_s: float) -> float:
    """Milliseconds with three decimals; `round` would cost three times as much."""
    return int(max(0.0, span_s) * 1_000_000 + 0.5) / 1000
