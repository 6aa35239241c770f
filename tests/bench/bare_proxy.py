"""The least an aiohttp proxy can be: no keys, no limits, no metering, bytes in and bytes out.

    python bare_proxy.py PORT UPSTREAM_PORT
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import aiohttp
import uvloop
from aiohttp import web

_NOT_SENT = {"host", "content-length", "transfer-encoding", "connection", "accept-encoding"}
_NOT_RETURNED = {"content-length", "transfer-encoding", "connection", "date", "server"}
_SESSION = web.AppKey("session", aiohttp.ClientSession)
_UPSTREAM = web.AppKey("upstream", str)


async def relay(request: web.Request) -> web.StreamResponse:
    """One exchange."""
    body = await request.read()
    headers = {name: value for name, value in request.headers.items() if name.lower() not in _NOT_SENT}
    url = request.app[_UPSTREAM] + request.path_qs
    async with request.app[_SESSION].post(url, data=body, headers=headers) as answer:
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in _NOT_RETURNED}
        if answer.content_type != "text/event-stream":
            return web.Response(status=answer.status, headers=kept, body=await answer.read())
        response = web.StreamResponse(status=answer.status, headers=kept)
        await response.prepare(request)
        async for piece in answer.content.iter_any():
            await response.write(piece)
        await response.write_eof()
        return response


async def session(app: web.Application) -> AsyncIterator[None]:
    """One client session for the application's life, without limits."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as client:
        app[_SESSION] = client
        yield


def main(port: int, upstream_port: int) -> None:
    """Serve until a signal."""
    app = web.Application(client_max_size=24 * 1024 * 1024)
    app[_UPSTREAM] = f"http://127.0.0.1:{upstream_port}"
    app.cleanup_ctx.append(session)
    app.router.add_post("/{path:.*}", relay)
    web.run_app(
        app,
        host="127.0.0.1",
        port=port,
        loop=uvloop.new_event_loop(),
        handler_cancellation=True,
        access_log=None,
        backlog=4096,
        print=lambda *_: None,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
