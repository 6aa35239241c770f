"""Names of the shared counters under which somebody else has put something."""

from __future__ import annotations

import time
from functools import partial

from gateway.aio import together
from gateway.storage.redis_link import Link, RedisFailed
from gateway.storage.redis_script import EPOCH_KEY

WRONG_TYPE = "WRONGTYPE"  # the code of Redis's reply to a command on a key of another kind
DISPLACED = "DISPLACED"  # of the script's, which has found no number of ours there: see `displaced_by`
_PREFIX = EPOCH_KEY.removesuffix("epoch")
_AT_ONCE = 1000  # names in one step of the search: some 0.5 ms of Redis's time
# By what a name begins with, as `admission.lua` has them; what stands beside an account is a hash like that itself.
_KINDS = {
    "epoch": "hash", "tick": "string", "open": "zset", "minute": "hash", "running": "zset", "hold": "string",
    "guess": "string", "account": "hash",
}  # fmt: skip


async def clear(link: Link, *, timeout_s: float) -> list[tuple[str, str]]:
    """
    Give other names to what is of another kind than ours under its name, and have counting begun anew if there was any:
    what stood there before is lost, so counters are loaded from the ledger, and holds told again. Old and new names.

    Raises:
        RedisFailed: There was no reply within *timeout_s*, or an error.
    """
    moved, cursor = list[tuple[str, str]](), "0"
    while True:
        cursor, names = await link.ask("SCAN", cursor, "MATCH", f"{_PREFIX}*", "COUNT", _AT_ONCE, timeout_s=timeout_s)
        asks = [partial(link.ask, "TYPE", name, timeout_s=timeout_s) for name in names]
        kinds = await together(asks, at_once=_AT_ONCE)
        for name, kind in zip(names, kinds, strict=True):
            if (ours := kind_of(name)) is not None and kind not in ("none", ours):
                new_name = _aside(name, f"{time.time_ns():x}")
                await link.ask("RENAME", name, new_name, timeout_s=timeout_s)
                moved.append((name, new_name))
        if str(cursor) == "0":
            break
    if moved:
        await link.ask("DEL", EPOCH_KEY, timeout_s=timeout_s)
    return moved


async def put_aside(link: Link, name: str, *, timeout_s: float) -> None:
    """
    Give what is under *name* another one, and have counting begun anew; harmless where a gateway has just done it.

    Raises:
        RedisFailed: There was no reply within *timeout_s*.
    """
    try:
        await link.ask("RENAME", name, _aside(name, f"{time.time_ns():x}"), timeout_s=timeout_s)
    except RedisFailed as exc:
        if exc.code != "ERR":  # there is no such key any more
            raise
    await link.ask("DEL", EPOCH_KEY, timeout_s=timeout_s)


def displaced_by(detail: str) -> tuple[str, str]:
    """Old and new names, of what follows `DISPLACED`: when that was, and the old one."""
    stamp, _, name = detail.partition(" ")
    return name, _aside(name, stamp)


def _aside(name: str, stamp: str) -> str:
    return f"{_PREFIX}aside:{stamp}:{name.removeprefix(_PREFIX)}"


def kind_of(name: str) -> str | None:
    """What has to be under *name*; None where the counters have no such name."""
    return _KINDS.get(name.removeprefix(_PREFIX).partition(":")[0])
