"""The ledger's costs of providers, counted as a provider's export counts them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.entries import COST, COST_CORRECTION
from gateway.core.reading import DAY_MS
from gateway.core.reconciling import AMOUNTS, Counted, Place
from gateway.storage.reading_usage import ATTEMPT, DAY, EPOCH
from gateway.storage.tables import ledger, traces

BATCH = 500  # ids in one statement: SQLite takes 32,766 parameters, and a plan for thousands takes longer than two
_TOKENS = AMOUNTS[1:]


async def count_days(
    connection: AsyncConnection, places: Iterable[Place], provider: str | None
) -> dict[Place, Counted]:
    """Costs by day and the provider's name of the model, for every day that *places* name; of *provider* alone."""
    days = sorted({place[0] for place in places})
    wanted = {datetime.fromisoformat(day).replace(tzinfo=UTC) for day in days}
    first, last = ((at - EPOCH) // timedelta(milliseconds=1) for at in (min(wanted), max(wanted)))
    of_days = ledger.c.admitted_ms >= first, ledger.c.admitted_ms < last + DAY_MS
    chosen = _costs(("day", "provider_model"), *of_days, provider=provider)
    found = (await connection.execute(chosen)).all()
    places_of = (((EPOCH + timedelta(days=row[0])).date().isoformat(), row[1] or "") for row in found)
    return {place: _counted(row[2:]) for place, row in zip(places_of, found, strict=True) if place[0] in days}


async def count_ids(connection: AsyncConnection, places: Sequence[Place], provider: str | None) -> dict[Place, Counted]:
    """
    Costs by the names that *places* have for answers: the provider's own, or the request's id.

    What the ledger has besides, from the first of them to the last, is there as well, by the request's id.
    """
    names = [place[0] for place in places]
    counted: dict[Place, Counted] = {}
    seen: set[str] = set()
    times: list[int] = []
    for start in range(0, len(names), BATCH):
        batch = names[start : start + BATCH]
        answers = await _answers(connection, batch)
        of_batch = ledger.c.request_id.in_({*batch, *answers})
        chosen = _costs(("request_id", "provider", "admitted_ms"), of_batch, provider=provider)
        for row in await connection.execute(chosen):
            request_id, served_by, at_ms, *sums = row
            seen.add(request_id)
            times.append(at_ms)
            name, answered_by = answers.get(request_id, (request_id, served_by))
            if served_by == answered_by:  # of a fallback the provider whose answer has the name
                place = (name,)
                counted[place] = counted.get(place, Counted()) + _counted(sums)
    if times:
        counted |= await _between(connection, (min(times), max(times)), provider, seen)
    return counted


async def providers_of(connection: AsyncConnection) -> list[str]:
    """The providers that the ledger has costs of, by name."""
    chosen = select(ledger.c.provider).where(ledger.c.kind == COST, ledger.c.provider.is_not(None)).distinct()
    return sorted((await connection.execute(chosen)).scalars())


async def _answers(connection: AsyncConnection, names: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """The requests whose answers have these *names*, with the name and the provider; by the request's id."""
    columns = (traces.c.request_id, traces.c.response_id, traces.c.provider)
    found = await connection.execute(select(*columns).where(traces.c.response_id.in_(names)))
    return {request_id: (name, provider) for request_id, name, provider in found}


async def _between(
    connection: AsyncConnection, span_ms: tuple[int, int], provider: str | None, seen: Container[str]
) -> dict[Place, Counted]:
    """What else the ledger has from the first to the last of what was looked for."""
    chosen = _costs(("request_id",), ledger.c.admitted_ms.between(*span_ms), provider=provider)
    found = await connection.stream(chosen)
    return {(row[0],): _counted(row[1:]) async for row in found if row[0] not in seen}


def _costs(by: Sequence[str], *which: ColumnElement[bool], provider: str | None) -> Select[Any]:
    """
    Counts of attempts by columns of `_attempts`, which they begin with.

    Attempts that nobody bills are in the ledger too, at nothing; providers do not count them.
    """
    own = () if provider is None else (ledger.c.provider == provider,)
    of = _attempts(*which, *own).subquery().c
    is_billed = (of.prompt_tokens > 0) | (of.completion_tokens > 0) | (of.cost_nano_usd > 0)
    sums = (func.count(), *(func.sum(of[name]) for name in _TOKENS), func.sum(of.is_uncertain))
    places = [of[name] for name in by]
    return select(*places, *sums).where(is_billed).group_by(*places)


def _attempts(*which: ColumnElement[bool]) -> Select[Any]:
    """What attempts cost, their corrections with them; certain as soon as one row is the provider's own last word."""
    places = (
        ledger.c.request_id, ledger.c.provider, ledger.c.provider_model, ledger.c.admitted_ms, DAY.label("day"),
    )  # fmt: skip
    is_uncertain = func.min(case((ledger.c.basis != "provider_final", 1), else_=0)).label("is_uncertain")
    sums = [func.sum(ledger.c[name]).label(name) for name in _TOKENS]
    chosen = select(*places, *sums, is_uncertain).where(ledger.c.kind.in_((COST, COST_CORRECTION)), *which)
    return chosen.group_by(*places, ATTEMPT)


def _counted(sums: Row[Any] | Sequence[Any]) -> Counted:
    return Counted(*map(int, sums))
