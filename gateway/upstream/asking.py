"""The port `Asking`: a request that is under way to a provider."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn

from aiohttp import ClientConnectionError
from aiohttp.connector import Connection

from gateway.core.errors import Failure, UpstreamFailed
from gateway.core.ports import UpstreamAnswer
from gateway.upstream.answer import AiohttpAnswer, DecodedAnswer, Lingering
from gateway.upstream.connection import wire_of
from gateway.upstream.decoding import IDENTITY, SUPPORTED, Inflater
from gateway.upstream.faults import LIBRARY_ERRORS, LibraryError, encoding_failure, failure_of, stale_failure
from gateway.upstream.shelf import Shelf

STALE_WITHIN_S = 1.0  # a round trip to any provider is shorter; one that dies later has begun to work, and may be ill


class Asking:
    """
    A request that has been sent, or will be as soon as there is a connection.

    Args:
        on_sent: Called as the last of the request leaves.
        shelf: Where the connection goes when the answer has ended.
    """

    def __init__(
        self,
        head: bytes,
        body: bytes,
        on_sent: Callable[[], None],
        shelf: Shelf,
        lingering: Lingering,
    ) -> None:
        self._head = head
        self._body = body
        self._on_sent = on_sent
        self._shelf = shelf
        self._lingering = lingering
        self._connecting: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._failure: Failure | None = None
        self._reused_s: float | None = None  # loop time, when the connection had rested
        self._is_closed = False

    def connects_by(self, connecting: asyncio.Task[None]) -> None:
        """*connecting* will call `send` or `fail`."""
        self._connecting = connecting

    def send(self, connection: Connection) -> None:
        """Use *connection*, which has an owner from here on."""
        if self._is_closed:
            connection.close()
            return
        self._connection, self._connecting = connection, None
        wire = wire_of(connection)
        self._reused_s = asyncio.get_running_loop().time() if wire.was_used else None
        wire.ask(self._head, self._body, self._on_sent)
        self._forget_request()

    def fail(self, error: LibraryError) -> None:
        """There is no connection to be had."""
        self._forget_request()
        self._failure = failure_of(error)  # not the exception: its traceback would hold this object

    def _forget_request(self) -> None:
        """It may be megabytes, and whoever may close this holds it for as long as the answer flows."""
        self._head = self._body = b""

    async def answer(self) -> UpstreamAnswer:
        """
        The answer, as soon as its head is here: any status but 1xx. Resumable: a wait that was cut may be begun anew.

        Raises:
            UpstreamFailed: No head came, or one that announces an encoding we do not know.
        """
        try:
            if self._connection is None and self._connecting is not None:
                await asyncio.wait((self._connecting,))
            if self._is_closed:
                raise ClientConnectionError("closed by us")
            if self._failure is not None:
                raise UpstreamFailed(self._failure)
            connection = self._connection or self._no_connection()
            head, content = await wire_of(connection).answer()
        except LIBRARY_ERRORS as exc:
            stale = self._is_stale(exc)
            self.close()
            if stale:
                raise UpstreamFailed(stale_failure(exc)) from exc
            raise UpstreamFailed(failure_of(exc)) from exc
        answer = AiohttpAnswer(head, content, connection, self._shelf, self._lingering)
        encoding = answer.headers.get("Content-Encoding")
        if encoding is None and head.code >= 200:
            return answer
        return _odd(answer, (encoding or "").strip().lower())

    def _is_stale(self, exc: LibraryError) -> bool:
        """Whether *exc* is the end of a connection that had died at rest: nothing comes, and that at once."""
        connection = self._connection
        if self._reused_s is None or connection is None or not isinstance(exc, ClientConnectionError):
            return False
        if self._is_closed or wire_of(connection).has_heard:
            return False
        return asyncio.get_running_loop().time() - self._reused_s < STALE_WITHIN_S

    def _no_connection(self) -> NoReturn:
        """Connecting has ended with neither a connection nor an error of the network: the shutdown, or a crash."""
        assert self._connecting is not None
        if self._connecting.cancelled():  # by the shutdown, not by who asked
            raise ClientConnectionError("closed by us")
        raise ClientConnectionError("connecting crashed") from self._connecting.exception()  # logged where it did

    def close(self) -> None:
        """Drop the connection at once, whatever is under way, an answer included that was handed out."""
        self._is_closed = True
        self._forget_request()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()


def _odd(answer: AiohttpAnswer, encoding: str) -> UpstreamAnswer:
    if answer.status < 200:
        failure = Failure("upstream_error", "protocol", detail=f"status {answer.status}")
    elif encoding in IDENTITY:
        return answer
    elif encoding in SUPPORTED:
        return DecodedAnswer(answer, Inflater(encoding))
    else:
        failure = encoding_failure("encoding", f"Content-Encoding: {encoding[:100]}")
    answer.close()
    raise UpstreamFailed(failure)
