"""Turns as `contents` of a Gemini body: alternating, beginning with the user's, results right behind their calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from msgspec import Raw, Struct

from gateway.dialects.gemini_body_parts import Written, file_part, result_part, text_of_part
from gateway.dialects.neutral import Image, Message, Notes, Prompt, Text, Thinking, ToolCall, ToolResult
from gateway.dialects.open_calls import OpenCalls
from gateway.dialects.part_signatures import PartSignature, read_signature
from gateway.dialects.parts import Placed, is_file, parts_of
from gateway.dialects.traits import Traits
from gateway.dialects.validate import refuse

_OPENING = "Hello."  # what the user says where the model spoke first: a call may not open a conversation
_GO_ON = "Continue."  # what the user says where the model would not go on by itself
# Instead of a signature that was lost on the way, or of a call that another model made: Google's guide to thought
# signatures, which has it for histories that come from elsewhere.
_NO_SIGNATURE = "skip_thought_signature_validator"


class Conversation(Struct):
    """The turns as written, and the instructions."""

    system: tuple[Text, ...]
    contents: list[dict[str, Any]]


def write_turns(prompt: Prompt, traits: Traits, notes: Notes) -> Conversation:
    """
    The messages of *prompt*. Where there are instructions only, they are what the user says.

    Raises:
        GatewayError: 400 naming the place of half a pair of call and result, of a part that cannot be said, or where
            nothing is left to say.
    """
    if not prompt.messages and prompt.system:
        notes.translate("messages")
        return Conversation((), [{"role": "user", "parts": [{"text": text.text} for text in prompt.system]}])
    contents = _Turns(traits, notes).write(prompt.messages)
    return Conversation(prompt.system, contents)


class _Turns:
    def __init__(self, traits: Traits, notes: Notes) -> None:
        self._traits = traits
        self._notes = notes
        self._open = OpenCalls()
        self._calls: dict[str, str] = {}  # of the turn before: names by id, in order
        self._contents: list[dict[str, Any]] = []

    def write(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        for message in messages:
            if message.name is not None:
                self._notes.drop(f"{message.place}.name")
        for role, turns in groupby(messages, lambda message: message.role):
            if role == "assistant":
                self._answer([*turns])
            else:
                self._ask(turns)
        self._open.close()
        if not self._contents:
            raise refuse("messages", "messages must have at least one message with content that this model can take.")
        self._frame(messages)
        return self._contents

    def _frame(self, messages: Sequence[Message]) -> None:
        """The first turn and the last are the user's."""
        if self._contents[0]["role"] == "model":
            self._notes.translate(messages[0].place)
            self._contents.insert(0, {"role": "user", "parts": [{"text": _OPENING}]})
        if self._contents[-1]["role"] == "model" and not self._traits.continues:
            self._notes.translate(messages[-1].place)
            self._contents.append({"role": "user", "parts": [{"text": _GO_ON}]})

    def _add(self, role: str, parts: list[Written]) -> None:
        """A turn of *role*; with the one before it, where what stood between them said nothing."""
        if not parts:
            return
        if self._contents and self._contents[-1]["role"] == role:
            self._contents[-1]["parts"] += parts
        else:
            self._contents.append({"role": role, "parts": parts})

    # -- what the model said --

    def _answer(self, turns: Sequence[Message]) -> None:
        parts: list[Written] = []
        calls: dict[str, str] = {}
        for turn in turns:
            said = parts_of([turn])
            for place, part, _ in said:
                if isinstance(part, ToolCall):
                    self._open.call(part.id, place)
                    calls[part.id] = part.name
            parts += self._spoken(said)
        first = next((part for part in parts if "functionCall" in part), None)
        if self._traits.signs and first is not None:
            first.setdefault("thoughtSignature", _NO_SIGNATURE)
        if parts:
            self._calls = calls
        self._add("model", parts)

    def _spoken(self, said: Sequence[Placed]) -> list[Written]:
        """The parts of one message, each with the signature that it came with."""
        signatures = _signatures(said)
        self._note_thoughts(said, signatures)
        parts: list[Written] = []
        if (signature := signatures.pop(("thought", 0), None)) is not None:
            thought = "".join(part.text for _, part, _ in said if isinstance(part, Thinking))
            parts.append({"text": thought, "thought": True, "thoughtSignature": signature})
        slots = {"call": 0, "image": 0}
        last_text: Written | None = None
        for place, part, _ in said:
            if isinstance(part, ToolCall | Image):
                kind = "call" if isinstance(part, ToolCall) else "image"
                written = _call(part) if isinstance(part, ToolCall) else file_part(part, place, self._notes)
                _sign(written, signatures.pop((kind, slots[kind]), None))
                slots[kind] += 1
            elif isinstance(part, Text):
                last_text = written = text_of_part(part)
            else:
                continue
            parts.append(written)
        if last_text is not None:
            _sign(last_text, signatures.pop(("text", 0), None))
        return parts

    def _note_thoughts(self, said: Sequence[Placed], signatures: object) -> None:
        """Summaries are not taken back. Where the thinking itself comes, in its signature, nothing is lost by that."""
        for place, part, _ in said:
            if not isinstance(part, Thinking) or read_signature(part.redacted) is not None:
                continue
            if part.signature is not None or part.redacted is not None or not signatures:
                self._notes.drop(place)

    # -- what the user said --

    def _ask(self, turns: Iterable[Message]) -> None:
        said = parts_of(turns)
        results: list[tuple[ToolResult, str]] = []
        for place, part, _ in said:
            if isinstance(part, ToolResult):
                self._open.answer(part.call_id, place)
                results.append((part, place))
        self._open.close()
        order = {call_id: position for position, call_id in enumerate(self._calls)}
        results.sort(key=lambda result: order[result[0].call_id])
        first, rest = self._results(results)
        for place, part, _ in said:
            if not isinstance(part, ToolResult):
                rest.append(file_part(part, place, self._notes) if is_file(part) else text_of_part(part))
        if first or rest:
            self._calls = {}
        self._add("user", first + rest)

    def _results(self, results: Sequence[tuple[ToolResult, str]]) -> tuple[list[Written], list[Written]]:
        """Results, and behind them what a model cannot have inside of one, with a line that says whose it is."""
        first: list[Written] = []
        rest: list[Written] = []
        for result, place in results:
            name = self._calls[result.call_id]
            written, left = result_part(result, name, holds_files=self._traits.sees_results)
            first.append(written)
            if left:
                self._notes.translate(place)
                rest.append({"text": f"The result of {name} ({result.call_id}):"})
                rest += [file_part(part, place, self._notes) for part in left]
        return first, rest


def _signatures(said: Sequence[Placed]) -> dict[tuple[str, int], str]:
    """By kind and slot; of several for one part the last."""
    found: dict[tuple[str, int], str] = {}
    for _, part, _ in said:
        signed: PartSignature | None = read_signature(part.redacted) if isinstance(part, Thinking) else None
        if signed is not None:
            found[signed.kind, signed.slot] = signed.signature
    return found


def _sign(part: Written, signature: str | None) -> None:
    if signature is not None:
        part["thoughtSignature"] = signature


def _call(call: ToolCall) -> Written:
    return {"functionCall": {"id": call.id, "name": call.name, "args": Raw(call.arguments.encode())}}
