"""Neutral messages as the turns of an Anthropic conversation: alternating, beginning with the user's."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from gateway.dialects.anthropic_body_blocks import Block, call_block, content_block, result_block, thinking_block
from gateway.dialects.anthropic_body_ids import CallIds
from gateway.dialects.neutral import Image, Message, Notes, Part, Prompt, Text, Thinking, ToolCall, ToolResult
from gateway.dialects.validate import refuse

OPENING = "Hello."  # what the user says where the assistant spoke first
_THOUGHTS = ("thinking", "redacted_thinking")


class Conversation(Struct):
    """
    The turns as written.

    Attributes:
        called: Names of the tools that were called in them.
    """

    system: tuple[Text, ...]
    messages: list[dict[str, Any]]
    called: tuple[str, ...]

    @property
    def prefilled(self) -> bool:
        """Whether the answer has to go on where the last turn ends."""
        return bool(self.messages[-1]["role"] == "assistant")

    @property
    def resumes_without_thought(self) -> bool:
        """Whether results come back for a turn that does not begin with thinking, as one must while it is on."""
        if len(self.messages) < 2 or self.messages[-1]["content"][0]["type"] != "tool_result":
            return False
        return self.messages[-2]["content"][0]["type"] not in _THOUGHTS


def write_turns(prompt: Prompt, notes: Notes) -> Conversation:
    """
    The messages of *prompt*. Where there are instructions only, they are what the user says.

    Raises:
        GatewayError: Nothing is left of what the user said last, or calls and results do not match.
    """
    if not prompt.messages and prompt.system:
        notes.translate("messages")
        turn = Message("user", prompt.system, "messages")
        return Conversation((), _Turns(notes).write((turn,)), ())
    turns = _Turns(notes)
    messages = turns.write(prompt.messages)
    return Conversation(prompt.system, messages, tuple(turns.called))


class _Turn(Struct):
    """Blocks of one role, each with its place; those of results go first."""

    role: Literal["user", "assistant"]
    first: list[Block] = []
    blocks: list[tuple[Block, str]] = []

    def content(self) -> list[Block]:
        return self.first + [block for block, _ in self.blocks]


class _Turns:
    def __init__(self, notes: Notes) -> None:
        self.called: dict[str, None] = {}
        self._notes = notes
        self._ids = CallIds()
        self._turns: list[_Turn] = []

    def write(self, messages: tuple[Message, ...]) -> list[dict[str, Any]]:
        for message in messages:
            self._take(message)
        self._ids.close()
        self._end(messages)
        if self._turns[0].role == "assistant":
            self._notes.translate(messages[0].place)
            self._turns.insert(0, _Turn("user", [{"type": "text", "text": OPENING}]))
        return [{"role": turn.role, "content": turn.content()} for turn in self._turns]

    def _take(self, message: Message) -> None:
        if message.name is not None:
            self._notes.drop(f"{message.place}.name")
        for at, part in enumerate(message.parts):
            self._write(part, message.role, message.place_of(at))

    def _write(self, part: Part, role: Literal["user", "assistant"], place: str) -> None:
        if isinstance(part, ToolResult):
            block = result_block(part, self._ids.answer(part.call_id, place), place, self._notes)
            self._turn(role).first.append(block)
            return
        if isinstance(part, ToolCall):
            turn = self._turn(role)
            self.called[part.name] = None
            turn.blocks.append((call_block(part, self._ids.call(part.id, place)), place))
            return
        if isinstance(part, Image) and role == "assistant":  # which another model drew: here only the user shows any
            self._notes.drop(place)
            return
        if isinstance(part, Thinking):
            found = thinking_block(part, place, self._notes)
        else:
            found = content_block(part, place, self._notes)
        if found is not None:
            self._turn(role).blocks.append((found, place))

    def _turn(self, role: Literal["user", "assistant"]) -> _Turn:
        """The turn under way, if it is *role*'s; else a new one."""
        if not self._turns or self._turns[-1].role != role:
            if self._turns and role == "assistant":
                self._ids.close()
            self._close()
            if not self._turns or self._turns[-1].role != role:
                self._turns.append(_Turn(role))
        return self._turns[-1]

    def _close(self) -> None:
        """The turn under way is over: one of the assistant may not end with thinking."""
        if not self._turns:
            return
        blocks = self._turns[-1].blocks
        while blocks and blocks[-1][0]["type"] in _THOUGHTS:
            self._notes.drop(blocks.pop()[1])
        if not blocks and not self._turns[-1].first:
            self._turns.pop()

    def _end(self, messages: tuple[Message, ...]) -> None:
        """The last turn: something has to be left of the user's; the assistant's may not end with a blank."""
        self._close()
        role = self._turns[-1].role if self._turns else None
        if role is None or (role == "assistant" and messages[-1].role == "user"):
            place = messages[-1].place if messages else "messages"
            raise refuse(place, f"{place} has no text but blanks, which this model does not take.")
        if role == "assistant":
            block, place = self._turns[-1].blocks[-1]
            bare = block["text"].rstrip() if block["type"] == "text" else None
            if bare is not None and bare != block["text"]:
                block["text"] = bare
                self._notes.translate(place)
