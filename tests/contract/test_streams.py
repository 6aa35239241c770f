"""The journal in Redis: what is taken over, and from whom."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
import pytest_asyncio
from redis import Redis as Client

from gateway.aio import Tasks
from gateway.core.catalog import Provider, Route
from gateway.core.journal import Admitted, Record, decode
from gateway.core.ports import Spent, StoreUnavailable
from gateway.storage.journal import stream_store, streams
from gateway.storage.journal.carrying import Carrier, CarrierReports
from gateway.storage.journal.spool import Reports
from gateway.storage.journal.stream_pipe import Letter
from gateway.storage.journal.stream_store import StreamStore
from gateway.storage.journal.streams import StreamKeeper, StreamReports, StreamRules
from gateway.storage.writing import Entry
from tests.support.redis import Redis, server
from tests.unit.admissions import ONE, admission, ended
from tests.unit.storage.journal.test_keeping import NOW_S, SOON_S, Counters, Shelf, begin_early, see_early_ends

ROUTE = Route(Provider("openai", "openai_chat", "https://openai.test", "cloud_direct", "US", ONE), "gpt-x")


@pytest.fixture
def redis() -> Iterator[Redis]:
    with server() as running:
        yield running


class House:
    """Keepers of one Redis and one database."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.shelf = Shelf()
        self.counters = Counters()
        self.adopted: list[tuple[str, int, int]] = []
        self.displaced: list[tuple[str, str]] = []
        self.crashes: list[tuple[str, BaseException]] = []
        self._tasks = Tasks(lambda name, exc: self.crashes.append((name, exc)))

    def keeper(self, name: str) -> StreamKeeper:
        reports = CarrierReports(lambda exc: None, lambda: None, lambda request_id, reason: None)
        return StreamKeeper(
            StreamRules(name, f"writer-{name}"), self.redis.url, Carrier(self.shelf, reports),
            self.counters, reports=Reports(lambda exc: None, lambda: None, lambda took_s: None),
            stream_reports=StreamReports(
                lambda *facts: self.adopted.append(facts), lambda *names: self.displaced.append(names)
            ),
            epoch_s=lambda: NOW_S, tasks=self._tasks,
        )  # fmt: skip


    async def has_adopted(self) -> None:
        """Wait until a journal has been taken over, and is gone."""
        async with asyncio.timeout(SOON_S):
            while not self.adopted:  # noqa: ASYNC110 - a list tells nobody
                await asyncio.sleep(0.01)


@pytest_asyncio.fixture
async def house(redis: Redis) -> AsyncIterator[House]:
    yield House(redis)


async def serving(house: House, request_id: str) -> StreamKeeper:
    """A process that has a call under way."""
    keeper = house.keeper("one")
    keeper.start()
    await keeper.admit(admission(request_id))
    return keeper


async def stop(keeper: StreamKeeper) -> None:
    """The process of *keeper* stands still."""
    for task in keeper._running:
        task.cancel()
    await asyncio.wait(keeper._running)


async def leave(keeper: StreamKeeper) -> None:
    """The process of *keeper* admits `r1`, and dies."""
    keeper.start()
    await keeper.admit(admission("r1"))
    await stop(keeper)
    keeper._pipe.close()
    await keeper._store.close()


async def test_drained(house: House) -> None:
    """Calls reach the database, of which counters hear, and nothing of them is left in Redis."""
    keeper = house.keeper("one")
    keeper.start()

    for number in range(50):
        (await keeper.admit(admission(f"r{number}"))).sent(ROUTE)
        keeper.record(ended(f"r{number}"))
    await house.shelf.has(50)
    await keeper.close(SOON_S)

    assert sorted(house.shelf.order) == sorted(f"r{number}" for number in range(50))
    assert house.counters.known == house.shelf.order
    assert house.redis.keys() == []


