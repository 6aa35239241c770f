"""Gateways whose keys have budgets: a database with its tables, and a key for each case."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from gateway.storage.migrations import upgrade
from tests.support.config import CANARY, Config, standard


async def tables(folder: Path) -> str:
    """The URL of a new SQLite database with this version's tables."""
    url = f"sqlite:///{folder}/gateway.db"
    await asyncio.to_thread(upgrade, url)
    return url


def secret(name: str) -> str:
    """The secret of the key *name* of `limited`."""
    return f"anm-sk-{CANARY}-{name}"


def limited(
    base_url: str, database_url: str, keys: dict[str, dict[str, Any]], redis_url: str = "", **overrides: Config
) -> Config:  # fmt: skip
    """
    `standard` with *keys* by name: members of a key and, where they are those of a tier, of a tier of its own.

    A second of `rejoin_s` is enough for the processes of a test.
    """
    limits = {"redis_timeout_ms": 2000, "rejoin_s": 0.2}  # two busy cores are no outage
    config = standard(base_url, limits=limits | overrides.pop("limits", {}), **overrides)
    config["storage"] = {"database_url": database_url, "redis_url": redis_url}
    for name, members in keys.items():
        own = {"budget_usd", "budgets", "when_blind", "tenant"}
        config["tiers"][name] = {key: value for key, value in members.items() if key not in own}
        entry = {"tenant": name, "tier": name} | {key: value for key, value in members.items() if key in own}
        config["keys"][secret(name)] = entry
    return config
