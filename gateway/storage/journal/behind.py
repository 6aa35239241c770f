"""How far the ledger is behind the journals that can be seen from here: for who holds the two against each other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from pathlib import Path

import msgspec
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.journal import Record, Settled, decode
from gateway.storage.journal.homes import journals_in
from gateway.storage.journal.reader import Reader
from gateway.storage.journal.segments import Found
from gateway.storage.journal.stream_store import StreamStore
from gateway.storage.tables import dead_letters, ledger

MOST = 1_000  # records at a time
LOOKS = 20  # at a journal whose process lets go of a file at each of them, 16 MiB of what the database has by then
_IDS_AT_ONCE = 500  # of one statement, as in `spending.IDS_AT_ONCE`

Ends = Mapping[str, int]
"""When each request ended that a journal has the end of, in epoch milliseconds."""


def ends_in_files(root: Path) -> dict[str, int]:
    """
    Those of all journals in *root*, of working processes too.

    Raises:
        OSError: One cannot be read.
    """
    ends: dict[str, int] = {}
    for path in journals_in(root):
        for _ in range(LOOKS):
            if _read_whole(path, ends):
                break
        else:
            raise FileNotFoundError(f"files of {path.name} go faster than they can be read")
    return ends


def _read_whole(path: Path, ends: dict[str, int]) -> bool:
    """Note the *ends* in the journal at *path*; False where a file of it was let go of meanwhile, and not all of it."""
    reader = Reader(path)
    try:
        while (piece := reader.next(MOST)) is not None:
            ends.update(_ends(found.record for found in piece.found if isinstance(found, Found)))
    except FileNotFoundError:  # what was in there is in the database
        return not path.exists()
    return True


async def ends_in_streams(store: StreamStore) -> dict[str, int]:
    """Those of all journals in Redis. Raises StoreUnavailable."""
    ends: dict[str, int] = {}
    for name in await store.names():
        after = b"0"
        while found := await store.read(name, after, MOST):
            after = found[-1][0]
            ends.update(_ends(record for _, payload in found if (record := _decoded(payload)) is not None))
    return ends


def _decoded(payload: bytes) -> Record | None:
    try:
        return decode(payload)
    except msgspec.DecodeError:  # it is put aside by whoever empties the journal
        return None


def _ends(records: Iterable[Record]) -> Iterable[tuple[str, int]]:
    """Of what is to be paid for: of all else the ledger has nothing."""
    for record in records:
        if isinstance(record, Settled) and record.receipt.booking is not None:
            yield record.receipt.request_id, record.receipt.settled_ms


async def missing(connection: AsyncConnection, ends: Ends) -> dict[str, int]:
    """Those of *ends* that the ledger does not have, and is still to get."""
    left, ids = dict(ends), iter(ends)
    while some := list(islice(ids, _IDS_AT_ONCE)):
        for request_id in await _known(connection, some):
            left.pop(request_id, None)
    return left


async def _known(connection: AsyncConnection, ids: Collection[str]) -> set[str]:
    charged = select(ledger.c.request_id).where(ledger.c.request_id.in_(ids), ledger.c.kind == "charge")
    buried = select(dead_letters.c.request_id).where(dead_letters.c.request_id.in_(ids))
    return {*(await connection.execute(charged)).scalars(), *(await connection.execute(buried)).scalars()}
