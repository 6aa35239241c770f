"""What an answer says in words."""

from __future__ import annotations

import pytest

from gateway.dialects.said import Said
from tests.support.notation import CBD, CBJ, CBS, CBX, DONE, FIN, MD, MS, MX, TC, R, T, U, json_answer
from tests.unit.dialects.conversations import hear_anthropic, hear_openai


def heard(frames: bytes, most_chars: int = 1000) -> str:
    said = Said(most_chars)
    for frame in frames.split(b"\n\n"):
        said.hear(frame + b"\n\n")
    return said.text


def test_chat() -> None:
    """Text and the calls of tools, in the order of their coming; nothing of what the gateway adds."""
    call = TC(0, name="find"), TC(0, '{"a":'), TC(0, "1}")
    out = hear_openai(R(), T("Hel"), T("lo"), *call, FIN("tool_calls"), U(3, 1), DONE)

    assert heard(out.out) == 'Hello\nfind {"a":1}'


def test_messages() -> None:
    """So in Anthropic's frames, thoughts included."""
    out = hear_anthropic(
        MS(3), CBS(0), CBD(0, "Hello"), CBX(0), CBS(1, "tool_use"), CBJ(1, '{"a":1}'), CBX(1), MD("tool_use", 2), MX
    )  # fmt: skip

    assert heard(out.out) == 'Hello\ntool {"a":1}'


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_whole_answers(dialect: str) -> None:
    """A body says the same as a stream."""
    said = Said(1000)

    said.read(json_answer("Hi there", dialect=dialect).body)

    assert said.text == "Hi there"


def test_a_bound() -> None:
    """So much is kept and no more, however long the answer."""
    assert heard(b"".join(T("abc") for _ in range(100)), most_chars=7) == "abcabca"


@pytest.mark.parametrize("odd", [b"data: {", b"data: [1]", b": ping", b"", b'data: {"a":' * 9000, b"data: [DONE]"])
def test_what_says_nothing(odd: bytes) -> None:
    """What is no JSON object, or no words, is passed over."""
    assert heard(odd) == ""
