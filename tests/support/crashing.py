"""
The gateway with a point at which it dies: `python -m tests.support.crashing POINT serve ...`.

The point is put around a function of the gateway before that starts, so nothing of it is in what users run. The process
ends by SIGKILL, as by an operator or for lack of memory: nothing is cleaned up, and what was not with the kernel
is lost.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gateway.__main__ import main
from gateway.core.journal import Admitted, Settled
from gateway.pipeline.opening import Opening
from gateway.pipeline.settlement import Settlement
from gateway.pipeline.stages.admit import Admit
from gateway.storage import redis_script
from gateway.storage.journal import keeping
from gateway.storage.journal.carrying import MOST
from gateway.storage.journal.early import Early
from gateway.storage.journal.homes import Home
from gateway.storage.journal.reader import Reader
from gateway.storage.journal.segment_writer import SegmentWriter
from gateway.storage.journal.segments import Found
from gateway.storage.journal.slots import Slot
from gateway.storage.journal.spool import Spool
from gateway.storage.redis_counters import RedisCounters
from gateway.storage.writing import BookWriter
from gateway.upstream.connection import Wire


@dataclass(frozen=True, slots=True)
class Point:
    """Before or after the *nth* call of a function for whose arguments *fits* is true."""

    owner: Any
    name: str
    when: Literal["before", "after"]
    nth: int = 1
    fits: Callable[..., bool] = lambda *args, **kwargs: True


def _has_end(_writer: object, records: list[object]) -> bool:
    return any(isinstance(record, Settled) for record in records)


def _has_admission(_writer: object, records: list[object]) -> bool:
    return any(isinstance(record, Admitted) for record in records)


def _is_granted(reply: list[object], _limits: object) -> bool:
    return reply[0] == "admitted"


def _is_over(journal: Path, _segment: int) -> bool:
    piece = Reader(journal).next(MOST)
    found = piece.found if piece is not None else []
    return any(isinstance(one, Found) and isinstance(one.record, Settled) for one in found)


POINTS: Mapping[str, Point] = {
    "after_reserve": Point(Admit, "admit", "after"),
    "before_admit_record": Point(SegmentWriter, "write", "before"),
    "after_admit_record": Point(Spool, "admit", "after"),
    "before_upstream": Point(Opening, "_ask", "before"),
    "in_upstream": Point(Slot, "sent", "after"),  # noted, and not sent
    "after_upstream": Point(Wire, "ask", "after"),
    "after_first_frame": Point(Slot, "moved", "after"),
    "mid_stream": Point(Slot, "moved", "after", nth=3),
    "before_settle": Point(Settlement, "settle", "before"),
    "after_settle": Point(Spool, "record", "after"),
    "before_settle_record": Point(SegmentWriter, "write", "before", fits=_has_end),
    "after_settle_record": Point(SegmentWriter, "write", "after", fits=_has_end),
    "mid_batch": Point(BookWriter, "_write", "after"),  # written, not committed
    "after_batch": Point(BookWriter, "write", "after"),  # committed, and the journal still has it
    # In another thread than the call: before its end it would be at any moment of it.
    "before_letting_go": Point(keeping, "_remove_before", "before", fits=_is_over),
    "before_adoption_ends": Point(Home, "remove", "before"),
}
# Where limits are in Redis, and the admission is written while they are asked.
SHARED_POINTS: Mapping[str, Point] = {
    "before_grant": Point(SegmentWriter, "write", "after", fits=_has_admission),
    "granted_unheard": Point(redis_script, "verdict_of", "before", fits=_is_granted),  # Redis has said so
    "after_grant": Point(RedisCounters, "admit", "after"),
    "after_both": Point(Early, "kept", "after"),
}


def put(point: Point) -> None:
    """Have this process die at *point*."""
    inner = getattr(point.owner, point.name)
    left = point.nth

    def pass_by(*args: Any, **kwargs: Any) -> None:
        nonlocal left
        if point.fits(*args, **kwargs):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    @functools.wraps(inner)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        if point.when == "before":
            pass_by(*args, **kwargs)
        result = await inner(*args, **kwargs)
        if point.when == "after":
            pass_by(*args, **kwargs)
        return result

    @functools.wraps(inner)
    def called(*args: Any, **kwargs: Any) -> Any:
        if point.when == "before":
            pass_by(*args, **kwargs)
        result = inner(*args, **kwargs)
        if point.when == "after":
            pass_by(*args, **kwargs)
        return result

    setattr(point.owner, point.name, awaited if inspect.iscoroutinefunction(inner) else called)


if __name__ == "__main__":
    put({**POINTS, **SHARED_POINTS}[sys.argv[1]])
    main(sys.argv[2:])
