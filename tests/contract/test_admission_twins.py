"""The script of the shared counters against the machine in Python: the same histories come to the same."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from typing import Any

import hiredis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gateway.core.accounts import Budget, Burst, Key
from gateway.core.ports import Draw, Order, Spent
from gateway.policy.admission import Admission
from gateway.policy.entitlement import Account, Entitlement, entitlement
from gateway.policy.verdict import Open, Verdict
from gateway.storage import redis_script
from gateway.storage.redis_clearing import kind_of
from gateway.storage.redis_link import Word
from tests.support.books import key
from tests.support.redis import PASSWORD, Redis
from tests.support.scale import examples

LEASE_MS, HOLD_MS, REJOIN_MS = 30_000, 90_000, 5_000
START_MS = int(datetime(2026, 2, 27, 23, 58, tzinfo=UTC).timestamp() * 1000)  # near the ends of a day, a week, a month
BUDGETS = (
    Budget("key", "day", 50),
    Budget("tenant", "week", 80),
    Budget("tenant", "month", 120),
    Budget("session", "total", 40),
)
KEYS = (
    key("plain", rpm=3, inflight=2),
    key("burst", rpm=2, burst=Burst(3, 1), tpm=30),
    key("money", budgets=BUDGETS, inflight=3),
    key("poor", budgets=(Budget("tenant", "month", 20),), allowance=60),
    key("over", allowance=60, overage=1, tpm=20),
)

LATE = key("late", budgets=(Budget("key", "total", 10**9),))


class Script:
    """The script on a real server, asked one step at a time at a time of the test's own."""

    def __init__(self, server: Redis) -> None:
        self._sock = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        self._reader = hiredis.Reader(encoding="utf-8")
        self.run("AUTH", PASSWORD)
        self.run("SCRIPT", "LOAD", redis_script.script())

    def run(self, *words: Word) -> Any:
        self._sock.sendall(hiredis.pack_command(words))  # type: ignore[arg-type]
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._sock.recv(65536))
        if isinstance(reply, hiredis.ReplyError):
            raise AssertionError(str(reply))
        return reply

    def step(self, words: list[Word]) -> Any:
        return self.run(*redis_script.evalsha(words))

    def close(self) -> None:
        self._sock.close()


