"""Clients of one dialect whose provider speaks the other one: what that provider says, in its own words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.conformance.conftest import ABROAD, Stand
from tests.conformance.outcome import Client, Outcome
from tests.support.stage import Seen


def provider_of(client: Client) -> Client:
    """*client* as the makers of scripts want it, to have them speak the other dialect."""
    return replace(client, dialect="anthropic" if client.dialect == "openai" else "openai")


def script_abroad(stand: Stand, client: Client, *answers: Any) -> None:
    """Answer what *client* asks abroad with *answers* in turn."""
    stand.provider.script(ABROAD[client.dialect], *answers)


async def ask_abroad(stand: Stand, client: Client, **more: Any) -> Outcome:
    """Have *client* ask for the model whose provider speaks the other dialect."""
    return await stand.ask(client, model=ABROAD[client.dialect], **more)


def asked_at(seen: Seen) -> str:
    """The dialect in which the provider was asked, by the path."""
    return {"/v1/chat/completions": "openai", "/v1/messages": "anthropic"}[seen.path]
