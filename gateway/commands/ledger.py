"""`ledger verify` and `ledger reconcile`: whether the books agree with each other, and with a provider's own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NoReturn

import click
import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.bookkeeping import spool_directory
from gateway.commands.configured import config_option, load_or_exit, stored_or_exit
from gateway.commands.looking import Patient, look_into
from gateway.commands.stored import fail, now_ms
from gateway.commands.words import TextGroup
from gateway.core.money import format_nano
from gateway.core.ports import StoreUnavailable
from gateway.core.reading import DAY_MS
from gateway.core.reconciling import Counted, Difference, Place, differences, gathered, is_by_id, renamed, totals
from gateway.loglines import clean
from gateway.providers.exports import BadExport, Export, read_export
from gateway.settings import Settings
from gateway.storage.database import first_line
from gateway.storage.journal.behind import Ends, ends_in_files, ends_in_streams, missing
from gateway.storage.journal.stream_store import StreamStore
from gateway.storage.reading import in_one_state
from gateway.storage.reconciling import count_days, count_ids, providers_of
from gateway.storage.redis_link import Link, RedisFailed, open_link
from gateway.storage.verifying import MAX_EXAMPLES, Finding, Kind, verify
from gateway.storage.verifying_counters import BETWEEN_S, LOOKS, REPLY_S, Counter, check_counters, still_so
from gateway.storage.verifying_counters import repair as repair_counters
from gateway.wire.headers import MAX_ID_CHARS, clean_text

MAX_EXPORT_BYTES = 512 * 1024 * 1024  # a million answers by their ids are a fifth of it

KINDS: tuple[Kind, ...] = ("missing", "extra", "mismatch")

_AS_JSON = click.option("--json", "as_json", is_flag=True, help="A JSON object a line.")


@click.group(cls=TextGroup)
def ledger() -> None:
    """See whether the books agree."""


@ledger.command("verify")
@click.option(
    "--repair",
    is_flag=True,
    help="Set counters in Redis that differ to what the ledger says; refused while a journal is behind.",
)
@_AS_JSON
@config_option
def verify_books(*, repair: bool, as_json: bool, config: str | None) -> None:
    """Hold the ledger, traces, sessions and counters against each other; exit 1 unless nothing is wrong."""
    settings = load_or_exit(config)
    mended: list[Counter] | None = [] if repair else None
    findings, seen = look_into(settings.storage, lambda database: _verify(database, settings, mended))
    for one in mended or ():
        click.echo(msgspec.json.encode({"set": one.name, "was": one.used, "is": one.charged}) if as_json else _set(one))
    counts = {kind: sum(one.count for one in findings if one.kind == kind) for kind in KINDS}
    for finding in findings:
        if as_json:
            click.echo(msgspec.json.encode(finding))
        elif finding.count:
            click.echo(f"{finding.kind}: {finding.count} times not so: {finding.rule}.")
            examples = ", ".join(clean_text(one, MAX_ID_CHARS) for one in finding.examples)
            click.echo(f"  {examples}{', ...' if finding.count > len(finding.examples) else ''}")
    if as_json:
        click.echo(msgspec.json.encode({**counts, "counters": seen}))
    else:
        looked_at = "no counters in Redis" if seen is None else f"{seen} counters in Redis"
        click.echo(f"{'/'.join(counts)} = {'/'.join(map(str, counts.values()))}; {looked_at} looked at.")
    sys.exit(1 if any(counts.values()) else 0)


def _set(counter: Counter) -> str:
    """What was done to *counter*; amounts are nano-USD, or weighted tokens of an allowance."""
    if counter.used is None:
        return f"put aside {clean(counter.name)}, which was no number; it is loaded from the ledger anew"
    return f"set {clean(counter.name)} {counter.used} -> {counter.charged}"


async def _verify(
    database: Patient, settings: Settings, mended: list[Counter] | None
) -> tuple[list[Finding], int | None]:  # fmt: skip
    """
    What is wrong, and how many counters were looked at.

    Args:
        mended: Gets the counters that were set; None for a look that sets none.
    """
    kept_since_ms = now_ms() - (settings.traces.retention_days - 1) * DAY_MS if settings.traces.retention_days else 0

    async def step(connection: AsyncConnection) -> list[Finding]:
        return await verify(connection, kept_since_ms)

    findings = await database.read(in_one_state(step))
    if not settings.storage.redis_url:
        return findings, None
    try:
        link = await open_link(settings.storage.redis_url, lambda: None, timeout_s=REPLY_S)
        try:
            seen, differing = await check_counters(link, database.read, now_ms)
            left = differing
            if mended is not None and differing:
                left = await _repair(link, database, settings, differing)
                mended += [one for one in differing if one.name not in {other.name for other in left}]
        finally:
            link.close()
    except RedisFailed as exc:
        fail(f"The counters cannot be read: {clean(str(exc))}")
    names = tuple(f"{clean(one.name)} counts {_counted(one)}, charged {one.charged}" for one in left)
    rule = "a counter in Redis has what the ledger charged in its period"
    return [*findings, Finding("mismatch", rule, len(names), names[:MAX_EXAMPLES])], seen


def _counted(one: Counter) -> str:
    if one.used is None:
        return "what is no number"
    return f"{one.used} in a period that has not begun" if one.is_ahead else str(one.used)


async def _repair(link: Link, database: Patient, settings: Settings, differing: list[Counter]) -> list[Counter]:
    """
    Set those of *differing* that it is safe to set; the others.

    What a counter has that is on its way to the ledger would be lost by it. Whatever was counted when it was looked at
    is in a journal a moment later: if the ledger has all that is in the journals by then, it has that too.
    """
    await asyncio.sleep(BETWEEN_S)
    behind = await _behind(database, await _ends(settings))
    if behind:
        since_s = max(0, now_ms() - min(behind.values())) // 1000
        calls = _many(len(behind), "call")
        click.echo(
            f"Nothing is repaired: {calls} of the journals, the first of which ended {since_s} s ago, would be lost to "
            "the counters, as the ledger does not have them yet. Try again when they are there.",
            err=True,
        )
        return differing
    same, changed = await still_so(link, database.read, now_ms, differing)
    return [*await repair_counters(link, same), *changed]


async def _behind(database: Patient, ends: Ends) -> Ends:
    """
    Those of *ends* that the ledger does not get in the time that it may be late; see `LOOKS`.

    Calls that end meanwhile are not waited for: `still_so` leaves the counters that they change.
    """
    left = await database.read(partial(missing, ends=ends))
    for _ in range(LOOKS - 1):
        if not left:
            break
        await asyncio.sleep(BETWEEN_S)
        left = await database.read(partial(missing, ends=left))
    return left


async def _ends(settings: Settings) -> Ends:
    """Those that journals have now, of this host's processes or of all that share a Redis."""
    try:
        if settings.ledger.durability == "redis-stream":
            store = StreamStore(settings.storage.redis_url)
            try:
                return await ends_in_streams(store)
            finally:
                await store.close()
        return ends_in_files(spool_directory(settings))
    except (OSError, StoreUnavailable) as exc:
        fail(f"Nothing is repaired: the journals cannot be read: {clean(first_line(exc))}")


