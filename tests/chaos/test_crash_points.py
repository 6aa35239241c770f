"""
The process dies at every point of a call's way; the next one brings the call to its one end.

What a call comes to is compared with what the provider has done for it by then: it is never charged for more.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.acts import Pause
from tests.support.config import standard
from tests.support.crashing import POINTS
from tests.support.frames import chat
from tests.support.gateway import CHAT, PLAIN, Gateway
from tests.support.limits import tables
from tests.support.notation import DONE, FIN, R, T, U
from tests.support.provider import FakeProvider
from tests.support.rows import Ledger, Row
from tests.support.stage import Act

# The processes of most points are shared, so they stay together; a busy machine starts one in ten seconds.
pytestmark = [pytest.mark.xdist_group("crash_points"), pytest.mark.timeout(300)]
AT_ONCE = 2  # a start is seconds of a core
PROMPT, TOKENS = 9, 4
ANSWER: Sequence[Act | bytes] = [  # apart, so that each is a read of its own
    R(), T("One "), Pause(50), T("two "), Pause(50), T("three "), Pause(50), T("four"), FIN(), U(PROMPT, TOKENS),
    DONE,
]  # fmt: skip
PRICE = (2500, 10_000)  # nano-USD for a token of the prompt, and of the answer

# Noted, and not sent: of the two that cannot be done at once, an attempt that nobody has seen is nothing to pay for.
UNSENT = "in_upstream"
# What is owed, by the point: the states it may have, and the tokens of the answer at the least and at the most. Before
# the admission is on the disk there is no call; before a provider has it, it is voided.
ENDS: dict[str, tuple[set[str], range]] = {
    "after_reserve": (set(), range(1)),
    "before_admit_record": (set(), range(1)),
    "after_admit_record": ({"voided"}, range(1)),
    "before_upstream": ({"voided"}, range(1)),
    UNSENT: ({"reconciled"}, range(1)),
    "after_upstream": ({"reconciled"}, range(1)),
    "after_first_frame": ({"reconciled"}, range(TOKENS + 1)),
    "mid_stream": ({"reconciled"}, range(1, TOKENS + 1)),
    "before_settle": ({"reconciled"}, range(TOKENS, TOKENS + 1)),
    "after_settle": ({"settled"}, range(TOKENS, TOKENS + 1)),
    "before_settle_record": ({"settled"}, range(TOKENS, TOKENS + 1)),
    "after_settle_record": ({"settled"}, range(TOKENS, TOKENS + 1)),
    "mid_batch": ({"settled"}, range(TOKENS, TOKENS + 1)),
    "after_batch": ({"settled"}, range(TOKENS, TOKENS + 1)),
    "before_letting_go": ({"settled"}, range(TOKENS, TOKENS + 1)),
}


async def die_at(point: str, config: dict[str, Any]) -> None:
    """One call, of the session *point*, of a gateway that dies at *point*."""
    command = ("-m", "tests.support.crashing", point, "serve")
    async with Gateway(config, flags=PLAIN, command=command) as gateway:
        gateway.expected_exit = -signal.SIGKILL
        with contextlib.suppress(ConnectionError):
            await gateway.client(anoman_session_id=point).request("POST", CHAT, chat("m"))
        await gateway.exit_code()


def owed(row: Row) -> int:
    return int(row["prompt_tokens"] * PRICE[0] + row["completion_tokens"] * PRICE[1])


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What is there when one process has taken over from all that have died, each at its point.

    Attributes:
        asked: How many requests the provider had, by point.
    """

    books: Ledger
    asked: Mapping[str, int]

    def rows(self, table: str, point: str, where: str = "1") -> list[Row]:
        """The rows of the calls of *point*; what never was in the ledger has none."""
        theirs = "request_id IN (SELECT request_id FROM traces WHERE session_id = ?)"
        return self.books.rows(table, f"{where} AND {theirs}", point)


