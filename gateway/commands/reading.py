"""`usage` and `traces tail`: what the admin API tells, for those who have the database at hand."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from typing import get_args

import click
import msgspec
from msgspec import structs
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.commands.configured import config_option, stored_or_exit
from gateway.commands.looking import Patient, look_into
from gateway.commands.options import MomentType
from gateway.commands.stored import fail, now_ms, with_database
from gateway.commands.words import TextCommand, TextGroup
from gateway.core.exchange import Outcome
from gateway.core.money import format_nano
from gateway.core.reading import (
    DIMENSIONS,
    Dimension,
    Group,
    Row,
    TracesAsked,
    UsageAsked,
    UsageReport,
    read_dimensions,
    usual_since_ms,
)
from gateway.core.records import CLI
from gateway.core.views import group_view, trace_view, usage_sheet
from gateway.loglines import clean
from gateway.storage.database import first_line
from gateway.storage.reading import SqlBooks
from gateway.storage.reading_traces import TAIL_ROWS, rows_of, tail_statement
from gateway.storage.reading_usage import unknown
from gateway.storage.retention import erase
from gateway.wire.headers import MAX_ID_CHARS, clean_text
from gateway.wire.moments import MAX_MS, moment_text, read_moment
from gateway.wire.sheets import sheet

GROUPS_AT_ONCE = 10_000
# Of a second and of what came in the overlap before it: more than 3,000 calls a second would fall behind.
MOST_AT_ONCE = 50_000
MAX_LINE_CHARS = 2_000  # ids of the caller's own choice have 256 each
POLL_S = 1.0  # for new traces; the drainer brings them some times a second
# A row may become visible so much later than it says it was written: a transaction of the drainer takes at most this
# long (two waits for the database of 2 s, a statement of 5 s: `storage.database`), and clocks differ by a little.
OVERLAP_MS = 15_000


_MOMENT = MomentType(read_moment)
_AS_JSON = click.option("--json", "as_json", is_flag=True, help="A JSON object a line.")
_TENANT = click.option("--tenant", help="Of this tenant alone.")


def _dimensions(_context: click.Context, _parameter: click.Parameter, given: str) -> tuple[Dimension, ...]:
    try:
        return read_dimensions(given)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from None


@click.command(cls=TextCommand)
@click.option("--by", default="day", callback=_dimensions, help=f"One or two of {', '.join(DIMENSIONS)}.")
@click.option("--since", type=_MOMENT, help="A date, a time, or how long ago as in 7d; by default 30 days ago.")
@click.option("--until", type=_MOMENT, help="The first moment that does not count.")
@_TENANT
@click.option("--key", help="Of this key alone, by its id.")
@click.option("--model", help="Of this model alone.")
@click.option("--csv", "as_csv", is_flag=True, help="A table for spreadsheets.")
@_AS_JSON
@config_option
def usage(
    by: tuple[Dimension, ...], since: int | None, until: int | None, tenant: str | None, key: str | None,
    *, model: str | None, as_csv: bool, as_json: bool, config: str | None,
) -> None:  # fmt: skip
    """Add up what was charged; the sums are the ledger's, to the last digit."""
    named: dict[Dimension, str | None] = {"key": key, "model": model}
    filters = {name: value for name, value in named.items() if value is not None}
    since = usual_since_ms(until, now_ms()) if since is None else since
    if until is not None and since >= until:
        raise click.BadParameter("it is not before --until, the first moment that does not count", param_hint="--since")
    asked = UsageAsked(
        tenant, by, since, MAX_MS if until is None else until, filters, limit=GROUPS_AT_ONCE
    )  # fmt: skip

    async def work(database: Patient) -> UsageReport:
        report = await _whole(SqlBooks(database, now_ms), asked)
        if not report.groups:  # nothing was used, or a name is misspelt
            given = {"tenant": tenant, "key": key}
            await _need_known(database, {kind: name for kind, name in given.items() if name is not None})
        return report

    report = look_into(stored_or_exit(config).storage, work)
    if as_csv:
        click.echo(sheet(*usage_sheet(by, report.groups)), nl=False)
    elif as_json:
        for group in report.groups:
            click.echo(msgspec.json.encode(group_view(by, group)))
        click.echo(msgspec.json.encode({"total": report.total.told()}))
    else:
        total = Group(("total", *("" for _ in by[1:])), report.total)
        head, rows = usage_sheet(by, (*report.groups, total))
        click.echo(columns([head, *(["-" if cell is None else str(cell) for cell in row] for row in rows)]))


async def _need_known(database: Patient, named: dict[str, str]) -> None:
    """End the command where the database has never heard of one of *named*."""
    lacking = await database.read(lambda connection: unknown(connection, named))
    if lacking:
        fail("\n".join(f"There is no {kind} {named[kind]} in the database, and no call of one." for kind in lacking))


async def _whole(books: SqlBooks, asked: UsageAsked) -> UsageReport:
    """Every group. A table of the ledger's size is read page by page, and grows meanwhile: the first sums count."""
    report = first = await books.usage(asked)
    groups = list(first.groups)
    while report.has_more:
        after = tuple(value or "" for value in groups[-1].values)
        report = await books.usage(structs.replace(asked, after=after))
        groups += report.groups
    return UsageReport(tuple(groups), first.total, has_more=False)


def table(rows: Sequence[Sequence[str]]) -> str:
    """*rows* of words under each other, all of their cells to the left."""
    safe, widths = _measured(rows)
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in safe)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """*rows* of figures under each other, the first of their cells to the left, the others to the right."""
    safe, widths = _measured(rows)
    lines = (
        "  ".join((row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:]))) for row in safe
    )  # fmt: skip
    return "\n".join(line.rstrip() for line in lines)


