"""`python -m gateway.demo_provider --port 0`: prints `listening PORT` and serves on loopback.

It leaves on SIGTERM or SIGINT, when its standard input (a pipe of the starter's) closes, or when the starter is gone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import stat
import sys

from aiohttp import web

from gateway.demo_provider.models import Clock
from gateway.demo_provider.server import application

PARENT_CHECK_S = 0.5  # for starters that die while something else holds the other end of the pipe
SHUTDOWN_S = 0.1  # nobody is owed a graceful end by a demo


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m gateway.demo_provider", description="The built-in demo provider.")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--time-scale", type=float, default=1.0, help="0.01 makes every pause a hundred times shorter")
    options = parser.parse_args()
    parent = os.getppid()
    asyncio.run(serve(options.port, Clock(options.time_scale), parent))


async def serve(port: int, clock: Clock, parent: int) -> None:
    """Serve until told to leave; *parent* is the process id of the starter."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _watch_stdin(loop, stop)
    # Without handler cancellation a stalled model would not notice that its reader has gone.
    runner = web.AppRunner(application(clock), handler_cancellation=True, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        _say(f"listening {runner.addresses[0][1]}\n", stop)
        while not stop.is_set() and os.getppid() == parent:
            try:
                async with asyncio.timeout(PARENT_CHECK_S):
                    await stop.wait()
            except TimeoutError:
                pass
    finally:
        await runner.cleanup()


def _say(line: str, stop: asyncio.Event) -> None:
    """Write *line* to standard output; *stop* when the starter is no longer there to read it."""
    try:
        os.write(sys.stdout.fileno(), line.encode())  # unbuffered, so that nothing is left to be flushed in vain
    except BrokenPipeError:
        stop.set()


def _watch_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Set *stop* at the end of standard input, where that is a pipe or a socket; a terminal or a file says nothing."""
    if sys.stdin is None:
        return
    descriptor = sys.stdin.fileno()
    kind = os.fstat(descriptor).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
        return

    def read() -> None:
        if not os.read(descriptor, 65536):
            loop.remove_reader(descriptor)
            stop.set()

    loop.add_reader(descriptor, read)


if __name__ == "__main__":
    main()
