"""What can be asked of the books, and what the answers look like: to the admin API and to the command line alike.

Money is whole nano-USD in questions and exact decimals of USD in answers; time is epoch milliseconds in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, get_args

from msgspec import Struct

from gateway.core.money import format_nano

Dimension = Literal[
    "day", "model", "key", "user", "agent", "session", "provider", "region", "mode", "endpoint", "tenant"
]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
MAX_DIMENSIONS = 2  # a table has rows and columns; three would be a cube, and groups without number
DAY_MS = 86_400_000
_USUAL_MS = 30 * DAY_MS  # where nothing else is said: a month's bill, and not every row there ever was


def read_dimensions(text: str) -> tuple[Dimension, ...]:
    """
    The dimensions that *text* names.

    Raises:
        ValueError: It names others, or none, one twice, or too many.
    """
    names = text.split(",")
    found = tuple(known for name in names for known in DIMENSIONS if known == name)
    if len(found) != len(names) or len(set(names)) != len(names) or len(names) > MAX_DIMENSIONS:
        raise ValueError(f"this is not one or two of {', '.join(DIMENSIONS)}, with a comma between")
    return found


def usual_since_ms(until_ms: int | None, now_ms: int) -> int:
    """Where usage begins that is asked for up to *until_ms*, or up to now, and not from when on."""
    return max(0, (now_ms if until_ms is None else until_ms) - _USUAL_MS)


class UsageAsked(Struct, frozen=True):
    """
    Sums of what was charged, by none, one or two dimensions.

    Attributes:
        tenant: Whose; None for everybody's.
        since_ms: Of admission, as in the ledger, so that a day's sums are those that budgets saw.
        until_ms: The first moment that is not asked for.
        filters: Further dimensions that have to have a value.
        after: The group behind which to go on, "" for a value that is not there.
    """

    tenant: str | None
    by: tuple[Dimension, ...]
    since_ms: int
    until_ms: int
    filters: Mapping[Dimension, str] = {}
    after: tuple[str, ...] | None = None
    limit: int = 50


class Figures(Struct, frozen=True):
    """Sums over charges and their corrections; only charges count as requests."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    weighted_tokens: int = 0
    cost_nano_usd: int = 0

    def told(self) -> dict[str, Any]:
        """As in answers: the cost as an exact decimal of USD."""
        said: dict[str, Any] = {name: getattr(self, name) for name in FIGURES[:-1]}
        return {**said, "cost_usd": format_nano(self.cost_nano_usd)}


FIGURES = Figures.__struct_fields__


class Group(Struct, frozen=True):
    """The values of its dimensions, in the order asked for, None where there was none, and its sums."""

    values: tuple[str | None, ...]
    figures: Figures


class UsageReport(Struct, frozen=True):
    """
    Groups in the order of their values, and the sums over all of them, also those of other pages.

    Attributes:
        has_more: Whether further groups follow.
    """

    groups: tuple[Group, ...]
    total: Figures
    has_more: bool


class TracesAsked(Struct, frozen=True):
    """
    Traces, newest first.

    Attributes:
        tenant: Whose; None for everybody's.
        filters: Columns of the trace that have to have a value.
        after: `started_ms` and `request_id` of the trace behind which to go on.
    """

    tenant: str | None
    since_ms: int | None = None
    until_ms: int | None = None
    filters: Mapping[str, str | int] = {}
    min_cost_nano_usd: int | None = None
    after: tuple[int, str] | None = None
    limit: int = 50


class SessionsAsked(Struct, frozen=True):
    """
    Sessions, the one used last first.

    Attributes:
        since_ms: Of the last use, like `until_ms`.
        after: `last_ms`, tenant and id of the session behind which to go on.
    """

    tenant: str | None
    since_ms: int | None = None
    until_ms: int | None = None
    agent: str | None = None
    after: tuple[int, str, str] | None = None
    limit: int = 50


Row = Mapping[str, Any]
"""A row by the names of its columns in `storage.tables`."""


class TraceFound(Struct, frozen=True):
    """
    Attributes:
        ledger: Every row about the request in the order of writing: charge, corrections, costs of providers.
        bodies: Request and answer, where the key allowed to keep them and they have not expired.
    """

    trace: Row
    ledger: Sequence[Row]
    bodies: Row | None


class SessionFound(Struct, frozen=True):
    """A session and a page of its traces, with at most one more than asked for."""

    session: Row
    traces: Sequence[Row]


class Books(Protocol):
    """
    What is kept of calls, to be read. A tenant of None is everybody.

    Every method raises StoreUnavailable when it cannot be told now, and sees one state of the books throughout. Pages
    have at most one row more than asked for, which tells that there are more.
    """

    async def usage(self, asked: UsageAsked) -> UsageReport: ...

    async def traces(self, asked: TracesAsked) -> Sequence[Row]: ...

    async def trace(self, tenant: str | None, request_id: str) -> TraceFound | None: ...

    async def receipt(self, tenant: str | None, request_id: str, key_id: str | None = None) -> Sequence[Row]:
        """The rows of the ledger about the request, where it is of the key *key_id*, if one is given."""

    async def sessions(self, asked: SessionsAsked) -> Sequence[Row]: ...

    async def session(self, session_id: str, asked: TracesAsked) -> SessionFound | None:
        """The session of the tenant of *asked*, which is one, and the traces asked for, as far as they are of it."""