def _aliases(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    if not all(theirs and ours for theirs, _, ours in pairs):
        raise click.BadParameter("write it as their-name=our-name")
    return {theirs: ours for theirs, _, ours in pairs}


@ledger.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--provider", help="Only what the ledger has of this provider, by its name in the configuration.")
@click.option("--alias", "aliases", multiple=True, callback=_aliases, help="Of a model: their-name=our-name.")
@_AS_JSON
@config_option
def reconcile(
    file: Path, provider: str | None, aliases: dict[str, str], *, as_json: bool, config: str | None
) -> None:  # fmt: skip
    """Compare a provider's own usage export FILE with what the ledger has as costs; exit 1 where they differ."""
    export = _read_or_exit(file)
    theirs = gathered(export)

    async def work(database: Patient) -> tuple[dict[Place, Counted], list[str]]:
        async def step(connection: AsyncConnection) -> tuple[dict[Place, Counted], list[str]]:
            count = count_ids if is_by_id(theirs) else count_days
            found = await count(connection, list(theirs), provider)
            return found, [] if found or provider is None else await providers_of(connection)

        return await database.read(in_one_state(step))

    ours, known = look_into(stored_or_exit(config).storage, work)
    if not ours and provider is not None and provider not in known:
        words = f"the ledger has no costs of a provider {provider}; it has: {', '.join(known) or 'none'}"
        raise click.BadParameter(words, param_hint="--provider")
    if not is_by_id(theirs):
        theirs = renamed(theirs, ours, aliases)
    found = differences(ours, theirs)
    _tell(found, ours, theirs, as_json=as_json)
    sys.exit(1 if found else 0)


def _read_or_exit(file: Path) -> Export:
    if file.stat().st_size > MAX_EXPORT_BYTES:
        _refuse(f"{file} is larger than {MAX_EXPORT_BYTES >> 20} MiB; split it by days.")
    try:
        return read_export(file.read_bytes())
    except BadExport as exc:
        _refuse(f"{file} cannot be read. {exc}")
    except OSError as exc:
        _refuse(f"{file} cannot be read: {exc.strerror}.")


def _refuse(message: str) -> NoReturn:
    """End the process as for an argument that is none: 1 says that the books differ."""
    click.echo(message, err=True)
    sys.exit(2)


def _tell(
    found: list[Difference], ours: Mapping[Place, Counted], theirs: Mapping[Place, Counted], *, as_json: bool
) -> None:
    sums = [(whose, totals(counts)) for whose, counts in (("ours", ours), ("theirs", theirs))]
    if as_json:
        for difference in found:
            click.echo(msgspec.json.encode(difference.told()))
        counted = {whose: msgspec.to_builtins(total) for whose, total in sums}
        click.echo(msgspec.json.encode({"places": len({*ours, *theirs}), "differences": len(found), **counted}))
        return
    for line in _difference_lines(found):
        click.echo(line)
    for whose, total in sums:
        click.echo(f"{whose}: {_amounts(total)}")
    agreed = "They agree." if not found else f"They differ in {_many(len(found), 'amount')}."
    click.echo(f"{_many(len({*ours, *theirs}), 'place')}. {agreed}")


def _difference_lines(found: Iterable[Difference]) -> Iterator[str]:
    """
    Such as `2026-03-01 gpt-4o: prompt_tokens ours 100, theirs 90 (2 requests not by their count)`.

    What only one side has at a place is in one line: `chatcmpl-9: only theirs, prompt_tokens 1, completion_tokens 1`.
    """
    for (place, side, uncertain), some in groupby(found, lambda each: (each.place, _only(each), each.uncertain)):
        where = " ".join(clean_text(part, MAX_ID_CHARS) for part in place)
        behind = f" ({_many(uncertain, 'request')} not by their count)" if uncertain else ""
        told = [each.told() for each in some]
        if side is None:
            yield from (f"{where}: {one['amount']} ours {one['ours']}, theirs {one['theirs']}{behind}" for one in told)
        else:
            amounts = [f"{one['amount']} {one[side]}" for one in told if one[side] is not None]
            yield f"{where}: {', '.join([f'only {side}', *amounts])}{behind}"


def _only(difference: Difference) -> str | None:
    """The side that alone has anything at the place; None where both have."""
    if difference.ours is None:
        return "theirs"
    return "ours" if difference.theirs is None else None


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _amounts(total: Counted) -> str:
    told = {name: value for name, value in msgspec.to_builtins(total).items() if value is not None}
    uncertain, cost = told.pop("uncertain"), told.pop("cost_nano_usd", None)
    parts = [f"{name} {value}" for name, value in told.items()]
    parts += [f"cost_usd {format_nano(cost)}"] if cost is not None else []
    return ", ".join([*parts, f"{_many(uncertain, 'request')} not by their count"] if uncertain else parts)
