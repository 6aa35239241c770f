"""Names of tools that a provider would refuse: replaced on the way there, put back on the way back."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256

from msgspec import structs

from gateway.dialects.neutral import Message, Notes, Part, Prompt, ToolCall

USUAL = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # OpenAI's reference, `tools[].function.name`; others took it over
_FIRST = re.compile(r"[a-zA-Z_]")  # what a name has to begin with where a provider is particular about that
_ODD = re.compile(r"[^a-zA-Z0-9_-]+")
_KEPT_CHARS = 55  # with a dash and the digest, 64
_DIGEST_CHARS = 8


def fit_names(prompt: Prompt, allowed: re.Pattern[str], notes: Notes) -> Prompt:
    """
    *prompt* with names that are *allowed*; those that replace others are in `notes.tools`, with the client's.

    A replacement is always the same for the same name, so that prompt caches go on to match.
    """
    names = dict.fromkeys(tool.name for tool in prompt.tools)
    names |= dict.fromkeys(part.name for message in prompt.messages for part in _calls(message.parts))
    short = {name: _short(name) for name in names if not allowed.fullmatch(name)}
    if not short:
        return prompt
    notes.tools.update({new: name for name, new in short.items()})
    for at, tool in enumerate(prompt.tools):
        if tool.name in short:
            notes.translate(f"{prompt.names.get('tools', 'tools')}[{at}]")
    choice = prompt.tool_choice
    if choice is not None and choice.name in short:
        choice = structs.replace(choice, name=short[choice.name])
    tools = tuple(structs.replace(tool, name=short.get(tool.name, tool.name)) for tool in prompt.tools)
    messages = tuple(_renamed(message, short) for message in prompt.messages)
    return structs.replace(prompt, tools=tools, tool_choice=choice, messages=messages)


def _calls(parts: tuple[Part, ...]) -> Iterable[ToolCall]:
    return (part for part in parts if isinstance(part, ToolCall))


def _short(name: str) -> str:
    kept = _ODD.sub("_", name)
    if _FIRST.match(kept) is None:
        kept = f"_{kept}"
    return f"{kept[:_KEPT_CHARS]}-{sha256(name.encode()).hexdigest()[:_DIGEST_CHARS]}"


def _renamed(message: Message, short: dict[str, str]) -> Message:
    if not any(call.name in short for call in _calls(message.parts)):
        return message
    parts = tuple(
        structs.replace(part, name=short.get(part.name, part.name)) if isinstance(part, ToolCall) else part
        for part in message.parts
    )
    return structs.replace(message, parts=parts)
