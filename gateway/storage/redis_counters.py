"""Counters that processes share: the port over `admission.lua`, and what becomes of calls while Redis is away."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial

from msgspec.structs import replace

from gateway.aio import Tasks
from gateway.core.accounts import Key
from gateway.core.exchange import NO_LIMITS, Limits
from gateway.core.ports import Admitted, Order, Refused, Spending, Spent, StoreUnavailable
from gateway.policy.admission import Admission
from gateway.policy.entitlement import Account, Entitlement, Entitlements
from gateway.policy.limits import admitted_blind, answer, refused_blind, usage
from gateway.policy.periods import number_of, start_ms
from gateway.policy.rates import MINUTE_MS
from gateway.policy.verdict import Open, Part, Verdict
from gateway.storage import redis_script
from gateway.storage.memory import FOR_EVER_MS, amount_of, charged_of
from gateway.storage.redis_link import RedisFailed, Word
from gateway.storage.redis_upkeep import Observer, SharingRules, Upkeep

_STANDINGS = 10_000  # keys whose last standing is remembered: some 3 MB
_LOADS = 5  # times that a call asks again after it has loaded: each means that the counters were lost meanwhile
_WAIT_MORE_S = 2.0  # beyond `rejoin_ms`, for one call: then it goes on with what is there
_BLIND_EPOCH = -1  # of what was admitted without Redis: it is booked there without a hold


class RedisCounters:
    """
    Implements `Counters` for processes that share a Redis.

    Settling never waits: what cannot be told to Redis now is told it later, by `Upkeep`. While Redis does not answer,
    calls go by this process's part of the limits for `SharingRules.blind_s` and by their key after that; those that a
    budget bounds are refused.

    Args:
        clock_s: Epoch seconds that never go back, for as long as the counters' own are not to be had.
        workers: Processes of this service, for the parts.
    """

    is_far = True

    def __init__(
        self,
        url: str,
        spending: Spending,
        rules: SharingRules,
        tasks: Tasks,
        *,
        clock_s: Callable[[], float],
        workers: int,
        observer: Observer,
    ) -> None:
        self._rules = rules
        self._spending = spending
        self._tasks = tasks
        self._clock_s = clock_s
        self._entitlements = Entitlements()
        self._parts = Entitlements(workers)
        self._standings: OrderedDict[str, tuple[float, Limits]] = OrderedDict()
        self._loading: dict[tuple[str, int, int], asyncio.Task[RedisFailed | StoreUnavailable | None]] = {}
        self._unlimited: set[str] = set()
        self._local: Admission | None = None  # while blind
        self._upkeep = Upkeep(url, rules, tasks, on_change=self._changed, observer=observer)

    async def start(self) -> None:
        """Connect, or begin blind; and keep places and holds alive from now on."""
        await self._upkeep.start()

    async def close(self) -> None:
        """Tell Redis what it has not been told yet, for a moment, and leave."""
        await self._upkeep.close()

    def __len__(self) -> int:
        """Requests that hold something."""
        return len(self._upkeep.open) + len(self._unlimited)

    async def admit(self, order: Order) -> Admitted | Refused:
        """
        Take all that *order* needs, or nothing. A refusal spends nothing.

        Raises:
            ValueError: The request holds a place already.
        """
        if order.request_id in self._upkeep.open:
            raise ValueError("the request holds a place already")
        limits = self._entitlements.of(order.key, order.session_id)
        if limits.is_open:
            self._unlimited.add(order.request_id)
            return Admitted(NO_LIMITS, self._clock_s())
        try:
            verdict = await self._verdict(partial(self._take, order, limits), limits)
        except RedisFailed:
            return self._blindly(order, limits)
        except StoreUnavailable:
            return refused_blind(limits)
        if verdict.step == "admitted":
            self._upkeep.open[order.request_id] = verdict.open_of(order, limits)
        told = answer(verdict, limits, limits)
        self._remember(order.key.id, told.limits, verdict)
        return told

    def settle(self, request_id: str, spent: Spent, *, key_id: str = "") -> None:
        """Give back what *request_id* holds, and book; for a request of a process that is gone, by its hold and key."""
        if request_id in self._unlimited:
            self._unlimited.discard(request_id)
            return
        open_ = self._upkeep.settle(request_id, spent, key_id)
        if self._local is not None:
            self._local.settle(open_, spent, self._now_ms())

    def written(self, request_ids: Iterable[str]) -> None:
        """See the port."""
        self._upkeep.written(request_ids)

    async def held_by(self, owner: str) -> Collection[str]:
        """See the port."""
        try:
            return frozenset(map(str, await self._upkeep.ask(redis_script.held(owner))))
        except RedisFailed as exc:
            raise StoreUnavailable(f"Redis: {exc.code}") from exc

    def standing(self, key: Key) -> Limits:
        """Where *key* stood last in this process; all of its rate where its minute is over or it was not seen."""
        rpm, tpm = key.tier.rpm, key.tier.tpm
        known = self._standings.get(key.id)
        if known is not None and self._clock_s() < known[0] and known[1].rpm == rpm:
            return known[1]
        return Limits(rpm=rpm, rpm_remaining=rpm, tpm=tpm, tpm_remaining=tpm)

    async def usage_limits(self, key: Key, session_id: str | None = None) -> dict[str, object]:
        """
        Every limit of *key*: see `policy.limits.usage`.

        Raises:
            StoreUnavailable: That cannot be told now.
        """
        limits = self._entitlements.of(key, session_id)
        try:
            verdict = await self._awaited(partial(self._look, Order(key, "look"), limits), self._end_s())
        except RedisFailed as exc:
            raise StoreUnavailable(f"Redis: {exc.code}") from exc
        counts = []  # nothing is loaded for a look: sessions may be called anything
        for account, count in zip(limits.accounts, verdict.standing.tallies, strict=True):
            spent = count.used if count.is_loaded else await charged_of(self._spending, account, count.period)
            counts.append(replace(count, used=spent, is_loaded=True))
        return usage(limits, replace(verdict.standing, tallies=tuple(counts)), verdict.at_ms)

    async def _verdict(self, ask: Callable[[int], Awaitable[Verdict]], limits: Entitlement) -> Verdict:
        """
        What *ask* comes to, once nothing has to be waited for or loaded. Raises RedisFailed or StoreUnavailable.

        Args:
            ask: As in `_awaited`.
        """
        end_s = self._end_s()
        for _ in range(_LOADS):
            verdict = await self._awaited(ask, end_s)
            if verdict.step != "load":
                return verdict
            await self._load(limits, verdict)
        raise StoreUnavailable("the counters are lost again and again")

    async def _awaited(self, ask: Callable[[int], Awaitable[Verdict]], end_s: float) -> Verdict:
        """
        What *ask* comes to, once no new epoch has to be waited for, or from *end_s* on in any case.

        Also who only looks waits for it: before every process has told again what its calls hold, that is not there.

        Args:
            ask: Takes the time, in milliseconds, that is to be waited behind the birth of an epoch.
        """
        loop = asyncio.get_running_loop()
        while True:
            verdict = await ask(self._rules.rejoin_ms if loop.time() < end_s else 0)
            if verdict.step != "wait":
                return verdict
            await asyncio.sleep(verdict.retry_ms / 1000)

    def _end_s(self) -> float:
        """Until when a call that begins now waits for a new epoch."""
        return asyncio.get_running_loop().time() + self._rules.rejoin_ms / 1000 + _WAIT_MORE_S

    async def _take(self, order: Order, limits: Entitlement, rejoin_ms: int) -> Verdict:
        rules = self._rules
        words = redis_script.admit(order, limits, (rules.lease_ms, rules.hold_ms, rejoin_ms), owner=rules.owner)
        try:
            return await self._ask(words, limits)
        except BaseException as exc:  # the caller has left, or there was no answer: it may have been admitted
            if not (isinstance(exc, RedisFailed) and exc.is_reply):
                self._upkeep.undo(Open(order.request_id, limits.holder, limits.inflight is not None))
            raise

    async def _look(self, order: Order, limits: Entitlement, rejoin_ms: int) -> Verdict:
        return await self._ask(redis_script.look(order, limits, rejoin_ms), limits)

    async def _ask(self, words: list[Word], limits: Entitlement) -> Verdict:
        verdict = redis_script.verdict_of(await self._upkeep.ask(words), limits)
        self._upkeep.saw(verdict.epoch)
        return verdict

    async def _load(self, limits: Entitlement, verdict: Verdict) -> None:
        """Load what is not, once for all calls that wait for it. Raises RedisFailed or StoreUnavailable."""
        for account, count in zip(limits.accounts, verdict.standing.tallies, strict=True):
            if count.is_loaded:
                continue
            name = (account.name, count.period, verdict.epoch)
            task = self._loading.get(name)
            if task is None:
                # A task of the house: the first caller may leave, and others wait for it as well.
                task = self._tasks.spawn(self._load_one(account, count.period, verdict.epoch), name="limits.load")
                self._loading[name] = task
                task.add_done_callback(partial(self._loaded, name))
            await asyncio.shield(task)
            failure = task.result()
            if failure is not None:
                raise failure

    def _loaded(self, name: tuple[str, int, int], _task: object) -> None:
        self._loading.pop(name, None)

    async def _load_one(self, account: Account, period: int, epoch: int) -> RedisFailed | StoreUnavailable | None:
        """Why it could not be done, for those that wait: nobody else has to hear of it."""
        try:
            pending = await self._upkeep.ask(redis_script.pending(account))
            since_ms = start_ms(account.period, period)
            booked = await self._spending.booked(account.scope, account.owner, since_ms, pending)
            spent = amount_of(booked, account)
            for step in redis_script.load_in_pieces(account, period, spent, booked.recorded, epoch=epoch):
                await self._upkeep.ask(step)
        except (RedisFailed, StoreUnavailable) as exc:
            return exc
        return None

    def _blindly(self, order: Order, limits: Entitlement) -> Admitted | Refused:
        """By this process's part of the limits, then by the key; nothing that must not be passed is let in."""
        if limits.is_hard:
            return refused_blind(limits)
        now_ms = self._now_ms()
        local = self._counting_alone() if self._local is None else self._local
        parts = tuple([Part(account, number_of(account.period, now_ms), 0) for account in limits.accounts])
        open_ = Open(order.request_id, limits.holder, limits.inflight is not None, parts, _BLIND_EPOCH)
        if self._upkeep.blind_for_s() > self._rules.blind_s:
            if order.key.when_blind == "closed":
                return refused_blind(limits)
            self._upkeep.open[order.request_id] = open_
            return admitted_blind(limits, self._clock_s())
        enforced = replace(self._parts.of(order.key, order.session_id), accounts=())
        verdict = local.admit(order, enforced, now_ms)
        if verdict.step == "admitted":
            self._upkeep.open[order.request_id] = open_
        told = answer(verdict, enforced, replace(limits, accounts=()))
        return replace(told, limits=replace(told.limits, is_blind=True))

    def _changed(self, is_blind: bool) -> None:
        """Count anew while Redis is away, beginning with the places that its requests have taken."""
        self._local = self._counting_alone() if is_blind else None

    def _counting_alone(self) -> Admission:
        local, now_ms = Admission(lease_ms=FOR_EVER_MS, hold_ms=FOR_EVER_MS), self._now_ms()
        for open_ in self._upkeep.open.values():
            local.renew(open_, now_ms)
        return local

    def _remember(self, key_id: str, limits: Limits, verdict: Verdict) -> None:
        self._standings.pop(key_id, None)
        opened_ms = max(verdict.standing.opened_ms, verdict.standing.tokens_opened_ms)
        self._standings[key_id] = ((opened_ms + MINUTE_MS) / 1000, limits)
        if len(self._standings) > _STANDINGS:
            self._standings.popitem(last=False)

    def _now_ms(self) -> int:
        return int(self._clock_s() * 1000)
