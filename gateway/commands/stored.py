"""A step with the database for a subcommand: its tables are made sure of, and what goes wrong is one line."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeVar

import click

from gateway.core.accounts import BadTerms
from gateway.core.ports import StoreUnavailable
from gateway.core.records import NotThere, Taken
from gateway.settings import FileTerms, StorageSettings, Stored
from gateway.storage.account_rules import SqlRules
from gateway.storage.accounts import SqlAccounts
from gateway.storage.database import Database
from gateway.storage.preparing import check_known, prepare

T = TypeVar("T")


def now_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


def fail(message: str) -> NoReturn:
    """End the process with *message* and the exit code of what did not work."""
    click.echo(message, err=True)
    sys.exit(1)


def with_database(storage: StorageSettings, step: Callable[[Database], Awaitable[T]]) -> T:
    """What *step* gives; where the database cannot be asked, the process ends and says why."""

    async def run() -> T:
        database = Database(storage.database_url)
        try:
            await prepare(storage.database_url, database)
            await database.read(check_known)
            return await step(database)
        finally:
            await database.close()

    try:
        return asyncio.run(run())
    except StoreUnavailable as exc:
        fail(f"The database cannot be used: {exc}")


def with_accounts(settings: Stored, step: Callable[[SqlAccounts], Awaitable[T]]) -> T:
    """As `with_database`, with what tenants and keys are changed by; what *step* may not do ends the process too."""
    terms = FileTerms.of(settings)

    def change(database: Database) -> Awaitable[T]:
        return step(SqlAccounts(database, lambda: terms, chance=os.urandom, now_ms=now_ms))

    return _allowed(settings.storage, change)


def with_rules(settings: Stored, step: Callable[[SqlRules], Awaitable[T]]) -> T:
    """As `with_accounts`, with what policies are changed by."""
    terms = FileTerms.of(settings)
    return _allowed(settings.storage, lambda database: step(SqlRules(database, lambda: terms, now_ms=now_ms)))


def _allowed(storage: StorageSettings, step: Callable[[Database], Awaitable[T]]) -> T:
    try:
        return with_database(storage, step)
    except BadTerms as exc:
        fail("\n".join(f"{field}: {problem}" for field, problem in exc.problems))
    except (NotThere, Taken) as exc:
        fail(str(exc))
