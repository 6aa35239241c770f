"""A relay in front of the gateway that counts requests: what a client sends again is nowhere else to be seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

HEAD_LINE = b" HTTP/1.1\r\n"  # once in the head of a request, and in no body of these tests
CHUNK_BYTES = 65536


class Counter:
    """
    Attributes:
        base_url: Where it listens, without a path.
        requests: How many have passed.
        first_answer: The first bytes of an answer have passed.
    """

    def __init__(self) -> None:
        self.base_url = ""
        self.requests = 0
        self.first_answer = asyncio.Event()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, count: bool) -> None:
        try:
            while data := await reader.read(CHUNK_BYTES):
                if count:
                    self.requests += data.count(HEAD_LINE)
                else:
                    self.first_answer.set()
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # one side has gone; the other one is told below
        finally:
            writer.close()


@asynccontextmanager
async def counting(port: int) -> AsyncIterator[Counter]:
    """A counter in front of *port*."""
    counter = Counter()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.TaskGroup() as group:
            group.create_task(counter._pass_on(reader, inner_writer, count=True))
            group.create_task(counter._pass_on(inner_reader, writer, count=False))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    counter.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield counter
