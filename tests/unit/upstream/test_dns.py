"""Name look-ups: deadline, sharing, memory."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Sequence

import pytest

from gateway.upstream.dns import MAX_NEGATIVE, MAX_THREADS, Resolver


class Names:
    """A look-up that hangs until it is let go, then gives *result* or raises it."""

    def __init__(self, result: Sequence[str] | Exception = ("192.0.2.1", "2001:db8::1")) -> None:
        self.go = threading.Event()
        self.asked: list[str] = []
        self.result = result

    def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        self.go.wait(5)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


async def resolved(resolver: Resolver, host: str = "a.test") -> list[str] | int | None:
    """The addresses, or the number of the error."""
    try:
        return [found["host"] for found in await resolver.resolve(host, 443)]
    except OSError as exc:
        return exc.errno


async def test_one_thread_per_name() -> None:
    """All who ask for a name at once share one look-up."""
    names = Names()
    resolver = Resolver(names, deadline_s=5)
    tasks = [asyncio.create_task(resolved(resolver)) for _ in range(5)]
    await asyncio.sleep(0)

    names.go.set()

    assert await asyncio.gather(*tasks) == [["192.0.2.1", "2001:db8::1"]] * 5
    assert names.asked == ["a.test"]


async def test_result_as_the_connector_wants_it() -> None:
    """Each address comes with its own family and the port that was asked for."""
    names = Names()
    names.go.set()
    resolver = Resolver(names, deadline_s=5)

    both = await resolver.resolve("a.test", 8443)
    only6 = await resolver.resolve("a.test", 8443, socket.AF_INET6)

    assert [(found["family"], found["port"]) for found in both] == [(socket.AF_INET, 8443), (socket.AF_INET6, 8443)]
    assert [found["host"] for found in only6] == ["2001:db8::1"]


async def test_late_answer_is_welcome() -> None:
    """A name that took too long is a failure for 5 s at most, or until its answer comes after all."""
    names = Names()
    resolver = Resolver(names, deadline_s=0.05)

    assert [await resolved(resolver), await resolved(resolver)] == [errno.ETIMEDOUT] * 2
    names.go.set()
    await resolver._pending["a.test"]

    assert await resolved(resolver) == ["192.0.2.1", "2001:db8::1"]


async def test_failure_is_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A2: a failed name is asked for again after 5 s, not before."""
    names = Names(socket.gaierror(socket.EAI_NONAME, "no such name"))
    names.go.set()
    resolver = Resolver(names, deadline_s=5)
    loop = asyncio.get_running_loop()
    first_s = loop.time()

    assert [await resolved(resolver), await resolved(resolver)] == [socket.EAI_NONAME] * 2
    assert len(names.asked) == 1
    monkeypatch.setattr(loop, "time", lambda: first_s + 5.5)
    assert await resolved(resolver) == socket.EAI_NONAME

    assert len(names.asked) == 2


async def test_memory_is_bounded() -> None:
    """Callers who make names up do not fill the memory."""
    names = Names(socket.gaierror(socket.EAI_NONAME, "no such name"))
    names.go.set()
    resolver = Resolver(names, deadline_s=5)

    for number in range(MAX_NEGATIVE + 10):
        await resolved(resolver, f"{number}.test")

    assert len(resolver._failed) == MAX_NEGATIVE


async def test_threads_are_bounded() -> None:
    """When as many names hang as threads are allowed, a further one fails at once and is not held against it."""
    names = Names()
    resolver = Resolver(names, deadline_s=5)
    tasks = [asyncio.create_task(resolved(resolver, f"{number}.test")) for number in range(MAX_THREADS)]
    await asyncio.sleep(0)

    assert await resolved(resolver, "one.too.many") == errno.EAGAIN
    names.go.set()
    await asyncio.gather(*tasks)

    assert await resolved(resolver, "one.too.many") == ["192.0.2.1", "2001:db8::1"]


@pytest.mark.parametrize("result", [(), UnicodeError("label too long")])
async def test_nothing_found(result: Sequence[str] | Exception) -> None:
    """An empty answer, or a name that cannot even be asked for, is a name without an address."""
    names = Names(result)
    names.go.set()

    assert await resolved(Resolver(names, deadline_s=5)) == socket.EAI_NONAME


async def test_cancelled_waiter() -> None:
    """Who leaves early does not take the look-up away from the others."""
    names = Names()
    resolver = Resolver(names, deadline_s=5)
    leaving, staying = (asyncio.create_task(resolved(resolver)) for _ in range(2))
    await asyncio.sleep(0)

    leaving.cancel()
    await asyncio.sleep(0)
    names.go.set()

    assert await staying == ["192.0.2.1", "2001:db8::1"]
    assert leaving.cancelled()
