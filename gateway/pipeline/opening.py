"""From candidates to the first good frame: attempts, retries, fallback. Nothing here runs after the commit point."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from gateway.core.call import Call, UpstreamRequest
from gateway.core.catalog import Route
from gateway.core.errors import (
    NO_SLOT,
    PROVIDER_REFUSES,
    PROVIDER_UNAVAILABLE,
    STALE,
    Failure,
    GatewayError,
    UpstreamFailed,
)
from gateway.core.exchange import Attempt, Exchange
from gateway.core.ports import UpstreamAnswer
from gateway.core.usage import Usage
from gateway.dialects.base import Journey
from gateway.dialects.failures import MAX_ERROR_BYTES
from gateway.dialects.prompt_tokens import prompt_tokens
from gateway.dialects.registry import DIALECTS
from gateway.dialects.scrub import discreet, hide
from gateway.dialects.seam import Seam
from gateway.pipeline.digest import Digest
from gateway.pipeline.services import Services
from gateway.pipeline.watch import Watch
from gateway.policy.breaker import Breaker, Permit, RetryBudget, name_of
from gateway.policy.loads import Load
from gateway.policy.retry import Try, next_try
from gateway.policy.routing import rank
from gateway.providers.families import family_of
from gateway.providers.requests import build_request

T = TypeVar("T")

_ERROR_BODY_S = 5.0  # for the body of an error answer: enough for a slow provider, bounded against a stuck one
_ALL_OPEN = Failure("upstream_error", "breaker_open", PROVIDER_UNAVAILABLE, counts=False)


def charge_prompt(exchange: Exchange) -> None:
    """The client left while an attempt was under way: a provider that has the prompt may bill it, though silent."""
    if exchange.attempts and exchange.attempts[-1].result == "cancelled" and exchange.attempts[-1].was_sent:
        family = family_of(exchange.attempts[-1].route.model, exchange.call.slug)
        exchange.usage, exchange.basis = Usage(prompt_tokens=prompt_tokens(exchange.call, family)), "estimated"


def journey_of(exchange: Exchange, services: Services) -> Journey:
    """The journey of *exchange* by the route that was asked last, or would be asked first."""
    call, route = exchange.call, exchange.route or exchange.candidates[0]
    family, created_epoch_s = family_of(route.model, call.slug), int(services.clock.epoch_s())
    about = (exchange.params.tools, exchange.verdicts)
    return Journey(call, route, exchange.request_id, created_epoch_s, services.lanes, family, *about)


@dataclass(frozen=True, slots=True)
class Rest:
    """An answer that is to be gone on with: its seam, the routes that can, and what asks one of them for the rest."""

    seam: Seam
    routes: tuple[Route, ...]
    call_for: Callable[[Route], Call]


class Opening:
    """
    The attempts of one exchange. `accept` reads an answer far enough to know that the attempt is good.

    Args:
        rest: Of an answer that broke. The client has the 200 and half of the answer: its routes are asked in their
            order, and an attempt whose client leaves is given up, whatever its provider says of that.
    """

    def __init__(self, exchange: Exchange, watch: Watch, rest: Rest | None = None) -> None:
        self._exchange = exchange
        self._watch = watch
        self._rest = rest
        self._first = len(exchange.attempts)  # of those that are made here
        self._services = watch.services
        self._permit: Permit | None = None  # of the running attempt
        self._load: Load | None = None  # of the running attempt, where somebody looks at it
        self._request: UpstreamRequest | None = None  # of the attempt to come
        self._refusals: dict[str, GatewayError] = {}  # by route

    def failed(self, failure: Failure) -> None:
        """The running attempt, or the one that had begun well, ended in *failure*: books, breaker and log."""
        now_s = self._watch.now_s()
        self._watch.attempt = None
        attempt, permit = self._exchange.attempts[-1], self._permit
        attempt.result, attempt.failure, attempt.ended_s = "failed", failure, now_s
        if self._load is not None:
            if (failure.counts or failure.retryable) and failure.reason not in (STALE, NO_SLOT):
                self._load.failed(now_s)  # not by the caller's mistake, nor before it was reached
            self.release()
        if permit is not None:
            if failure.counts:
                permit.failed(now_s)
            elif failure.is_ours or failure.reason in (STALE, NO_SLOT):
                permit.abandoned()
            else:
                permit.succeeded(now_s)  # it answered: our rate limit or the caller's mistake is no sign of ill health
        self._services.report_failure(self._exchange, attempt.route, failure)

    async def run(self, accept: Callable[[UpstreamAnswer, Journey], Awaitable[T]]) -> T:
        """
        What *accept* made of the first attempt that went well.

        Raises:
            UpstreamFailed: No attempt did, or the client's status line is out and the running one failed.
            GatewayError: No route speaks a dialect that can say what the call asks for.
        """
        failure = _ALL_OPEN
        self._rank()
        while (step := self._next()) is not None:
            await self._wait(step)
            try:
                return await self._attempt(step, accept)
            except UpstreamFailed as exc:
                # A route that is set up wrongly says nothing of the others: what they said is what the client can use.
                if failure is _ALL_OPEN or exc.failure.error is not PROVIDER_REFUSES:
                    failure = exc.failure
                if self._watch.sink.committed and self._rest is None:
                    break
        if len(self._refusals) == len(self._routes):
            raise next(iter(self._refusals.values()))
        raise UpstreamFailed(failure)

    def release(self) -> None:
        """Nothing is read from the route any more; once more changes nothing."""
        if self._load is not None:
            self._load.release()
            self._load = None

    def take_load(self) -> Load | None:
        """What counts the running attempt, for whoever reads it on."""
        load, self._load = self._load, None
        return load

    @property
    def _routes(self) -> tuple[Route, ...]:
        return self._exchange.candidates if self._rest is None else self._rest.routes

    def _rank(self) -> None:
        """
        Put the candidates into the strategy's order, now and not when they were chosen: whatever is awaited between a
        look at the loads and the count of an attempt would let two calls see the same idle route.
        """
        exchange, services = self._exchange, self._services
        model, routes = exchange.model, exchange.candidates
        if self._rest is None and len(routes) > 1 and model is not None and model.strategy != "fallback":
            now_s, spread = self._watch.now_s(), services.clock.spread
            exchange.candidates = rank(model, exchange.call, routes, services.loads, now_s=now_s, spread=spread)

    def _next(self) -> Try | None:
        exchange, now_s = self._exchange, self._watch.now_s()

        def admit(route: Route) -> bool:
            breaker = self._health(route)[0]
            if breaker.state(now_s) == "open" or not self._prepare(route):
                return False  # a body is not written for a route that is not asked anyway
            self._permit = breaker.admit(now_s)
            return self._permit is not None

        return next_try(
            self._routes,
            exchange.attempts[self._first :] if self._first else exchange.attempts,
            now_s=now_s,
            deadline_s=self._watch.last_start_s,
            allow=admit,
            may_retry=lambda route: self._health(route)[1].may_retry(now_s),
            rules=self._services.retry,
            spread=self._services.clock.spread(),
        )

    def _health(self, route: Route) -> tuple[Breaker, RetryBudget]:
        """Of *route* for the task of the call."""
        return self._services.board.of(name_of(route.id, self._exchange.call.task))

    def _prepare(self, route: Route) -> bool:
        """Write the request that asks *route*; whether its dialect can say it."""
        if route.id in self._refusals:
            return False
        exchange, rest = self._exchange, self._rest
        last = exchange.attempts[-1].failure if exchange.attempts else None
        assert exchange.model is not None
        try:
            call = exchange.call if rest is None else rest.call_for(route)
            self._request = build_request(call, route, exchange.model, fresh=last is not None and last.reason == STALE)
        except GatewayError as refusal:
            refusal.__context__ = None
            self._refusals[route.id] = refusal.with_traceback(None)  # its frames hold the whole call
            return False
        return True

    async def _wait(self, step: Try) -> None:
        """Keep the distance to the last attempt; the route's breaker has said yes already and is told if we leave."""
        if step.wait_s <= 0:
            return
        end_s = self._watch.now_s() + step.wait_s
        try:
            await self._watch.step(lambda: asyncio.sleep(end_s - self._watch.now_s()))
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        if self._permit is not None:
            self._permit.abandoned()

    async def _attempt(self, step: Try, accept: Callable[[UpstreamAnswer, Journey], Awaitable[T]]) -> T:
        exchange, now_s = self._exchange, self._watch.now_s
        if not exchange.attempts:
            self._health(step.route)[1].started(now_s())
        attempt = Attempt(step.route)
        if step.route.is_measured and exchange.call.task == "answer":
            self._load = Load(self._services.loads.of(step.route.id), exchange.call.stream, now_s())
        exchange.attempts.append(attempt)
        exchange.route = step.route
        try:
            result = await self._ask(step, accept)
        except UpstreamFailed as exc:
            self.failed(exc.failure)
            raise
        except BaseException:
            if (cut := self._watch.cut_by) is not None:  # by a deadline of ours, not by the client
                self.failed(cut)
                raise
            attempt.result, attempt.ended_s = "cancelled", now_s()
            self._abandon()
            if not self._watch.outlives:
                self.release()
            raise
        attempt.result = "ok"
        if self._load is not None:
            self._load.answered(now_s())
        if self._permit is not None:
            self._permit.succeeded(now_s())
        return result

    async def _take_request(self) -> UpstreamRequest:
        """Not kept any longer: its body may be megabytes, and the answer may take minutes. A signature is of now."""
        request, self._request = self._request, None
        assert request is not None
        self._exchange.params = request.params
        if request.signer is not None:
            digest = Digest(request.body)
            if not digest.is_whole:
                await self._watch.step(digest.complete)
            request = request.signed(digest.text, self._services.clock.epoch_s())
        if self._exchange.dispatched_s is None:
            self._exchange.dispatched_s = self._watch.now_s()
        return request

    async def _ask(self, step: Try, accept: Callable[[UpstreamAnswer, Journey], Awaitable[T]]) -> T:
        exchange = self._exchange
        attempt = exchange.attempts[-1]
        if self._rest is None and exchange.call.task == "answer":
            self._watch.attempt = attempt  # a count is worth nothing to anybody else

        def on_sent() -> None:
            attempt.was_sent = True
            exchange.place.sent(attempt.route)

        answer = await self._watch.ask(await self._take_request(), on_sent)
        try:
            if answer.status != 200:
                self._watch.attempt = None  # there is no answer to be read on
                raise UpstreamFailed(await self._read_failure(answer))
            return await accept(answer, journey_of(exchange, self._services))
        except UpstreamFailed as exc:
            exc.failure = discreet(exc.failure, attempt.route.provider)
            answer.close()
            raise
        except asyncio.CancelledError:
            if not self._watch.outlives:
                answer.close()
            raise
        except BaseException:
            answer.close()
            raise

    async def _read_failure(self, answer: UpstreamAnswer) -> Failure:
        """What a non-200 answer says, from a bounded part of its body."""

        async def piece() -> bytes:
            try:
                return await answer.read()
            except UpstreamFailed:
                return b""  # the status alone is enough to go by

        body = b""
        try:
            async with asyncio.timeout(_ERROR_BODY_S):
                while len(body) < MAX_ERROR_BYTES and (data := await self._watch.step(piece)):
                    body += data
        except TimeoutError:
            pass
        route = self._exchange.attempts[-1].route
        body = hide(body[:MAX_ERROR_BYTES], route.provider)
        dialect = DIALECTS[route.provider.dialect]
        return dialect.read_failure(answer.status, answer.headers, body, self._services.clock.epoch_s())
