"""Engines over the texts of a call: what was read before is known, what is long is read in a thread.

A chat that has grown by a turn costs its new turn alone: findings are kept by the digest of each piece of a call.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Protocol, TypeAlias, TypeVar

from gateway.core.call import Call
from gateway.core.exchange import Exchange
from gateway.core.guarding import Engine, Finding, GuardName, GuardTerms
from gateway.dialects.hearing import Heard
from gateway.dialects.spoken import Piece, pieces_of, texts_of
from gateway.pipeline.turns import Turns
from gateway.policy.guards import Found, Judged, judge

T = TypeVar("T")

# Of JSON, read at once, for half a millisecond, and by the slow one for three: 0.03 ms for 1 KB, of injections 0.7
# (measured). A thread costs 0.1 ms to ask, and on a busy machine waits for its turn: 10 ms were seen.
INLINE_BYTES = 16 * 1024
SLOW_INLINE_BYTES: Mapping[GuardName, int] = {"injection": 4 * 1024}
FINDING_BYTES = 16  # as many are read as quickly as a finding is judged, or redacted
KEPT_WEIGHT = 50_000  # of pieces and findings that are remembered: some 10 MB
LATE_GRACE_S = 0.05  # for an engine to notice that its time is over

Findings: TypeAlias = tuple[tuple[int, tuple[Finding, ...]], ...]
"""What is in a piece: the numbers of its texts that have something, each with its findings."""


class ScanFailed(Exception):
    """A guard has nothing to say. `reason`: `late`, or the type of what its engine raised; never a word of a text."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Adviser(Protocol):
    """
    A guard's eyes that are elsewhere.

    Attributes:
        known_as: Part of the key by which findings are remembered.
        threshold: As of an engine.
    """

    @property
    def known_as(self) -> str: ...

    @property
    def threshold(self) -> float: ...

    def may_read(self, exchange: Exchange) -> bool:
        """Whether what *exchange* says may go where it is."""

    async def find(self, texts: Sequence[str]) -> list[tuple[Finding, ...]]:
        """What is in each of *texts*. Raises ScanFailed: it cannot be told."""


class _Late(Exception):
    """The time of a scan is over, or nobody waits for it any more."""


class Memory:
    """
    Findings by engine and digest, those longest unused forgotten first.

    Args:
        salt: Of this process: nobody outside can make two pieces with one digest.
    """

    def __init__(self, salt: bytes, max_weight: int = KEPT_WEIGHT) -> None:
        self._salt = salt
        self._max_weight = max_weight
        self._weight = 0
        self._kept: OrderedDict[tuple[str, bytes], Findings] = OrderedDict()

    def digest(self, piece: Piece, owner: bytes) -> bytes:
        """By what *piece* is known again, whatever call of *owner* it is in."""
        said = blake2b(piece.raw, digest_size=16, key=self._salt)
        said.update(piece.role.encode())
        said.update(owner)
        return said.digest()

    def find(self, engine: str, digest: bytes) -> Findings | None:
        """What *engine* found before, if that is still known."""
        key = (engine, digest)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def keep(self, engine: str, digest: bytes, found: Findings) -> None:
        """Remember *found*."""
        key = (engine, digest)
        if key in self._kept:
            return
        self._kept[key] = found
        self._weight += _weight(found)
        while self._weight > self._max_weight:
            _, oldest = self._kept.popitem(last=False)
            self._weight -= _weight(oldest)


def _weight(found: Findings) -> int:
    return 1 + sum([len(findings) for _, findings in found])


class Reading:
    """The pieces of one call, and the texts of those that have been looked at."""

    def __init__(self, call: Call, memory: Memory, owner: str) -> None:
        self.pieces = pieces_of(call)
        self.owner = owner
        self._call = call
        self._heard: dict[int, list[Heard]] = {}
        mark = call.held.mark.encode() if call.held is not None else None
        whose = owner.encode()
        self.digests = [
            None if mark is not None and mark in bytes(piece.raw) else memory.digest(piece, whose)
            for piece in self.pieces
        ]
        """None for a piece with a token in it: no later call has the same."""

    def heard(self, number: int) -> list[Heard]:
        """The texts of the piece of this number."""
        found = self._heard.get(number)
        if found is None:
            found = self._heard[number] = texts_of(self.pieces[number], self._call)
        return found


@dataclass(frozen=True, slots=True)
class Means:
    """
    What scans work with.

    Attributes:
        turns: At threads, for long ones.
        monotonic_s: The clock of deadlines.
    """

    turns: Turns
    monotonic_s: Callable[[], float]


@dataclass(slots=True)
class _Look:
    """
    One engine's look at a call: what is known of its pieces, by their numbers, and what is not.

    Attributes:
        fresh: What was found in those that were unknown, as far as they have been read.
    """

    found: dict[int, Findings] = field(default_factory=dict)
    unknown: list[int] = field(default_factory=list)
    fresh: dict[int, Findings] = field(default_factory=dict)