def _measured(rows: Sequence[Sequence[str]]) -> tuple[list[list[str]], list[int]]:
    """The cells of *rows*, cleaned and bounded, and how wide each column is."""
    safe = [[clean_text(cell, MAX_ID_CHARS) for cell in row] for row in rows]
    return safe, [max(map(len, column)) for column in zip(*safe, strict=True)]


@click.group(cls=TextGroup)
def traces() -> None:
    """Look at calls one by one."""


@traces.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with those that come, until Ctrl-C.")
@click.option(
    "-n", "--lines", type=click.IntRange(0, 10_000), default=20, show_default=True, help="How many to begin with."
)
@_TENANT
@click.option("--model", help="Asked for.")
@click.option("--key", "key_id", help="Of this key, by its id.")
@click.option("--session", "session_id", help="Of this session.")
@click.option("--user", help="Of this end user.")
@click.option("--status", type=click.IntRange(100, 599), help="With this HTTP status.")
@click.option("--outcome", type=click.Choice(get_args(Outcome)), help="That ended so.")
@_AS_JSON
@config_option
def tail(
    *, follow: bool, lines: int, tenant: str | None, as_json: bool, config: str | None, **filters: str | int | None
) -> None:
    """Print the newest traces, the newest last."""
    asked = TracesAsked(
        tenant, filters={name: value for name, value in filters.items() if value is not None}, limit=lines
    )

    async def work(database: Patient) -> None:
        begun_ms = now_ms()
        there = await _come(database, asked, begun_ms - OVERLAP_MS) if follow else []  # not to be shown as new
        rows = list(await SqlBooks(database, now_ms).traces(asked))[:lines]
        _print(reversed(rows), as_json=as_json)
        if follow:
            seen = {row["request_id"]: row["recorded_ms"] for row in (*there, *rows)}
            async for row in _new(database, asked, begun_ms, seen):
                _print([row], as_json=as_json)

    with suppress(KeyboardInterrupt):
        look_into(stored_or_exit(config).storage, work)
        return
    sys.exit(130)  # as shells say it


@traces.command("erase")
@click.argument("tenant")
@click.option("--yes", is_flag=True, help="Do not ask whether you mean it.")
@config_option
def erase_traces(tenant: str, *, yes: bool, config: str | None) -> None:
    """Delete traces, sessions, bodies and repeated answers of TENANT; the ledger keeps what its calls cost."""
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("Nobody is there to be asked whether you mean it; say --yes.")
        click.confirm(f"Delete all that is kept of the calls of {tenant}? This cannot be undone.", abort=True)
    count = with_database(stored_or_exit(config).storage, lambda database: erase(database, CLI, tenant, now_ms))
    click.echo(f"Deleted {count} rows of {tenant}. The ledger has what its calls cost.")


async def _new(database: Patient, asked: TracesAsked, since_ms: int, seen: dict[str, int]) -> AsyncIterator[Row]:
    """Traces as they come. A database that does not answer is asked again: what comes meanwhile is not lost."""
    outage = ""
    while True:
        try:
            rows = await _come(database, asked, since_ms - OVERLAP_MS)
            outage = ""
        except (SQLAlchemyError, OSError, TimeoutError) as exc:
            rows, lost = [], outage
            outage = f"The database cannot be read now: {type(exc).__name__}: {clean(first_line(exc))}"
            if not lost:
                click.echo(outage, err=True)
        for row in rows:
            since_ms = max(since_ms, row["recorded_ms"])
            if row["request_id"] not in seen:
                seen[row["request_id"]] = row["recorded_ms"]
                yield row
        for request_id in [name for name, at_ms in seen.items() if at_ms < since_ms - OVERLAP_MS]:
            del seen[request_id]
        await asyncio.sleep(POLL_S)


async def _come(database: Patient, asked: TracesAsked, since_ms: int) -> list[Row]:
    """What has come since then; of a flood the first so many, and the rest by the next looks."""

    async def step(connection: AsyncConnection) -> list[Row]:
        rows: list[Row] = []
        after = (since_ms, "")
        while len(rows) < MOST_AT_ONCE:
            page = await rows_of(connection, tail_statement(asked, after))
            rows += page
            if len(page) < TAIL_ROWS:
                break
            after = (page[-1]["recorded_ms"], page[-1]["request_id"])
        return rows

    return await database.read(step)


def _print(rows: Iterable[Row], *, as_json: bool) -> None:
    for row in rows:
        click.echo(msgspec.json.encode(trace_view(row)) if as_json else trace_line(row))


def trace_line(row: Row) -> str:
    """A trace in a line: what one looks for first, and the id by which the rest can be asked for."""
    served = f"{row['provider']}/{row['provider_model']}" if row["provider"] else "-"
    took = "-" if row["total_us"] is None else f"{row['total_us'] // 1000}ms"
    parts = [
        moment_text(row["started_ms"]), str(row["status"]), row["outcome"], row["routing_mode"], row["model"], served,
        f"{row['prompt_tokens']}+{row['completion_tokens']}", format_nano(row["cost_nano_usd"]),
        took, row["tenant"], row["key_id"], row["request_id"],
    ]  # fmt: skip
    parts += [f"{name}={row[name]}" for name in ("error_code", "failure_class", "session_id", "user") if row[name]]
    return clean_text(" ".join(parts), MAX_LINE_CHARS)