class Twins(RuleBasedStateMachine):
    """Random histories of admissions, settlements, renewals, losses and loads."""

    server: Redis

    def __init__(self) -> None:
        super().__init__()
        self.server.flush()
        self.script = Script(self.server)
        self.now_ms = START_MS
        self.twin = Admission(lease_ms=LEASE_MS, hold_ms=HOLD_MS, rejoin_ms=REJOIN_MS)
        self.number = 0
        self.open: list[Open] = []
        self.settled: list[tuple[Open, Spent]] = []
        self.epochs: dict[int, int] = {}
        self.run = 0  # of the server

    @initialize(loaded=st.booleans())
    def begin(self, loaded: bool) -> None:
        self.lose()
        self.now_ms += REJOIN_MS
        for mine in KEYS if loaded else ():
            limits = entitlement(mine, "s")
            self._load(limits, Verdict("load", self.now_ms, 1, self.twin.standing(limits, self.now_ms)))

    def teardown(self) -> None:
        self.script.close()

    def _same(self, ours: Verdict, theirs: Verdict) -> None:
        assert self.epochs.setdefault(theirs.epoch, ours.epoch) == ours.epoch
        assert ours == Verdict(
            theirs.step, theirs.at_ms, ours.epoch, theirs.standing, theirs.retry_ms, theirs.money, theirs.weighted
        )  # fmt: skip

    def _theirs(self, open_: Open) -> Open:
        """*open_* with the epoch as the server calls it."""
        names = {ours: theirs for theirs, ours in self.epochs.items()}
        return Open(open_.request_id, open_.holder, open_.has_place, open_.parts, names.get(open_.epoch, open_.epoch))

    @rule(mine=st.sampled_from(KEYS), count=st.integers(2, 7), need=st.integers(0, 12))
    def admit_some(self, mine: Key, count: int, need: int) -> None:
        """As callers do: several at once, so that limits are met."""
        for _ in range(count):
            self.admit(mine, "s", need, 1, need)

    @rule(
        mine=st.sampled_from(KEYS),
        session=st.sampled_from([None, "s"]),
        need=st.integers(0, 30),
        part=st.integers(0, 4),
        tokens=st.integers(0, 25),
    )
    def admit(self, mine: Key, session: str | None, need: int, part: int, tokens: int) -> None:
        self.number += 1
        limits = entitlement(mine, session)
        draw = Draw(need, need * part // 4)
        order = Order(mine, f"r{self.number}", session, tokens=tokens, weighted=draw, nano_usd=draw)
        ours = self.twin.admit(order, limits, self.now_ms)
        words = redis_script.admit(order, limits, (LEASE_MS, HOLD_MS, REJOIN_MS), self.now_ms)
        self._same(ours, redis_script.verdict_of(self.script.step(words), limits))
        if ours.step == "admitted":
            self.open.append(ours.open_of(order, limits))
        if ours.step == "load":
            self._load(limits, ours)

    def _load(self, limits: Entitlement, verdict: Verdict) -> None:
        for account, count in zip(limits.accounts, verdict.standing.tallies, strict=True):
            if not count.is_loaded:
                self.load(account, count.period, 5, 0)

    @precondition(lambda self: self.settled)
    @rule(mine=st.sampled_from(KEYS), spent=st.integers(0, 30), known=st.integers(0, 3))
    def load_any(self, mine: Key, spent: int, known: int) -> None:
        limits = entitlement(mine, "s")
        for account, count in zip(limits.accounts, self.twin.standing(limits, self.now_ms).tallies, strict=True):
            self.load(account, count.period, spent, known)

    def load(self, account: Account, period: int, spent: int, known: int) -> None:
        pending = sorted(self.twin.pending(account, self.now_ms))
        assert sorted(self.script.step(redis_script.pending(account, self.now_ms))) == pending
        recorded = [*pending[:known], *[open_.request_id for open_, _ in self.settled[-known:]]]
        names = {ours: theirs for theirs, ours in self.epochs.items()}
        self.twin.load(account, period, spent, recorded, self.now_ms)
        epoch = names[self.twin.epoch]
        self.script.step(redis_script.load(account, period, spent, recorded, epoch=epoch, at_ms=self.now_ms))

    @precondition(lambda self: self.open)
    @rule(pick=st.integers(0, 1000), spent=st.integers(0, 40), tokens=st.integers(0, 40))
    def settle(self, pick: int, spent: int, tokens: int) -> None:
        open_ = self.open.pop(pick % len(self.open))
        said = Spent(tokens, spent, spent)
        self.settled.append((open_, said))
        self._settle(open_, said)

    @precondition(lambda self: self.settled)
    @rule(pick=st.integers(0, 1000))
    def settle_again(self, pick: int) -> None:
        self._settle(*self.settled[pick % len(self.settled)])

    def _settle(self, open_: Open, spent: Spent) -> None:
        self.twin.settle(open_, spent, self.now_ms)
        self.script.step(redis_script.settle(self._theirs(open_), spent, self.now_ms))

    @precondition(lambda self: self.open)
    @rule(pick=st.integers(0, 1000))
    def settle_for_another(self, pick: int) -> None:
        """By its id alone, as whoever adopts a dead process's requests does; it may be alive, and go on with them."""
        self._settle(Open(self.open[pick % len(self.open)].request_id), Spent(1, 2, 2))

    @rule(spent=st.integers(0, 40), turns=st.lists(st.sampled_from(["sweep", "renew", "adopt"]), max_size=4))
    def come_back_late(self, spent: int, turns: list[str]) -> None:
        """Whatever is done for a request meanwhile, in the end it is booked once, at what its own process says."""
        limits = entitlement(LATE, None)
        if not self.twin.standing(limits, self.now_ms).tallies[0].is_loaded:
            self._load(limits, Verdict("load", self.now_ms, 1, self.twin.standing(limits, self.now_ms)))
        before = self.twin.standing(limits, self.now_ms)
        self.admit(LATE, None, 20, 4, 0)
        if not self.open or self.open[-1].holder != LATE.id:
            return  # the counters are too new
        open_ = self.open.pop()
        for turn in turns:
            if turn == "sweep":
                self.wait(HOLD_MS)
                self.sweep()
            elif turn == "adopt":
                self._settle(Open(open_.request_id), Spent(1, 2, 2))
            elif not self.twin.renew(open_, self.now_ms):
                self.script.step(redis_script.renew([self._theirs(open_)], LEASE_MS, HOLD_MS, self.now_ms))
                self.twin.register(open_, self.now_ms)
                self.script.step(redis_script.register(self._theirs(open_), HOLD_MS, self.now_ms))
            held = self.twin.standing(limits, self.now_ms).tallies[0]
            assert held.used + held.held <= before.tallies[0].used + before.tallies[0].held + 20
        said = Spent(0, spent, spent)
        self.settled.append((open_, said))
        self._settle(open_, said)

        (was,), (is_,) = before.tallies, self.twin.standing(limits, self.now_ms).tallies
        assert (is_.used, is_.held) == (was.used + spent, was.held)

    @rule(registers=st.booleans())
    def renew(self, registers: bool) -> None:
        missing = {open_.request_id for open_ in self.open if not self.twin.renew(open_, self.now_ms)}
        told = self.script.step(redis_script.renew(map(self._theirs, self.open), LEASE_MS, HOLD_MS, self.now_ms))
        assert set(told) == missing
        for open_ in self.open if registers else ():
            if open_.request_id in missing and open_.parts:
                self.twin.register(open_, self.now_ms)
                self.script.step(redis_script.register(self._theirs(open_), HOLD_MS, self.now_ms))

    @rule(ms=st.sampled_from([1, 500, 5_000, 29_999, 30_000, 60_000, 61_000, 90_000, 3_700_000, 90_000_000]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        for one in self.twin._accounts.values():  # Redis forgets by its own clock, which stands still here
            one.touched_ms = self.now_ms

    @rule()
    def sweep(self) -> None:
        self.twin.sweep(self.now_ms)
        epoch, born, now = self.script.step(redis_script.tick("", self.now_ms))
        assert (self.epochs.setdefault(int(epoch), self.twin.epoch), int(born), int(now)) == (
            self.twin.epoch, self.twin.born_ms, self.now_ms,
        )  # fmt: skip

    @rule()
    def lose(self) -> None:
        """Everything is gone, and the next step finds a new epoch."""
        self.script.run("FLUSHALL")
        self.twin.lose(self.twin.epoch + 1, self.now_ms)
        self._run_anew()

    @rule()
    def fail_over(self) -> None:
        """Another run of the server has everything, as far as anybody can tell: a new epoch all the same."""
        self.twin.fail_over(self.twin.epoch + 1, self.now_ms)
        self._run_anew()

    def _run_anew(self) -> None:
        self.run += 1
        self.script.step(redis_script.tick(f"run{self.run}", self.now_ms))
        self.sweep()

    @invariant()
    def they_stand_alike(self) -> None:
        for mine in (*KEYS, LATE):
            limits = entitlement(mine, "s")
            theirs = redis_script.verdict_of(
                self.script.step(redis_script.look(Order(mine, "x"), limits, 0, self.now_ms)), limits
            )
            assert self.twin.standing(limits, self.now_ms) == theirs.standing

    @invariant()
    def every_key_ends(self) -> None:
        """LIM-03: whatever crashes, no counter stays for good; and none is taken for somebody else's."""
        for name in self.script.run("KEYS", "*"):
            assert self.script.run("PTTL", name) > 0, name
            assert self.script.run("TYPE", name) == kind_of(name), name


def test_twins(redis: Redis) -> None:
    """LIM-03, LIM-12: both machines agree on every history, and every key has an end at all times."""

    class Here(Twins):
        server = redis

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_the_last_digit(redis: Redis) -> None:
    """Up to 2^53 no amount loses a digit on its way through the script, nor is any written in another form."""
    most = 2**53 - 2
    mine = key("rich", tpm=most, budgets=(Budget("key", "total", most),))
    limits = entitlement(mine, None)
    script, twin = Script(redis), Admission(lease_ms=LEASE_MS, hold_ms=HOLD_MS, rejoin_ms=REJOIN_MS)
    order = Order(mine, "r1", tokens=most - 1, nano_usd=Draw(most - 3, most - 3))
    epoch = redis_script.verdict_of(script.step(redis_script.look(order, limits, 0, START_MS)), limits).epoch
    script.step(redis_script.load(limits.accounts[0], 0, 1, (), epoch=epoch, at_ms=START_MS))
    twin.load(limits.accounts[0], 0, 1, (), START_MS)

    for _ in range(2):
        ours = twin.admit(order, limits, START_MS)
        words = redis_script.admit(order, limits, (LEASE_MS, HOLD_MS, 0), START_MS)
        theirs = redis_script.verdict_of(script.step(words), limits)
        assert (ours.step, ours.standing, ours.money) == (theirs.step, theirs.standing, theirs.money)
        open_ = theirs.open_of(order, limits)
        spent = Spent(most - 2, 0, most - 5)
        script.step(redis_script.settle(open_, spent, START_MS))
        twin.settle(open_, spent, START_MS)
        order = Order(mine, "r2", tokens=1, nano_usd=Draw(3, 3))

    assert theirs.standing.tallies[0].used == most - 4
    script.close()
