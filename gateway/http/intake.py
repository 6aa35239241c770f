"""What is checked of a request before anything is done for it, and the bounded reading of its body."""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache

from aiohttp import hdrs, web
from aiohttp.http import HttpVersion11
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestPayloadError
from multidict import istr

from gateway.core.errors import (
    EXPECTATION_FAILED,
    INVALID_HOST,
    INVALID_REQUEST,
    NOT_FOUND,
    REQUEST_TIMEOUT,
    REQUEST_TOO_LARGE,
    UNSUPPORTED_ENCODING,
    GatewayError,
)
from gateway.core.held import Held
from gateway.wire.headers import valid_host
from gateway.wire.payloads import (
    WINDOW_BYTES,
    is_plain,
    payloads,
    take_out,
    unpadded,
)

X_API_KEY = istr("x-api-key")

MIN_BODY_BYTES_PER_S = 1024  # slower than any modem; a body that drips is holding a slot
BODY_GRACE_S = 10.0  # before the rate counts: lost packets of a mobile link are sent again within seconds

_valid_host = lru_cache(maxsize=256)(valid_host)  # clients send the same few names; the check costs 3 µs (measured)

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def check_request(request: web.BaseRequest) -> str | None:
    """
    Refuse what two readers of the same head could understand differently; the connection ends with the answer.

    Returns:
        The `credential`.

    Raises:
        GatewayError: No valid single Host; a target that is not a plain path; two framings; two credentials.
    """
    try:
        _check_target(request.raw_path)
        _check_host(request)
        if hdrs.TRANSFER_ENCODING in request.headers:
            _check_framing(request)
        return credential(request)
    except GatewayError:
        request.protocol.close()  # after this answer: what follows on the connection may not mean what it seems to
        raise


def _check_host(request: web.BaseRequest) -> None:
    hosts = request.headers.getall(hdrs.HOST, ())
    if len(hosts) != 1 or not _valid_host(hosts[0]):
        raise GatewayError(INVALID_HOST)


def _check_target(target: str) -> None:
    if not target:
        raise GatewayError(INVALID_REQUEST)  # an HTTP version that is not ours
    if target[:1] != "/":
        raise GatewayError(INVALID_REQUEST, "The request target must be a path.")
    if target[1:2] == "/":
        raise GatewayError(NOT_FOUND)


def _check_framing(request: web.BaseRequest) -> None:
    """Chunked is the one transfer coding there is, from HTTP/1.1 on, and never beside a length (RFC 9112, 6.1)."""
    headers = request.headers
    codings = headers.getall(hdrs.TRANSFER_ENCODING)
    known = len(codings) == 1 and codings[0].lower() == "chunked"
    if not known or hdrs.CONTENT_LENGTH in headers or request.version < HttpVersion11:
        raise GatewayError(INVALID_REQUEST, "The framing of the request body is ambiguous.")


def credential(request: web.BaseRequest) -> str | None:
    """
    The key in `Authorization: Bearer` or `x-api-key`; None without one, or with one that no key of ours can be.

    Raises:
        GatewayError: Either header twice, or two credentials that differ.
    """
    headers = request.headers
    bearers = headers.getall(hdrs.AUTHORIZATION, ())
    keys = headers.getall(X_API_KEY, ())
    if len(bearers) > 1 or len(keys) > 1:
        raise GatewayError(INVALID_REQUEST, "Send one credential, once.")
    scheme, _, token = bearers[0].strip().partition(" ") if bearers else ("", "", "")
    token = token.strip()
    key = keys[0].strip() if keys else ""
    if scheme.lower() == "bearer":
        if token and key and token != key:
            raise GatewayError(INVALID_REQUEST, "Send one credential, once.")
        key = key or token
    elif token and key:
        raise GatewayError(INVALID_REQUEST, "Send one credential, once.")
    # Header bytes above 0x7f arrive as lone surrogates, which cannot be encoded for the digest.
    return key if key and key.isascii() else None


def route_path(request: web.BaseRequest) -> str:
    """The path as it was sent, without the query: no decoding, so that nobody reads another path out of it."""
    return request.raw_path.partition("?")[0]


async def accept_body(request: web.BaseRequest) -> None:
    """
    Tell a client that waits for permission to go on. Call it when the caller is known and the size is checked.

    Raises:
        GatewayError: It expects something else than `100-continue`.
        ConnectionResetError: It is gone.
    """
    expectations = request.headers.getall(hdrs.EXPECT, ())
    if any(expected.strip().lower() != "100-continue" for expected in expectations):
        raise GatewayError(EXPECTATION_FAILED)
    # HTTP/1.0 does not know the answer, and a body that is here needs none (RFC 9110, 10.1.1).
    if not expectations or request.version < HttpVersion11 or request.content.is_eof():
        return
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("client is gone")
    transport.write(_CONTINUE)


