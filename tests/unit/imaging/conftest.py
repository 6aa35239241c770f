from __future__ import annotations

import asyncio
from collections.abc import Callable

import uvloop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Both loops: the production server runs on uvloop, which starts and reaps processes by itself."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
