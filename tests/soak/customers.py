"""The customers: raw HTTP/1.1 on kept-alive and fresh connections, as many calls at once as they are told."""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

from tests.bench.client import Channel
from tests.support.gateway import CHAT

from .records import Seen, Told
from .visits import Visit

_WORDS = re.compile(rb'"(?:content|text)":"((?: [a-z]+)+)"')
_OWNER = re.compile(rb'"soak-(s[0-9-]+)"')
_COST = re.compile(rb'"cost_usd":"([0-9.]+)"')
_REQUEST_ID = re.compile(rb"\r\nx-request-id: (\S+)")
_CODE = re.compile(rb'"code":"([a-z_]+)"')
_NO_CALL_S = 60.0  # longest call of a soak: every limit of its settings is shorter
_AGAIN_S = 0.05


class _Kept(Channel):
    """A connection that keeps an eye on when the head of its answer came."""

    headed: Callable[[int, bytes], None] | None = None

    def _head(self, head: bytes) -> None:
        super()._head(head)
        if self.headed is not None:
            self.headed(self._status, head)


class Answer:
    """What comes back for one request, and when its customer leaves."""

    def __init__(self, visit: Visit, channel: _Kept) -> None:
        self._visit, self._channel = visit, channel
        self._body = bytearray()
        self._status, self._request_id = 0, ""
        self._head_s = 0.0
        self._sent_s, self._begun_s = time.time(), time.monotonic()
        self._over: asyncio.Future[Seen] = asyncio.get_running_loop().create_future()
        channel.headed = self._headed

    async def told(self, port: int) -> Told:
        """Send the request, take the answer or leave, and say what came."""
        self._channel.send(self._visit.request(port), self)
        leave = self._visit.leave
        timer: asyncio.Handle | None = None
        if leave is not None and leave.phase == "queued":
            timer = asyncio.get_running_loop().call_soon(self._leave)
        elif leave is not None and leave.phase == "waiting":
            timer = asyncio.get_running_loop().call_later(leave.ms / 1000, self._leave)
        try:
            async with asyncio.timeout(_NO_CALL_S):
                seen = await self._over
        except TimeoutError:
            self._channel.drop("rst")
            seen = "lost"
        if timer is not None:
            timer.cancel()
        self._channel.headed = None
        return self._read(seen)

    def _leave(self) -> None:
        if not self._over.done():
            assert self._visit.leave is not None
            self._channel.drop(self._visit.leave.how)
            self._over.set_result("left")

    def _headed(self, status: int, head: bytes) -> None:
        self._status, self._head_s = status, time.monotonic() - self._begun_s
        named = _REQUEST_ID.search(head)
        self._request_id = named[1].decode() if named else ""
        if self._visit.leave is not None and self._visit.leave.phase == "head":
            self._leave()

    def payload(self, data: bytes) -> None:
        self._body += data
        leave = self._visit.leave
        if leave is None or leave.phase not in ("token", "last", "terminator") or not self._visit.stream:
            return
        if leave.phase == "terminator":
            is_time = self._is_whole()
        else:
            wanted = leave.tokens if leave.phase == "token" else self._visit.script.tokens
            is_time = len(_words(self._body)) >= wanted
        if is_time:
            self._leave()

    def ended(self, status: int) -> None:
        self._status = status
        if not self._over.done():
            self._over.set_result("refused" if status != 200 else "whole" if self._is_whole() else "broken")

    def lost(self) -> None:
        if not self._over.done():
            self._over.set_result("lost")

    def _is_whole(self) -> bool:
        """An answer that says that it is complete, and of no error."""
        if not self._visit.stream:
            return True
        if self._visit.model.path == CHAT:
            return self._body.endswith(b"data: [DONE]\n\n") and b'data: {"error":' not in self._body
        return b"event: message_stop\n" in self._body

    def _read(self, seen: Seen) -> Told:
        body, words = bytes(self._body), _words(self._body)
        costs, code = _COST.findall(body), _CODE.search(body)
        if seen == "left" and self._is_whole() and self._status == 200 and costs:
            seen = "whole"  # on the terminator, as SDKs do
        return Told(
            marker=self._visit.marker,
            sent_s=self._sent_s,
            over_s=time.time(),
            seen=seen,
            status=self._status,
            request_id=self._request_id,
            code=code[1].decode() if code and seen in ("refused", "broken") else "",
            tokens=len(words),
            cost_nano_usd=int(Fraction(costs[-1].decode()) * 10**9) if costs else None,
            head_ms=round(self._head_s * 1000, 3),
            is_own=self._is_own(body, words, seen),
        )

    def _is_own(self, body: bytes, words: list[str], seen: Seen) -> bool:
        script = self._visit.script
        if any(owner.decode() != script.marker for owner in _OWNER.findall(body)):
            return False
        expected = script.words()
        return words == expected if seen == "whole" else words == expected[: len(words)]


