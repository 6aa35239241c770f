"""What the kernel knows of a process and its children (Linux)."""

from __future__ import annotations

import os
from pathlib import Path

_ESTABLISHED = "01"  # state column of /proc/net/tcp, from the kernel's include/net/tcp_states.h


def tree(pid: int) -> list[int]:
    """*pid* and all its descendants that are alive."""
    if not Path(f"/proc/{pid}").exists():
        return []
    out = [pid]
    for task in _listed(f"/proc/{pid}/task"):
        try:
            children = Path(f"/proc/{pid}/task/{task}/children").read_text()
        except OSError:  # the thread ended meanwhile
            continue
        for child in children.split():
            out += tree(int(child))
    return out


def command_line(pid: int) -> bytes:
    """The command *pid* was started with, its words parted by NUL; nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def descriptors(pid: int) -> list[str]:
    """What each open descriptor of *pid* points at: a path, `socket:[inode]`, `pipe:[inode]`."""
    out = []
    for fd in _listed(f"/proc/{pid}/fd"):
        try:
            out.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:  # closed between the listing and now
            continue
    return out


def established(pids: list[int], *, remote_port: int | None = None, local_port: int | None = None) -> int:
    """How many established TCP connections *pids* hold to *remote_port* or at *local_port*."""
    inodes = {link[8:-1] for pid in pids for link in descriptors(pid) if link.startswith("socket:[")}
    return sum(
        state == _ESTABLISHED
        and inode in inodes
        and (remote_port is None or remote == remote_port)
        and (local_port is None or local == local_port)
        for local, remote, state, inode in _tcp_table()
    )


def group_alive(group: int) -> bool:
    """Whether any process of the process group *group* is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _tcp_table() -> list[tuple[int, int, str, str]]:
    rows = []
    for name in ("tcp", "tcp6"):
        path = Path(f"/proc/net/{name}")
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            _, local, remote, state, _, _, _, _, _, inode, *_ = line.split()
            rows.append((int(local.rpartition(":")[2], 16), int(remote.rpartition(":")[2], 16), state, inode))
    return rows


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:  # the process ended
        return []
