"""Animations made to stand still, each in a process that lives for one picture."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from gateway.core.held import Part
from gateway.imaging.first_frame import BAD_PICTURE

AT_ONCE = 2  # processes: of 40 MB and some 100 ms each for what is usual (measured)
MAX_STILL_BYTES = 32 * 1024 * 1024  # of an answer in base64: what is longer is of no use to anybody
PIECE_BYTES = 256 * 1024  # of a pipe read or written at once

_PROGRAM = str(Path(__file__).with_name("first_frame.py"))


class ProcessStills:
    """
    The port `Stills`, by processes: a decoder that a picture crashes, fills or hangs takes nothing else along.

    To be made inside the running loop.
    """

    def __init__(self) -> None:
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def still(self, animation: Part, *, max_pixels: int) -> bytes | None:
        """
        See the port. The process dies with the wait for it.

        Raises:
            OSError: The system does not let us start one.
            RuntimeError: Not the picture is at fault.
        """
        async with self._gate:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # its own folder is no place to import from
                _PROGRAM,
                str(max_pixels),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},  # and nothing else of ours: no credential
            )
            try:
                return await _converse(process, animation)
            finally:
                if process.returncode is None:
                    process.kill()


async def _converse(process: asyncio.subprocess.Process, animation: Part) -> bytes | None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        for start in range(0, len(animation), PIECE_BYTES):
            process.stdin.write(bytes(animation[start : start + PIECE_BYTES]))
            await process.stdin.drain()
        process.stdin.close()
    except ConnectionError:
        pass  # it is dead: its exit status says why
    still = bytearray()
    while piece := await process.stdout.read(PIECE_BYTES):
        still += piece
        if len(still) > MAX_STILL_BYTES:
            return None
    status = await process.wait()
    if status > 0 and status != BAD_PICTURE:
        raise RuntimeError(f"the program for first frames ended with {status}")
    return bytes(still) if status == 0 else None  # below 0 it was killed, as by one of its bounds
