"""
What a receipt comes to in the database: rows of the ledger, the trace, and what it adds to its session.

Pure functions of the receipt: written twice, they are the same rows. Members are named as the columns are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.core.booking import Booking
from gateway.core.receipt import Receipt
from gateway.core.usage import NO_USAGE, Usage
from gateway.core.verdicts import kept

CHARGE, COST, CORRECTION, COST_CORRECTION = "charge", "cost", "correction", "cost_correction"
CHARGED = (CHARGE, CORRECTION)  # what a customer pays; costs are what providers take from us
CHARGE_ATTEMPT = -1  # attempts of providers count from 0; corrections go on downwards
# An attempt's second correction is numbered by so much more than the first, and so on: more than any call makes.
COSTS_APART = 1_000
FAILED = ("rejected", "failed", "interrupted")
AMOUNTS = (
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "weighted_tokens",
    "cost_nano_usd",
)


class LedgerRow(Struct, frozen=True, gc=False):
    """A row of `ledger`; see its columns."""

    request_id: str
    attempt: int
    kind: str
    state: str
    basis: str
    tenant: str
    key_id: str
    model: str
    provider: str | None
    provider_model: str | None
    provider_type: str | None
    region: str | None
    routing_mode: str
    outcome: str
    on_cancel: str | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    weighted_tokens: int
    cost_nano_usd: int
    reserved_nano_usd: int
    price_version: str | None
    session_key: str | None
    admitted_ms: int
    settled_ms: int
    recorded_ms: int
    writer: str


class TraceRow(Struct, frozen=True, gc=False):
    """A row of `traces`; see its columns."""

    request_id: str
    trace_id: str
    response_id: str | None
    tenant: str
    key_id: str
    endpoint: str
    source: str | None
    stream: bool
    session_id: str | None
    agent_id: str | None
    user: str | None
    metadata: Mapping[str, str] | None
    model: str
    provider: str | None
    provider_model: str | None
    provider_type: str | None
    provider_region: str | None
    region: str
    routing_mode: str
    outcome: str
    status: int
    error_code: str | None
    failure_class: str | None
    failure_reason: str | None
    note: str | None
    attempts: tuple[Mapping[str, Any], ...]
    started_ms: int
    ttfb_us: int | None
    ttft_us: int | None
    total_us: int | None
    overhead_us: int | None
    cancel_us: int | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    usage_basis: str
    weighted_tokens: int
    cost_nano_usd: int
    verdicts: Mapping[str, Mapping[str, Any]] | None
    params: Mapping[str, tuple[str, ...]] | None
    recorded_ms: int


class SessionRow(Struct, frozen=True, gc=False):
    """What traces add to a row of `sessions`; see its columns."""

    tenant: str
    session_id: str
    agent_id: str | None
    first_ms: int
    last_ms: int
    requests: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    weighted_tokens: int
    cost_nano_usd: int


def ledger_rows(receipt: Receipt, *, writer: str, recorded_ms: int) -> tuple[LedgerRow, ...]:
    """
    The charge of an exchange that was admitted, and a cost for each attempt that reached a provider.

    Args:
        writer: The process that served it.
        recorded_ms: Epoch milliseconds of now.
    """
    booking = receipt.booking
    if booking is None:
        return ()
    state = _state(receipt, booking)
    charge = LedgerRow(
        receipt.request_id,
        CHARGE_ATTEMPT,
        CHARGE,
        state,
        receipt.usage_basis,
        receipt.tenant,
        receipt.key_id,
        receipt.model,
        receipt.provider,
        receipt.provider_model,
        receipt.provider_type,
        receipt.provider_region,
        receipt.routing_mode,
        receipt.outcome,
        receipt.on_cancel,
        *_tokens(receipt.usage if state != "voided" else NO_USAGE),
        receipt.weighted_tokens,
        receipt.cost_nano_usd,
        booking.reserved_nano_usd,
        booking.price_version,
        booking.session_key,
        booking.admitted_ms,
        receipt.settled_ms,
        recorded_ms,
        writer,
    )
    return (charge, *_cost_rows(receipt, booking, charge))


def _state(receipt: Receipt, booking: Booking) -> str:
    """Voided is what costs nothing as nothing was delivered; what is waived of an answer is settled at nothing."""
    if booking.is_reconciled and booking.sent:
        return "reconciled"
    if receipt.outcome in ("completed", "interrupted") and booking.sent:
        return "settled"
    return "settled" if receipt.usage != NO_USAGE else "voided"


def _cost_rows(receipt: Receipt, booking: Booking, charge: LedgerRow) -> Iterable[LedgerRow]:
    for sent in booking.sent:
        yield LedgerRow(
            receipt.request_id,
            sent.attempt,
            COST,
            "reconciled" if booking.is_reconciled else "settled",
            sent.basis,
            receipt.tenant,
            receipt.key_id,
            receipt.model,
            sent.provider,
            sent.model,
            sent.type,
            sent.region,
            receipt.routing_mode,
            receipt.outcome,
            receipt.on_cancel,
            *_tokens(sent.usage),
            0,  # weighted tokens are what customers are metered by
            sent.cost_nano_usd,
            0,
            booking.price_version,
            booking.session_key,
            booking.admitted_ms,
            receipt.settled_ms,
            charge.recorded_ms,
            charge.writer,
        )


def _tokens(usage: Usage) -> tuple[int, int, int, int, int]:
    return (
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
    )


def trace_row(receipt: Receipt, *, recorded_ms: int) -> TraceRow:
    """The trace of an exchange, admitted or not."""
    params = receipt.params
    return TraceRow(
        receipt.request_id,
        receipt.trace_id,
        receipt.response_id,
        receipt.tenant,
        receipt.key_id,
        receipt.endpoint,
        receipt.source,
        receipt.stream,
        receipt.session_id,
        receipt.agent_id,
        receipt.user,
        receipt.metadata or None,
        receipt.model,
        receipt.provider,
        receipt.provider_model,
        receipt.provider_type,
        receipt.provider_region,
        receipt.region,
        receipt.routing_mode,
        receipt.outcome,
        receipt.status,
        receipt.error_code,
        receipt.failure_class,
        receipt.failure_reason,
        receipt.note,
        tuple([{"provider": name, "model": model, "result": result} for name, model, result in receipt.attempts]),
        receipt.started_ms,
        _us(receipt.ttfb_ms),
        _us(receipt.ttft_ms),
        _us(receipt.total_ms),
        _us(receipt.overhead_ms),
        _us(receipt.cancel_ms),
        *_tokens(receipt.usage),
        receipt.usage_basis,
        receipt.weighted_tokens,
        receipt.cost_nano_usd,
        kept(receipt.verdicts),
        {"translated": params.translated, "dropped": params.dropped} if params.translated or params.dropped else None,
        recorded_ms,
    )


def _us(span_ms: float | None) -> int | None:
    return None if span_ms is None else int(span_ms * 1000 + 0.5)


class Guessed(Struct, frozen=True, gc=False):
    """What a trace had added to its session that was drawn up in its process's absence, before its own word came."""

    request_id: str
    outcome: str
    prompt_tokens: int
    completion_tokens: int
    weighted_tokens: int
    cost_nano_usd: int


