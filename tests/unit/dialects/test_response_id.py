"""What the client knows an answer by, as lanes and whole answers tell it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.base import Lane
from gateway.dialects.pairs import read_completion
from tests.support.notation import CBD, CBS, DONE, FIN, MS, R, T, chunk, json_answer
from tests.unit.dialects.conversations import anthropic, anthropic_call, journey, openai, openai_call
from tests.unit.dialects.translated import to_chat, to_messages


def named(lane: Lane, *said: bytes) -> str | None:
    """The name once *said* has come; before, there is none."""
    assert lane.response_id is None
    for piece in said:
        lane.feed(piece)
    return lane.response_id


@pytest.mark.parametrize(
    ("lane", "said", "name"),
    [
        pytest.param(openai(), (R(), T("a"), FIN(), DONE), "c1", id="chat"),
        pytest.param(anthropic(), (MS(1), CBS(0), CBD(0, "a")), "msg_1", id="messages"),
        pytest.param(openai(), (chunk({"content": "a"}, id="x\u0000y" + 300 * "z"),), "xy" + 254 * "z", id="wild"),
        pytest.param(
            openai(), (chunk({"content": "a"}, id=None),), f"chatcmpl-{journey(openai_call()).request_id}", id="none"
        ),
    ],
)
def test_of_a_stream(lane: Lane, said: tuple[bytes, ...], name: str) -> None:
    """The provider's own name, or ours where it gives none; fit for logs and stores."""
    assert named(lane, *said) == name


def test_of_a_translated_stream() -> None:
    """The client hears a name of our making, and that is the one."""
    request_id = journey(openai_call()).request_id

    assert named(to_chat(), MS(1) + CBS(0) + CBD(0, "a")) == f"chatcmpl-{request_id}"
    assert named(to_messages(), R() + T("a")) == f"msg_{request_id.removeprefix('req_')}"


@pytest.mark.parametrize(
    ("call", "speaks", "name"),
    [
        (openai_call(stream=False), "openai_chat", "c1"),
        (anthropic_call(stream=False), "anthropic_messages", "msg_1"),
        (openai_call(stream=False), "anthropic_messages", "chatcmpl-"),
        (anthropic_call(stream=False), "openai_chat", "msg_"),
    ],
)
def test_of_a_whole_answer(call: Any, speaks: Any, name: str) -> None:
    """As of a stream."""
    body = json_answer("ok", dialect="openai" if speaks == "openai_chat" else "anthropic").body
    asked = journey(call, speaks=speaks)
    ours = asked.request_id.removeprefix("req_") if name == "msg_" else asked.request_id

    assert read_completion(body, asked).response_id == (f"{name}{ours}" if name.endswith(("-", "_")) else name)


@pytest.mark.parametrize("odd", [7, None, "", {"a": 1}])
def test_a_name_that_is_none(odd: Any) -> None:
    """What is no text, or an empty one, names nothing."""
    anthropic_body = json_answer("ok", dialect="anthropic", id=odd).body
    openai_body = json_answer("ok", dialect="openai", id=odd).body

    assert (
        read_completion(anthropic_body, journey(anthropic_call(stream=False), speaks="anthropic_messages")).response_id
        is None
    )
    assert read_completion(openai_body, journey(openai_call(stream=False), speaks="openai_chat")).response_id is None
