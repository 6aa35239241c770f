"""The journal: what may have to be paid for is on record before a provider is asked for it."""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import replace

from gateway.core.accounts import session_key
from gateway.core.booking import Admission, Way, version_of
from gateway.core.call import Call
from gateway.core.errors import LEDGER_UNAVAILABLE, GatewayError
from gateway.core.exchange import NOWHERE, Answer, Exchange
from gateway.core.ports import Journal, StoreUnavailable
from gateway.core.receipt import Receipt, Tariff
from gateway.dialects.prompt_tokens import prompt_tokens
from gateway.pipeline.services import Clock
from gateway.providers.families import family_of

# Of messages whose tokens are counted for the record: 0.02 ms (measured). Should the process die, a longer prompt is
# reckoned by its bytes: too low, as the customer is never to pay for more than there was. English prose has 4.5 of them
# for each token, and what is denser less.
COUNTED_BYTES = 8 * 1024
_BYTES_PER_TOKEN = 8


class Record:
    """Stands behind every other stage: what they refuse is not paid for, and not recorded."""

    def __init__(self, journal: Journal, tariff: Tariff, clock: Clock) -> None:
        self._journal = journal
        self._tariff = tariff
        self._clock = clock

    async def admit(self, exchange: Exchange) -> Answer | None:
        """Let *exchange* pass as soon as its admission is kept. Raises GatewayError when it cannot be."""
        if exchange.call.task == "count":
            return None  # it costs nothing
        begun, reserved = exchange.begun, exchange.granted_nano_usd or 0
        # Before the wait: should the client leave in it, the end belongs to an admission that may be on the disk.
        if begun is None:
            exchange.admission = self._admission(exchange, reserved)
            keeping = self._journal.admit(exchange.admission)
        else:
            admitted_ms = self._admitted_ms(exchange)
            exchange.admission = replace(begun.admission, reserved_nano_usd=reserved, admitted_ms=admitted_ms)
            keeping = begun.kept(exchange.admission)
        try:
            exchange.place = await keeping
        except StoreUnavailable as exc:
            exchange.admission, exchange.place = None, NOWHERE
            exchange.note = f"journal:{exc}"
            raise GatewayError(LEDGER_UNAVAILABLE) from exc
        return None

    def begin(self, exchange: Exchange, most_nano_usd: int) -> None:
        """
        Have the admission written while limits are being asked. Where it cannot be, `admit` will say so: what limits
        refuse is told first.

        Args:
            most_nano_usd: What is asked of budgets.
        """
        with suppress(StoreUnavailable):
            exchange.begun = self._journal.begin(self._admission(exchange, most_nano_usd))

    def settle(self, exchange: Exchange, receipt: Receipt) -> None:
        """Nothing to give back: the journal is told of receipts as a ledger."""

    def _admitted_ms(self, exchange: Exchange) -> int:
        return int((exchange.admitted_s or self._clock.epoch_s()) * 1000)

    def _admission(self, exchange: Exchange, reserved_nano_usd: int) -> Admission:
        model, call, key, modes = exchange.model, exchange.call, exchange.key, self._tariff.modes
        session_id = call.options.session_id
        assert model is not None  # else the call has been refused
        epoch_s = self._clock.epoch_s()
        started_s = epoch_s - (self._clock.monotonic_s() - exchange.started_s)
        if exchange.price is None:
            exchange.price = model.price_at(started_s)  # the one that the receipt is drawn up by, whatever happens
        return Admission(
            exchange.request_id,
            exchange.trace_id,
            key.tenant,
            key.id,
            session_key(key.tenant, session_id) if session_id is not None else None,
            exchange.endpoint,
            call.slug,
            call.stream,
            self._tariff.region,
            reserved_nano_usd,
            _prompt_tokens(call, exchange) if exchange.prompt_tokens is None else exchange.prompt_tokens,
            exchange.price,
            version_of(exchange.price),
            (model.weight, modes["realtime"], modes["provider_cache"]),
            tuple([
                Way(r.provider.name, r.model, r.provider.type, r.provider.region.upper(), r.provider.weight)
                for r in exchange.candidates
            ]),
            self._admitted_ms(exchange),
            int(started_s * 1000),
            exchange.source,
            exchange.caller[0],  # none where guards have yet to read it: the record keeps none
            call.options.session_id,
            call.options.agent_id,
        )  # fmt: skip


def _prompt_tokens(call: Call, exchange: Exchange) -> int:
    size = sum(len(raw) for raw in call.fields.values())
    if size > COUNTED_BYTES:
        return size // _BYTES_PER_TOKEN
    return prompt_tokens(call, family_of(exchange.candidates[0].model, call.slug))
