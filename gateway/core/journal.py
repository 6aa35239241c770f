"""
The life of an exchange as the journal has it, whichever back end keeps it: records, and what they come to.

    admitted -> opened(attempt)* -> settled
    admitted -> opened(attempt)* -> reconciled, from what its process has left behind, when that has died
    admitted -> voided, when it has died before a provider was reached
    admitted early -> nothing, when it is not known that limits let it in

Records may come twice, and in any order: what they come to is the same. The first final state wins; a process's own
word that comes after a reconciliation is a correction, a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gateway.core.billing import is_charged
from gateway.core.booking import Admission, Booking, Sent, Way
from gateway.core.call import ALL_PARAMS
from gateway.core.exchange import Outcome
from gateway.core.money import charged, weigh
from gateway.core.receipt import Receipt, routing_mode
from gateway.core.usage import NO_USAGE, Basis, Usage

CRASH = "crash"
"""The failure reason of an exchange whose process died."""


class Admitted(Struct, frozen=True, gc=False, array_like=True, tag="a"):
    """
    An exchange was let in.

    Attributes:
        place: Where its progress is noted, and `serial` what stands there for as long as the place is its own.
        is_early: It was written while limits were being asked, and says what was asked of them: see `Grant`.
    """

    admission: Admission
    place: int = -1
    serial: int = 0
    is_early: bool = False


class Grant(Struct, frozen=True, gc=False, array_like=True):
    """What limits said of an exchange whose admission was written early; its members are named as there."""

    reserved_nano_usd: int
    admitted_ms: int


class Opened(Struct, frozen=True, gc=False, array_like=True, tag="o"):
    """
    An attempt was sent; *way* is the route's position among the admission's.

    Attributes:
        grant: In the first one, where the admission was early.
    """

    request_id: str
    attempt: int
    way: int
    grant: Grant | None = None


class Settled(Struct, frozen=True, gc=False, array_like=True, tag="s"):
    """The end, by the process that served it."""

    receipt: Receipt


Record = Admitted | Opened | Settled

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def encode(record: Record) -> bytes:
    """
    *record* as it is kept.

    What callers chose is cleaned at the door. Should a text with half a surrogate come this far all the same, it loses
    that, and not its record.
    """
    try:
        return _ENCODER.encode(record)
    except UnicodeEncodeError:
        return _ENCODER.encode(_mended(msgspec.to_builtins(record)))


def _mended(node: object) -> object:
    if isinstance(node, str):
        return node.encode("utf-8", "replace").decode()
    if isinstance(node, dict):
        return {_mended(name): _mended(value) for name, value in node.items()}
    if isinstance(node, list | tuple):
        return [_mended(item) for item in node]
    return node


def decode(data: bytes) -> Record:
    """
    The record that *data* is.

    Raises:
        msgspec.DecodeError: None that this version knows.
    """
    return _DECODER.decode(data)


class Progress(Struct, frozen=True, gc=False):
    """
    What the place of an exchange has of it, whose process died.

    Attributes:
        sent: The ways that were asked, in order.
        tokens: Of the answer, at least.
        is_granted: Limits let it in, where its admission was written before that was known.
        usage: The whole, and `outcome` the end, where it had settled and only the record of that is missing.
    """

    sent: tuple[int, ...] = ()
    tokens: int = 0
    usage: Usage | None = None
    basis: Basis = "none"
    outcome: Outcome = "interrupted"
    is_granted: bool = False


@dataclass(slots=True)
class Open:
    """An exchange without its end.

    Attributes:
        sent: Ways by attempt, as far as records tell.
    """

    admitted: Admitted
    sent: dict[int, int] = field(default_factory=dict)

    def take(self, opened: Opened) -> None:
        """Note an attempt, once, and what it tells of the admission."""
        self.sent.setdefault(opened.attempt, opened.way)
        grant = opened.grant
        if grant is not None:
            admission = replace(
                self.admitted.admission, reserved_nano_usd=grant.reserved_nano_usd, admitted_ms=grant.admitted_ms
            )
            self.admitted = replace(self.admitted, admission=admission)


class Book:
    """
    Which exchanges of one process are open, by its records in any order, each once or more.

    Bounded by those that are: of an exchange that has ended nothing is kept but its id, for as long as `forget` is not
    called; with records in their order, as a journal has them, none is needed.
    """

    def __init__(self) -> None:
        self.open: dict[str, Open] = {}
        self._ended: set[str] = set()
        self._early: dict[str, dict[int, Opened]] = {}

    def take(self, record: Record) -> Receipt | None:
        """Note *record*; the receipt where it is the first word of an end."""
        if isinstance(record, Settled):
            request_id = record.receipt.request_id
            self.open.pop(request_id, None)
            self._early.pop(request_id, None)
            if request_id in self._ended:
                return None
            self._ended.add(request_id)
            return record.receipt
        if isinstance(record, Admitted):
            request_id = record.admission.request_id
            if request_id not in self._ended and request_id not in self.open:
                case = self.open[request_id] = Open(record)
                for opened in self._early.pop(request_id, {}).values():
                    case.take(opened)
        elif record.request_id in self.open:
            self.open[record.request_id].take(record)
        elif record.request_id not in self._ended:
            self._early.setdefault(record.request_id, {}).setdefault(record.attempt, record)
        return None

    def knows(self, request_id: str) -> bool:
        """Whether there was a record of its admission or its end."""
        return request_id in self.open or request_id in self._ended

    def forget(self) -> None:
        """Drop what is only there for records out of their order."""
        self._ended.clear()
        self._early.clear()


def left_behind(
    cases: Iterable[Open],
    progress_of: Callable[[Admitted], Progress | None],
    *,
    bill_interrupted: bool,
    now_ms: int,
) -> tuple[list[Receipt], list[Admission]]:
    """
    The ends of *cases*, whose process died, and what of them never was a call: admissions that were early, of which
    it is not known that limits let them in. Of these nothing is owed, or told; what is held for them is to be given
    back.

    Args:
        now_ms: As in `reconcile`.
    """
    ends, never = list[Receipt](), list[Admission]()
    for case in cases:
        progress = progress_of(case.admitted)
        if case.admitted.is_early and not case.sent and (progress is None or not progress.is_granted):
            never.append(case.admitted.admission)
        else:
            ends.append(reconcile(case, progress, bill_interrupted=bill_interrupted, now_ms=now_ms))
    return ends, never


def reconcile(case: Open, progress: Progress | None, *, bill_interrupted: bool, now_ms: int) -> Receipt:
    """
    The end of *case*, whose process died, by what it has left behind.

    Never more than a provider bills: tokens are those that had come, the prompt is counted low. Where nothing had come
    of an answer, or no provider was reached, there is nothing to pay.

    Args:
        now_ms: Epoch milliseconds.
    """
    progress, admission = progress or Progress(), case.admitted.admission
    sent = {**dict(enumerate(progress.sent)), **case.sent}
    ways = tuple(
        (number, admission.ways[way]) for number, way in sorted(sent.items()) if 0 <= way < len(admission.ways)
    )
    if not ways:
        return _receipt(admission, Progress(usage=NO_USAGE), ways, now_ms=now_ms, is_paid=False, is_known=False)
    is_known = progress.usage is not None
    if not is_known:
        progress = replace(progress, usage=Usage(admission.prompt_tokens, progress.tokens), basis="received")
    is_paid = is_charged(progress.outcome, progress.usage or NO_USAGE, bill_interrupted=bill_interrupted)
    return _receipt(admission, progress, ways, now_ms=now_ms, is_paid=is_paid, is_known=is_known)


def _receipt(
    admission: Admission,
    progress: Progress,
    ways: tuple[tuple[int, Way], ...],
    *,
    now_ms: int,
    is_paid: bool,
    is_known: bool,
) -> Receipt:
    """
    The receipt of an exchange that came to *progress*.

    Args:
        is_known: By its own process's word.
    """
    served, outcome, usage = ways[-1][1] if ways else None, progress.outcome, progress.usage or NO_USAGE
    return Receipt(
        request_id=admission.request_id,
        trace_id=admission.trace_id,
        tenant=admission.tenant,
        key_id=admission.key_id,
        endpoint=admission.endpoint,
        model=admission.model,
        provider=served.provider if served else None,
        provider_model=served.model if served else None,
        provider_type=served.type if served else None,
        provider_region=served.region if served else None,
        region=admission.region,
        attempts=tuple((way.provider, way.model, "open") for _, way in ways),
        outcome=outcome,
        routing_mode=routing_mode(admission.stream, outcome),
        failure_class=None if is_known else "gateway_shutdown",
        failure_reason=None if is_known else CRASH,
        error_code=None,
        status=200 if progress.tokens or outcome == "completed" else 0,
        usage=usage,
        usage_basis=progress.basis,
        weighted_tokens=_weigh(admission, served, usage) if is_paid and served else 0,
        cost_nano_usd=charged(admission.price.cost(usage)) if is_paid else 0,
        note=CRASH,
        params=ALL_PARAMS,
        user=admission.user,
        session_id=admission.session_id,
        agent_id=admission.agent_id,
        ttfb_ms=None,
        ttft_ms=None,
        total_ms=None,  # nobody knows when it ended
        overhead_ms=None,
        cancel_ms=None,
        stream=admission.stream,
        started_ms=admission.started_ms,
        settled_ms=now_ms,
        booking=_booking(admission, progress, ways, is_reconciled=not is_known),
    )


def _booking(
    admission: Admission, progress: Progress, ways: tuple[tuple[int, Way], ...], *, is_reconciled: bool
) -> Booking:  # fmt: skip
    """The last attempt has what came. How those before it ended nobody knows; what they may have got is not counted."""
    sent, price = [], admission.price
    for number, way in ways:
        used, how = (progress.usage or NO_USAGE, progress.basis) if number == ways[-1][0] else (NO_USAGE, "none")
        facts = (way.provider, way.model, way.type, way.region)
        sent.append(Sent(number, *facts, "open", used, how, charged(price.cost(used))))
    return Booking(
        admission.reserved_nano_usd,
        admission.price_version,
        admission.session_key,
        admission.admitted_ms,
        tuple(sent),
        is_reconciled,
    )


def _weigh(admission: Admission, way: Way, usage: Usage) -> int:
    model, plain, cached = admission.weights
    return weigh(usage.total_tokens, way.weight, model, cached if usage.cached_tokens else plain)

