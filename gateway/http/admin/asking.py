"""Parameters of a query as questions to the books; whatever makes no sense is refused by its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar, get_args

from gateway.core.errors import INVALID_REQUEST, GatewayError
from gateway.core.exchange import Outcome
from gateway.core.money import parse_nano
from gateway.core.reading import DIMENSIONS, Dimension, read_dimensions, usual_since_ms
from gateway.wire.headers import MAX_ID_CHARS
from gateway.wire.moments import MAX_MS, read_moment

T = TypeVar("T")

# Contract: 4. The last two are of features to come.
ROUTING_MODES = ("realtime", "streaming", "streaming_cancelled", "streaming_interrupted", "batch", "cache_hit")
_STATUS = re.compile(r"[1-5][0-9]{2}")

Query = Mapping[str, str]


def _refuse(param: str, message: str) -> GatewayError:
    return GatewayError(INVALID_REQUEST, f"{param}: {message}.", param=param)


def _text(name: str, value: str) -> str:
    if len(value) > MAX_ID_CHARS:  # what is kept is not longer either
        raise _refuse(name, f"this is longer than {MAX_ID_CHARS} characters")
    return value


def _one_of(*words: str) -> Callable[[str, str], str]:
    def read(name: str, value: str) -> str:
        if value not in words:
            raise _refuse(name, f"this is none of {', '.join(words)}")
        return value

    return read


def _status(name: str, value: str) -> int:
    if _STATUS.fullmatch(value) is None:
        raise _refuse(name, "this is no HTTP status")
    return int(value)


# Parameter, column of the trace, and what reads the value.
TRACE_FILTERS: Mapping[str, tuple[str, Callable[[str, str], str | int]]] = {
    "key": ("key_id", _text),
    "model": ("model", _text),
    "provider": ("provider", _text),
    "endpoint": ("endpoint", _text),
    "session": ("session_id", _text),
    "agent": ("agent_id", _text),
    "user": ("user", _text),
    "trace_id": ("trace_id", _text),
    "response_id": ("response_id", _text),
    "status": ("status", _status),
    "outcome": ("outcome", _one_of(*get_args(Outcome))),
    "routing_mode": ("routing_mode", _one_of(*ROUTING_MODES)),
    "error_code": ("error_code", _text),
}
SPAN = ("since", "until")
TRACES_TAKE = frozenset({*TRACE_FILTERS, *SPAN, "min_cost_usd"})
SESSIONS_TAKE = frozenset({*SPAN, "agent"})
USAGE_FILTERS: tuple[Dimension, ...] = tuple(name for name in DIMENSIONS if name not in ("day", "tenant"))
USAGE_TAKES = frozenset({*USAGE_FILTERS, *SPAN, "by", "format"})


def span_of(query: Query, now_ms: int) -> tuple[int | None, int | None]:
    """`since` and `until` in epoch milliseconds."""
    since_ms, until_ms = (_moment(query, name, now_ms) for name in SPAN)
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise _refuse("since", "this is not before until, which is the first moment that does not count")
    return since_ms, until_ms


def usage_span(query: Query, now_ms: int) -> tuple[int, int]:
    """As `span_of`; without an end up to now and beyond, without a beginning the usual time before its end."""
    since_ms, until_ms = span_of(query, now_ms)
    if since_ms is None:
        since_ms = usual_since_ms(until_ms, now_ms)
    return since_ms, MAX_MS if until_ms is None else until_ms


def dimensions_of(query: Query) -> tuple[Dimension, ...]:
    """What to group by: the day, unless something else is said."""
    try:
        return read_dimensions(query.get("by", "day"))
    except ValueError as exc:
        raise _refuse("by", str(exc)) from None


def usage_filters(query: Query) -> dict[Dimension, str]:
    """The values that dimensions have to have."""
    return {name: _text(name, query[name]) for name in USAGE_FILTERS if name in query}


def trace_filters(query: Query) -> dict[str, str | int]:
    """The values that columns of the trace have to have."""
    return {column: read(name, query[name]) for name, (column, read) in TRACE_FILTERS.items() if name in query}


def min_cost_of(query: Query) -> int | None:
    """`min_cost_usd` in nano-USD."""
    return _read(query, "min_cost_usd", parse_nano)


def _moment(query: Query, name: str, now_ms: int) -> int | None:
    return _read(query, name, lambda text: read_moment(text, now_ms))


def _read(query: Query, name: str, read: Callable[[str], T]) -> T | None:
    if name not in query:
        return None
    try:
        return read(query[name])
    except ValueError as exc:
        raise _refuse(name, str(exc)) from None
