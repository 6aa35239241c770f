"""The port `UpstreamAnswer` on aiohttp's response."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import ClientResponse

from gateway.core.errors import UpstreamFailed
from gateway.upstream.decoding import Inflater
from gateway.upstream.faults import LIBRARY_ERRORS, failure_of

# At once, however much has come: what is read is written on, and a client that does not read pins what was written.
READ_BYTES = 65_536


class AiohttpAnswer:
    """An answer whose head is here."""

    def __init__(self, response: ClientResponse, linger_s: float, lingering: set[AiohttpAnswer]) -> None:
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._content = response.content
        self._linger_s = linger_s
        self._lingering = lingering
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

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
            rest = b"" if self._is_closed else self._content._read_nowait(-1)
            if rest:
                return rest
            raise UpstreamFailed(failure_of(exc)) from exc

    def close(self) -> None:
        """Drop the connection at once, unless the body has ended and it is back in the pool."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._lingering.discard(self)
        self._response.close()

    def release(self) -> None:
        """
        Keep the connection if the body has ended or ends shortly, else drop it. Does not wait.

        aiohttp puts the connection back by itself when the end comes, and `close` leaves it alone from then on: so one
        timer is all that is needed, and none when the end is here already.
        """
        if self._response.closed or self._timer is not None:
            return
        self._timer = asyncio.get_running_loop().call_later(self._linger_s, self.close)
        self._lingering.add(self)


class DecodedAnswer(AiohttpAnswer):
    """An answer that came compressed; what it says of its length and encoding does not hold for the bytes we give."""

    def __init__(
        self, response: ClientResponse, linger_s: float, lingering: set[AiohttpAnswer], inflater: Inflater
    ) -> None:
        super().__init__(response, linger_s, lingering)
        headers = response.headers.copy()
        headers.popall("Content-Encoding")
        headers.popall("Content-Length", None)
        self.headers = headers
        self._inflater = inflater

    async def read(self) -> bytes:
        inflater = self._inflater
        while True:
            if out := inflater.take():
                return out
            data = await super().read()
            if not data:
                inflater.finish()
                return b""
            inflater.feed(data)