async def read_body(request: web.BaseRequest, *, small_bytes: int, large_bytes: int, body_s: float) -> bytes:
    """
    The whole body, undecoded, after everything that can be refused without reading it.

    Args:
        small_bytes: What any body may have.
        large_bytes: What a body may have that holds an image.
        body_s: Deadline for all of it. It comes sooner when fewer than `MIN_BODY_BYTES_PER_S` arrive.

    Raises:
        GatewayError: Encoded, too large, too slow, broken, or with an unknown `Expect`.
        ConnectionResetError: The client is gone.
    """
    _check_head_of_body(request, large_bytes)
    if hdrs.EXPECT in request.headers:
        await accept_body(request)
    content = request.content
    if content.is_eof() and content.total_bytes <= small_bytes:
        return content.read_nowait()  # it came with its head: the usual case costs no timer
    chunks = await _read_chunks(content, large_bytes, body_s)
    body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    if len(body) > small_bytes and not await holds_image(body):
        raise GatewayError(REQUEST_TOO_LARGE)
    return body


def _check_head_of_body(request: web.BaseRequest, max_bytes: int) -> None:
    headers = request.headers
    if hdrs.CONTENT_ENCODING in headers:
        codings = headers.getall(hdrs.CONTENT_ENCODING)
        if any(coding.strip().lower() not in ("", "identity") for coding in codings):
            raise GatewayError(UNSUPPORTED_ENCODING)
    length = headers.get(hdrs.CONTENT_LENGTH)  # digits: the parser refuses anything else
    if length is not None and int(length) > max_bytes:
        raise GatewayError(REQUEST_TOO_LARGE)


async def _read_chunks(content: StreamReader, max_bytes: int, body_s: float) -> list[bytes]:
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(min(body_s, BODY_GRACE_S)) as deadline:
            while chunk := await content.readany():
                chunks.append(chunk)
                size += len(chunk)
                if size > max_bytes:
                    raise GatewayError(REQUEST_TOO_LARGE)
                deadline.reschedule(started_s + min(body_s, BODY_GRACE_S + size / MIN_BODY_BYTES_PER_S))
    except TimeoutError:
        raise GatewayError(REQUEST_TIMEOUT) from None
    except RequestPayloadError:
        raise GatewayError(INVALID_REQUEST, "The request body is broken.") from None
    return chunks


async def set_aside(body: bytes, mark: str) -> tuple[bytes, Held | None]:
    """*body* without its long pictures and PDFs, and those; other connections have their turn all the while."""
    spans = [span for span in payloads(body) if await _is_base64(body, *span)]
    return take_out(body, spans, mark) if spans else (body, None)


async def _is_base64(body: bytes, start: int, end: int) -> bool:
    plain_end = unpadded(body, start, end)
    if plain_end is None:
        return False
    for at in range(start, plain_end, WINDOW_BYTES):
        if not is_plain(body[at : min(plain_end, at + WINDOW_BYTES)]):
            return False
        await asyncio.sleep(0)
    return True


SCAN_BYTES = 1 << 20  # 1.5 ms of scanning (measured); other connections have their turn between two windows
MAX_TYPES = 1000  # strings "image" looked at per window; ordinary bodies have a handful

_DIRECT_MARKERS = (b'"image_url"', b"data:image/")
_IMAGE = b'"image"'
_TYPE_BEFORE = re.compile(rb'"type"[ \t\r\n]{0,32}:[ \t\r\n]{0,32}\Z')
_BEFORE_BYTES = len(b'"type":') + 64  # as far back as the pattern above can reach
_OVERLAP_BYTES = _BEFORE_BYTES + max(len(marker) for marker in (*_DIRECT_MARKERS, _IMAGE))


async def holds_image(body: bytes) -> bool:
    """Whether *body* has a mark of an image part: `"image_url"`, `"type": "image"` or `data:image/`. Linear."""
    for start in range(0, len(body), SCAN_BYTES):
        if _marked(body, start, start + SCAN_BYTES + _OVERLAP_BYTES):
            return True
        await asyncio.sleep(0)
    return False


def _marked(body: bytes, start: int, end: int) -> bool:
    if any(body.find(marker, start, end) >= 0 for marker in _DIRECT_MARKERS):
        return True
    at = start
    for _ in range(MAX_TYPES):
        at = body.find(_IMAGE, at, end)
        if at < 0:
            return False
        if _TYPE_BEFORE.search(body, max(0, at - _BEFORE_BYTES), at):
            return True
        at += len(_IMAGE)
    return False
