"""
The connection to the shared counters, and what a process owes them: it renews what its requests hold, tells what they
have spent however late, and tells all of it again when the counters were lost.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from gateway.aio import Tasks
from gateway.core.ports import Spent
from gateway.policy.verdict import Open
from gateway.storage import redis_script
from gateway.storage.redis_clearing import DISPLACED, WRONG_TYPE, clear, displaced_by
from gateway.storage.redis_link import Link, RedisFailed, Word, open_link

TICK_S = 2.0  # between two looks at the epoch: well within the default of `rejoin_s`
AGAIN_S = 0.05  # after a failure: three in a row tell within half a second, without a call, that Redis is away
STUMBLED_S = 1.0  # before what met a mistake of ours is tried again
RETRY_S = 0.5  # between two attempts to connect; calls do not wait for them
CONNECT_S = 1.0  # a handshake with TLS to another region takes some 0.3 s
# Failures in a row before Redis is not waited for any more; those of commands that waited at the same time are one.
STRIKES = 3
AT_ONCE = 200  # requests that one renewal names: some 0.3 ms of Redis's time
# What was settled is told again after a loss of the counters: all that the database does not have yet, however long it
# is away, and what it has been given of late, for who loads a counter may have read it before. Counters loaded from
# there know what is told twice by its id for two minutes (`spending.RECENT_MS`).
REMEMBERED_S = 60.0
MOST_REMEMBERED = 100_000  # settlements of some 0.5 KB; beyond, the oldest are taken to be in the database
_TASK = "limits.upkeep"
LAST_WORDS_S = 0.5  # for settlements on their way when the process ends; without them holds wait for `hold_s`

Settled = tuple[Open, Spent]


@dataclass(frozen=True, slots=True)
class SharingRules:
    """
    Attributes:
        lease_ms: How long places are held without renewal, `hold_ms` money and tokens; see `Admission`.
        rejoin_ms: How long calls that draw on accounts wait after the birth of an epoch.
        blind_s: How long this process's part of the limits counts while Redis does not answer.
        owner: This process, by the name that its journal has for it; for whoever takes that over.
    """

    timeout_s: float = 0.1
    lease_ms: int = 30_000
    renew_s: float = 10.0
    hold_ms: int = 900_000
    rejoin_ms: int = 5_000
    blind_s: float = 60.0
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Observer:
    """
    Whom the upkeep tells.

    Attributes:
        blind: Redis does not answer, and why; `sees` that it does again, and after how many seconds.
        failed: A command failed, by the first word of the reply or `timeout` or `lost`.
        displaced: Under a name of the counters was something else, and the name that this has now.
    """

    blind: Callable[[str], None] = lambda reason: None
    sees: Callable[[float], None] = lambda seconds: None
    failed: Callable[[str], None] = lambda code: None
    displaced: Callable[[str, str], None] = lambda key, new_key: None


NOBODY = Observer()


class Upkeep:
    """
    Args:
        on_change: Called when Redis is not waited for any more (True), and when it is again (False).

    Attributes:
        open: The requests of this process that hold something, by id.
    """

    def __init__(
        self, url: str, rules: SharingRules, tasks: Tasks, *, on_change: Callable[[bool], None], observer: Observer
    ) -> None:  # fmt: skip
        self.open: dict[str, Open] = {}
        self._url = url
        self._rules = rules
        self._tasks = tasks
        self._on_change = on_change
        self._observer = observer
        self._link: Link | None = None
        self._epoch = 0
        self._is_stale = False  # another epoch was seen, and what this process holds is not known there
        self._strikes, self._struck_s = 0, 0.0
        self._is_stumbling = False
        self._is_in_the_way = False  # something under a name of the counters
        self._blind_since_s: float | None = None
        self._renewed_s = 0.0
        self._unwritten: OrderedDict[str, Settled] = OrderedDict()
        self._settled: OrderedDict[str, tuple[Settled, float]] = OrderedDict()  # and until when to remember them
        self._unsent: deque[Settled] = deque(maxlen=MOST_REMEMBERED)
        self._sending: set[asyncio.Future[Any]] = set()
        self._wake = asyncio.Event()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # -- life --

    async def start(self) -> None:
        """Try to connect once, and go on from there in a task of the house."""
        await self._look_after()
        self._task = self._tasks.spawn(self._run(), name=_TASK)

    async def close(self) -> None:
        """Let what is on its way arrive, for a moment, and leave."""
        if self._task is not None:
            self._task.cancel()
        self._resend()
        if self._sending:
            await asyncio.wait(set(self._sending), timeout=LAST_WORDS_S)
        if self._link is not None:
            self._link.close()

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._wake.wait()
            self._wake.clear()
            await self._look_after()

    async def _look_after(self) -> None:
        """Connect, or do what is due; a bug of ours in it is told once, until it goes well again."""
        try:
            if self._link is None:
                await self._connect()
            else:
                with suppress(RedisFailed):
                    await self._tick(self._link)
        except Exception as exc:
            if not self._is_stumbling:
                self._is_stumbling = True
                self._tasks.tell(_TASK, exc)
            await asyncio.sleep(STUMBLED_S)
            self._wake.set()
        else:
            self._is_stumbling = False

    def _pause_s(self) -> float:
        if self._link is None:
            return RETRY_S if self.is_blind else 0.0
        return AGAIN_S if self._strikes else min(TICK_S, self._rules.renew_s)

    # -- asking --

    @property
    def is_blind(self) -> bool:
        """Whether Redis is not waited for."""
        return self._blind_since_s is not None

    def blind_for_s(self) -> float:
        """For how long it has not been."""
        return 0.0 if self._blind_since_s is None else _now_s() - self._blind_since_s

    async def ask(self, step: list[Word]) -> Any:
        """
        The reply to a step of the script.

        Raises:
            RedisFailed: There is none in time; at once where Redis is not waited for.
        """
        link = self._link
        if link is None or not self._ready.is_set():
            link = await self._new_link()
        return await self._step(link, step)

    async def _step(self, link: Link, step: list[Word]) -> Any:
        """As `ask`, also while a new connection is not for everybody yet."""
        asked_s = _now_s()
        try:
            reply = await self._ask(link, step)
        except RedisFailed as exc:
            if not self._is_in_our_way(exc):
                self._strike(link, exc, asked_s)
            raise
        self._strikes = 0
        return reply

    def _is_in_our_way(self, exc: RedisFailed) -> bool:
        """Whether *exc* is about one name alone: Redis is there, and so are all others."""
        if exc.code == DISPLACED:
            self._observer.displaced(*displaced_by(exc.detail))
        elif exc.code == WRONG_TYPE:
            self._is_in_the_way = True
        else:
            return False
        self._observer.failed(exc.code)
        self._wake.set()
        return True

    async def _new_link(self) -> Link:
        """The connection that takes the place of one that was lost a moment ago. Raises RedisFailed."""
        if not self.is_blind:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._rules.timeout_s):
                    await self._ready.wait()
        if self._link is None or not self._ready.is_set():
            raise RedisFailed("lost")
        return self._link

    async def _ask(self, link: Link, step: list[Word]) -> Any:
        words, timeout_s = redis_script.evalsha(step), self._rules.timeout_s
        try:
            return await link.ask(*words, timeout_s=timeout_s)
        except RedisFailed as exc:
            if exc.code != "NOSCRIPT":
                raise
            await link.ask("SCRIPT", "LOAD", redis_script.script(), timeout_s=timeout_s)
            return await link.ask(*words, timeout_s=timeout_s)

    def _strike(self, link: Link, exc: RedisFailed, asked_s: float) -> None:
        self._observer.failed(exc.code)
        if link is not self._link or asked_s < self._struck_s:
            return
        self._strikes, self._struck_s = self._strikes + 1, _now_s()
        if self._strikes >= STRIKES:
            self._give_up(exc)
            self._wake.set()
        elif self._strikes == 1:
            self._wake.set()  # to ask again without waiting for a call

    def _give_up(self, exc: RedisFailed) -> None:
        """Go blind, until a new connection has done a first step."""
        link, self._link = self._link, None
        self._ready.clear()
        if self._blind_since_s is None:
            self._blind_since_s = _now_s()
            self._on_change(True)  # noqa: FBT003 - a callback's only argument
            self._observer.blind(f"{exc.code} {exc.detail}".strip())
        if link is not None:
            link.close()

    # -- connecting --

    async def _connect(self) -> None:
        try:
            link = await open_link(self._url, self._lost, timeout_s=CONNECT_S)
        except RedisFailed as exc:
            self._observer.failed(exc.code)
            self._give_up(exc)
            return
        self._link, self._strikes = link, 0
        try:
            await link.ask("SCRIPT", "LOAD", redis_script.script(), timeout_s=CONNECT_S)
            self._is_stale = True  # whatever its epoch is: what runs is to be renewed before anything is admitted
            await self._tick(link)
        except RedisFailed as exc:
            self._observer.failed(exc.code)
            self._give_up(exc)
            return
        except BaseException:
            self._link = None
            link.close()
            raise
        self._ready.set()
        if self._blind_since_s is not None:
            blind_s, self._blind_since_s = self.blind_for_s(), None
            self._on_change(False)  # noqa: FBT003
            self._observer.sees(blind_s)

    def _lost(self) -> None:
        """The connection is gone: a new one is tried at once, for which calls wait a moment."""
        if self._link is not None and self._link.is_lost:
            self._link = None
            self._ready.clear()
            self._wake.set()

    # -- ticking --

    def saw(self, epoch: int) -> None:
        """A reply was of *epoch*: where that is another one, the counters have been lost."""
        if epoch != self._epoch and not self._is_stale:
            self._is_stale = True
            self._wake.set()

    async def _tick(self, link: Link) -> None:
        """Look at the epoch, and do what is due. Raises RedisFailed."""
        now_s = _now_s()
        if self._is_in_the_way:
            for key, new_key in await clear(link, timeout_s=self._rules.timeout_s):
                self._observer.displaced(key, new_key)
            self._is_in_the_way = False
        if self._is_stale or now_s - self._renewed_s >= self._rules.renew_s:
            self._renewed_s = now_s
            await self._renew(link)
        self._resend()  # both before the sweep, which is a part of the tick: what Redis missed is nothing to guess at
        epoch, _, _ = await self._step(link, redis_script.tick(await self._run_id(link)))
        self.saw(int(epoch))
        if self._is_stale:
            self._is_stale, is_new = False, int(epoch) != self._epoch
            self._epoch = int(epoch)
            if is_new:
                await self._renew(link)
                await self._tell_again()
        self._forget(now_s)

    async def _run_id(self, link: Link) -> str:
        """
        The server's own name for this run of it: another one under the same address is a replica that was promoted, and
        may lack the last second. "" where it is not told.
        """
        asked_s = _now_s()
        try:
            text = str(await link.ask("INFO", "server", timeout_s=self._rules.timeout_s))
        except RedisFailed as exc:
            if exc.is_reply:
                return ""
            self._strike(link, exc, asked_s)
            raise
        return next((line.partition(":")[2] for line in text.splitlines() if line.startswith("run_id:")), "")

    async def _renew(self, link: Link) -> None:
        """Renew all that requests hold; what is not there is held again."""
        rules = self._rules
        for batch in _batches(list(self.open.values())):
            missing = set(await self._step(link, redis_script.renew(batch, rules.lease_ms, rules.hold_ms)))
            for open_ in batch:
                if open_.parts and open_.request_id in missing and open_.request_id in self.open:
                    link.send(*redis_script.evalsha(redis_script.register(open_, rules.hold_ms, owner=rules.owner)))

    async def _tell_again(self) -> None:
        """All that is remembered, in parts: others want to be served meanwhile."""
        remembered = [*self._unwritten.values(), *[one for one, _ in self._settled.values()]]
        for start in range(0, len(remembered), AT_ONCE):
            for open_, spent in remembered[start : start + AT_ONCE]:
                self._send(open_, spent)
            await asyncio.sleep(0)

    # -- settling --

    def settle(self, request_id: str, spent: Spent, holder: str = "") -> Open:
        """Have it told, now or later. Of a request that is not of this process the hold is known, if there is one; who
        holds its place is *holder*."""
        open_ = self.open.pop(request_id, None)
        if open_ is None:
            open_ = Open(request_id, holder, has_place=holder != "")
        elif open_.parts:
            self._unwritten[request_id] = open_, spent
            if len(self._unwritten) > MOST_REMEMBERED:
                self._unwritten.popitem(last=False)
        if not self.is_blind or open_.parts or open_.epoch >= 0:  # else it was let in while Redis was away
            self._send(open_, spent)
        return open_

    def written(self, request_ids: Iterable[str]) -> None:
        """The database has them, or never will: they need not be remembered for long."""
        until_s = _now_s() + REMEMBERED_S
        for request_id in request_ids:
            one = self._unwritten.pop(request_id, None)
            if one is not None:
                self._settled[request_id] = one, until_s

    def undo(self, open_: Open) -> None:
        """Give back what a step may have taken whose reply nobody has seen."""
        self._send(open_, Spent())

    def _send(self, open_: Open, spent: Spent) -> None:
        if self._link is None:
            self._unsent.append((open_, spent))
            return
        future = self._link.send(*redis_script.evalsha(redis_script.settle(open_, spent)))
        self._sending.add(future)
        future.add_done_callback(partial(self._sent, open_, spent))

    def _sent(self, open_: Open, spent: Spent, future: asyncio.Future[Any]) -> None:
        self._sending.discard(future)
        failure = None if future.cancelled() else future.exception()
        if failure is not None or future.cancelled():
            self._unsent.append((open_, spent))  # telling it twice changes nothing
            if isinstance(failure, RedisFailed):
                self._is_in_our_way(failure)
        else:
            self.saw(int(future.result()))

    def _resend(self) -> None:
        unsent, self._unsent = self._unsent, deque(maxlen=MOST_REMEMBERED)
        for open_, spent in unsent:
            self._send(open_, spent)

    def _forget(self, now_s: float) -> None:
        settled = self._settled
        while settled and (len(settled) > MOST_REMEMBERED or next(iter(settled.values()))[1] <= now_s):
            settled.popitem(last=False)


def _batches(requests: list[Open]) -> Iterator[list[Open]]:
    for start in range(0, len(requests), AT_ONCE):
        yield requests[start : start + AT_ONCE]


def _now_s() -> float:
    return asyncio.get_running_loop().time()
