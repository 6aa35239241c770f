"""
Named calls and their answers in the database, so that they hold for every process and over restarts.

A claim is a row without an answer. The process that has it renews it while the call is under way; one that another
process has not seen renewed for `LEASE_S` was held by one that died, and the next request there takes it over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.aio import Tasks
from gateway.core.exchange import Answer
from gateway.core.ports import Claim, Claimed, StoreUnavailable
from gateway.storage.database import Database
from gateway.storage.idempotency_rows import SWEPT_ROWS, Rows

LEASE_S = 30.0  # of a claim: whoever sends the call again after a kill waits some time more. A choice
RENEW_S = 10.0  # two renewals may fail; claims of others are looked at as often
ANSWER_S = 2.0  # longest wait for the database in a request's way; one in reach answers in milliseconds
RETRY_S = (0.1, 5.0)  # first and longest pause of the writer while the database is gone
SWEEP_S = 300.0  # answers are gone this long after their time at the latest
BATCH = 64  # endings in one transaction
MAX_ENDINGS = 10_000  # that wait to be written, a kilobyte each; with more the database is as good as gone


@dataclass(slots=True)
class _Hold:
    """A claim of this process: being asked for, running, or about to be written.

    Attributes:
        found: What the database said, where it gave the claim to nobody here.
        turned: Set at each turn from one state to the next.
    """

    claim: Claim
    is_running: bool = False
    found: Claimed | None = None
    turned: asyncio.Event = field(default_factory=asyncio.Event)

    def turn(self) -> None:
        """Wake up who waits for the state to change."""
        self.turned.set()
        self.turned = asyncio.Event()


@dataclass(frozen=True, slots=True)
class _Ending:
    """What is still to be written of a hold. `answer` counts where it `is_answered`."""

    hold: _Hold
    is_answered: bool
    answer: Answer | None

    @property
    def size(self) -> int:
        return len(self.answer.body) if self.answer is not None else 0


@dataclass(frozen=True, slots=True)
class IdempotencyRules:
    """
    Attributes:
        keep_s: How long an answer is repeated.
        queue_bytes: Of answers that wait to be written; one for which there is no room cannot be repeated.
    """

    keep_s: float
    queue_bytes: int
    lease_s: float = LEASE_S
    renew_s: float = RENEW_S
    sweep_s: float = SWEEP_S


def _this_process() -> str:
    """For people who look at the table: host, process id and the second of its start."""
    return f"{socket.gethostname()}:{os.getpid()}:{int(time.time())}"


class SqlReplays:
    """
    `Replays` in the table `idempotency`. What a request does not wait for is written by a task of the house.

    Args:
        database: Owned by the caller; it closes later than this.
        report: See `Tasks`.
        clock_s: Monotonic seconds.
    """

    def __init__(
        self,
        database: Database,
        rules: IdempotencyRules,
        report: Callable[[str, BaseException], None],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._rules = rules
        self._tasks = Tasks(report)
        self._rows = Rows(
            database.dialect, _this_process(), lease_s=rules.lease_s, keep_s=rules.keep_s, clock_s=clock_s
        )  # fmt: skip
        self._holds: dict[tuple[str, bytes], _Hold] = {}
        self._endings: deque[_Ending] = deque()
        self._queued_bytes = 0
        self._writer: asyncio.Task[None] | None = None
        self._asked: list[tuple[Claim, asyncio.Future[Claimed | None]]] = []
        self._asker: asyncio.Task[None] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # -- the port --

    async def claim(self, claim: Claim) -> Claimed:
        """See `Replays`."""
        place = (claim.tenant, claim.name)
        try:
            async with asyncio.timeout(ANSWER_S):
                while (other := self._holds.get(place)) is not None:
                    if other.is_running:
                        return "running" if other.claim.digest == claim.digest else "mismatch"
                    await other.turned.wait()
                    if other.found is not None and other.claim.digest == claim.digest:
                        return other.found  # the database was asked while this one waited: once for all of them
                found = await self._take(place, _Hold(claim))
        except TimeoutError:
            found = None
        if found is None:
            raise StoreUnavailable("the database did not say whose the call is")
        return found

    def keep(self, claim: Claim, answer: Answer | None) -> None:
        """See `Replays`."""
        if answer is not None and self._queued_bytes + len(answer.body) > self._rules.queue_bytes:
            answer = None
        self._end(claim, is_answered=True, answer=answer)

    def release(self, claim: Claim) -> None:
        """See `Replays`."""
        self._end(claim, is_answered=False)

    async def written(self, claim: Claim) -> None:
        """See `Replays`."""
        hold = self._holds.get((claim.tenant, claim.name))
        if hold is not None and hold.claim is claim and not hold.is_running:
            with contextlib.suppress(TimeoutError):  # the writer goes on, and meanwhile nobody else gets the claim
                async with asyncio.timeout(ANSWER_S):
                    await hold.turned.wait()

    # -- life --

    def start(self) -> None:
        """Begin to sweep away what is out of date."""
        self._later("sweep", 0.0, self._sweep)

    async def close(self, timeout_s: float) -> None:
        """Write what is left to be written, for *timeout_s* at most. What is not is taken for a dead process's."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await self._tasks.drain(timeout_s)

    # -- claims --

    async def _take(self, place: tuple[str, bytes], hold: _Hold) -> Claimed | None:
        """Ask the database. The asking goes on if the request ends meanwhile, and what it gets is given back."""
        if len(self._endings) >= MAX_ENDINGS:
            return None
        self._holds[place] = hold
        asking = self._tasks.spawn(self._ask(hold.claim), name="idempotency claim")
        try:
            found = await asyncio.shield(asking)
        except BaseException:
            asking.add_done_callback(lambda _: self.release(hold.claim))
            raise
        if found == "claimed":
            hold.is_running = True
            self._later("renew", self._rules.renew_s, self._renew)
            hold.turn()
        elif found is None:
            self.release(hold.claim)  # it may be there: a commit whose confirmation was lost
        else:
            hold.found = found
            self._forget(hold)
            if self._rows.is_looking:
                self._later("look", self._rules.renew_s, self._look)
        return found

    async def _ask(self, claim: Claim) -> Claimed | None:
        """
        What becomes of *claim*; None where the database does not say so.

        SQLite lets writers in one after the other, each of which waits for the disk. Claims that come while one is
        written go together in the next transaction: else, in a burst, each would wait for all before it.
        """
        if self._database.dialect != "sqlite":
            return (await self._claimed([claim]))[0]
        future: asyncio.Future[Claimed | None] = asyncio.get_running_loop().create_future()
        self._asked.append((claim, future))
        if self._asker is None:
            self._asker = self._tasks.spawn(self._ask_all(), name="idempotency claims")
        return await future

    async def _ask_all(self) -> None:
        """Ask for the claims that wait, `BATCH` of them at a time. Where that fails, those who wait are told."""
        asked: list[tuple[Claim, asyncio.Future[Claimed | None]]] = []
        try:
            while self._asked:
                asked, self._asked = self._asked[:BATCH], self._asked[BATCH:]
                found = await self._claimed([claim for claim, _ in asked])
                for (_, future), said in zip(asked, found, strict=True):
                    if not future.done():
                        future.set_result(said)
        except BaseException as exc:  # theirs, whatever it is
            waiting, self._asked = [*asked, *self._asked], []
            for _, future in waiting:
                if not future.done():
                    future.set_exception(exc)
            raise
        finally:
            self._asker = None

    async def _claimed(self, claims: Sequence[Claim]) -> list[Claimed | None]:
        async def step(connection: AsyncConnection) -> list[Claimed | None]:
            return [await self._rows.claim(claim, connection) for claim in claims]

        try:
            return await self._database.write(step)
        except StoreUnavailable:
            return [None] * len(claims)

    def _forget(self, hold: _Hold) -> None:
        place = (hold.claim.tenant, hold.claim.name)
        if self._holds.get(place) is hold:
            del self._holds[place]
        hold.turn()

    # -- what is written behind the requests --

    def _end(self, claim: Claim, *, is_answered: bool, answer: Answer | None = None) -> None:
        hold = self._holds.get((claim.tenant, claim.name))
        if hold is None or hold.claim is not claim:
            return
        hold.is_running = False
        ending = _Ending(hold, is_answered, answer)
        self._endings.append(ending)
        self._queued_bytes += ending.size
        if self._writer is None:
            self._writer = self._tasks.spawn(self._write(), name="idempotency writer")

    async def _write(self) -> None:
        shortest_s, longest_s = RETRY_S
        wait_s = shortest_s
        try:
            while self._endings:
                batch = list(islice(self._endings, BATCH))
                try:
                    await self._write_batch(batch)
                except StoreUnavailable:
                    await asyncio.sleep(wait_s)
                    wait_s = min(longest_s, 2 * wait_s)
                except BaseException:  # what the database will never take must not keep the rest waiting
                    self._done(batch)
                    raise
                else:
                    wait_s = shortest_s
                    self._done(batch)
        finally:
            self._writer = None

    def _done(self, batch: list[_Ending]) -> None:
        for ending in batch:
            self._endings.popleft()
            self._queued_bytes -= ending.size
            self._forget(ending.hold)

    async def _write_batch(self, batch: list[_Ending]) -> None:
        kept = [(ending.hold.claim, ending.answer) for ending in batch if ending.is_answered]
        released = [ending.hold.claim for ending in batch if not ending.is_answered]
        await self._database.write(partial(self._rows.end, kept, released))

    # -- the clock --

    def _later(self, what: str, wait_s: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if what not in self._timers:
            self._timers[what] = asyncio.get_running_loop().call_later(wait_s, self._begin, what, work)

    def _begin(self, what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        del self._timers[what]
        self._tasks.spawn(work(), name=f"idempotency {what}")

    async def _renew(self) -> None:
        """Say that the holds of this process are still held. One that fails is made up for before a lease ends."""
        held = [hold.claim for hold in self._holds.values()]
        if not held:
            return
        self._later("renew", self._rules.renew_s, self._renew)
        with contextlib.suppress(StoreUnavailable):
            await self._database.write(partial(self._rows.renew, held))

    async def _look(self) -> None:
        """See whether those live who hold the claims that were asked for here."""
        if self._rows.is_looking:
            self._later("look", self._rules.renew_s, self._look)
            with contextlib.suppress(StoreUnavailable):
                await self._database.read(self._rows.look)

    async def _sweep(self) -> None:
        """Delete what is out of date, a part at a time."""
        self._later("sweep", self._rules.sweep_s, self._sweep)
        with contextlib.suppress(StoreUnavailable):
            while await self._database.write(self._rows.sweep) == SWEPT_ROWS:
                pass
