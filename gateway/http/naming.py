"""`Idempotency-Key`: the caller's own name for a call that is to be done once, and what that call is known by."""

from __future__ import annotations

import asyncio
import hashlib
import re

import msgspec
from aiohttp import web
from multidict import istr

from gateway.core.accounts import Key
from gateway.core.call import CallOptions
from gateway.core.errors import INVALID_REQUEST, GatewayError
from gateway.core.guarding import NO_RULES
from gateway.core.ports import Claim
from gateway.http.answer_headers import Headers

IDEMPOTENCY_KEY = istr("Idempotency-Key")  # folded once, as the names in `http.handler`
_NAME = re.compile(r"[\x20-\x7e]{1,255}")
WINDOW_BYTES = 1 << 20  # hashing one takes 0.6 to 3 ms (measured, with and without SHA instructions)


def _name(request: web.BaseRequest) -> bytes:
    """SHA-256 of the name in *request*: callers may have put anything into it, so it is not kept as it is."""
    names = request.headers.getall(IDEMPOTENCY_KEY)
    if len(names) != 1 or _NAME.fullmatch(names[0]) is None:
        message = "Send one Idempotency-Key of 1 to 255 printable ASCII characters."
        raise GatewayError(INVALID_REQUEST, message, param=str(IDEMPOTENCY_KEY))
    return hashlib.sha256(names[0].encode("ascii")).digest()


async def claim_of(
    request: web.BaseRequest, key: Key, request_id: str, body: bytes, shape: tuple[str, CallOptions, Headers]
) -> Claim:
    """
    What *request*, which has the header, wants to have done once. Other connections have their turn all the while.

    Args:
        body: As it was sent: SDKs send the same bytes again, and what is only alike may not mean the same.
        shape: Endpoint, options and forwarded headers: what else the answer depends on.

    Raises:
        GatewayError: 400 for two names, or one that is none.
    """
    name = _name(request)
    endpoint, options, forwarded = shape
    # `ascii` also spells the lone surrogates that stand for bytes which are no UTF-8.
    digest = hashlib.sha256(ascii((endpoint, options.strip_extension, options.strict_params, forwarded)).encode())
    if key.rules != NO_RULES:  # what one policy let through, or had masked, is not for a caller under another one
        digest.update(msgspec.json.encode(key.rules, order="deterministic"))
    view = memoryview(body)
    for start in range(0, len(body), WINDOW_BYTES):
        if start:
            await asyncio.sleep(0)
        digest.update(view[start : start + WINDOW_BYTES])
    return Claim(key.tenant, name, digest.digest(), request_id)
