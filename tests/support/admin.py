"""A server that answers by a table of the admin API alone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from gateway.core.errors import METHOD_NOT_ALLOWED, GatewayError
from gateway.core.ports import Keys
from gateway.http.admin.desk import AdminDesk
from gateway.http.admin.routes import AdminTable
from gateway.http.door import Door as KeyDoor
from gateway.http.errors import error_response
from gateway.http.intake import check_request, read_body, route_path
from gateway.http.server import ServerLimits
from gateway.policy.strangers import Strangers
from tests.support.door import Door, Reply, open_door, request


class AdminDoor:
    """Requests to it, each over a connection of its own."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def ask(self, path: str, key: str, method: str = "GET", body: bytes = b"", *headers: str) -> Reply:
        """What a caller with the secret *key* is answered at *path*, which is behind `/anoman/v1/`."""
        head = (*headers, "Connection: close")
        return await self._door.ask(request(f"/anoman/v1/{path}", *head, method=method, body=body, key=key))


@contextlib.asynccontextmanager
async def open_admin(table: AdminTable, keys: Keys, now_ms: Callable[[], int]) -> AsyncIterator[AdminDoor]:
    """The server for *table*."""
    desk = AdminDesk(table, KeyDoor(keys, Strangers(time.monotonic), ()), now_ms)

    async def handle(asked: web.BaseRequest) -> web.StreamResponse:
        path = route_path(asked)
        try:
            given = check_request(asked)

            async def read(max_bytes: int) -> bytes:
                return await read_body(asked, small_bytes=max_bytes, large_bytes=max_bytes, body_s=1)

            return await desk.answer(asked, given, "req_1", read)
        except GatewayError as error:
            allow = (("Allow", ", ".join(table.allowed(path))),) if error.kind is METHOD_NOT_ALLOWED else ()
            return error_response(path, error, "req_1", allow)

    async with open_door(handle, ServerLimits()) as door:  # those of the tests are too short for a busy machine
        yield AdminDoor(door)
