"""Tables as CSV (RFC 4180) that a spreadsheet shows and does not run."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

# What Excel, LibreOffice or Google Sheets take for the beginning of a formula, full-width forms included: OWASP,
# "CSV Injection". Control characters in front of one are passed over.
_BEGINNINGS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")

_NUMBER = re.compile(r"-[0-9]+(?:\.[0-9]+)?")  # a sum of corrections, and nothing to run


def sheet(head: Sequence[str], rows: Iterable[Sequence[str | int | None]]) -> str:
    """
    A line for *head* and for each of *rows*. A number is written as it is, also where it is a text, nothing as an empty
    cell, and a text that a spreadsheet would run gets an apostrophe in front.
    """
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(head)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cell(value: str | int | None) -> str | int:
    if isinstance(value, str) and value.startswith(_BEGINNINGS) and _NUMBER.fullmatch(value) is None:
        return f"'{value}"
    return "" if value is None else value
