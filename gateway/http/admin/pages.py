"""Pages of a listing: how many rows, and behind which one."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from gateway.core.errors import INVALID_REQUEST, GatewayError

T = TypeVar("T")

MAX_ROWS = 200  # a page of the widest rows is some 300 KB
DEFAULT_ROWS = 50
MAX_CURSOR_CHARS = 3072  # two ids of 256 characters with four bytes each, and two numbers, in base64

Mark = tuple[int | str, ...]
"""The columns by which a listing is ordered, of the last row of a page."""

_decode_cursor = msgspec.json.Decoder(tuple[str, Mark]).decode


@dataclass(frozen=True, slots=True)
class Page:
    """
    What is asked for of a listing.

    Attributes:
        listing: The path of the route: a cursor is of use where it came from alone.
        after: The mark behind which it begins; None at the beginning. Only that it is a mark is known, not whose:
            check it with `mark_of`, and keep the tenant in the query.
    """

    listing: str = ""
    limit: int = DEFAULT_ROWS
    after: Mark | None = None

    def mark_of(self, *types: type[int | str]) -> Mark | None:
        """
        The mark, whose parts are of *types*; None at the beginning.

        Raises:
            GatewayError: They are not.
        """
        if self.after is not None and tuple(map(type, self.after)) != types:
            raise _bad_cursor()
        return self.after

    def render(self, rows: Sequence[T], entry: Mapping[str, Any] | None = None, *, next_mark: Mark | None) -> bytes:
        """The page as JSON. *next_mark* is that of its last row, or None where no row follows."""
        cursor = None if next_mark is None else cursor_text(self.listing, next_mark)
        return msgspec.json.encode({"object": "list", "data": rows, "next": cursor, **(entry or {})})


NO_PAGE = Page()


def read_page(listing: str, query: Mapping[str, str]) -> Page:
    """
    The page that the parameters `limit` and `cursor` of *query* ask for.

    Raises:
        GatewayError: One of them makes no sense.
    """
    limit_text, cursor = query.get("limit"), query.get("cursor")
    limit = DEFAULT_ROWS
    if limit_text is not None:
        limit = int(limit_text) if limit_text.isascii() and limit_text.isdigit() and len(limit_text) <= 3 else 0
        if not 1 <= limit <= MAX_ROWS:
            raise GatewayError(INVALID_REQUEST, f"limit is a whole number from 1 to {MAX_ROWS}.", param="limit")
    return Page(listing, limit, None if cursor is None else _mark(listing, cursor))


def cursor_text(listing: str, mark: Mark) -> str:
    """The cursor of *mark*: text that is of use to nobody but `read_page`, and holds nothing that its page did not."""
    return urlsafe_b64encode(msgspec.json.encode((listing, mark))).rstrip(b"=").decode()


def _mark(listing: str, cursor: str) -> Mark:
    try:
        if len(cursor) > MAX_CURSOR_CHARS:
            raise _bad_cursor()
        where, mark = _decode_cursor(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise _bad_cursor() from None
    big = any(type(part) is int and not 0 <= part < 2**63 for part in mark)
    if where != listing or big or any(type(part) is str and "\0" in part for part in mark):
        raise _bad_cursor()
    return mark


def _bad_cursor() -> GatewayError:
    return GatewayError(INVALID_REQUEST, "cursor is not one that this listing gave.", param="cursor")
