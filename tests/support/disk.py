"""Disks that do not take what they are given."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def full_disk(path: Path, *, room: int | None = None) -> Iterator[None]:
    """No file of this process may be longer than *room*, or than what is in the newest segment: the kernel refuses as
    it does on a full disk, with another number."""
    newest = max(path.glob("*.log"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = len(newest.read_bytes().rstrip(b"\0")) if room is None else room
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
