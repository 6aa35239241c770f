"""Turns as messages of OpenAI chat completions.

Strict vendors want roles to alternate, text as a string, and the result of every tool right behind the turn that called
it. So neighbours of one role become one message, and results go first, in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from gateway.dialects.neutral import (
    PDF,
    Document,
    Image,
    Message,
    Notes,
    Part,
    Prompt,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from gateway.dialects.open_calls import OpenCalls
from gateway.dialects.parts import Placed, is_file, parts_of, words_of
from gateway.dialects.traits import Traits
from gateway.dialects.validate import refuse

_FAILED = "The tool failed."
_FOLLOWS = "The result is in the next message."


def in_place(prompt: Prompt, traits: Traits) -> dict[int, list[Text]] | None:
    """
    The instructions within the conversation by the number of turns before them.

    Returns:
        None where they cannot stand there: the model wants them in front, or one would part a call from its result.
    """
    if not traits.places_system or not prompt.moved:
        return None
    placed: dict[int, list[Text]] = {}
    for aside, text in zip(prompt.moved, prompt.system[-len(prompt.moved) :], strict=True):
        placed.setdefault(aside.turns, []).append(text)
    behind = (message for at in placed for message in prompt.messages[at : at + 1])
    if any(isinstance(part, ToolResult) for message in behind for part in message.parts):
        return None
    return placed


def write_messages(
    prompt: Prompt, traits: Traits, notes: Notes, placed: Mapping[int, Sequence[Text]]
) -> list[dict[str, Any]]:  # fmt: skip
    """
    The messages of *prompt*, instructions first, in one, but for those that are *placed*.

    Raises:
        GatewayError: 400 naming a place that cannot be said, or half a pair of call and result, or where nothing is
            left to say.
    """
    front = prompt.system[: len(prompt.system) - sum(map(len, placed.values()))]
    messages: list[dict[str, Any]] = [_instruction(front)] if front else []
    has_turns = False
    calls: dict[str, str] = {}
    waiting = OpenCalls()
    for told, stretch in _stretches(prompt, placed):
        if told:
            messages.append(_instruction(told))
        for role, turns in groupby(_speaking(stretch, notes), lambda message: message.role):
            has_turns = True
            said = parts_of(turns)
            _match(said, waiting)
            if role == "assistant":
                messages.append(_assistant(said, traits, notes))
                calls = {item.part.id: item.part.name for item in said if isinstance(item.part, ToolCall)}
            else:
                waiting.close()
                messages += _user(said, calls, traits, notes)
                calls = {}
    if prompt.messages and prompt.messages[-1].role == "user":  # which may have said nothing at all
        waiting.close()
    if not has_turns:
        raise refuse("messages", "messages must have at least one message with content that this model can take.")
    if messages[-1]["role"] == "assistant" and not messages[-1].get("tool_calls"):
        _begin_answer(messages[-1], prompt.messages[-1].place, traits, notes)
    return messages


def _instruction(texts: Sequence[Text]) -> dict[str, Any]:
    return {"role": "system", "content": "\n\n".join(text.text for text in texts)}


def _stretches(
    prompt: Prompt, placed: Mapping[int, Sequence[Text]]
) -> Iterator[tuple[Sequence[Text], Sequence[Message]]]:
    """Runs of turns, each with the instructions that are placed before it."""
    cuts = sorted(placed)
    for start, end in zip([0, *cuts], [*cuts, len(prompt.messages)], strict=True):
        yield placed.get(start, ()), prompt.messages[start:end]


def _match(said: Sequence[Placed], waiting: OpenCalls) -> None:
    """Calls begin to wait, results find theirs. Raises GatewayError where they do not."""
    for place, part, _ in said:
        if isinstance(part, ToolCall):
            waiting.call(part.id, place)
        elif isinstance(part, ToolResult):
            waiting.answer(part.call_id, place)


def _speaking(turns: Sequence[Message], notes: Notes) -> Iterator[Message]:
    """Those of *turns* that say or call anything; thoughts alone are no message."""
    for turn in turns:
        if not all(isinstance(part, Thinking) for part in turn.parts):
            yield turn
            continue
        for place in [turn.place_of(index) for index in range(len(turn.parts))] or [turn.place]:
            notes.drop(place)


def _begin_answer(message: dict[str, Any], place: str, traits: Traits, notes: Notes) -> None:
    """The call ends with what the answer shall begin with; most models only see it as something said before."""
    if traits.continues:
        message["prefix"] = True
    else:
        notes.translate(place)


def _assistant(said: Sequence[Placed], traits: Traits, notes: Notes) -> dict[str, Any]:
    """The message; without text its content is null, as "" is refused, and by others a message without the member."""
    texts = [item.part.text for item in said if isinstance(item.part, Text)]
    calls = [_tool_call(item.part, traits) for item in said if isinstance(item.part, ToolCall)]
    thoughts = _thoughts(said, traits, notes)
    message: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts) if texts else None}
    name = next((item.author for item in said if item.author), None)
    if name is not None:
        message["name"] = name
    if traits.remembers and (thoughts or calls):  # DeepSeek wants it in turns with calls even where it is empty
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _thoughts(said: Sequence[Placed], traits: Traits, notes: Notes) -> list[str]:
    """The reasoning that the model takes back; the rest is noted."""
    thoughts: list[str] = []
    for place, part, _ in said:
        if not isinstance(part, Thinking):
            continue
        if traits.remembers and part.text:
            thoughts.append(part.text)
            notes.translate(place)
        else:
            notes.drop(place)
    return thoughts


def _tool_call(call: ToolCall, traits: Traits) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": traits.call_id(call.id), "type": "function", "function": function}


def _user(said: Sequence[Placed], calls: dict[str, str], traits: Traits, notes: Notes) -> list[dict[str, Any]]:
    """Results of *calls* (names by id, in order), then what came with them and fits no result, then the rest."""
    order = {call_id: position for position, call_id in enumerate(calls)}
    results = [(item.part, item.place) for item in said if isinstance(item.part, ToolResult)]
    results.sort(key=lambda result: order[result[0].call_id])
    messages = [_tool_message(result, traits) for result, _ in results]
    rest: list[Placed] = []
    for result, place in results:
        if result.is_error:
            notes.translate(f"{place}.is_error")
        rest += _attached(result, place, calls, traits, notes)
    rest += [item for item in said if not isinstance(item.part, ToolResult)]
    for author, items in groupby(rest, lambda item: item.author):
        message: dict[str, Any] = {"role": "user", "content": _content(list(items))}
        if author is not None:
            message["name"] = author
        messages.append(message)
    return messages


def _tool_message(result: ToolResult, traits: Traits) -> dict[str, Any]:
    """A result's text. The dialect has no word for a failure, and here no room for anything but text."""
    lines = [_FAILED] if result.is_error else []
    lines += [words_of(part) for part in result.parts if not is_file(part)]
    if any(map(is_file, result.parts)):
        lines.append(_FOLLOWS)
    return {"role": "tool", "tool_call_id": traits.call_id(result.call_id), "content": "\n".join(lines)}