def session_rows(traces: Iterable[TraceRow], instead_of: Iterable[Guessed] = ()) -> list[SessionRow]:
    """
    What *traces* add to their sessions, in the order of the table's key: two writers never wait for each other.

    Args:
        instead_of: What some of them take the place of.
    """
    groups: dict[tuple[str, str], list[TraceRow]] = {}
    for trace in traces:
        if trace.session_id:
            groups.setdefault((trace.tenant, trace.session_id), []).append(trace)
    before = {guessed.request_id: guessed for guessed in instead_of}
    return [_without(_session(group), group, before) for _, group in sorted(groups.items())]


def _without(row: SessionRow, traces: Iterable[TraceRow], before: Mapping[str, Guessed]) -> SessionRow:
    """*row* of *traces* less what was there of them *before*."""
    gone = [before[trace.request_id] for trace in traces if trace.request_id in before]
    if not gone:
        return row
    return replace(
        row,
        requests=row.requests - len(gone),
        failed=row.failed - sum(guessed.outcome in FAILED for guessed in gone),
        prompt_tokens=row.prompt_tokens - sum(guessed.prompt_tokens for guessed in gone),
        completion_tokens=row.completion_tokens - sum(guessed.completion_tokens for guessed in gone),
        weighted_tokens=row.weighted_tokens - sum(guessed.weighted_tokens for guessed in gone),
        cost_nano_usd=row.cost_nano_usd - sum(guessed.cost_nano_usd for guessed in gone),
    )


def _session(traces: list[TraceRow]) -> SessionRow:
    agents = [trace.agent_id for trace in traces if trace.agent_id]
    return SessionRow(
        traces[0].tenant,
        traces[0].session_id or "",
        agents[-1] if agents else None,
        min(trace.started_ms for trace in traces),
        max(trace.started_ms for trace in traces),
        len(traces),
        sum(trace.outcome in FAILED for trace in traces),
        sum(trace.prompt_tokens for trace in traces),
        sum(trace.completion_tokens for trace in traces),
        sum(trace.weighted_tokens for trace in traces),
        sum(trace.cost_nano_usd for trace in traces),
    )


class Booked(Struct, frozen=True):
    """What the ledger has of a charge or of an attempt's cost, or of a correction of it."""

    attempt: int
    state: str
    amounts: tuple[int, ...]


def knows_more(row: LedgerRow, booked: Sequence[Booked]) -> bool:
    """
    Whether *row*, drawn up in its process's absence, is of more than what is *booked*, if all of that was so as well.

    A process that was taken for dead may have gone on with a call, and have died of something else later.
    """
    there = sum(one.amounts[AMOUNTS.index("completion_tokens")] for one in booked)
    return row.completion_tokens > there and all(one.state in ("reconciled", "voided") for one in booked)


def correction(row: LedgerRow, booked: Sequence[Booked]) -> LedgerRow | None:
    """
    What has to be added to *booked* for it to say what *row* does, the word of the process that served the exchange.

    None where that is nothing, or what is booked is such a word itself: the first one stands. Costs are corrected as
    charges are, each attempt's for itself.
    """
    if not any(one.state in ("reconciled", "voided") for one in booked):
        return None
    sums = [sum(amounts) for amounts in zip(*(one.amounts for one in booked), strict=True)]
    missing = {name: getattr(row, name) - there for name, there in zip(AMOUNTS, sums, strict=True)}
    if not any(missing.values()):
        return None
    numbers = [one.attempt for one in booked]
    again = len(numbers) > 1
    if row.kind == COST:
        number = max(numbers) + COSTS_APART if again else row.attempt
        return replace(row, kind=COST_CORRECTION, attempt=number, **missing)
    number = min(numbers) - 1 if again else min(numbers)
    return replace(row, kind=CORRECTION, attempt=number, reserved_nano_usd=0, **missing)
