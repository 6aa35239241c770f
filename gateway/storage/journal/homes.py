"""
Where journals are: a directory for each process, with a lock that lasts as long as the process.

The kernel takes the lock away in the moment in which a process dies, however it dies, so whoever gets it may take the
journal over. A directory gets its name only when it is locked: nobody ever sees one that is new and not.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LOCK = "lock"
QUARANTINE = "quarantine"
_PREFIX = "journal-"
_WRITER = "writer"
_UNFINISHED = ".new-"
_LAST = (_WRITER, LOCK)  # to go, in this order: what is left without a lock or with nothing else is no journal


@dataclass(frozen=True, slots=True)
class Home:
    """A journal's directory that is ours to write to: we hold its lock.

    Attributes:
        writer: The process that it is, or was, the journal of, as in the ledger.
    """

    path: Path
    writer: str
    _lock: int

    def release(self) -> None:
        """Leave it to whoever comes."""
        os.close(self._lock)

    def remove(self) -> None:
        """
        There is nothing left in it that is needed. Whatever comes of it, it is not ours afterwards.

        Raises:
            OSError: Something cannot be removed.
        """
        try:
            for path in self.path.iterdir():
                if path.name not in _LAST:
                    path.unlink(missing_ok=True)  # who was cancelled may be at it still
            for name in _LAST:
                (self.path / name).unlink()
            self.path.rmdir()
        finally:
            self.release()


def make_home(root: Path, name: str, writer: str) -> Home:
    """
    A new journal's directory in *root*, which is made where it is missing.

    Args:
        name: Nobody else's, and fit for a file.

    Raises:
        OSError: It cannot be made.
    """
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished, path = root / (_UNFINISHED + name), root / (_PREFIX + name)
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    try:
        (unfinished / _WRITER).write_text(writer, encoding="utf-8")
        lock = os.open(unfinished / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unfinished.rename(path)
    except OSError:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    sync_directory(root)
    return Home(path, writer, lock)


def restore(home: Home) -> None:
    """
    Make again what somebody has taken away of *home*, and hold its lock again.

    Raises:
        OSError: It cannot be made, or another has its lock for the moment.
    """
    home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(home.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not os.path.samestat(os.fstat(lock), os.fstat(home._lock)):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.dup2(lock, home._lock, inheritable=False)  # the same lock, by the number that is known
        (home.path / _WRITER).write_text(home.writer, encoding="utf-8")
    finally:
        os.close(lock)


def journals_in(root: Path) -> list[Path]:
    """What may be a journal, of whatever process. Raises OSError."""
    try:
        return sorted(path for path in root.iterdir() if path.name.startswith(_PREFIX))
    except FileNotFoundError:
        return []


def take(path: Path) -> Home | None:
    """
    The journal at *path*, if its process is dead and nobody else has taken it; now it is ours.

    Raises:
        OSError: It is not ours to read, or no journal.
    """
    try:
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # another has just taken it away, or was killed in the middle of that
        with suppress(OSError):
            path.rmdir()  # with anything in it, it is nothing of ours
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), (path / LOCK).stat()):  # and not the lock of what has been taken away
            if os.listdir(path) != [LOCK]:
                return Home(path, (path / _WRITER).read_text(encoding="utf-8"), lock)
            shutil.rmtree(path)  # it was being removed when its process was killed
    except (BlockingIOError, FileNotFoundError):
        pass
    except (OSError, UnicodeError):
        os.close(lock)
        raise
    os.close(lock)
    return None


def put_aside(home: Home, name: str) -> Path:
    """Copy the file *name* of *home* to where nobody reads it but people; where the copy is."""
    directory = home.path.parent / QUARANTINE
    directory.mkdir(mode=0o700, exist_ok=True)
    target = directory / f"{home.path.name}-{name}"
    shutil.copyfile(home.path / name, target)
    return target


def sync_directory(path: Path) -> None:
    """What was made, renamed or removed in *path* outlives a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
