"""Whatever is put into a filter, a path or a cursor: an answer or a 400 that names it, and never a 500."""

from __future__ import annotations

import itertools
import random
from base64 import urlsafe_b64encode
from urllib.parse import quote

import pytest

from gateway.http.admin.asking import SESSIONS_TAKE, TRACES_TAKE, USAGE_TAKES
from gateway.http.admin.pages import cursor_text
from gateway.storage.database import Database
from tests.contract.reading import reading
from tests.support.booked import book, charge, session, trace
from tests.support.scale import examples

LISTINGS = {
    "usage": USAGE_TAKES, "usage.csv": USAGE_TAKES - {"format"}, "traces": TRACES_TAKE, "sessions": SESSIONS_TAKE,
    "sessions/s": TRACES_TAKE - {"session"},
}  # fmt: skip
# Percent-encoded, as they travel.
VALUES = [
    quote(text, safe="")
    for text in (
        "'", '"', "' OR 1=1 --", "'; DROP TABLE traces; --", "%", "_", "\\", "\\x00", "$1", ":name", "{}", "\u2028",
        "\u202e", "-1", "0", str(2**63), str(10**400), "1e309", "NaN", "Infinity", "0x10", "\u0661", "1,1", "day,day",
        ",", "day,model,key", "null", "true", "2026-02-30", "9999-12-31T23:59:59.999999-14:00", "-7d", "99999w",
        "csv\n",
    )
] + [
    "%00", "a%00b", "%ff", "%ed%a0%80", "%", "%zz", "a" * 3000, "%F0%9F%98%80" * 250, "+", "", "%0d%0aX:1",
    f"{'a' * 300}%00",
]  # fmt: skip
TRIED = 10  # of them for each parameter in an everyday run
# As JSON.
MARKS = [
    "[]", "[1]", '["a"]', "[1,2]", '["a","b"]', '[1,"a"]', '[1,"a","b"]', '[1,2,"a"]', '[1,2,"a","b"]',
    f'[{2**63 - 1},{2**63 - 1},"9999-12-31"]', '[1,2,"2026-02-30"]', '[1,2,"\'; --"]', '[1,2,"0000-00-00"]',
    '[1,2,"a","0001-01-01"]', f'[1,"{1000 * "x"}"]', '[1,"\\ud83d\\ude00","x"]', '[1,"\\ud83d"]', '[-1,"a"]',
    f'[{2**63},"a"]', f'[{10**400},"a"]', '[1,"\\u0000"]', '[1,2,"a\\u0000"]', "[1,null]", '[1.5,"a"]', '[1e999,"a"]',
    '[true,"a"]', '[[1],"a"]', '[{"a":1},"b"]', "null", "1", "{", 500 * "[",
]  # fmt: skip


async def fill(database: Database) -> None:
    one = charge()
    async with database.engine.begin() as connection:
        await book(
            connection,
            ledger_rows=[one],
            trace_rows=[trace(one, session_id="s")],
            session_rows=[session(session_id="s")],
        )


async def test_values(tabled: Database) -> None:
    """A value is compared as it is, or refused by the name of its parameter."""
    await fill(tabled)
    chance = random.Random(4)

    async with reading(tabled) as desk:
        for path, names in LISTINGS.items():
            for name in (*names, "limit", "cursor", "tenant"):
                for value in chance.sample(VALUES, min(examples(TRIED), len(VALUES))):
                    reply = await desk.ask(f"{path}?{name}={value}", "anm-ak-operator")

                    assert reply.status in (200, 400, 404), (path, name, value, reply.body)
                    if reply.status == 400:
                        assert reply.json["error"]["param"] in (name, None, "tenant"), (path, name, value, reply.body)
                    if reply.status == 404:
                        assert name == "tenant" or path.startswith("sessions/"), (path, name, value)


async def test_cursors(tabled: Database) -> None:
    """A cursor of our form with anything in it goes on somewhere, or is refused by its name."""
    await fill(tabled)
    listings = {
        "usage": ("&by=day", "&by=model,day", "&by=user"),
        "traces": ("",),
        "sessions": ("",),
        "sessions/s": ("",),
    }

    async with reading(tabled) as desk:
        for mark, (path, queries) in itertools.product(MARKS, listings.items()):
            text = f'["{"sessions/{id:text}" if path == "sessions/s" else path}",{mark}]'
            cursor = urlsafe_b64encode(text.encode()).rstrip(b"=").decode()
            for query in queries:
                reply = await desk.ask(f"{path}?tenant=acme&cursor={cursor}{query}", "anm-ak-operator")

                assert reply.status in (200, 400), (path, mark, reply.body)
                if reply.status == 400:
                    assert reply.json["error"]["param"] == "cursor", (path, mark, reply.body)


async def test_a_cursor_of_another_listing(tabled: Database) -> None:
    """It is of use where it came from alone."""
    cursor = cursor_text("sessions", (1, "acme", "s"))

    async with reading(tabled) as desk:
        assert await desk.refusal(f"traces?cursor={cursor}") == (400, "invalid_request", "cursor")


@pytest.mark.parametrize(
    "segment",
    ["%00", "..", "%2e%2e%2f", "'", "a" * 300, "%ff", "%ed%a0%80", "req_", f"req_{'0' * 32}'", "%", "*", "%0a"],
)
async def test_paths(tabled: Database, segment: str) -> None:
    """An id of another form is not there."""
    async with reading(tabled) as desk:
        for path in ("traces", "receipts", "sessions"):
            assert (await desk.ask(f"{path}/{segment}")).status == 404, path


async def test_what_it_cannot_understand(tabled: Database) -> None:
    """Each parameter says what it takes."""
    wrong = {
        "status": "600", "outcome": "good", "routing_mode": "fast", "since": "yesterday", "until": "9999999",
        "min_cost_usd": "-1", "limit": "0",
    }  # fmt: skip

    async with reading(tabled) as desk:
        for name, value in wrong.items():
            assert await desk.refusal(f"traces?{name}={value}") == (400, "invalid_request", name)
        for day in ("2026-03-02", "2026-03-01"):  # until is the first moment that does not count
            span = f"traces?since={day}&until=2026-03-01"
            assert await desk.refusal(span) == (400, "invalid_request", "since")
        assert await desk.refusal("usage?by=colour") == (400, "invalid_request", "by")
        assert await desk.refusal("usage?format=xml") == (400, "invalid_request", "format")
        assert await desk.refusal("usage?format=csv&limit=2") == (400, "invalid_request", "format")
        assert await desk.refusal("traces?colour=red") == (400, "invalid_request", "colour")


def test_the_longest_cursor() -> None:
    """What a page ends with can be given back, whatever its ids are made of."""
    longest = cursor_text("usage", (2**53, 2**53, "\U0001f600" * 256, '"' * 256))

    assert len(longest) <= 3072
