"""Instructions within a conversation: in their place where the model takes them there, else in front, and noted."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from gateway.providers.traits import traits_of
from tests.unit.dialects.prompts import messages_of
from tests.unit.dialects.translating import TARGET, written

PLAIN, PLACING = TARGET, structs.replace(TARGET, traits=traits_of("claude-opus-4-8"))
CALL = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "ok"}
SIGNED = {"type": "reasoning.text", "text": "hm", "signature": "s"}
TOOL_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def outline(messages: list[dict[str, Any]]) -> list[str]:
    """Roles and texts, one line each."""
    out = []
    for message in messages:
        content = message["content"]
        texts = [content] if isinstance(content, str) else [part.get("text", part["type"]) for part in content or []]
        out.append(f"{message['role']}: {' '.join(texts)}")
    return out


# -- to chat completions --


def test_openai_takes_them_where_they_stand() -> None:
    """Behind the turns they stood behind, each of them, without a note."""
    turns = [said("user", "A"), said("system", "X"), said("assistant", "B"), said("user", "C"), said("system", "Y")]

    messages, notes = messages_of(*turns, model="gpt-4o", system="S")

    assert outline(messages) == ["system: S", "user: A", "system: X", "assistant: B", "user: C", "system: Y"]
    assert notes.translated == []


def test_an_instruction_between_two_of_the_users_messages() -> None:
    """The user's neighbours, else one message, stay apart."""
    messages, _ = messages_of(said("user", "A"), said("system", "X"), said("user", "B"), model="gpt-4o")

    assert outline(messages) == ["user: A", "system: X", "user: B"]


@pytest.mark.parametrize("model", ["deepseek-chat", "mistral-large", "some-model"])
def test_others_get_them_in_front(model: str) -> None:
    """In order, in one, and every one that has moved is noted by its place."""
    turns = [said("user", "A"), said("system", "X"), said("assistant", "B"), said("user", "C"), said("system", "Y")]

    messages, notes = messages_of(*turns, model=model, system="S")

    assert outline(messages) == ["system: S\n\nX\n\nY", "user: A", "assistant: B", "user: C"]
    assert notes.translated == ["messages[1]", "messages[4]"]


def test_a_call_is_not_parted_from_its_result() -> None:
    """An instruction between the two goes in front with the others: the result has to follow at once."""
    turns = [said("user", "A"), said("assistant", [CALL]), said("system", "X"), said("user", [RESULT])]

    messages, notes = messages_of(*turns, model="gpt-4o", tools=[{"name": "f"}])

    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool"]
    assert notes.translated == ["messages[2]"]


def test_an_instruction_before_the_first_turn_has_not_moved() -> None:
    """In front is where it stood."""
    for model in ("gpt-4o", "some-model"):
        messages, notes = messages_of(said("system", "X"), said("user", "A"), model=model)

        assert outline(messages) == ["system: X", "user: A"]
        assert notes.translated == []


# -- to Anthropic messages --


def test_newer_claudes_take_them_behind_the_user() -> None:
    """From Opus 4.8 on, right behind a turn of the user: those that stand there stay, without a note."""
    turns = [said("system", "S"), said("user", "A"), said("developer", "X"), said("assistant", "B"), said("user", "C")]
    out = written(*turns, said("system", "Y"), target=PLACING)

    assert out["system"] == [{"type": "text", "text": "S"}]
    assert outline(out["messages"]) == ["user: A", "system: X", "assistant: B", "user: C", "system: Y"]
    assert out.translated == ["max_tokens"]


def test_an_instruction_before_the_users_turn_goes_behind_it() -> None:
    """Nowhere else may one stand: it moves past the user's words, and is noted."""
    turns = [said("user", "A"), said("assistant", "B"), said("system", "X"), said("user", "C")]
    out = written(*turns, target=PLACING)

    assert outline(out["messages"]) == ["user: A", "assistant: B", "user: C", "system: X"]
    assert "messages[2]" in out.translated


def test_instructions_within_one_turn_of_the_user_go_behind_it() -> None:
    """What the user says on both sides of one is one turn."""
    out = written(said("user", "A"), said("system", "X"), said("user", "B"), target=PLACING)

    assert outline(out["messages"]) == ["user: A B", "system: X"]
    assert "messages[1]" in out.translated


def test_results_stay_behind_their_calls() -> None:
    """An instruction between a call and its result stands behind the result."""
    call = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
    out = written(said("user", "A"), call, said("system", "X"), result, target=PLACING)

    assert outline(out["messages"]) == ["user: A", "assistant: tool_use", "user: tool_result", "system: X"]


def test_an_instruction_behind_a_begun_answer_goes_in_front() -> None:
    """Behind the assistant's last words there is no turn of the user to stand behind."""
    out = written(said("user", "A"), said("assistant", "B"), said("system", "X"), target=PLACING)

    assert outline(out["messages"]) == ["user: A", "assistant: B"]
    assert out["system"] == [{"type": "text", "text": "X"}]
    assert "messages[2]" in out.translated


def test_an_instruction_survives_a_turn_of_blanks() -> None:
    """The user's turn that it stood behind is dropped, the instruction is not."""
    turns = [said("user", "A"), said("assistant", "B"), said("user", " "), said("system", "X"), said("user", "C")]
    out = written(*turns, target=PLACING)

    assert outline(out["messages"]) == ["user: A", "assistant: B", "user: C", "system: X"]


def test_thinking_looks_past_instructions() -> None:
    """Results that come back for a turn without thinking rule it out, whatever stands behind them."""
    call = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
    target = structs.replace(PLACING, traits=structs.replace(PLACING.traits, thinking="budget"))
    out = written(said("user", "A"), call, result, said("system", "X"), target=target, reasoning_effort="low")

    assert "thinking" not in out.body


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-opus-4-7"])
def test_older_claudes_get_them_in_front(model: str) -> None:
    """They refuse the role within a conversation."""
    target = structs.replace(TARGET, traits=traits_of(model))
    out = written(said("user", "A"), said("system", "X"), target=target)

    assert outline(out["messages"]) == ["user: A"]
    assert out["system"] == [{"type": "text", "text": "X"}]
    assert "messages[1]" in out.translated


def test_the_user_goes_on_behind_a_thought_that_was_left_out() -> None:
    """An instruction that has to move behind what the user goes on to say is noted, whatever stood between them."""
    thought = {"role": "assistant", "content": None, "reasoning_details": [SIGNED]}

    body = written(said("user", "A"), said("system", "X"), thought, said("user", "B"), target=PLACING)

    assert outline(body["messages"]) == ["user: A B", "system: X"]
    assert "messages[1]" in body.translated
