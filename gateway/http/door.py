"""Who is calling: the key of a request, and where the request came from."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web
from multidict import istr

from gateway.core.accounts import Key
from gateway.core.errors import TOO_MANY_FAILURES, GatewayError
from gateway.core.ports import Keys
from gateway.policy.strangers import Strangers
from gateway.wire.hops import Network, Sender, sender

_FORWARDED_FOR = istr("x-forwarded-for")


class Door:
    """
    Lets keys in, and counts what is none by the address that it came from. A good key is never refused for what others
    at its address do, unless this process has not seen it and they do that ten times a second.

    Addresses stand in the lines of refused requests and in the audit log, and nowhere else.

    Args:
        trusted: The proxies whose `X-Forwarded-For` counts.
    """

    def __init__(self, keys: Keys, strangers: Strangers, trusted: Sequence[Network]) -> None:
        self._keys = keys
        self._strangers = strangers
        self._trusted = trusted

    def sender_of(self, request: web.BaseRequest) -> Sender | None:
        """Where *request* came from; None where its connection has no address."""
        transport = request.transport
        peer = transport.get_extra_info("peername") if transport is not None else None
        host = peer[0] if isinstance(peer, tuple) else None
        return sender(host, request.headers.getall(_FORWARDED_FOR, ()), self._trusted)

    def address_of(self, request: web.BaseRequest) -> str | None:
        """As `sender_of`, for lines and rows."""
        found = self.sender_of(request)
        return None if found is None else str(found.address)

    async def key_of(self, request: web.BaseRequest, secret: str | None) -> Key | None:
        """
        The key that *secret* belongs to.

        Raises:
            GatewayError: 429, to an address of which too many were none.
            StoreUnavailable: That cannot be told now.
        """
        if secret is None:
            return None  # nobody guesses without a guess
        if self._strangers and not self._keys.knows(secret):
            self._hear(request)
        key = await self._keys.find(secret)
        if key is None:
            self._count(request)
        return key

    def _hear(self, request: web.BaseRequest) -> None:
        found = self.sender_of(request)
        if found is not None and not found.may_be_many:
            _refuse(self._strangers.unheard_s(found.home))

    def _count(self, request: web.BaseRequest) -> None:
        found = self.sender_of(request)
        if found is not None and not found.may_be_many:
            _refuse(self._strangers.failed(found.home))


def _refuse(wait_s: float | None) -> None:
    if wait_s is not None:
        raise GatewayError(TOO_MANY_FAILURES, retry_after_s=wait_s)