class Scanner:
    """The engines, and what they found before."""

    def __init__(self, engines: Mapping[GuardName, Engine], memory: Memory, means: Means) -> None:
        self._engines = engines
        self._memory = memory
        self._means = means
        self._known_as = {name: f"{engine.name}:{engine.version}" for name, engine in engines.items()}

    def read(self, call: Call, owner: str) -> Reading:
        """*call*, to be scanned by one engine after the other; only *owner* can tell by the time what is known."""
        return Reading(call, self._memory, owner)

    async def look(self, name: GuardName, reading: Reading, terms: GuardTerms) -> Judged:
        """
        What the engine *name* finds in the call, and what that comes to under *terms*.

        Raises:
            ScanFailed: There is none, it raised, or it was not done by the deadline.
        """
        engine = self._engines.get(name)
        if engine is None:
            raise ScanFailed("absent")
        look = self._begin(self._known_as[name], reading)
        try:
            return await self._look(engine, reading, look, terms)
        finally:  # of what was late too: the next try goes on behind it
            self._keep(self._known_as[name], reading, look.fresh)

    async def ask(self, name: GuardName, adviser: Adviser, reading: Reading, terms: GuardTerms) -> Judged:
        """As `look`, of somebody elsewhere."""
        look = self._begin(adviser.known_as, reading)
        if look.unknown:
            look.fresh = await _ask(adviser, reading, look.unknown, terms.deadline_s)
        self._keep(adviser.known_as, reading, look.fresh)
        return judge(name, _spread(look.found | look.fresh, reading), terms, adviser.threshold)

    def _begin(self, known_as: str, reading: Reading) -> _Look:
        look = _Look()
        for number, digest in enumerate(reading.digests):
            known = self._memory.find(known_as, digest) if digest is not None else None
            if known is None:
                look.unknown.append(number)
            elif known:
                look.found[number] = known
        return look

    def _keep(self, known_as: str, reading: Reading, fresh: Mapping[int, Findings]) -> None:
        for number, findings in tuple(fresh.items()):  # a thread that is late may add one yet
            digest = reading.digests[number]
            if digest is not None:
                self._memory.keep(known_as, digest, findings)

    async def _look(self, engine: Engine, reading: Reading, look: _Look, terms: GuardTerms) -> Judged:
        clock = self._means.monotonic_s
        end_s, is_over = 0.0, False

        def check() -> None:
            if is_over or clock() > end_s:
                raise _Late

        def run() -> Judged:
            nonlocal end_s
            end_s = clock() + terms.deadline_s  # of its own time: what others make it wait is bounded by itself
            for number in look.unknown:
                look.fresh[number] = _scan(engine, reading.heard(number), check)
            return judge(engine.name, _spread(look.found | look.fresh, reading), terms, engine.threshold)

        size = sum([len(reading.pieces[number].raw) for number in look.unknown])
        size += FINDING_BYTES * sum(map(_weight, look.found.values()))
        try:
            most = SLOW_INLINE_BYTES.get(engine.name, INLINE_BYTES)
            if size <= most:
                return run()
            return await self._means.turns.run(reading.owner, run, terms.deadline_s, terms.deadline_s + LATE_GRACE_S)
        except (_Late, TimeoutError) as exc:
            raise ScanFailed("late") from exc
        except Exception as exc:
            raise ScanFailed(type(exc).__name__) from exc
        finally:
            is_over = True  # a thread that nobody waits for ends at its next look

    async def aside(self, owner: str, work: Callable[[], T], size: int) -> T:
        """What *work* of *owner* gives, which is as much as reading *size* bytes: in a thread, if they are many."""
        return work() if size <= INLINE_BYTES else await self._means.turns.run(owner, work, None, None)


def _scan(engine: Engine, texts: Sequence[Heard], check: Callable[[], None]) -> Findings:
    found = []
    for number, heard in enumerate(texts):
        check()
        findings = engine.scan(heard.text, check)
        if findings:
            found.append((number, tuple(findings)))
    return tuple(found)


async def _ask(
    adviser: Adviser, reading: Reading, numbers: Sequence[int], deadline_s: float
) -> dict[int, Findings]:
    heard = {number: reading.heard(number) for number in numbers}
    try:
        async with asyncio.timeout(deadline_s):
            told = iter(await adviser.find([one.text.text for texts in heard.values() for one in texts]))
    except TimeoutError as exc:
        raise ScanFailed("late") from exc
    found = {number: [(place, next(told)) for place in range(len(texts))] for number, texts in heard.items()}
    return {number: tuple([one for one in texts if one[1]]) for number, texts in found.items()}


def _spread(found: Mapping[int, Findings], reading: Reading) -> list[Found]:
    """*found* in the order of the call."""
    return [
        Found((piece, number), finding, reading.heard(piece)[number].is_fixed)
        for piece in sorted(found)
        for number, findings in found[piece]
        for finding in findings
    ]