def _words(body: bytes | bytearray) -> list[str]:
    """The answer's tokens so far."""
    return [f" {word}" for text in _WORDS.findall(body) for word in text.decode().split()]


class Customers:
    """
    Everybody who calls.

    Args:
        port: Where the gateway is now.
        limit: The number of the first call that has to wait; see `allow`.

    Attributes:
        told: What they were told so far.
        begun: How many calls have begun.
    """

    def __init__(self, port: Callable[[], int], *, at_once: int, per_s: float | None = None) -> None:
        self.told: list[Told] = []
        self.begun = 0
        self._port = port
        self._at_once = at_once
        self._per_s = per_s
        self._idle: dict[int, list[_Kept]] = defaultdict(list)
        self._limit: float = float("inf")
        self._changed = asyncio.Event()

    def allow(self, limit: float) -> None:
        """Let no more than *limit* calls begin until more are allowed."""
        self._limit = limit
        self._changed.set()

    async def reached(self, count: int) -> None:
        """Wait until *count* calls have begun."""
        while self.begun < count:
            self._changed.clear()
            await self._changed.wait()

    async def run(self, calls: Iterable[Visit]) -> None:
        """Make *calls*, in their order."""
        todo = iter(calls)
        self._start_s, self._first = time.monotonic(), self.begun
        await asyncio.gather(*(self._customer(todo) for _ in range(self._at_once)))
        self.hang_up()

    def hang_up(self) -> None:
        """Close the connections that nobody uses."""
        for channels in self._idle.values():
            for channel in channels:
                if channel.alive:
                    channel.drop("fin")
        self._idle.clear()

    async def _customer(self, todo: Iterator[Visit]) -> None:
        while True:
            while self.begun >= self._limit:
                self._changed.clear()
                await self._changed.wait()
            visit = next(todo, None)
            if visit is None:
                return
            self.begun += 1
            self._changed.set()
            await self._pace()
            await self._visit(visit)

    async def _pace(self) -> None:
        if self._per_s is not None:
            due_s = self._start_s + (self.begun - self._first) / self._per_s
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))

    async def _visit(self, visit: Visit) -> None:
        if visit.name is None:
            self.told.append(await self._call(visit))
            return

        async def again() -> Told:
            await asyncio.sleep(visit.twice_ms / 1000)
            return await self._call(visit)

        self.told += await asyncio.gather(self._call(visit), again())

    async def _call(self, visit: Visit) -> Told:
        """One request; while nobody listens it waits, as a router in front would."""
        while True:
            port = self._port()
            channel = None if visit.fresh else self._take(port)
            try:
                channel = channel or await _connect(port)
            except OSError:
                await asyncio.sleep(_AGAIN_S)
                continue
            told = await Answer(visit, channel).told(port)
            if channel.alive and told.seen not in ("left", "lost"):
                self._idle[port].append(channel)
            return told

    def _take(self, port: int) -> _Kept | None:
        """A connection that is free and, as far as is known, open."""
        for old in [old for old in self._idle if old != port]:
            for channel in self._idle.pop(old):
                channel.drop("fin")
        channels = self._idle[port]
        while channels:
            if (channel := channels.pop()).alive:
                return channel
        return None


async def _connect(port: int) -> _Kept:
    _, channel = await asyncio.get_running_loop().create_connection(_Kept, "127.0.0.1", port)
    return channel
