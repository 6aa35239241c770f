"""
Requests and answers on their way into the database: redacted, cut, and past the journal.

They are a help in looking for mistakes and no record: what cannot be written soon is dropped and counted. Nothing else
of the gateway ever holds them.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterator

from msgspec import Struct
from sqlalchemy import insert
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.aio import Tasks
from gateway.core.ports import StoreUnavailable
from gateway.storage.database import Database
from gateway.storage.tables import bodies

MAX_WAITING_BYTES = 16 * 1024 * 1024  # in one process: the longest bodies of some 80 calls
BATCH = 50  # in one transaction
REMOVED = "[cut]"
# Redacting takes 0.2 us a character (measured): other tasks have their turn between two pieces. No credential goes over
# the gap between two: none has blanks in it, but for those behind the word `Bearer`.
PIECE_CHARS = 8192
_GAP = re.compile(r"(?<!\s)(?<!bearer)\s+", re.IGNORECASE)


class BodyRules(Struct, frozen=True):
    """
    Attributes:
        max_bytes: Of the request, and of the answer.
        keep_ms: For how long.
    """

    max_bytes: int
    keep_ms: int


class _Waiting(Struct, frozen=True):
    request_id: str
    tenant: str
    request: bytes
    response: str

    @property
    def size(self) -> int:
        return len(self.request) + len(self.response)


class BodyShelf:
    """
    Args:
        redact: Takes out of a text what must not be kept. Called in the writer, not in a request's way.
        on_drop: Told how many were not kept.
        now_ms: Epoch milliseconds.
    """

    def __init__(
        self,
        database: Database,
        rules: BodyRules,
        *,
        redact: Callable[[str], str],
        on_drop: Callable[[int], None],
        tasks: Tasks,
        now_ms: Callable[[], int],
    ) -> None:
        self._database = database
        self._rules = rules
        self._redact = redact
        self._on_drop = on_drop
        self._tasks = tasks
        self._now_ms = now_ms
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._is_writing = False

    def keep(self, request_id: str, tenant: str, request: bytes, response: str) -> None:
        """Have them written, if there is room for them until then."""
        one = _Waiting(request_id, tenant, request, response)
        if self._waiting_bytes + one.size > MAX_WAITING_BYTES:
            self._on_drop(1)
            return
        self._waiting.append(one)
        self._waiting_bytes += one.size
        if not self._is_writing:
            self._is_writing = True
            self._tasks.spawn(self._write(), name="bodies")

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                self._waiting_bytes -= sum(one.size for one in batch)
                await self._write_batch(batch)
        finally:
            self._is_writing = False

    async def _write_batch(self, batch: list[_Waiting]) -> None:
        expires_ms = self._now_ms() + self._rules.keep_ms
        rows = [
            {
                "request_id": one.request_id,
                "tenant": one.tenant,
                "request": await self._clean(one.request.decode("utf-8", "replace")),
                "response": await self._clean(one.response),
                "expires_ms": expires_ms,
            }
            for one in batch
        ]

        async def step(connection: AsyncConnection) -> None:
            await connection.execute(insert(bodies), rows)

        try:
            await self._database.write(step)
        except (StoreUnavailable, SQLAlchemyError):
            self._on_drop(len(batch))

    async def _clean(self, text: str) -> str:
        """*text* redacted first, so that no half of a secret is left where it is cut; and as a database takes it."""
        kept, most = b"", self._rules.max_bytes
        for piece in _pieces(text):
            kept += self._redact(piece).encode("utf-8", "replace").replace(b"\0", b"")
            if len(kept) > most:
                return kept[: most - len(REMOVED)].decode("utf-8", "ignore") + REMOVED
            await asyncio.sleep(0)
        return kept.decode()


def _pieces(text: str) -> Iterator[str]:
    at = 0
    while gap := _GAP.search(text, at + PIECE_CHARS):
        yield text[at : gap.end()]
        at = gap.end()
    yield text[at:]
