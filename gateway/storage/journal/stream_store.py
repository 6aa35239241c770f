"""
A journal as a Redis stream: the same records as on disk, for hosts whose disk goes with them.

For a process NAME there are, all under one prefix:

    anoman:journals             the names of all processes that have a journal, and what the ledger calls each
    anoman:journal:NAME         its records, a stream
    anoman:journal:NAME:places  the progress of what is open in it, by request
    anoman:journal:NAME:lease   there as long as the process renews it, or one that has taken the journal over

Its own process writes it by a connection of its own (`stream_pipe`). Commands are idempotent, or their effect is: a
record that is there twice counts once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
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
FIELD = b"r"
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

# What stands under a name of ours and is of another kind is not ours: it keeps its contents, and gets another name.
_ASIDE = """
local kinds, moved = {'hash', 'string', 'stream', 'hash'}, {}
for at, kind in ipairs(kinds) do
  local found = redis.call('TYPE', KEYS[at]).ok
  if found ~= 'none' and found ~= kind then
    redis.call('RENAME', KEYS[at], KEYS[at + #kinds])
    moved[#moved + 1], moved[#moved + 2] = KEYS[at], KEYS[at + #kinds]
  end
end
return moved
"""

# An entry of the registry that is not ours stands in nobody's way in a hash of its own.
_ENTRIES_ASIDE = """
local moved = 0
for _, entry in ipairs(ARGV) do
  local found = redis.call('HGET', KEYS[1], entry)
  if found then
    redis.call('HSET', KEYS[2], entry, found)
    moved = moved + redis.call('HDEL', KEYS[1], entry)
  end
end
return moved
"""
# So does one of a journal that is no record, under its own number.
_RECORDS_ASIDE = """
local moved = 0
for _, number in ipairs(ARGV) do
  local found = redis.call('XRANGE', KEYS[1], number, number)[1]
  if found then
    redis.call('XADD', KEYS[2], number, unpack(found[2], 1, math.min(#found[2], 4000)))
    moved = moved + redis.call('XDEL', KEYS[1], number)
  end
end
return moved
"""
_ENTRIES_AT_ONCE = 1_000  # words of a script: Lua's stack takes 8,000 (LUAI_MAXCSTACK)

Id = bytes


def aside(name: str) -> tuple[str, list[str]]:
    """The script that gives other names to what is in the way of the journal *name*, and its keys; it replies old and
    new ones."""
    keys = REGISTRY, *_keys(name)
    return _ASIDE, [*keys, *map(_aside_name, keys)]


def _aside_name(key: str) -> str:
    return f"anoman:aside:{time.time_ns():x}:{key}"


def _text(found: bytes) -> str | None:
    """What a process of ours may have written; None for nothing, and for what is no text."""
    try:
        text = found.decode()
    except UnicodeDecodeError:
        return None
    return text if text and text.isprintable() else None


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

    async def read(self, name: str, after: Id, most: int) -> list[tuple[Id, bytes]]:
        """The entries behind *after* (b"0" for all), *most* at the most: the records, and b"" for what has none."""
        found = await self._run(self._client.xrange(journal_key(name), min=b"(" + after, max=b"+", count=most))
        return [(Id(number), cast("bytes", fields.get(FIELD, b""))) for number, fields in found]

    async def names(self) -> list[str]:
        """All processes that have a journal."""
        return [name for entry in await self._entries() if (name := _text(entry)) is not None]

    async def put_strangers_aside(self) -> list[tuple[str, str]]:
        """As `put_aside`, of entries of the registry that are no names: the registry, and where they are now."""
        strangers = [entry for entry in await self._entries() if _text(entry) is None][:_ENTRIES_AT_ONCE]
        new_name = _aside_name(REGISTRY)
        if not strangers or not await self._run(self._client.eval(_ENTRIES_ASIDE, 2, REGISTRY, new_name, *strangers)):
            return []
        return [(REGISTRY, new_name)]

    async def places(self, name: str) -> dict[bytes, bytes]:
        """Progress by request."""
        return cast("dict[bytes, bytes]", await self._run(self._client.hgetall(journal_key(name, "places"))))

    async def trim(self, name: str, before: Id) -> None:
        """Forget the records before *before*."""
        await self._run(self._client.xtrim(journal_key(name), minid=before, approximate=False))

    async def unheld(self, own: str) -> set[str]:
        """The names of journals besides *own* that nobody renews."""
        names = [name for name in await self.names() if name != own]
        pipeline = self._client.pipeline(transaction=False)
        for name in names:
            pipeline.exists(journal_key(name, "lease"))
        held = await self._run(pipeline.execute()) if names else []
        return {name for name, is_held in zip(names, held, strict=True) if not is_held}

    async def take(self, name: str, taker: str) -> tuple[str, str] | None:
        """
        The new name of the journal *name*, now *taker*'s, and its writer; None where somebody has it, or had it. Where
        the writer is not told in words that a database takes, it is called as the journal was.
        """
        new_name = f"{name.partition('~')[0]}~{time.time_ns():x}"
        keys = [REGISTRY, *_keys(name), *_keys(new_name)]
        writer = await self._run(self._client.eval(_TAKE, len(keys), *keys, name, new_name, taker, str(LEASE_MS)))
        return None if writer is None else (new_name, _text(writer) or name.partition("~")[0])

    async def put_aside(self, name: str) -> list[tuple[str, str]]:
        """Old and new names of what was in the way of the journal *name*."""
        script, keys = aside(name)
        found = [moved.decode() for moved in await self._run(self._client.eval(script, len(keys), *keys))]
        return list(zip(found[::2], found[1::2], strict=True))

    async def put_records_aside(self, name: str, numbers: Sequence[Id]) -> list[tuple[str, str]]:
        """As `put_aside`, of entries of the journal *name* that are no records."""
        key = journal_key(name)
        new_name = _aside_name(key)
        moved = await self._run(self._client.eval(_RECORDS_ASIDE, 2, key, new_name, *numbers))
        return [(key, new_name)] if moved else []

    async def hold(self, name: str, taker: str) -> None:
        """Keep a journal that was taken."""
        await self._run(self._client.set(journal_key(name, "lease"), taker, px=LEASE_MS))

    async def remove(self, name: str) -> None:
        """There is nothing in it that is needed."""
        pipeline = self._client.pipeline(transaction=True)
        pipeline.delete(*_keys(name))
        pipeline.hdel(REGISTRY, name)
        await self._run(pipeline.execute())

    async def release(self, name: str) -> None:
        """Leave it to whoever comes."""
        await self._run(self._client.delete(journal_key(name, "lease")))

    async def close(self) -> None:
        """Close the connections."""
        with suppress(RedisError, OSError, TimeoutError):
            await self._client.aclose()

    async def _entries(self) -> list[bytes]:
        return cast("list[bytes]", await self._run(self._client.hkeys(REGISTRY)))

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


def journal_key(name: str, *parts: str) -> str:
    """The key of the journal *name*'s records, or of its lease or places."""
    return ":".join(("anoman:journal", name, *parts))


def _keys(name: str) -> tuple[str, str, str]:
    """Lease, records, places."""
    return journal_key(name, "lease"), journal_key(name), journal_key(name, "places")
