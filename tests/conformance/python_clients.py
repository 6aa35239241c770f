"""The Python clients, as a table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.conformance.outcome import Ask, Client, Outcome
from tests.conformance.python_anthropic import (
    ANTHROPIC_ERRORS,
    ANTHROPIC_FINISH,
    anthropic_async,
    anthropic_helper,
    anthropic_sync,
)
from tests.conformance.python_langchain import (
    LANGCHAIN_ANTHROPIC_ERRORS,
    LANGCHAIN_OPENAI_ERRORS,
    langchain_anthropic,
    langchain_openai,
)
from tests.conformance.python_openai import OPENAI_ERRORS, OPENAI_FINISH, openai_async, openai_helper, openai_sync


def _threaded(function: Callable[[Ask], Outcome]) -> Callable[[Ask], Any]:
    async def ask_in_thread(ask: Ask) -> Outcome:
        return await asyncio.to_thread(function, ask)

    return ask_in_thread


PYTHON_CLIENTS = [
    Client("openai", "openai", _threaded(openai_sync), OPENAI_ERRORS, OPENAI_FINISH),
    Client("openai-async", "openai", openai_async, OPENAI_ERRORS, OPENAI_FINISH),
    Client("openai-helper", "openai", _threaded(openai_helper), OPENAI_ERRORS, OPENAI_FINISH, shows_extension=False),
    Client("anthropic", "anthropic", _threaded(anthropic_sync), ANTHROPIC_ERRORS, ANTHROPIC_FINISH),
    Client("anthropic-async", "anthropic", anthropic_async, ANTHROPIC_ERRORS, ANTHROPIC_FINISH),
    Client("anthropic-helper", "anthropic", _threaded(anthropic_helper), ANTHROPIC_ERRORS, ANTHROPIC_FINISH),
    Client(
        "langchain-openai",
        "openai",
        langchain_openai,
        LANGCHAIN_OPENAI_ERRORS,
        OPENAI_FINISH,
        counts_usages=False,
        shows_extension=False,
    ),
    Client(
        "langchain-anthropic",
        "anthropic",
        langchain_anthropic,
        LANGCHAIN_ANTHROPIC_ERRORS,
        ANTHROPIC_FINISH,
        counts_usages=False,
        shows_extension=False,
    ),
]