async def die_everywhere(folder: Path) -> Aftermath:
    """Each with a journal and a provider of its own, and all with one database: what remains is taken over at once."""
    await tables(folder)
    books, asked, turn = Ledger(folder), dict[str, int](), asyncio.Semaphore(AT_ONCE)
    books.spool.mkdir()

    async def die(point: str) -> None:
        own = Ledger(folder / point)
        sections = books.sections | {"ledger": own.sections["ledger"]}
        async with turn, FakeProvider() as provider:
            provider.script("m", [*ANSWER])
            await die_at(point, standard(provider.base_url, **sections))
            asked[point] = len(provider.requests)
        (journal,) = own.journals
        journal.rename(books.spool / journal.name)

    async with asyncio.TaskGroup() as deaths:
        for point in ENDS:
            deaths.create_task(die(point))
    async with Gateway(standard("http://127.0.0.1:9", **books.sections), flags=PLAIN) as gateway:
        await gateway.logged("ledger.adopted", len(ENDS), within_s=20)
    return Aftermath(books, asked)


@pytest.fixture(scope="module")
def aftermath(tmp_path_factory: pytest.TempPathFactory) -> Aftermath:
    return asyncio.run(die_everywhere(tmp_path_factory.mktemp("crashes")))


def test_every_point_is_tried() -> None:
    """No point of the kit is left out."""
    assert {*ENDS, "before_adoption_ends"} == set(POINTS)


@pytest.mark.parametrize("point", ENDS)
def test_dies_at(point: str, aftermath: Aftermath) -> None:
    """Wherever the process dies, the call has one end, one trace, and is not charged for more than there was."""
    states, tokens = ENDS[point]
    charges = aftermath.rows("ledger", point, "kind = 'charge'")

    assert {row["state"] for row in charges} == states
    assert len(charges) == len(aftermath.rows("traces", point)) == (1 if states else 0)
    assert len(aftermath.rows("ledger", point, "kind = 'cost'")) == aftermath.asked[point] + (point == UNSENT)
    assert all(row["completion_tokens"] in tokens and row["prompt_tokens"] <= PROMPT for row in charges)
    assert all(row["cost_nano_usd"] in (0, owed(row)) for row in charges)


def test_nothing_else_is_there(aftermath: Aftermath) -> None:
    """No row but those of the calls, nothing corrected, nothing left in a journal."""
    charges = aftermath.books.rows("ledger", "kind = 'charge'")

    assert len(charges) == sum(bool(states) for states, _ in ENDS.values())
    assert aftermath.books.rows("ledger", "kind = 'correction'") == []
    assert aftermath.books.journals == []


async def test_dies_in_an_adoption(tmp_path: Path) -> None:
    """A process that dies while it takes a journal over leaves it to the next; nothing is written twice."""
    books = Ledger(tmp_path)
    async with FakeProvider() as provider:
        provider.script("m", [*ANSWER])
        config = standard(provider.base_url, **books.sections)

        await die_at("after_settle_record", config)
        command = ("-m", "tests.support.crashing", "before_adoption_ends", "serve")
        with contextlib.suppress(Exception):  # it may be gone before it can be asked whether it is ready
            async with Gateway(config, flags=PLAIN, command=command) as gateway:
                gateway.expected_exit = -signal.SIGKILL
                await gateway.exit_code()
        async with Gateway(config, flags=PLAIN) as gateway:
            await gateway.logged("ledger.adopted", 2, within_s=20)

    assert [row["kind"] for row in books.rows("ledger")] == ["charge", "cost"]
    assert books.journals == []


async def test_several_take_over(tmp_path: Path) -> None:
    """Of several processes that find the journal of a dead one, one takes it."""
    books = Ledger(tmp_path)
    async with FakeProvider() as provider:
        provider.script("m", [*ANSWER])
        config = standard(provider.base_url, **books.sections)

        await die_at("mid_stream", config)
        async with Gateway(config, flags=PLAIN, workers=4) as gateway:
            await gateway.logged("ledger.adopted", within_s=20)
            await asyncio.sleep(2.5)  # as long as until each has looked once more
            adopted = [line for line in gateway.log if line["event"] == "ledger.adopted"]

    assert [line["reconciled"] for line in adopted] == [1]
    assert [row["kind"] for row in books.rows("ledger")] == ["charge", "cost"]
