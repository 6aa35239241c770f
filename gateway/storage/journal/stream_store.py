"""
A journal as a Redis stream: the same records as on disk, for hosts whose disk goes with them.

For a process NAME there are, all under one prefix:

    anoman:journals             the names of all processes that have a journal, and what the ledger calls each
    anoman:journal:NAME         its records, a stream
    anoman:journal:NAME:places  the progress of what is open in it, by request
    anoman:journal:NAME:lease   there as long as the process renews it, or one that has taken the journal over

Commands are idempotent, or their effect is: a record that is there twice counts once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gateway.core.ports import StoreUnavailable

REGISTRY = "anoman:journals"
LEASE_MS = 15_000  # without a word of its process for so long, a journal is somebody else's
# Nobody waits for so long; a connection that is only slow is not given up, for a new one takes several round trips.
ANSWER_S = 5.0
_FIELD = b"r"
# A journal is taken by giving it another name: should its process only have been slow, what that writes from now on is
# a journal of its own, which the taker does not remove with the other.
_TAKE = """
local registry, lease, records, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local new_lease, new_records, new_places = KEYS[5], KEYS[6], KEYS[7]
local name, new_name, taker, lease_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local writer = redis.call('HGET', registry, name)
if not writer or redis.call('EXISTS', lease) == 1 then return nil end
if redis.call('EXISTS', records) == 1 then redis.call('RENAME', records, new_records) end
if redis.call('EXISTS', places) == 1 then redis.call('RENAME', places, new_places) end
redis.call('HDEL', registry, name)
redis.call('HSET', registry, new_name, writer)
redis.call('SET', new_lease, taker, 'PX', lease_ms)
return writer
"""

Id = bytes


class StreamStore:
    """
    The commands of journals. Every method raises StoreUnavailable when Redis does not answer, or refuses.

    Args:
        url: As `storage.redis_url`.
    """

    def __init__(self, url: str) -> None:
        self._client = Redis.from_url(
            url, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S, retry=Retry(NoBackoff(), 0)
        )  # fmt: skip

    async def append(self, name: str, payloads: Sequence[bytes], places: Mapping[str, bytes | None]) -> list[Id]:
        """
        Put *payloads* behind the others; their ids.

        Args:
            places: Progress by request, None for those that have ended.
        """
        pipeline = self._client.pipeline(transaction=False)
        for payload in payloads:
            pipeline.xadd(_key(name), {_FIELD: payload})
        if kept := {request_id: place for request_id, place in places.items() if place is not None}:
            pipeline.hset(_key(name, "places"), mapping=cast("dict[Any, Any]", kept))
        if gone := [request_id for request_id, place in places.items() if place is None]:
            pipeline.hdel(_key(name, "places"), *gone)
        replies = await self._run(pipeline.execute())
        return [Id(reply) for reply in replies[: len(payloads)]]

    async def renew(self, name: str, writer: str) -> None:
        """Say that the process NAME lives."""
        pipeline = self._client.pipeline(transaction=False)
        pipeline.hset(REGISTRY, name, writer)
        pipeline.set(_key(name, "lease"), writer, px=LEASE_MS)
        await self._run(pipeline.execute())

    async def read(self, name: str, after: Id, most: int) -> list[tuple[Id, bytes]]:
        """The records behind *after* (b"0" for all), *most* at the most."""
        found = await self._run(self._client.xrange(_key(name), min=b"(" + after, max=b"+", count=most))
        return [(Id(number), cast("bytes", fields[_FIELD])) for number, fields in found if _FIELD in fields]

    async def places(self, name: str) -> dict[bytes, bytes]:
        """Progress by request."""
        return cast("dict[bytes, bytes]", await self._run(self._client.hgetall(_key(name, "places"))))

    async def trim(self, name: str, before: Id) -> None:
        """Forget the records before *before*."""
        await self._run(self._client.xtrim(_key(name), minid=before, approximate=False))

    async def length(self, name: str) -> int:
        """How many records there are."""
        return int(await self._run(self._client.xlen(_key(name))))

    async def take(self, own: str, taker: str) -> tuple[str, str] | None:
        """
        The name and writer of a journal that nobody renews, and that is not *own*; now it is *taker*'s, by a new name.
        """
        for found in await self._run(self._client.hkeys(REGISTRY)):
            name = found.decode()
            if name == own:
                continue
            new_name = f"{name.partition('~')[0]}~{time.time_ns():x}"
            keys = [REGISTRY, *_keys(name), *_keys(new_name)]
            writer = await self._run(self._client.eval(_TAKE, len(keys), *keys, name, new_name, taker, str(LEASE_MS)))
            if writer is not None:
                return new_name, writer.decode()
        return None

    async def hold(self, name: str, taker: str) -> None:
        """Keep a journal that was taken."""
        await self._run(self._client.set(_key(name, "lease"), taker, px=LEASE_MS))

    async def remove(self, name: str) -> None:
        """There is nothing in it that is needed."""
        pipeline = self._client.pipeline(transaction=True)
        pipeline.delete(*_keys(name))
        pipeline.hdel(REGISTRY, name)
        await self._run(pipeline.execute())

    async def release(self, name: str) -> None:
        """Leave it to whoever comes."""
        await self._run(self._client.delete(_key(name, "lease")))

    async def close(self) -> None:
        """Close the connections."""
        with suppress(RedisError, OSError, TimeoutError):
            await self._client.aclose()

    async def _run(self, command: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        cancelling = task.cancelling()
        try:
            reply = await command
        except (RedisError, OSError, TimeoutError) as exc:
            raise StoreUnavailable(f"{type(exc).__name__}: {exc}") from exc
        if task.cancelling() > cancelling:
            raise asyncio.CancelledError  # the library waits by `wait_for`, which loses it in Python 3.11
        return reply


def _key(name: str, *parts: str) -> str:
    return ":".join(("anoman:journal", name, *parts))


def _keys(name: str) -> tuple[str, str, str]:
    """Lease, records, places."""
    return _key(name, "lease"), _key(name), _key(name, "places")
