"""Name look-ups with a deadline, a short memory for failures, and at most one thread per name."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Callable, Sequence

from aiohttp.abc import AbstractResolver, ResolveResult

Lookup = Callable[[str], Sequence[str]]
"""Blocking: the addresses of a host name, best first. Raises OSError (as `socket.gaierror`) when there is none."""

NEGATIVE_S = 5.0  # a failed name is not asked for again so soon (reliability A2: at most 5 s)
MAX_THREADS = 32  # look-ups that hang at once, one per name; beyond it a name fails at once
MAX_NEGATIVE = 1000  # remembered failures, the size of aiohttp's own cache of successes


def system_lookup(host: str) -> list[str]:
    """The addresses of *host* by the system's resolver."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [str(address[0]) for _, _, _, _, address in found]


class Resolver(AbstractResolver):
    """Looks names up in threads of its own.

    The system's look-up cannot be interrupted and may block for half a minute. In the loop's shared pool a handful of
    dead names would hold every thread, so each name has a daemon thread that all waiters share, also those that come
    after the deadline of the first.

    Args:
        deadline_s: What one waiter waits at most.
    """

    def __init__(self, lookup: Lookup = system_lookup, *, deadline_s: float) -> None:
        self._lookup = lookup
        self._deadline_s = deadline_s
        self._loop = asyncio.get_running_loop()
        self._pending: dict[str, asyncio.Future[Sequence[str]]] = {}
        self._failed: dict[str, tuple[float, OSError]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """
        The addresses of *host*.

        Raises:
            OSError: There are none, or the answer took too long.
        """
        failed = self._failed.get(host)
        if failed is not None:
            until_s, failure = failed
            if self._loop.time() < until_s:
                raise type(failure)(*failure.args)  # a new one: each raise of the same would lengthen its traceback
            del self._failed[host]
        addresses = await self._addresses(host)
        wanted = [address for address in addresses if family in (socket.AF_UNSPEC, _family(address))]
        return [_result(host, address, port) for address in wanted]

    async def close(self) -> None:
        """Leave the threads to themselves: they are daemons and report to nobody."""
        self._pending.clear()

    async def _addresses(self, host: str) -> Sequence[str]:
        pending = self._pending.get(host)
        if pending is None:
            pending = self._start(host)
        done, _ = await asyncio.wait((pending,), timeout=self._deadline_s)
        if not done:
            failure = OSError(errno.ETIMEDOUT, f"no answer within {self._deadline_s:g} s")
            self._remember(host, failure)
            raise failure
        return pending.result()

    def _start(self, host: str) -> asyncio.Future[Sequence[str]]:
        if len(self._pending) >= MAX_THREADS:
            raise OSError(errno.EAGAIN, "too many look-ups hang")
        pending = self._pending[host] = self._loop.create_future()
        threading.Thread(target=self._work, args=(host, pending), name=f"dns {host}", daemon=True).start()
        return pending

    def _work(self, host: str, pending: asyncio.Future[Sequence[str]]) -> None:
        result: Sequence[str] | OSError
        try:
            result = self._lookup(host) or socket.gaierror(socket.EAI_NONAME, "no addresses")
        except OSError as exc:
            result = exc
        except UnicodeError as exc:  # a label that is too long for the IDNA codec
            result = socket.gaierror(socket.EAI_NONAME, str(exc))
        try:
            self._loop.call_soon_threadsafe(self._finish, host, pending, result)
        except RuntimeError:  # the loop is closed and nobody waits any more
            pass

    def _finish(self, host: str, pending: asyncio.Future[Sequence[str]], result: Sequence[str] | OSError) -> None:
        if self._pending.get(host) is pending:
            del self._pending[host]
        if isinstance(result, OSError):
            self._remember(host, result)
            pending.set_exception(result)
            pending.exception()  # seen: all waiters may have left at their deadlines
        else:
            self._failed.pop(host, None)  # it came after somebody's deadline
            pending.set_result(result)

    def _remember(self, host: str, failure: OSError) -> None:
        if len(self._failed) >= MAX_NEGATIVE:
            self._failed.pop(next(iter(self._failed)))
        self._failed[host] = (self._loop.time() + NEGATIVE_S, failure)


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _result(host: str, address: str, port: int) -> ResolveResult:
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=host, host=address, port=port, family=_family(address), proto=0, flags=flags)
