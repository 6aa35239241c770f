"""Usage as providers export it, read into counts: our own neutral table, and the documented forms of two vendors."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from fractions import Fraction
from typing import Any

import msgspec

from gateway.core.money import NANO_PER_USD
from gateway.core.reconciling import Counted, Place
from gateway.wire.moments import read_moment
from gateway.wire.values import decode_values

MAX_COUNT = 2**62  # more is none that could be compared with 64 bits of ours
_AMOUNT = re.compile(r"[0-9]{1,20}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?")
_COUNTS = ("requests", "prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_tokens")
_COLUMNS = frozenset({"id", "day", "model", *_COUNTS, "cost_usd"})

Export = list[tuple[Place, Counted]]


class BadExport(Exception):
    """A file that is no export; the message says where and why."""


def read_export(data: bytes) -> Export:
    """
    The counts of *data*, whose form shows in its beginning.

    - A table (CSV with a head, or JSON lines) with the columns `id`, or `day` and `model`, and any of the counts.
    - OpenAI's pages of `GET /v1/organization/usage/completions`, asked for with `group_by=model` and days.
    - Anthropic's pages of `GET /v1/organizations/usage_report/messages`, likewise (`group_by[]=model`).

    Pages may follow each other as JSON lines, or stand in one JSON list.

    Raises:
        BadExport: It is none of these, has no rows, or a row makes no sense.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadExport("The file is not text in UTF-8.") from None
    rows = list(_rows(text))
    if not rows:
        raise BadExport("The file has no rows.")
    found = [counted for number, row in enumerate(rows, 1) for counted in _read(row, number)]
    if not found:
        raise BadExport("The file has no counts: ask for them by day and by model.")
    if len({len(place) for place, _ in found}) > 1:
        raise BadExport("Some rows have an id and some have none; keep them in files of their own.")
    return found


def _rows(text: str) -> Iterator[Any]:
    """Objects of JSON, or lines of CSV as mappings."""
    if not text.lstrip().startswith(("{", "[")):
        yield from _table(text)
        return
    try:
        whole = decode_values(text)
    except msgspec.DecodeError:
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield _json(line, number)
        return
    except RecursionError:
        raise BadExport("The file is nested too deeply.") from None
    yield from whole if isinstance(whole, list) else [whole]


def _json(line: str, number: int) -> Any:
    try:
        return decode_values(line)
    except (msgspec.DecodeError, RecursionError):
        raise BadExport(f"Line {number} is no JSON.") from None


def _table(text: str) -> Iterator[Mapping[str, Any]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                raise BadExport(f"Line {reader.line_num} has another number of cells than the head.")
            yield {name: value for name, value in row.items() if value != "" or name == "id"}
    except csv.Error as exc:
        raise BadExport(f"Line {reader.line_num}: {exc}.") from None


def _read(row: Any, number: int) -> Export:
    try:
        if not isinstance(row, dict):
            raise ValueError("this is no object")
        for has, read in _FORMS:
            if has(row):
                return list(read(row))
        return [_neutral(row)]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, OSError) as exc:
        said = f"there is no {exc}" if isinstance(exc, KeyError) else str(exc)
        raise BadExport(f"Row {number}: {said}.") from None


def _neutral(row: Mapping[str, Any]) -> tuple[Place, Counted]:
    unknown = sorted(str(name) for name in set(row) - _COLUMNS)
    if unknown:
        raise ValueError(f"the column {unknown[0]!r} is none of {', '.join(sorted(_COLUMNS))}")
    if row.get("id") not in (None, "") or ("id" in row and "day" not in row):
        if row["id"] in (None, ""):
            raise ValueError("the `id` is empty")
        place: Place = (_text(row["id"]),)
    else:
        place = (date.fromisoformat(_text(row["day"])).isoformat(), _text(row["model"]))
    counts = {name: _count(row[name]) for name in _COUNTS if row.get(name) is not None}
    cost = row.get("cost_usd")
    return place, Counted(**counts, cost_nano_usd=None if cost is None else _nano(cost))


def _openai(page: Mapping[str, Any]) -> Iterable[tuple[Place, Counted]]:
    # OpenAI's API reference, "Usage: completions". Its input tokens include those from the cache, as ours do.
    for bucket in page["data"]:
        day = _day(bucket["start_time"])
        for result in bucket["results"]:
            yield (
                (day, _model(result)),
                Counted(
                    requests=_count(result["num_model_requests"]),
                    prompt_tokens=_count(result["input_tokens"]),
                    completion_tokens=_count(result["output_tokens"]),
                    cached_tokens=_count(result.get("input_cached_tokens") or 0),
                ),
            )


def _anthropic(page: Mapping[str, Any]) -> Iterable[tuple[Place, Counted]]:
    # Anthropic's API reference, "Get Messages Usage Report". It has no count of requests, and three kinds of input.
    for bucket in page["data"]:
        day = _day(read_moment(_text(bucket["starting_at"]), 0) / 1000)
        for result in bucket["results"]:
            cached = _count(result.get("cache_read_input_tokens") or 0)
            written = sum(_count(value) for value in (result.get("cache_creation") or {}).values())
            yield (
                (day, _model(result)),
                Counted(
                    prompt_tokens=_count(result["uncached_input_tokens"]) + cached + written,
                    completion_tokens=_count(result["output_tokens"]),
                    cached_tokens=cached,
                    cache_write_tokens=written,
                ),
            )


def _has(member: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a page's buckets, if it has any, begin in a member of this name."""

    def look(row: Mapping[str, Any]) -> bool:
        data = row.get("data")
        return isinstance(data, list) and all(isinstance(bucket, dict) and member in bucket for bucket in data)

    return look


_FORMS = ((_has("start_time"), _openai), (_has("starting_at"), _anthropic))


def _model(result: Mapping[str, Any]) -> str:
    if not result.get("model"):
        raise ValueError("the counts are not by model; ask for them with group_by=model")
    return _text(result["model"])


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or len(value) > 512 or not value.isprintable():
        raise ValueError("this is no plain text of at most 512 characters")
    return value


def _count(value: object) -> int:
    """A whole number, also as the text of one."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_COUNT:
        raise ValueError("this is no count")
    return value


def _nano(value: object) -> int:
    """Nano-USD of an amount of USD with as many places as a vendor likes, rounded half up."""
    text = bytes(value).decode() if isinstance(value, msgspec.Raw) else str(value)
    if isinstance(value, bool) or _AMOUNT.fullmatch(text) is None:
        raise ValueError("this is no amount of USD")
    nano = Fraction(text) * NANO_PER_USD + Fraction(1, 2)
    if nano >= MAX_COUNT:
        raise ValueError("this is no amount of USD that could be charged")
    return nano.numerator // nano.denominator


def _day(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).date().isoformat()