async def test_an_end_amid_the_last_look(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends while its process looks a last time whether its journal is empty does not go with the journal."""
    keeper = house.keeper("one")
    keeper.start()
    _, *others = keeper._running
    for name in ("r1", "r2"):
        (await keeper.admit(admission(name))).sent(ROUTE)
    read, late = keeper._store.read, ["r2"]

    async def reading(name: str, after: bytes, most: int) -> list[tuple[bytes, bytes]]:
        found = await read(name, after, most)
        if not found and late and all(task.done() for task in others):
            keeper.record(ended(late.pop()))  # behind Redis's reply that there is nothing more
        return found

    monkeypatch.setattr(keeper._store, "read", reading)
    keeper.record(ended("r1"))
    await keeper.close(SOON_S)

    assert sorted(house.shelf.entries) == ["r1", "r2"]
    assert house.redis.keys() == []


async def test_a_slow_process_has_the_last_word(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that stood still for longer than its lease finds its call reconciled; what it says of it comes after
    that, in a journal of its own."""
    monkeypatch.setattr(stream_store, "LEASE_MS", 300)
    slow, other = house.keeper("slow"), house.keeper("other")
    slow.start()
    place = await slow.admit(admission("r1"))
    place.sent(ROUTE)
    place.moved(4, 1.0)
    async with asyncio.timeout(SOON_S):
        while not house.redis.command("HLEN", "anoman:journal:slow:places"):  # noqa: ASYNC110 - Redis tells nobody
            await asyncio.sleep(0.05)
    await stop(slow)

    monkeypatch.setattr(stream_store, "LEASE_MS", 15_000)
    other.start()
    await house.shelf.has(1)
    reconciled = house.shelf.entries["r1"].receipt
    slow.start()
    slow.record(ended("r1"))
    async with asyncio.timeout(SOON_S):
        while len(house.shelf.order) < 2:  # noqa: ASYNC110 - nothing else happens at the second one
            await asyncio.sleep(0.01)
    await slow.close(SOON_S)
    await other.close(SOON_S)

    assert reconciled.booking is not None
    assert (reconciled.booking.is_reconciled, reconciled.usage.completion_tokens) == (True, 4)
    assert house.adopted == [("writer-slow", 0, 1)]
    assert house.shelf.order[:2] == ["r1", "r1"]
    assert set(house.shelf.order) == {"r1"}  # its end may be there twice: it cannot know whether the other one took it
    assert house.redis.keys() == []


async def test_a_request_and_its_record_leave_together(house: House) -> None:
    """That a provider is asked is in Redis though the process ends in that very turn of its loop."""
    keeper = house.keeper("one")
    keeper.start()
    place = await keeper.admit(admission("r1"))

    place.sent(ROUTE)
    there = house.redis.command("XLEN", "anoman:journal:one")  # nothing of this process has run since

    keeper.record(ended("r1"))
    await keeper.close(SOON_S)
    assert there == 2


async def test_a_lease_that_comes_back(house: House) -> None:
    """
    A process whose lease is over is alive all the same when Redis had stood still, or it itself for a moment: it has
    two seconds in which to say so, and nothing is taken from it.
    """
    slow, other = house.keeper("slow"), house.keeper("other")
    slow.start()
    await slow.admit(admission("r1"))

    house.redis.command("DEL", "anoman:journal:slow:lease")
    unheld = await other._store.unheld("other")
    other.start()
    async with asyncio.timeout(SOON_S):
        while not house.redis.command("EXISTS", "anoman:journal:slow:lease"):  # noqa: ASYNC110 - Redis tells nobody
            await asyncio.sleep(0.05)
    await asyncio.sleep(streams.ADOPT_S)  # the second look
    slow.record(ended("r1"))
    await slow.close(SOON_S)
    await other.close(SOON_S)

    assert unheld == {"slow"}
    assert house.adopted == []
    assert house.shelf.order == ["r1"]


async def test_what_runs_on_after_a_loss(house: House) -> None:
    """A journal that is gone, with its names, is begun anew with all that is open: the next one who takes it knows."""
    keeper, other = house.keeper("one"), house.keeper("other")
    keeper.start()
    place = await keeper.admit(admission("r1"))
    place.sent(ROUTE)
    place.moved(7, 1.0)

    house.redis.flush()
    async with asyncio.timeout(SOON_S):
        while not house.redis.command("HLEN", "anoman:journal:one:places"):  # noqa: ASYNC110 - Redis tells nobody
            await asyncio.sleep(0.05)
    await stop(keeper)
    keeper._pipe.close()
    await keeper._store.close()
    house.redis.command("DEL", "anoman:journal:one:lease")
    other.start()
    await house.has_adopted()
    await other.close(SOON_S)

    assert house.shelf.entries["r1"].receipt.usage.completion_tokens == 7
    assert house.adopted == [("writer-one", 0, 1)]


@pytest.mark.parametrize("key", ["anoman:journal:one", "anoman:journal:one:places", "anoman:journals"])
async def test_a_key_of_another_kind(house: House, key: str) -> None:
    """What somebody has put under a name of ours keeps its contents, under another name, and the journal goes on."""
    keeper, other = house.keeper("one"), house.keeper("other")
    keeper.start()
    place = await keeper.admit(admission("r1"))
    place.sent(ROUTE)

    house.redis.command("SET", key, "mine")
    async with asyncio.timeout(SOON_S):
        while not house.displaced:
            with contextlib.suppress(StoreUnavailable):
                place.moved(1, 1.0)
                await keeper.admit(admission("r2"))
            keeper.record(ended("r2"))
            await asyncio.sleep(0.05)
    await keeper.admit(admission("r3"))
    keeper.record(ended("r3"))
    keeper.record(ended("r1"))
    await house.shelf.has(3)
    await keeper.close(SOON_S)
    await other.close(SOON_S)

    ((name, new_name),) = house.displaced
    assert name == key
    assert house.redis.command("GET", new_name) == "mine"
    assert house.redis.keys() == [new_name]


async def test_another_kind_in_the_journal_of_the_dead(house: House) -> None:
    """It keeps nobody from taking over what is left."""
    await leave(house.keeper("dead"))
    other = house.keeper("other")
    for command in ("DEL anoman:journal:dead:lease", "SET anoman:journal:dead:places mine"):
        house.redis.command(*command.split())

    other.start()
    await house.shelf.has(1)
    await other.close(SOON_S)

    assert [name for name, _ in house.displaced] == ["anoman:journal:dead:places"]
    assert list(house.shelf.entries) == ["r1"]


async def test_entries_that_are_no_text(house: House) -> None:
    """They are put aside, which is told once, and keep nobody from taking over what is left; a writer that is none is
    called as its journal is."""
    await leave(house.keeper("dead"))
    other = house.keeper("other")
    client = Client.from_url(house.redis.url)
    client.hset("anoman:journals", b"\xff\xfe", b"mine")
    client.hset("anoman:journals", "dead", b"\xff")
    client.delete("anoman:journal:dead:lease")

    other.start()
    await house.shelf.has(1)
    await house.has_adopted()
    await other.close(SOON_S)
    ((key, new_name),) = house.displaced
    kept = client.hgetall(new_name)
    client.close()

    assert (key, kept) == ("anoman:journals", {b"\xff\xfe": b"mine"})
    assert (house.adopted, house.crashes) == ([("dead", 0, 1)], [])
    assert list(house.redis.keys()) == [new_name]


@pytest.mark.parametrize("is_dead", [False, True])
async def test_entries_that_are_no_records(house: House, is_dead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, they are put aside as they are, and what stands behind them is carried."""
    monkeypatch.setattr(streams, "MOST", 3)
    client = Client.from_url(house.redis.url)
    strange = [{b"mine": b"%d" % number} for number in range(7)] + [{b"r": b"\xc1"}]
    keeper, other = house.keeper("one"), house.keeper("other")
    if not is_dead:
        keeper.start()
    for fields in strange:
        client.xadd("anoman:journal:one", fields)
    await leave(keeper) if is_dead else await keeper.admit(admission("r1"))
    if is_dead:
        client.delete("anoman:journal:one:lease")
    else:
        keeper.record(ended("r1"))

    other.start()
    await house.shelf.has(1)
    await other.close(SOON_S)
    if not is_dead:
        await keeper.close(SOON_S)
    kept = [fields for name in client.keys("anoman:aside:*") for _, fields in client.xrange(name)]
    client.close()

    assert sorted(map(repr, kept)) == sorted(map(repr, strange))
    assert {name.partition("~")[0] for name, _ in house.displaced} == {"anoman:journal:one"}
    assert (list(house.shelf.entries), house.crashes) == (["r1"], [])


async def test_a_flush_before_the_database_has_it(house: House) -> None:
    """Ends of a process that lives are written again, and counted once."""
    keeper = house.keeper("one")
    keeper.start()
    house.shelf.is_away = True
    for number in range(3):
        await keeper.admit(admission(f"r{number}"))
        keeper.record(ended(f"r{number}"))
    await keeper._pipe.emptied()

    house.redis.command("FLUSHALL")
    async with asyncio.timeout(SOON_S):
        while house.redis.command("XLEN", "anoman:journal:one") != 3:  # noqa: ASYNC110 - Redis tells nobody
            await asyncio.sleep(0.05)
    house.shelf.is_away = False
    await house.shelf.has(3)
    await keeper.close(SOON_S)

    assert (sorted(house.shelf.entries), keeper.backlog) == (["r0", "r1", "r2"], 0)
    assert house.redis.keys() == []


async def test_a_connection_that_is_cut(house: House) -> None:
    """Nobody is refused for it, and what was on its way is sent again."""
    keeper = await serving(house, "r0")

    for number in range(1, 20):
        house.redis.command("CLIENT", "KILL", "TYPE", "normal")
        place = await keeper.admit(admission(f"r{number}"))
        place.sent(ROUTE)
        keeper.record(ended(f"r{number}"))
    keeper.record(ended("r0"))
    await house.shelf.has(20)
    await keeper.close(SOON_S)

    assert sorted(house.shelf.entries) == sorted(f"r{number}" for number in range(20))
    assert house.redis.keys() == []


async def test_what_nobody_waits_for_is_not_sent_again(house: House) -> None:
    """A call that was refused does not come into the journal when the connection is lost later."""
    keeper = await serving(house, "r0")

    house.redis.freeze()
    with pytest.raises(StoreUnavailable):
        await keeper.admit(admission("r1"))
    keeper._pipe.close()
    await asyncio.sleep(0)
    waiting = dict(keeper._pipe._waiting)
    house.redis.thaw()
    keeper.record(ended("r0"))
    await keeper.close(SOON_S)

    assert waiting == {}
    assert house.redis.keys() == []


async def test_a_short_silence(house: House) -> None:
    """As of a fork, or of somebody's slow command: calls wait, and none is refused."""
    keeper = await serving(house, "r0")

    house.redis.freeze()
    asyncio.get_running_loop().call_later(0.2, house.redis.thaw)
    await keeper.admit(admission("r1"))

    for name in ("r0", "r1"):
        keeper.record(ended(name))
    await keeper.close(SOON_S)
    assert set(house.shelf.entries) == {"r0", "r1"}


async def test_who_waits_when_redis_is_back(house: House) -> None:
    """Calls pass at once where Redis goes on, and what came meanwhile is not in their way; nobody waited for long."""
    keeper = await serving(house, "r0")

    house.redis.freeze()
    refused = await asyncio.gather(
        *[keeper.admit(admission(f"no{number}")) for number in range(50)], return_exceptions=True
    )
    begun_s = asyncio.get_running_loop().time()
    with pytest.raises(StoreUnavailable):
        await keeper.admit(admission("known"))
    waited_s = asyncio.get_running_loop().time() - begun_s
    late = [asyncio.ensure_future(keeper.admit(admission(f"r{number}"))) for number in range(50)]
    await asyncio.sleep(0)
    house.redis.thaw()
    places = await asyncio.gather(*late)
    for number in range(50):
        keeper.record(ended(f"no{number}", booking=None))
        keeper.record(ended(f"r{number}"))
    await keeper.close(SOON_S)

    assert {type(one) for one in refused} == {StoreUnavailable}
    assert len(places) == 50
    assert waited_s < streams.ADMIT_S


async def test_away(house: House) -> None:
    """While Redis is away nobody is let in; the ends of those who were are written when it is there again."""
    keeper = await serving(house, "r1")

    house.redis.freeze()
    with pytest.raises(StoreUnavailable):
        await keeper.admit(admission("r2"))
    keeper.record(ended("r1"))
    keeper.record(ended("r2", booking=None))
    house.redis.thaw()
    await house.shelf.has(2)
    await keeper.close(SOON_S)

    assert set(house.shelf.entries) == {"r1", "r2"}
    assert house.redis.keys() == []


async def test_what_is_not_known_to_be_there_is_not_forgotten(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A record may be read, and what is before it forgotten, sooner than the reply to its writing is here: the admission
    of a call must not go for that, nor while it is written anew.
    """
    keeper, store = house.keeper("one"), StreamStore(house.redis.url)
    landed, is_late = keeper._pipe._landed, asyncio.Event()
    monkeypatch.setattr(streams, "ADMIT_S", SOON_S)

    def late(letter: Letter, reply: str) -> None:
        is_late.set()
        asyncio.get_running_loop().call_later(0.2, landed, letter, reply)

    keeper._pipe._landed = late  # type: ignore[method-assign]
    keeper.start()
    calls = [asyncio.ensure_future(keeper.admit(admission(f"r{number}"))) for number in range(20)]
    await is_late.wait()
    await keeper._empty()
    await asyncio.gather(*calls)
    for place in keeper._open.values():
        place.since_s -= 100
    is_late.clear()
    keeper._rewrite()
    await is_late.wait()
    await keeper._empty()

    left = {record.admission.request_id for record in await records(store) if isinstance(record, Admitted)}
    await keeper.close(SOON_S)
    await store.close()
    assert left == {f"r{number}" for number in range(20)}


async def records(store: StreamStore) -> list[Record]:
    return [decode(payload) for _, payload in await store.read("one", b"0", 1000)]


async def test_a_stream_that_is_begun_anew_by_a_clock_behind(house: House) -> None:
    """Its ids are lower than those that were read; it is read all the same."""
    keeper = await serving(house, "r1")
    keeper.record(ended("r1"))
    await house.shelf.has(1)
    house.redis.flush()
    house.redis.command("XADD", "anoman:journal:one", "1-1", "none", "")
    keeper._read_to = b"9999999999999-0"

    await keeper.admit(admission("r2"))
    keeper.record(ended("r2"))

    await house.shelf.has(2)
    await keeper.close(SOON_S)
    assert set(house.shelf.entries) == {"r1", "r2"}


async def test_a_command_that_is_cancelled_is(house: House) -> None:
    """At whatever moment: whoever stops a task waits for it."""
    store = StreamStore(house.redis.url)
    for number in range(200):
        task = asyncio.create_task(store.hold("one", "me"))
        for _ in range(number % 12):
            await asyncio.sleep(0)
        was_over = not task.cancel()
        await asyncio.wait([task])

        assert was_over or task.cancelled()
    await store.close()


def connections(redis: Redis) -> set[str]:
    """Of keepers, by the server's numbers for them."""
    lines = str(redis.command("CLIENT", "LIST")).splitlines()
    return {line.split()[0] for line in lines if "cmd=client" not in line}


async def test_a_slow_redis_keeps_its_connections(house: House) -> None:
    """A call that has waited for long is refused; what it waited on is not given up, for a new one takes longer."""
    keeper = await serving(house, "r1")
    before = connections(house.redis)

    house.redis.freeze()
    with pytest.raises(StoreUnavailable):
        await keeper.admit(admission("r2"))
    house.redis.thaw()
    await asyncio.sleep(0.1)
    await keeper.admit(admission("r3"))
    for name in ("r1", "r3"):
        keeper.record(ended(name))
    keeper.record(ended("r2", booking=None))
    after = connections(house.redis)
    await keeper.close(SOON_S)

    assert before <= after
    assert set(house.shelf.entries) == {"r1", "r2", "r3"}


async def test_a_loop_that_is_held_up(house: House) -> None:
    """What this process is held up by is no silence of Redis: nobody is refused for that."""
    keeper = await serving(house, "r1")

    async def hold_up() -> None:
        time.sleep(0.3)  # noqa: ASYNC251 - as a busy machine does

    await asyncio.gather(keeper.admit(admission("r2")), hold_up(), keeper.admit(admission("r3")))
    for name in ("r1", "r2", "r3"):
        keeper.record(ended(name))
    await keeper.close(SOON_S)

    assert set(house.shelf.entries) == {"r1", "r2", "r3"}


async def test_taking_over_what_limits_were_being_asked(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """An early admission that a dead process leaves is a call where limits let it in and a second has passed, or a
    provider was asked; of any other nothing is told, and what it may hold is given back."""
    monkeypatch.setattr(streams, "RENEW_S", 0.05)
    dead = house.keeper("one")
    dead.start()
    await begin_early(dead)
    await asyncio.sleep(0.2)  # longer than progress waits
    await stop(dead)
    dead._pipe.close()
    await dead._store.close()
    house.redis.command("DEL", stream_store.journal_key("one", "lease"))

    other = house.keeper("two")
    other.start()
    await house.has_adopted()
    await other.close(SOON_S)

    see_early_ends(house.shelf, house.counters)


async def test_what_is_held_of_the_dead(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a dead process had not come to record is given back, and of an old end its last word is said again."""
    monkeypatch.setattr(stream_store, "LEASE_MS", 300)
    dead, other = house.keeper("dead"), house.keeper("other")
    dead.start()
    await dead.admit(admission("old"))
    house.shelf.is_away = True
    dead.record(ended("old", settled_ms=int(NOW_S * 1000) - 61_000))
    await asyncio.sleep(0.3)  # it is written
    await stop(dead)
    dead._pipe.close()
    await dead._store.close()
    house.counters.held = {"writer-dead": ["old", "unrecorded"]}
    house.shelf.is_away = False

    monkeypatch.setattr(stream_store, "LEASE_MS", 15_000)
    other.start()
    await house.shelf.has(1)
    await other.close(SOON_S)

    assert house.counters.settled == {"old": Spent(33, 33, 41_000), "unrecorded": Spent()}


async def test_a_mistake_of_ours(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody had thought of is told of once, and the journal is emptied as soon as that can be done."""
    monkeypatch.setattr(streams, "STUMBLED_S", 0.01)
    tries, write = 0, house.shelf.write

    async def fail(entries: Sequence[Entry]) -> None:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise TypeError("a mistake of ours")
        await write(entries)

    monkeypatch.setattr(house.shelf, "write", fail)
    keeper = house.keeper("one")
    keeper.start()

    (await keeper.admit(admission("r1"))).sent(ROUTE)
    keeper.record(ended("r1"))
    await house.shelf.has(1)
    await keeper.close(SOON_S)

    assert [(name, type(exc)) for name, exc in house.crashes] == [("journal.drain", TypeError)]
    assert house.redis.keys() == []
