"""
The way of a process's records into its journal in Redis: one connection, on which nothing waits for anything else.

A record is with the kernel in the same turn of the loop in which it is noted, so that it arrives though the process be
killed in the next one: what a provider is asked and what says so leave together. What was sent and not answered when a
connection was lost is sent again on the next one; records may be there twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from gateway.storage.journal import stream_store
from gateway.storage.journal.stream_store import FIELD, REGISTRY, Id, aside, journal_key
from gateway.storage.redis_link import Link, RedisFailed, Word, open_link

# Without a reply for so long another connection is tried; the first one is given up once that answers. A Redis that
# stands still answers on the first one, as soon as it goes on.
SILENT_S = 5.0
CONNECT_S = 5.0
RETRY_S = 0.25  # between two attempts to connect
KEPT_BYTES = 16 * 1024 * 1024  # of ends that cost nothing, while Redis takes none; others are kept in any case
_WRONG_TYPE = "WRONGTYPE"


@dataclass(frozen=True, slots=True, eq=False)
class Letter:
    """
    A record on its way.

    Attributes:
        landed: Told its place in the stream, once it is there.
        failed: Told that it is not, and nobody else will try; None for one that is tried until it is there.
        is_spare: Whether it may be dropped where there is no room: the end of what cost nothing.
    """

    payload: bytes
    landed: Callable[[Id], None]
    failed: Callable[[RedisFailed], None] | None = None
    is_spare: bool = False


@dataclass(frozen=True, slots=True)
class PipeReports:
    """
    Who is told what.

    Attributes:
        failed: Redis refuses a record, and why, or cannot be connected to.
        heard: It has taken one.
        dropped: A spare letter was.
        anew: The registry does not know the journal any more: another process has taken it over, or Redis has lost it.
        displaced: Under a name of ours was something else, and the name that this has now.
    """

    failed: Callable[[RedisFailed], None]
    heard: Callable[[], None]
    dropped: Callable[[], None]
    anew: Callable[[], None]
    displaced: Callable[[str, str], None]


class Pipe:
    """
    To be made inside the running loop.

    Args:
        name: The journal's; *writer* is what the ledger calls its process.

    Attributes:
        is_ready: Whether what is sent now will be answered soon, as far as anybody knows.
        is_away: Whether Redis is known not to answer.
    """

    def __init__(self, url: str, name: str, writer: str, reports: PipeReports) -> None:
        self.is_ready = self.is_away = False
        self._url, self._name, self._writer = url, name, writer
        self._key = journal_key(name)
        self._reports = reports
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._asked = 0  # commands without a reply
        self._quiet_since_s = 0.0  # while there are any
        self._kept: deque[Letter] = deque()
        self._kept_bytes = 0  # of those that are spare
        self._wanted: set[Letter] = set()  # somebody waits for them
        self._waiting: dict[Letter, None] = {}  # of these, what is sent when there is somebody to take it
        self._wake, self._is_empty = asyncio.Event(), asyncio.Event()
        self._is_empty.set()
        self._is_registered = self._is_clearing = False

    # -- sending --

    def offer(self, letter: Letter) -> None:
        """Send *letter* now, or once Redis answers again. Whoever waits for it withdraws it."""
        self._wanted.add(letter)
        if self.is_ready:
            self._send(letter)
        else:
            self._waiting[letter] = None

    def withdraw(self, letter: Letter) -> None:
        """Nobody waits for it any more; it may have been sent."""
        self._wanted.discard(letter)
        self._waiting.pop(letter, None)

    def put(self, letter: Letter) -> None:
        """Send *letter*, however long that takes."""
        if self._link is None or (letter.is_spare and not self.is_ready):
            self._keep(letter)
        else:
            self._send(letter)

    def flush(self) -> None:
        """Have the kernel take what was sent in this turn of the loop."""
        if self._link is not None:
            self._link.flush()

    def silent(self) -> None:
        """Somebody has waited for a reply for too long: nothing more is asked until there is one."""
        self.is_ready, self.is_away = False, True

    def renew(
        self, places: Mapping[str, bytes], gone: Collection[str], failed: Callable[[RedisFailed], None]
    ) -> None:  # fmt: skip
        """
        Say that the process lives, and how far its calls have come; send again what was refused.

        Args:
            gone: Calls whose progress is not needed any more.
            failed: Told when the progress was not taken.
        """
        if self._link is None:
            failed(RedisFailed("lost"))
            return
        self._register()
        if places:
            words = [word for pair in places.items() for word in pair]
            self._ask(("HSET", journal_key(self._name, "places"), *words), _nothing, failed)
        if gone:
            self._ask(("HDEL", journal_key(self._name, "places"), *gone), _nothing, failed)
        self._send_kept()

    def _register(self) -> None:
        """In front of all records: nobody looks for a journal that is not in the registry."""
        lease = journal_key(self._name, "lease")
        self._ask(("SET", lease, self._writer, "PX", stream_store.LEASE_MS), _nothing, _nothing)
        self._ask(("HSET", REGISTRY, self._name, self._writer), self._registered, _nothing)

    def _registered(self, reply: Any) -> None:
        was_registered, self._is_registered = self._is_registered, True
        if was_registered and int(reply):
            self._reports.anew()

    def _send(self, letter: Letter) -> None:
        words = ("XADD", self._key, "*", FIELD, letter.payload)
        self._ask(words, partial(self._landed, letter), partial(self._not_landed, letter))

    def _landed(self, letter: Letter, reply: Any) -> None:
        self._reports.heard()
        letter.landed(str(reply).encode())

    def _not_landed(self, letter: Letter, exc: RedisFailed) -> None:
        if letter.failed is None:
            self._keep(letter)
        elif exc.is_reply:
            letter.failed(exc)
        elif letter in self._wanted:
            self.offer(letter)  # a new connection may be there in time

    def _keep(self, letter: Letter) -> None:
        if letter.is_spare:
            if self._kept_bytes + len(letter.payload) > KEPT_BYTES:
                self._reports.dropped()
                return
            self._kept_bytes += len(letter.payload)
        self._kept.append(letter)
        self._is_empty.clear()

    def _send_kept(self) -> None:
        if self._link is None:
            return
        kept, self._kept, self._kept_bytes = self._kept, deque(), 0
        for letter in kept:
            self.put(letter)

    # -- replies --

    def _ask(
        self, words: tuple[Word, ...], then: Callable[[Any], None], failed: Callable[[RedisFailed], None]
    ) -> None:  # fmt: skip
        link = self._link
        assert link is not None
        if not self._asked:
            self._quiet_since_s = self._loop.time()
            self._is_empty.clear()
        self._asked += 1
        link.send(*words).add_done_callback(partial(self._replied, then, failed))

    def _replied(
        self, then: Callable[[Any], None], failed: Callable[[RedisFailed], None], future: asyncio.Future[Any]
    ) -> None:  # fmt: skip
        self._asked -= 1
        exc = future.exception()
        if isinstance(exc, RedisFailed):
            failed(exc)
            if exc.is_reply:
                self._hear()
                self._refused(exc)
        else:
            self._hear()
            then(future.result())
        if not self._asked and not self._kept:
            self._is_empty.set()

    def _hear(self) -> None:
        self._quiet_since_s = self._loop.time()
        if not self.is_ready and self._link is not None:
            self._be_ready()

    def _be_ready(self) -> None:
        self.is_ready, self.is_away = True, False
        waiting, self._waiting = self._waiting, {}
        for letter in waiting:
            self._send(letter)

    def _refused(self, exc: RedisFailed) -> None:
        self._reports.failed(exc)
        if exc.code == _WRONG_TYPE and not self._is_clearing and self._link is not None:
            self._is_clearing = True
            script, keys = aside(self._name)
            self._ask(("EVAL", script, len(keys), *keys), self._cleared, self._not_cleared)

    def _not_cleared(self, _exc: RedisFailed) -> None:
        self._is_clearing = False

    def _cleared(self, reply: Any) -> None:
        """What stood in our way has another name: what is open is written anew, as what was there is gone."""
        self._is_clearing = False
        for name, new_name in zip(reply[::2], reply[1::2], strict=True):
            self._reports.displaced(name, new_name)
        if self._link is not None:
            self._register()
            self._reports.anew()
            self._send_kept()

    # -- connections --

    async def run(self) -> None:
        """Connect, and stay connected, until this is cancelled."""
        while True:
            if self._link is None or (self._asked and self._loop.time() >= self._quiet_since_s + SILENT_S):
                await self._connect()
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S):
                    await self._wake.wait()
            self._wake.clear()

    async def emptied(self) -> None:
        """Return when Redis has everything that was put."""
        self._send_kept()
        await self._is_empty.wait()

    def close(self) -> None:
        """Drop the connection."""
        if self._link is not None:
            self._link.close()

    async def _connect(self) -> None:
        try:
            link = await open_link(self._url, self._lost, timeout_s=CONNECT_S)
            try:
                await link.ask("PING", timeout_s=CONNECT_S)  # the kernel connects us to one that stands still, too
            except BaseException:
                link.close()
                raise
        except RedisFailed as exc:
            self.is_away = True
            self._reports.failed(exc)
            return
        old, self._link = self._link, link
        if old is not None:
            old.close()
            await asyncio.sleep(0)  # by then, what was asked there without a reply is kept
        self._register()
        self._be_ready()
        self._send_kept()

    def _lost(self) -> None:
        if self._link is not None and self._link.is_lost:
            self._link, self.is_ready = None, False
            self._wake.set()


def _nothing(_: object) -> None:
    """Not of interest: it is said again within a second."""
