"""The two places a soak runs at: several workers on PostgreSQL and Redis, and one process with nothing beside it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from tests.support.config import Config, toml
from tests.support.redis import server as redis_server

from .conductor import Stage
from .processes import gateway_command, provider_process
from .service import Service
from .stores import database
from .world import Customer, configuration

Place = Literal["stores", "stream", "alone"]
"""`stream`: as `stores`, with the journal in Redis in place of files."""
WORKERS = 3
# The last one of a worker that starts meanwhile: it serves on, and has seen no tables.
_OF_OUTAGES = {"storage.lost": "postgres", "ledger.delayed": "postgres", "storage.unprepared": "postgres"}
_OF_JOURNALS = {"ledger.refusing": "redis"}  # where Redis has them


@asynccontextmanager
async def stage(place: Place, keys: list[Customer], *, workers: int = WORKERS, **more: Config) -> AsyncIterator[Stage]:
    """A stage for customers with *keys*; *more* sections go into the gateway's settings."""
    async with contextlib.AsyncExitStack() as stack:
        # Not in a generation's own folder: what one leaves behind, the next one takes up.
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-soak-")))
        provider = await stack.enter_async_context(provider_process(home))
        ledger = {"directory": str(home / "spool")}
        path = home / "gateway.toml"  # for commands; each generation has a copy of its own
        if place == "alone":
            url = f"sqlite:///{home / 'gateway.db'}"
            config = configuration(provider.url, keys, storage={"database_url": url}, ledger=ledger, **more)
            path.write_text(toml(config))
            service = Service(config, 1, {})
            stack.callback(service.abandon)
            yield Stage(provider, service, keys, url, path)
            return
        postgres, redis = stack.enter_context(database()), stack.enter_context(redis_server())
        url = postgres.database("soak")
        storage = {"database_url": url, "redis_url": redis.url}
        expected = _OF_OUTAGES
        if place == "stream":
            ledger = {"durability": "redis-stream"}
            expected = expected | _OF_JOURNALS
        config = configuration(provider.url, keys, storage=storage, ledger=ledger, **more)
        path.write_text(toml(config))
        code, output = await gateway_command(path, "migrate")
        if code:
            raise RuntimeError(f"gateway migrate: {output}")
        service = Service(config, workers, expected)
        stack.callback(service.abandon)
        yield Stage(provider, service, keys, url, path, postgres, redis, place == "stream")
