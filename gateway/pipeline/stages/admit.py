"""Limits: one atomic admission per exchange, what it holds given back at the end.

Counting a prompt is outside of a tier's limits: agents ask for dozens of counts in a burst, and neither may those take
the places of answers, nor an answer under way keep a client from counting. It has limits of its own, since a count
costs work as well.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway.core.accounts import Key, Tier
from gateway.core.call import Call
from gateway.core.catalog import Mode, Model
from gateway.core.exchange import Answer, Exchange
from gateway.core.money import Weight
from gateway.core.ports import Admitted, Counters, Order, Refused, Spent
from gateway.core.receipt import Receipt
from gateway.dialects.answer_length import answer_bound, answers_asked, bound_name
from gateway.dialects.families import ANY_FAMILY
from gateway.dialects.prompt_tokens import prompt_tokens_steps
from gateway.pipeline.services import Clock
from gateway.policy.shortage import shortage, tightest
from gateway.policy.worst_case import ANSWERED, WorstCase, worst_case
from gateway.providers.families import family_of

# The bursts that agents send have up to 25 counts. Ten a second come to a fifth of a core at the very worst: a count of
# our own takes 0.5 ms for prose and 18 ms for noise (measured). No picture is fetched or converted for one.
COUNTING = Tier("count", rpm=600, inflight=32)

_REFUSED = 10_000  # keys whose last call was refused, that are remembered: 1 MB

_OVERRUN = "twice the length that it was to have at most"


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """
    Attributes:
        modes: The factor of each mode.
        stop_margin_tokens: How long before the end of what may be spent a stream is stopped.
        assumed_output_tokens: The longest answer that tokens per minute are reserved for unasked.
    """

    modes: Mapping[Mode, Weight]
    stop_margin_tokens: int = 16
    assumed_output_tokens: int = 4096


def _nobody(verdict: str) -> None:
    """Counts nothing."""


class Admit:
    """
    Takes from the key's limits all that the call may come to, or refuses it.

    Args:
        decided: Called with each verdict: `admitted`, or the limit that was met.
        meanwhile: Called, where limits take a round trip, as soon as they are being asked for a call that they will
            probably let in; with what it may cost at worst, in nano-USD, where that is asked for.
    """

    def __init__(
        self,
        counters: Counters,
        clock: Clock,
        rules: AdmissionRules,
        decided: Callable[[str], None] = _nobody,
        meanwhile: Callable[[Exchange, int], None] | None = None,
    ) -> None:
        self._counters = counters
        self._clock = clock
        self._rules = rules
        self._decided = decided
        self._meanwhile = meanwhile if counters.is_far else None
        self._refused: OrderedDict[str, None] = OrderedDict()  # keys whose last call was
        self._weights = tuple([rules.modes[mode] for mode in ANSWERED])

    async def admit(self, exchange: Exchange) -> Answer | None:
        """Let *exchange* pass. Raises GatewayError when the key is over a limit."""
        if exchange.call.task == "count":
            key = Key(f"{exchange.key.id}#count", exchange.key.tenant, COUNTING)
            self._pass(await self._counters.admit(Order(key, exchange.request_id)), None, exchange.call)
            return None
        model = exchange.model
        if model is not None:
            clock = self._clock
            exchange.price = model.price_at(clock.epoch_s() - (clock.monotonic_s() - exchange.started_s))
        case = None
        if model is not None and exchange.refusal is None and _draws(exchange.key):
            case = await self._worst_case(exchange, model)
        order = self._order(exchange, case)
        if self._meanwhile is not None and exchange.refusal is None and exchange.key.id not in self._refused:
            self._meanwhile(exchange, order.nano_usd.need if exchange.key.budgets else 0)
        verdict = await self._counters.admit(order)
        self._remember(exchange.key.id, verdict)
        exchange.limits = verdict.limits
        admitted = self._pass(verdict, case, exchange.call)
        exchange.admitted_s = admitted.at_s
        if case is not None:
            self._grant(exchange, case, admitted)
        return None

    def settle(self, exchange: Exchange, receipt: Receipt) -> None:
        """Give back what is held, and book what the call has come to."""
        spent = Spent(receipt.usage.total_tokens, receipt.weighted_tokens, receipt.cost_nano_usd)
        self._counters.settle(exchange.request_id, spent)

    async def _worst_case(self, exchange: Exchange, model: Model) -> WorstCase:
        call, price = exchange.call, exchange.price
        routes = exchange.candidates
        assert price is not None
        family = family_of(routes[0].model, call.slug) if routes else ANY_FAMILY
        steps = prompt_tokens_steps(call, family)
        prompt = None
        while prompt is None:  # in pieces: others are served in between
            try:
                next(steps)
                await asyncio.sleep(0)
            except StopIteration as end:
                prompt = int(end.value)
        exchange.prompt_tokens = prompt
        return worst_case(
            model,
            routes,
            prompt=prompt,
            asked=answer_bound(call),
            count=answers_asked(call),
            price=price,
            modes=self._weights,
            margin=self._rules.stop_margin_tokens,
        )

    def _order(self, exchange: Exchange, case: WorstCase | None) -> Order:
        key, request_id, session_id = exchange.key, exchange.request_id, exchange.call.options.session_id
        if case is None:
            return Order(key, request_id, session_id)
        money, weighted = case.draws(can_stop=exchange.call.stream)
        asked = answer_bound(exchange.call)
        assumed = self._rules.assumed_output_tokens * answers_asked(exchange.call) if asked is None else case.answer
        tokens = case.prompt + min(case.answer, assumed)
        return Order(key, request_id, session_id, tokens, weighted, money)

    def _grant(self, exchange: Exchange, case: WorstCase, admitted: Admitted) -> None:
        key, money, weighted = exchange.key, admitted.granted_nano_usd, admitted.granted_weighted
        exchange.granted_nano_usd = money if key.budgets else None
        if not exchange.call.stream:
            return
        ends = []
        if admitted.budget and money < case.nano_usd(case.answer):
            ends.append((case.within_nano_usd(money), admitted.budget))
        if admitted.allowance and weighted < case.weighted(case.answer):
            ends.append((case.within_weighted(weighted), admitted.allowance))
        if ends:
            tokens, exchange.stop_limit = min(ends)
            exchange.stop_tokens = case.stop_at(tokens)
        elif key.budgets or _is_capped(key.tier):  # all of it is held: what goes on beyond that is held by nobody
            exchange.stop_tokens, exchange.stop_limit = case.overrun, _OVERRUN

    def _remember(self, key_id: str, verdict: Admitted | Refused) -> None:
        """A flood of what limits refuse is to cost no writing: after the first one they are asked before."""
        if isinstance(verdict, Admitted):
            self._refused.pop(key_id, None)
            return
        self._refused[key_id] = None
        self._refused.move_to_end(key_id)
        if len(self._refused) > _REFUSED:
            self._refused.popitem(last=False)

    def _pass(self, verdict: Admitted | Refused, case: WorstCase | None, call: Call) -> Admitted:
        """*verdict*, or the error that it is: with the limit that was met, the whole key's, not a worker's part."""
        if isinstance(verdict, Admitted):
            self._decided("admitted")
            return verdict
        if case is not None and verdict.lefts:
            left = tightest(verdict.lefts, case)
            self._decided(left.met)
            raise shortage(left, case, bound_name(call))
        self._decided(verdict.met)
        raise verdict.as_error()


def _draws(key: Key) -> bool:
    """Whether a call of *key* takes more than its place: only then is its prompt counted."""
    return bool(key.budgets) or key.tier.tpm is not None or _is_capped(key.tier)


def _is_capped(tier: Tier) -> bool:
    return tier.weighted_tokens_per_month is not None and tier.overage_nano_usd_per_million is None


class Refuse:
    """Tells why nothing can serve a call, once it is within its key's limits: a flood of wrong ones is limited."""

    async def admit(self, exchange: Exchange) -> Answer | None:
        """Let *exchange* pass. Raises GatewayError when an earlier stage could find nothing for it."""
        if exchange.refusal is not None:
            raise exchange.refusal
        return None

    def settle(self, exchange: Exchange, receipt: Receipt) -> None:
        """Nothing to give back."""
