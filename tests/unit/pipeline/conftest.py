"""Tests of the pipeline run in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from tests.support.virtual_time import VirtualLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """One loop for all tests of this folder."""
    return {"virtual": VirtualLoop}