def _attached(result: ToolResult, place: str, calls: dict[str, str], traits: Traits, notes: Notes) -> list[Placed]:
    """The pictures and files of *result*, for the user's message, and a line that says whose they are."""
    files = [part for part in result.parts if is_file(part)]
    if not files:
        return []
    notes.translate(place)
    line = f"The result of tool call {traits.call_id(result.call_id)} of {calls[result.call_id]}:"
    return [Placed(place, part) for part in (Text(line), *files)]


def _content(items: Sequence[Placed]) -> str | list[dict[str, Any]]:
    """Text alone as one string, anything else as parts."""
    if not any(is_file(item.part) for item in items):
        return "\n".join(words_of(item.part) for item in items)
    return [_part(item.part, item.place) for item in items]


def _part(part: Part, place: str) -> dict[str, Any]:
    if isinstance(part, Image):
        image = {"url": part.url or f"data:{part.media_type};base64,{part.data}"}
        return {"type": "image_url", "image_url": image | ({"detail": part.detail} if part.detail else {})}
    if isinstance(part, Document) and is_file(part):
        if part.data is None:
            raise refuse(place, f"{place}: Documents by URL cannot be used with this model; send the document itself.")
        data = f"data:{PDF};base64,{part.data}"
        return {"type": "file", "file": {"filename": part.name or "document.pdf", "file_data": data}}
    return {"type": "text", "text": words_of(part)}
