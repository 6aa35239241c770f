"""The port `UpstreamAnswer` on aiohttp's connection and body."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import ClientConnectionError
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader
from multidict import CIMultiDict

from gateway.core.errors import UpstreamFailed
from gateway.upstream.connection import wire_of
from gateway.upstream.decoding import Inflater
from gateway.upstream.faults import LIBRARY_ERRORS, failure_of
from gateway.upstream.shelf import Shelf

# At once, however much has come: what is read is written on, and a client that does not read pins what was written.
# No more than `UpstreamLimits.read_buffer_bytes`: the library would take it for a wish to have more buffered.
READ_BYTES = 16_384


class Lingering:
    """The answers that may still end their bodies within *grace_s* seconds after nobody reads them any more."""

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self.answers: set[AiohttpAnswer] = set()

    def close(self) -> None:
        """Wait for none of them."""
        for answer in tuple(self.answers):
            answer.close()


class AiohttpAnswer:
    """An answer whose head is here. Its connection goes to its shelf when the body ends."""

    def __init__(
        self,
        head: RawResponseMessage,
        content: StreamReader,
        connection: Connection,
        shelf: Shelf,
        lingering: Lingering,
    ) -> None:
        self.status: int = head.code
        self.headers: Mapping[str, str] = head.headers
        self._content = content
        self._connection: Connection | None = connection
        self._shelf = shelf
        self._lingering = lingering
        self._timer: asyncio.TimerHandle | None = None
        content.on_eof(self._ended)

    async def read(self) -> bytes:
        """
        The next bytes as they come, b"" at the end.

        Raises:
            UpstreamFailed: The body broke off or made no sense; what had come before was handed out first.
        """
        try:
            return await self._content.read(READ_BYTES)
        except LIBRARY_ERRORS as exc:
            # aiohttp forgets what it has buffered when a body breaks; those tokens were received and are billed
            rest = b"" if self._connection is None else self._content._read_nowait(-1)
            if rest:
                return rest
            raise UpstreamFailed(failure_of(exc)) from exc

    @property
    def ended(self) -> bool:
        """Whether all of the body has been read."""
        return self._content.at_eof() and self._content.exception() is None

    def close(self) -> None:
        """Drop the connection at once, unless the body has ended and it rests on its shelf."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._content.set_exception(ClientConnectionError("closed by us"))
            connection.close()
            self._stop_lingering()

    def release(self) -> None:
        """
        Keep the connection if the body has ended or ends shortly, else drop it. Does not wait.

        Nothing is to be done when the end is here already: the connection is back.
        """
        if self._connection is None or self._timer is not None:
            return
        self._timer = asyncio.get_running_loop().call_later(self._lingering.grace_s, self.close)
        self._lingering.answers.add(self)

    def _ended(self) -> None:
        connection, self._connection = self._connection, None
        self._stop_lingering()
        if connection is None or connection.protocol is None:
            return  # dropped
        if wire_of(connection).is_sending:
            connection.close()  # the rest of the request would be taken for the next one
        else:
            self._shelf.put(connection)

    def _stop_lingering(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._lingering.answers.discard(self)


class DecodedAnswer:
    """An answer that came compressed; what it says of its length and encoding does not hold for the bytes we give."""

    ended = False  # only `read` can tell whether the compressed body is whole

    def __init__(self, answer: AiohttpAnswer, inflater: Inflater) -> None:
        headers = CIMultiDict(answer.headers)
        headers.popall("Content-Encoding")
        headers.popall("Content-Length", None)
        self.status = answer.status
        self.headers: Mapping[str, str] = headers
        self.close = answer.close
        self.release = answer.release
        self._answer = answer
        self._inflater = inflater

    async def read(self) -> bytes:
        inflater = self._inflater
        while True:
            if out := inflater.take():
                return out
            data = await self._answer.read()
            if not data:
                inflater.finish()
                return b""
            inflater.feed(data)
