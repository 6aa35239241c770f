"""
The process dies at every point of a call's way; the next one brings the call to its one end.

What a call comes to is compared with what the provider has done for it by then: it is never charged for more.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.acts import Pause
from tests.support.config import standard
from tests.support.crashing import POINTS
from tests.support.frames import chat
from tests.support.gateway import CHAT, PLAIN, Gateway
from tests.support.notation import DONE, FIN, R, T, U
from tests.support.provider import FakeProvider
from tests.support.rows import Ledger, Row
from tests.support.stage import Act

PROMPT, TOKENS = 9, 4
ANSWER: Sequence[Act | bytes] = [  # apart, so that each is a read of its own
    R(), T("One "), Pause(50), T("two "), Pause(50), T("three "), Pause(50), T("four"), FIN(), U(PROMPT, TOKENS),
    DONE,
]  # fmt: skip
PRICE = (2500, 10_000)  # nano-USD for a token of the prompt, and of the answer

# What is owed, by the point: the states it may have, and the tokens of the answer at the least and at the most. Before
# the admission is on the disk there is no call; before a provider has it, it is voided.
ENDS: dict[str, tuple[set[str], range]] = {
    "after_reserve": (set(), range(1)),
    "before_admit_record": (set(), range(1)),
    "after_admit_record": ({"voided"}, range(1)),
    "before_upstream": ({"voided"}, range(1)),
    "after_upstream": ({"reconciled"}, range(1)),
    "after_first_frame": ({"reconciled"}, range(TOKENS + 1)),
    "mid_stream": ({"reconciled"}, range(1, TOKENS + 1)),
    "before_settle": ({"reconciled"}, range(TOKENS, TOKENS + 1)),
    "after_settle": ({"settled"}, range(TOKENS, TOKENS + 1)),
    "before_settle_record": ({"settled"}, range(TOKENS, TOKENS + 1)),
    "after_settle_record": ({"settled"}, range(TOKENS, TOKENS + 1)),
    "mid_batch": ({"settled"}, range(TOKENS, TOKENS + 1)),
    "after_batch": ({"settled"}, range(TOKENS, TOKENS + 1)),
    # At the first look into the journal, when the call may be under way or over.
    "before_letting_go": ({"settled", "reconciled"}, range(TOKENS + 1)),
}


async def die_at(point: str, config: dict[str, Any]) -> None:
    """One call of a gateway that dies at *point*."""
    command = ("-m", "tests.support.crashing", point, "serve")
    async with Gateway(config, flags=PLAIN, command=command) as gateway:
        gateway.expected_exit = -signal.SIGKILL
        with contextlib.suppress(ConnectionError):
            await gateway.client().request("POST", CHAT, chat("m"))
        await gateway.exit_code()


async def recover(config: dict[str, Any]) -> None:
    """A gateway that brings everything to its end, and goes."""
    async with Gateway(config, flags=PLAIN) as gateway:
        await gateway.logged("ledger.adopted", within_s=20)


def owed(row: Row) -> int:
    return int(row["prompt_tokens"] * PRICE[0] + row["completion_tokens"] * PRICE[1])


def test_every_point_is_tried() -> None:
    """No point of the kit is left out."""
    assert {*ENDS, "before_adoption_ends"} == set(POINTS)


@pytest.mark.parametrize("point", ENDS)
async def test_dies_at(point: str, tmp_path: Path) -> None:
    """Wherever the process dies, the call has one end, one trace, and is not charged for more than there was."""
    books, (states, tokens) = Ledger(tmp_path), ENDS[point]
    async with FakeProvider() as provider:
        provider.script("m", [*ANSWER])
        config = standard(provider.base_url, **books.sections)

        await die_at(point, config)
        await recover(config)
        asked = len(provider.requests)

    charges, costs = books.rows("ledger", "kind = 'charge'"), books.rows("ledger", "kind = 'cost'")
    assert {row["state"] for row in charges} <= states
    assert len(charges) == len(books.rows("traces")) == (1 if states else 0)
    assert len(costs) == asked
    assert books.rows("ledger", "kind = 'correction'") == []
    assert all(row["completion_tokens"] in tokens and row["prompt_tokens"] <= PROMPT for row in charges)
    assert all(row["cost_nano_usd"] in (0, owed(row)) for row in charges)
    assert books.journals == []


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
