"""How long it takes to find that a key is none says nothing of how near it is to one that is."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from statistics import median
from time import perf_counter_ns
from typing import Protocol

import pytest

from gateway.aio import Tasks
from gateway.core.accounts import Key, Tier
from gateway.core.credentials import ENTROPY_BYTES, make_secret
from gateway.settings import FileTerms
from gateway.storage.database import Database
from gateway.storage.sql_keys import SqlKeys, open_keys

RATIO = 1.25  # of medians: 0.91 to 1.05 on a machine under eight times its load, and 1.9 to 2.2 for `CharByChar`
ENTROPY = bytes(range(ENTROPY_BYTES))
KNOWN = make_secret("anm-sk", ENTROPY)
KEY = Key("k", "t", Tier("t"))


class Finds(Protocol):
    async def find(self, secret: str) -> Key | None: ...


class CharByChar:
    """A look-up as it must not be: it compares secrets, and ends where they begin to differ."""

    async def find(self, secret: str) -> Key | None:
        for one, other in zip(KNOWN, secret, strict=True):
            if one != other:
                return None
        return KEY


def mistyped(near: int) -> Callable[[], str]:
    """Makes secrets that have so many characters of the known one, and then chance; their checksums are wrong."""

    def make() -> str:
        rest = len(KNOWN) - near
        return KNOWN[:near] + "".join(random.choices("abcdefghij", k=rest))

    return make


def well_formed(near: int) -> Callable[[], str]:
    """Makes secrets whose first bytes, so many, are the known one's; only the database can tell that they are none."""
    return lambda: make_secret("anm-sk", ENTROPY[:near] + os.urandom(ENTROPY_BYTES - near))


async def ratio(keys: Finds, near: Callable[[], str], far: Callable[[], str], looks: int) -> float:
    """The median time of near misses beside that of far ones, in turns so that both meet the same disturbances."""
    took: dict[bool, list[int]] = {True: [], False: []}
    for _ in range(looks):
        for is_near in random.sample((True, False), 2):
            secret = near() if is_near else far()
            begun_ns = perf_counter_ns()
            found = await keys.find(secret)
            took[is_near].append(perf_counter_ns() - begun_ns)
            assert found is None
    return median(took[True]) / median(took[False])


@pytest.mark.parametrize(
    ("near", "far", "looks"),
    [(mistyped(len(KNOWN) - 2), mistyped(8), 3000), (well_formed(30), well_formed(0), 150)],
    ids=["mistyped", "well_formed"],
)
async def test_a_near_miss(tabled: Database, near: Callable[[], str], far: Callable[[], str], looks: int) -> None:
    """All but the last characters of a key that is in the file, or none of them: unknown in the same time, whether the
    checksum tells it or the database does."""
    stored = SqlKeys(tabled, FileTerms({}), lambda key_id, reason: None)
    clock = iter(range(10**9)).__next__
    keys = open_keys({KNOWN: KEY}, stored, Tasks(lambda name, exc: None), clock_s=clock, epoch_s=clock)
    await keys.find(make_secret("anm-sk", os.urandom(ENTROPY_BYTES)))  # the connection is open

    assert await keys.find(KNOWN) == KEY
    assert 1 / RATIO < await ratio(keys, near, far, looks) < RATIO


async def test_the_measure() -> None:
    """A look-up that compares characters is found out by it."""
    assert await ratio(CharByChar(), mistyped(len(KNOWN) - 2), mistyped(8), 3000) > RATIO
