"""Neutral messages as the turns of an Anthropic conversation: alternating, beginning with the user's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from gateway.dialects.anthropic_body_blocks import (
    Block,
    call_block,
    content_block,
    result_block,
    text_block,
    thinking_block,
)
from gateway.dialects.anthropic_body_ids import CallIds
from gateway.dialects.neutral import (
    Aside,
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
        turns = [message for message in self.messages if message["role"] != "system"]
        if len(turns) < 2 or turns[-1]["content"][0]["type"] != "tool_result":
            return False
        return turns[-2]["content"][0]["type"] not in _THOUGHTS


def asides(prompt: Prompt) -> tuple[Told, ...]:
    """The instructions that have moved, each with where it stood; none where there are no turns to stand between."""
    return tuple(zip(prompt.moved, prompt.system[-len(prompt.moved) :], strict=True)) if prompt.moved else ()


def write_turns(prompt: Prompt, notes: Notes, told: tuple[Told, ...] = ()) -> Conversation:
    """
    The messages of *prompt*. Where there are instructions only, they are what the user says.

    Instructions that are *told* apart stand behind the turn of the user that they stood in or before; where there is
    none, in front with the others.

    Raises:
        GatewayError: Nothing is left of what the user said last, or calls and results do not match.
    """
    if not prompt.messages and prompt.system:
        notes.translate("messages")
        turn = Message("user", prompt.system, "messages")
        return Conversation((), _Turns(notes).write((turn,)), ())
    turns = _Turns(notes)
    front = len(prompt.system) - len(told)
    messages = turns.write(prompt.messages, told)
    return Conversation((*prompt.system[:front], *turns.homeless()), messages, tuple(turns.called))


Told = tuple[Aside, Text]


class _Turn(Struct):
    """
    Blocks of one role, each with its place; those of results go first.

    Attributes:
        told: Instructions right behind it. A user may go on behind some of them: so many from the front are `passed`.
    """

    role: Literal["user", "assistant"]
    first: list[Block] = []
    blocks: list[tuple[Block, str]] = []
    told: list[Told] = []
    passed: int = 0

    def content(self) -> list[Block]:
        return self.first + [block for block, _ in self.blocks]


class _Turns:
    def __init__(self, notes: Notes) -> None:
        self.called: dict[str, None] = {}
        self._notes = notes
        self._ids = CallIds()
        self._turns: list[_Turn] = []
        self._told: list[Told] = []  # since the last turn of the user

    def write(self, messages: tuple[Message, ...], told: tuple[Told, ...] = ()) -> list[dict[str, Any]]:
        before: dict[int, list[Told]] = {}
        for aside, text in told:
            before.setdefault(aside.turns, []).append((aside, text))
        for at, message in enumerate(messages):
            self._tell(before.get(at, ()))
            self._take(message)
        self._tell(before.get(len(messages), ()))
        self._ids.close()
        self._end(messages)
        if self._turns[0].role == "assistant":
            self._notes.translate(messages[0].place)
            self._turns.insert(0, _Turn("user", [{"type": "text", "text": OPENING}]))
        out: list[dict[str, Any]] = []
        for turn in self._turns:
            out.append({"role": turn.role, "content": turn.content()})
            if turn.told:
                out.append({"role": "system", "content": [text_block(text) for _, text in turn.told]})
        return out

    def homeless(self) -> tuple[Text, ...]:
        """The instructions that no turn of the user stands before or behind of."""
        for aside, _ in self._told:
            self._notes.translate(aside.place)
        return tuple(text for _, text in self._told)

    def _tell(self, told: Sequence[Told]) -> None:
        """Take the instructions that stand before the next message: in place, if they follow the user's turn."""
        self._told += told
        if not self._turns or self._turns[-1].role == "assistant":
            for aside, _ in told:
                self._notes.translate(aside.place)

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
        turn = self._turns[-1]
        if role == "user":
            self._pass(turn)
        return turn

    def _pass(self, turn: _Turn) -> None:
        """The user goes on in *turn*: the instructions so far go behind that. A turn may have thousands: each once."""
        turn.told += self._told
        self._told.clear()
        for aside, _ in turn.told[turn.passed :]:
            self._notes.translate(aside.place)
        turn.passed = len(turn.told)

    def _close(self) -> None:
        """The turn under way is over: one of the assistant may not end with thinking."""
        if not self._turns:
            return
        blocks = self._turns[-1].blocks
        while blocks and blocks[-1][0]["type"] in _THOUGHTS:
            self._notes.drop(blocks.pop()[1])
        if not blocks and not self._turns[-1].first:
            self._turns.pop()
        elif self._turns[-1].role == "user":
            self._turns[-1].told += self._told
            self._told.clear()

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
