"""The kit itself: scripts travel, plans are as ordered, outages happen, and both sides write down the same calls."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from itertools import permutations
from pathlib import Path

import pytest
import toktok

from tests.support import proc
from tests.support.config import Config
from tests.support.gateway import PLAIN, Gateway
from tests.support.postgres import PostgresError, cluster

from .customers import Customers
from .plan import EVERYDAY, FULL, plan
from .processes import ROOT, provider_process
from .script import ENCODING, WORDS, Script, script_of
from .stores import Database
from .visits import Visit, visit, visits
from .world import MODELS, OPEN, configuration, customers, price_nano_usd, weigh

SEED = 11
CALLS = 400


def test_every_word_is_a_token() -> None:
    """Whatever words follow each other, they are as many tokens as words: an answer's tokens can be counted by hand."""
    pairs = ["".join(pair) for pair in permutations(WORDS, 2)]
    texts = [*WORDS, *pairs, "".join(WORDS * 3)]

    tokens = [toktok.truncate(text, 10**6, ENCODING)[1] for text in texts]

    assert tokens == [text.count(" ") for text in texts]


def test_scripts_travel() -> None:
    """The provider reads in a request what its customer wrote, and its note weighs the same whatever the count is."""
    script = Script("s1-000042", 7, 5, 20, 130, 12, 120, ("s503", "mid3"))

    read = script_of(b'{"content":"' + script.note().encode() + b'"}')

    assert read == script
    assert [script.act(attempt) for attempt in range(3)] == ["s503", "mid3", "mid3"]
    assert toktok.truncate(script.note(), 10**6, ENCODING)[1] == toktok.truncate(
        Script("s1-000042", 7, 5, 20, 0, 12, 120, ("s503", "mid3")).note(), 10**6, ENCODING
    )[1]


def test_plans() -> None:
    """A plan has what was ordered, in the order of its coming, the same for the same seed."""
    full = plan(SEED, 100_000, FULL)

    assert Counter(one.kind for one in full) == FULL
    assert [one.at for one in full] == sorted(one.at for one in full)
    assert full == plan(SEED, 100_000, FULL) != plan(SEED + 1, 100_000, FULL)
    assert set(EVERYDAY) == set(FULL)


def test_visits_can_be_made_again() -> None:
    """A call follows from seed and number alone; about 15 % of them leave and 5 % are cut (issue, proof)."""
    keys = customers("1.00")

    calls = list(visits(SEED, 4000, keys))

    assert calls[123] == visit(SEED, 123, keys)
    assert 13 < sum(one.leave is not None for one in calls) / 40 < 17
    assert 4 < sum(one.script.acts[0] in ("drop", "mid1", "mid4", "fin", "use", "end") for one in calls) / 40 < 7


def test_money_of_the_kit() -> None:
    """The kit's own arithmetic, by hand: half a nano-USD rounds up, once."""
    assert price_nano_usd(MODELS[0], 3, 1, 2) == (2 * 2_500_117 + 1_250_041 + 2 * 10_000_333 + 500) // 1000 == 26_251
    assert weigh(MODELS[0], 11, is_cached=False) == 44
    assert weigh(MODELS[0], 129, is_cached=True) == 464  # 464.4


def test_outages_of_the_database() -> None:
    """A database that was stopped keeps what it had; one that is frozen answers when it is let go."""
    with cluster() as postgres:
        database = Database(postgres)
        postgres.sql("CREATE TABLE kept (n int)")

        database.stop()
        with pytest.raises(PostgresError):
            postgres.sql("SELECT 1")
        database.start()
        database.freeze()
        database.thaw()

        assert postgres.sql("SELECT count(*) FROM kept") == "0"


@pytest.fixture
def config() -> Config:
    return {"logging": {"level": "info"}}


async def test_both_sides(tmp_path: Path, config: Config) -> None:
    """What customers got in full the provider finished, in the words that it said; nobody got another's answer."""
    keys = [key for key in customers("1.00") if key.tier == OPEN]
    calls: dict[str, Visit] = {one.marker: one for one in visits(SEED, CALLS, keys)}
    async with (
        provider_process(tmp_path) as provider,
        Gateway(configuration(provider.url, keys, **config), flags=PLAIN) as gateway,
    ):
        customers_ = Customers(lambda: gateway.port, at_once=20)
        await customers_.run(calls.values())
        async with asyncio.timeout(10):
            while await provider.open_requests():  # noqa: ASYNC110 - the provider tells when it is asked
                await asyncio.sleep(0.02)
        errors = [line for line in gateway.log if line["level"] == "error"]
        attempts = await provider.stop()
    finished = {attempt.marker for attempt in attempts if attempt.end == "finished"}
    by_end = Counter(attempt.end for attempt in attempts)
    seen = Counter(told.seen for told in customers_.told)

    assert errors == []
    assert {told.marker for told in customers_.told} == set(calls)
    assert all(told.is_own for told in customers_.told)
    assert {told.marker for told in customers_.told if told.seen == "whole"} - finished <= {
        marker for marker, one in calls.items() if one.script.acts[-1] in ("use", "end")
    }
    assert set(seen) == {"whole", "left", "broken", "refused"}
    assert set(by_end) == {"finished", "cut", "left", "refused"}
    assert all(told.cost_nano_usd is not None for told in customers_.told if told.seen == "whole")


@pytest.mark.alone
async def test_sigterm_leaves_nothing_behind() -> None:
    """A soak that is told to go takes its gateway and its provider along."""
    soak = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.soak", "--only", "alone", "--calls", "100000"), cwd=ROOT, env={**os.environ}
    )
    try:
        async with asyncio.timeout(60):
            while b"gateway\0serve" not in b" ".join(map(proc.command_line, pids := proc.tree(soak.pid))):  # noqa: ASYNC110
                await asyncio.sleep(0.1)  # the kernel tells nobody
            soak.send_signal(signal.SIGTERM)
            code = await soak.wait()
    finally:
        left = [pid for pid in pids if proc.command_line(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)

    assert (code, left) == (128 + signal.SIGTERM, [])
