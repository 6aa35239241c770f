"""An exchange between a scripted provider and a noting client; all that lies between them is real."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace

from gateway.aio import Tasks
from gateway.core.accounts import Key, Tier
from gateway.core.call import Call, CallOptions
from gateway.core.catalog import (
    Catalog,
    DialectName,
    Drain,
    Mode,
    Model,
    OnInterrupt,
    Provider,
    Route,
    Signer,
    Strategy,
)
from gateway.core.errors import Failure, GatewayError
from gateway.core.exchange import Answer, Exchange
from gateway.core.guarding import AnswerTerms, Engine, Rules
from gateway.core.money import Price, Weight
from gateway.core.receipt import Receipt, Tariff
from gateway.dialects.base import LaneRules
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.pipeline.answering import Answering
from gateway.pipeline.drains import Drains
from gateway.pipeline.run import Pipeline
from gateway.pipeline.scanning import Means
from gateway.pipeline.services import Clock, Deadlines, Services
from gateway.pipeline.stage import Stage
from gateway.pipeline.stages.choose import Choose
from gateway.pipeline.watch import Watch
from gateway.policy.breaker import Breaker, BreakerBoard, BreakerRules, BudgetRules
from gateway.policy.retry import RetryRules
from tests.support.receipts_kept import MemoryLedger
from tests.support.scripted_client import ScriptedSink
from tests.support.scripted_provider import Play, ScriptedUpstream
from tests.support.virtual_time import START_S, VirtualLoop

EPOCH_S = 1_700_000_000.0
RETRY = RetryRules(base_s=0.25, wait_max_s=5.0)
ONE = Weight(1, 1)
MODES: dict[Mode, Weight] = {"realtime": ONE, "provider_cache": ONE}
LONG_S = 10_000.0  # longer than anything that is read on
TURNS = 3  # of the loop, in which a task that was cancelled is gone and those who wait for it know
BODY = b'{"model":"m","stream":%b,"messages":[{"role":"user","content":"Hello there"}]}'


def virtual_loop() -> VirtualLoop:
    """The running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def elapsed_s() -> float:
    """Seconds since the test began."""
    return virtual_loop().elapsed_s


async def at(second: float) -> None:
    """Wait until *second* of the test."""
    await asyncio.sleep(second - elapsed_s())


async def turns_during(step: Awaitable[object]) -> int:
    """How often the loop turns for others until *step* is done."""
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(turn())
    await step
    other.cancel()
    return turns


def route(
    name: str,
    drain: Drain | None = None,
    model: str = "m",
    signer: Signer | None = None,
    dialect: DialectName = "openai_chat",
) -> Route:
    """A route whose provider lives at `<name>.test`."""
    provider = Provider(
        name, dialect, f"https://{name}.test/v1", "cloud_direct", "US", ONE, drain=drain, signer=signer
    )  # fmt: skip
    return Route(provider, model, is_measured=True)


def call(stream: bool) -> Call:
    return CLIENT_DIALECTS["openai_chat"].read_call(BODY % (b"true" if stream else b"false"), CallOptions(), ())


def catalog(*routes: Route, strategy: Strategy = "fallback", on_interrupt: OnInterrupt = "error") -> Catalog:
    """One model `m`; a token costs one USD per million."""
    price = Price(10**6, 10**6, 10**6, 10**6)
    model = Model(
        "m", "mid", ONE, price, routes, context_window=1000, strategy=strategy, on_interrupt=on_interrupt
    )  # fmt: skip
    return Catalog({"m": model}, MODES)


