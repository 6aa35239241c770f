"""Answers the requests of the admin API: the route, the key and its rights, the query, the body, in this order."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qsl

from aiohttp import web

from gateway.core.accounts import Key, Right
from gateway.core.errors import (
    INVALID_API_KEY,
    INVALID_REQUEST,
    NOT_FOUND,
    RIGHT_DENIED,
    STORAGE_UNAVAILABLE,
    GatewayError,
)
from gateway.core.ports import StoreUnavailable
from gateway.http.admin.bodies import read_fields
from gateway.http.admin.pages import NO_PAGE, read_page
from gateway.http.admin.routes import AdminRequest, AdminRoute, AdminTable, Reply
from gateway.http.door import Door
from gateway.http.intake import route_path

MAX_BODY_BYTES = 64 * 1024  # a policy with a thousand names of tools; everything else has some hundred bytes
MAX_QUERY_CHARS = 7168  # an id of 256 characters with four bytes each, escaped, and the longest cursor
MAX_PARAMETERS = 20
_PLAIN = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")  # as `text` of a path, of any length
_HAVE_BODIES = ("POST", "PUT", "PATCH")
_NO_ADMIN_KEY = "This is an inference key (anm-sk-...); the admin API takes admin keys (anm-ak-...)."
# What a key with a right of these may do as well.
_INCLUDED: Mapping[Right, frozenset[Right]] = {
    "inference": frozenset(),
    "read": frozenset({"read"}),
    "manage": frozenset({"read", "manage"}),
    "operate": frozenset({"read", "manage", "operate"}),
}


class AdminDesk:
    """
    Args:
        now_ms: Epoch milliseconds.
    """

    def __init__(self, table: AdminTable, door: Door, now_ms: Callable[[], int]) -> None:
        self.table = table
        self._door = door
        self._now_ms = now_ms

    async def answer(
        self, request: web.BaseRequest, secret: str | None, request_id: str, read: Callable[[int], Awaitable[bytes]]
    ) -> web.Response:
        """
        The answer.

        Args:
            read: Reads the body, of at most so many bytes.

        Raises:
            GatewayError: The request is refused.
        """
        route, params = self.table.find(route_path(request), request.method)
        try:
            key = await self._authenticate(request, secret, route)
            route.check(params)
            query = _query(request.raw_path.partition("?")[2], route)
            page = read_page(route.path, query) if route.paged else NO_PAGE
            tenant = _tenant(key, query)
            body = read_fields(await read(MAX_BODY_BYTES)) if route.method in _HAVE_BODIES else {}
            rest = {name: value for name, value in query.items() if name not in ("tenant", "limit", "cursor")}
            address = self._door.address_of(request)
            asked = AdminRequest(key, request_id, self._now_ms(), tenant, params, rest, page, body, address)
            return _response(await route.handle(asked), request_id)
        except StoreUnavailable as exc:
            raise GatewayError(STORAGE_UNAVAILABLE) from exc

    async def _authenticate(self, request: web.BaseRequest, secret: str | None, route: AdminRoute) -> Key:
        """
        The key, which has the right that *route* needs.

        Raises:
            GatewayError: `invalid_api_key`; `right_denied` of a key of the other kind too: its holder may find out
                that it exists wherever it is good for something.
        """
        key = await self._door.key_of(request, secret)
        if key is not None and route.open_to_inference and "inference" in key.rights:
            return key
        if key is None:
            raise GatewayError(INVALID_API_KEY)
        rights = key.rights - {"inference"}
        if not rights:
            raise GatewayError(RIGHT_DENIED, _NO_ADMIN_KEY)
        if not any(route.right in _INCLUDED[right] for right in rights):
            raise GatewayError(RIGHT_DENIED, f"This route needs an admin key with the right `{route.right}`.")
        return key


def _query(text: str, route: AdminRoute) -> dict[str, str]:
    """
    The parameters of a query, each once, decoded.

    Raises:
        GatewayError: One is unknown, empty, there twice or no text, or there are too many.
    """
    known = {"tenant", *route.query, *(("limit", "cursor") if route.paged else ())}
    found: dict[str, str] = {}
    try:
        if len(text) > MAX_QUERY_CHARS:
            raise ValueError
        pairs = parse_qsl(text, keep_blank_values=True, errors="surrogateescape", max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise GatewayError(INVALID_REQUEST, "The query is too long.") from None
    for name, value in pairs:
        if name not in known:
            said = name if name.isascii() and name.isprintable() and len(name) <= 64 else None
            raise GatewayError(INVALID_REQUEST, f"This route takes {', '.join(sorted(known))} only.", param=said)
        if name in found:
            raise GatewayError(INVALID_REQUEST, "A parameter of the query is there twice.", param=name)
        if not value or len(value) > MAX_QUERY_CHARS or _PLAIN.fullmatch(value) is None:
            raise GatewayError(INVALID_REQUEST, "A parameter of the query is empty or no plain text.", param=name)
        found[name] = value
    return found


def _tenant(key: Key, query: Mapping[str, str]) -> str | None:
    """
    Whose things *key* asks for; None for everybody's.

    Raises:
        GatewayError: It names another tenant, whose existence is not its business.
    """
    asked = query.get("tenant")
    if "operate" in key.rights:
        return asked
    if asked is not None and asked != key.tenant:
        raise GatewayError(NOT_FOUND, "There is no such tenant.")
    return key.tenant


def _response(reply: Reply, request_id: str) -> web.Response:
    response = web.Response(
        body=reply.body, status=reply.status, headers={"Content-Type": reply.content_type, "Cache-Control": "no-store"}
    )
    response.headers["x-request-id"] = response.headers["request-id"] = request_id
    for name, value in reply.headers:
        response.headers[name] = value
    return response
