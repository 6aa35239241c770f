"""GIFs become still pictures in processes of their own, which have nothing to lose and leave nothing behind."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from gateway.imaging import first_frame, stills
from gateway.imaging.stills import AT_ONCE, ProcessStills
from tests.support import proc
from tests.support.pictures import gif

ENOUGH = 1_000_000
TELLS = """
import base64, json, os, sys
sys.stdin.read()
files = [os.readlink(f"/proc/self/fd/{n}") for n in range(64) if os.path.exists(f"/proc/self/fd/{n}")]
print(base64.b64encode(json.dumps([sorted(os.environ), files]).encode()).decode(), end="")
"""


async def still(animation: bytes, max_pixels: int = ENOUGH) -> bytes | None:
    return await ProcessStills().still(b64encode(animation), max_pixels=max_pixels)


def children() -> set[int]:
    """The processes that convert: this one may have others, such as a store that tests share."""
    return {pid for pid in proc.tree(os.getpid()) if stills._PROGRAM.encode() in proc.command_line(pid)}


async def until(holds: Callable[[], object], within_s: float = 5.0) -> None:
    """Wait for something that nobody tells of, as the beginning and the end of a process."""
    for _ in range(round(within_s / 0.01)):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


def noise(width: int, height: int) -> bytes:
    """A GIF that does not compress."""
    out = io.BytesIO()
    Image.frombytes("L", (width, height), os.urandom(width * height)).save(out, "GIF")
    return out.getvalue()


async def test_the_first_frame() -> None:
    """Of an animation the first picture is left, as a PNG of the same size."""
    png = await still(gif(4, 3, frames=2))

    assert png is not None
    with Image.open(io.BytesIO(b64decode(png)), formats=("PNG",)) as image:
        assert (image.size, getattr(image, "n_frames", 1)) == ((4, 3), 1)
        assert image.convert("RGB").getpixel((0, 0)) == (255, 0, 0)


async def test_a_large_picture_passes_whole() -> None:
    """A picture of megabytes is handed over and taken back piece by piece, without a pixel lost."""
    animation = noise(1300, 1000)

    png = await still(animation, 2_000_000)

    assert png is not None
    assert len(png) > stills.PIECE_BYTES * 4
    with Image.open(io.BytesIO(b64decode(png))) as after, Image.open(io.BytesIO(animation)) as before:
        assert after.convert("RGB").tobytes() == before.convert("RGB").tobytes()


async def test_transparency_stays() -> None:
    """A pixel that nothing was drawn on is as transparent as it was."""
    out = io.BytesIO()
    Image.new("P", (2, 2), 0).save(out, "GIF", transparency=0)

    png = await still(out.getvalue())

    assert png is not None
    with Image.open(io.BytesIO(b64decode(png))) as image:
        assert image.convert("RGBA").getpixel((0, 0))[3] == 0  # type: ignore[index]


@pytest.mark.parametrize(
    ("animation", "max_pixels"),
    [
        pytest.param(gif()[:30], ENOUGH, id="cut off"),
        pytest.param(b"GIF89a" + bytes(100), ENOUGH, id="no frame"),
        pytest.param(b"\x89PNG\r\n\x1a\n" + bytes(100), ENOUGH, id="another format"),
        pytest.param(b"", ENOUGH, id="nothing"),
        pytest.param(gif(60_000, 60_000), ENOUGH, id="a bomb"),
        pytest.param(gif(11, 10), 100, id="larger than allowed"),
        pytest.param(gif(60_000, 60_000), 10**10, id="more than there is memory for"),
        pytest.param(
            gif().replace(b"\x2c\0\0\0\0\1\0\1\0", b"\x2c\0\0\0\0\xff\xff\xff\xff"), ENOUGH, id="a large frame"
        ),
    ],
)
async def test_what_cannot_be_shown(animation: bytes, max_pixels: int) -> None:
    """A picture that is damaged, larger than allowed by its screen or its frame, or too large to hold, is None."""
    assert await still(animation, max_pixels) is None


async def test_a_program_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is our fault and not the picture's."""
    monkeypatch.setattr(stills, "_PROGRAM", "/nowhere.py")

    with pytest.raises(RuntimeError, match="ended with 2"):
        await still(gif())


async def test_nothing_of_ours_is_at_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The process that decodes has no variable of ours in its environment, and neither files nor sockets of ours."""
    monkeypatch.setenv("GATEWAY_SECRET", "zq7")
    program = tmp_path / "tells.py"
    program.write_text(TELLS)
    monkeypatch.setattr(stills, "_PROGRAM", str(program))

    with program.open() as file, socket.create_server(("127.0.0.1", 0)) as listener:
        ours = {os.readlink(f"/proc/self/fd/{number}") for number in (file.fileno(), listener.fileno())}
        told = await still(gif())

    assert told is not None
    names, files = json.loads(b64decode(told))
    assert set(names) <= {"PYTHONPATH", "LC_CTYPE"}  # the second is the interpreter's own doing
    assert len(files) >= 3
    assert ours.isdisjoint(files)


async def test_the_process_ends_with_the_wait_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever does not wait any longer has the process killed at once, and its place is free."""
    program, port = tmp_path / "hangs.py", ProcessStills()
    program.write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setattr(stills, "_PROGRAM", str(program))

    for _ in range(AT_ONCE + 1):  # more than there are places
        waiting = asyncio.ensure_future(port.still(b64encode(gif()), max_pixels=ENOUGH))
        await until(children)
        waiting.cancel()
        await asyncio.wait([waiting])
        await until(lambda: not children())
    monkeypatch.undo()

    assert await port.still(b64encode(gif()), max_pixels=ENOUGH) is not None


async def test_only_so_many_at_once() -> None:
    """However many come together, they are converted a few at a time."""
    port, most = ProcessStills(), 0
    waiting = [asyncio.ensure_future(port.still(b64encode(gif()), max_pixels=ENOUGH)) for _ in range(AT_ONCE * 3)]

    while not all(task.done() for task in waiting):
        most = max(most, len(children()))
        await asyncio.sleep(0.005)

    assert all(task.result() for task in waiting)
    assert most == AT_ONCE


def test_the_bounds_hold() -> None:
    """Memory and time are bounded before a byte of the picture is read."""
    script = (
        "import resource,sys;sys.path.insert(0,sys.argv[1]);import first_frame as f;f.bound();"
        "print([resource.getrlimit(r)[0] for r in (resource.RLIMIT_AS,resource.RLIMIT_CPU,resource.RLIMIT_FSIZE)])"
    )
    folder = str(Path(first_frame.__file__).parent)
    out = subprocess.run([sys.executable, "-c", script, folder], capture_output=True, text=True, check=True).stdout

    assert out == f"[{first_frame.MEMORY_BYTES}, {first_frame.CPU_S}, 0]\n"