class Scene:
    """
    One exchange, from second 0 of the test unless it is told to `begin` later.

    Args:
        plays: What the providers do, in the order in which they are asked.
        routes: Names of the model's routes in fallback order.

    Attributes:
        failures: What was reported of attempts, as (route, reason), and of guards.
    """

    def __init__(
        self,
        *plays: Play,
        stream: bool = True,
        routes: tuple[str, ...] = ("a",),
        deadlines: Deadlines | None = None,
        breaker: BreakerRules | None = None,
        before: tuple[Stage, ...] = (),
        strategy: Strategy = "fallback",
        drain: Drain | None = None,
        on_interrupt: OnInterrupt = "error",
        model: str = "m",
        signer: Signer | None = None,
        dialect: DialectName = "openai_chat",
    ) -> None:
        self.upstream = ScriptedUpstream(*plays)
        self.sink = ScriptedSink()
        self.failures: list[tuple[str, str]] = []
        self.board = BreakerBoard(breaker or BreakerRules(), BudgetRules())
        self.running: set[Watch] = set()
        self.crashes: list[BaseException] = []
        self._house = Tasks(lambda _, exc: self.crashes.append(exc))
        self.drains = Drains(self._house)
        self._ledger = MemoryLedger()
        self.services = self._services(deadlines or Deadlines())
        self.exchange = Exchange(
            request_id="req_1",
            trace_id="trace_1",
            endpoint="chat_completions",
            call=call(stream),
            key=Key("key_1", "acme", Tier("pro")),
            started_s=START_S,
        )
        self._routes = {name: route(name, drain, model, signer, dialect) for name in routes}
        models = catalog(*self._routes.values(), strategy=strategy, on_interrupt=on_interrupt)
        self._stages = (*before, Choose(models))
        self._pipeline = Pipeline(self._stages, self.services, self.running)
        self._task: asyncio.Task[Answer | None] | None = None

    def _services(self, deadlines: Deadlines) -> Services:
        clock_s = virtual_loop().time
        return Services(
            upstream=self.upstream,
            ledgers=(self._ledger,),
            board=self.board,
            retry=RETRY,
            deadlines=deadlines,
            lanes=LaneRules(),
            tariff=Tariff(MODES, bill_interrupted=True, region="id"),
            clock=Clock(clock_s, lambda: EPOCH_S + clock_s() - START_S, lambda: 0.0),
            report_failure=self._report,
            headers=lambda exchange, receipt: (("x-request-id", exchange.request_id),),
            observe_gap=lambda gap_s: None,
            drains=self.drains,
        )

    def _report(self, exchange: Exchange, where: Route, failure: Failure) -> None:
        self.failures.append((where.provider.name, failure.reason))

    def share_loads(self, other: Scene) -> None:
        """Both exchanges are of one process."""
        self.services = replace(self.services, loads=other.services.loads)
        self._pipeline = Pipeline(self._stages, self.services, self.running)

    def guard_answers(self, terms: AnswerTerms, *engines: Engine, means: Means | None = None) -> None:
        """The key's policy asks for *terms* of answers, which *engines* look at."""
        answering = Answering({engine.name: engine for engine in engines}, means, self._guard_failed)
        self.services = replace(self.services, answering=answering)
        self.exchange.key = replace(self.exchange.key, rules=Rules({}, terms))
        self._pipeline = Pipeline(self._stages, self.services, self.running)

    def _guard_failed(self, request_id: str, guard: str, reason: str) -> None:
        self.failures.append((guard, reason))

    def begin(self) -> None:
        """The request comes now, not at second 0."""
        self.exchange.started_s = virtual_loop().time()

    def start(self) -> asyncio.Task[Answer | None]:
        """Let the request arrive."""
        self._task = asyncio.create_task(self._pipeline.run(self.exchange, self.sink))
        return self._task

    def leave(self) -> None:
        """The client goes away."""
        assert self._task is not None
        self.sink.leave()
        self._task.cancel()

    def interrupt(self, failure: Failure) -> None:
        """End what runs, as at shutdown."""
        for watch in self.running:
            watch.interrupt(failure)

    async def end(self, *, alone: bool = True) -> str:
        """Wait for the end and see that nothing is left behind, unless others still run; the outcome."""
        task = self._task or self.start()
        try:
            await task
        except (asyncio.CancelledError, GatewayError):
            pass  # which of them, and why, is in the receipt
        await self._house.drain(LONG_S)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert self.crashes == []
        assert (self.upstream.unclosed, self.running) == ([], set())
        assert not alone or all(not self.running_on(asked.host) for asked in self.upstream.asked)
        assert virtual_loop().waiting_for(Watch) == [] or not alone
        return self.receipt.outcome

    @property
    def receipts(self) -> list[Receipt]:
        """What has been settled so far."""
        return [*self._ledger.receipts]

    @property
    def receipt(self) -> Receipt:
        """The one and only."""
        (receipt,) = self._ledger.receipts
        return receipt

    @property
    def heard(self) -> list[tuple[float, str]]:
        """What the client got, as (second of the test, word)."""
        return [(at_s - START_S, word) for at_s, word in self.sink.heard]

    @property
    def asked(self) -> list[tuple[float, str]]:
        """The requests to providers, as (second of the test, route)."""
        return [(asked.at_s - START_S, asked.host) for asked in self.upstream.asked]

    @property
    def left_s(self) -> float | None:
        """The second of the test at which the connection of the last request was dropped."""
        left_s = self.upstream.asked[-1].left_s
        return None if left_s is None else left_s - START_S

    @property
    def attempts(self) -> list[tuple[str, str]]:
        """The attempts of the receipt, as (route, result)."""
        return [(provider, result) for provider, _, result in self.receipt.attempts]

    def running_on(self, name: str) -> int:
        """How many attempts at route *name* are counted as under way."""
        return self.services.loads.of(self._routes[name].id).running

    def breaker(self, name: str) -> Breaker:
        return self.board.of(route(name).id)[0]

    def breaks(self, name: str) -> None:
        """The breaker of route *name* opens now."""
        breaker, now_s = self.breaker(name), virtual_loop().time()
        while (permit := breaker.admit(now_s)) is not None:
            permit.failed(now_s)
