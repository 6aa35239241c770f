"""Signed thoughts on their way through a client of OpenAI's dialect and back to the model that signed them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.neutral import AnswerEvent, Begin, Finished, Said, Thought
from gateway.dialects.openai_chunks import OpenAIWriter
from gateway.dialects.openai_events import OpenAIReader
from gateway.wire.sse import FrameSplitter
from tests.support.notation import DONE, FIN, R, chunk
from tests.unit.dialects.conversations import journey, openai_call
from tests.unit.dialects.translating import written

Pair = tuple[str, str]


def sent_back(events: list[AnswerEvent], *, stream: bool) -> dict[str, Any]:
    """The assistant's message as a client keeps it."""
    writer = OpenAIWriter(journey(openai_call()))
    if not stream:
        message: dict[str, Any] = json.loads(writer.whole(events))["choices"][0]["message"]
        return message
    out: dict[str, Any] = {"role": "assistant", "content": "", "reasoning_content": "", "reasoning_details": []}
    for frame in b"".join(map(writer.write, events)).split(b"\n\n")[:-1]:
        for choice in json.loads(frame.removeprefix(b"data: "))["choices"]:
            for name in ("content", "reasoning_content", "reasoning_details"):
                out[name] += choice["delta"].get(name) or type(out[name])()
    return out


def thoughts_of(message: dict[str, Any]) -> list[Any]:
    """What the model gets of the thoughts in *message*: pairs of text and signature, or ciphertexts."""
    turns = written(message, {"role": "user", "content": "Go on."})["messages"]
    (said,) = [turn["content"] for turn in turns if turn["role"] == "assistant"]
    return [
        (block["thinking"], block["signature"]) if block["type"] == "thinking" else block["data"]
        for block in said
        if block["type"] in ("thinking", "redacted_thinking")
    ]


def answer(*thoughts: Pair | str) -> list[AnswerEvent]:
    """The events of an answer with *thoughts*: pairs of text and signature, or ciphertexts."""
    events: list[AnswerEvent] = [Begin("msg_1")]
    for thought in thoughts:
        if isinstance(thought, str):
            events.append(Thought(redacted=thought))
        else:
            half = len(thought[0]) // 2
            events += [Thought(piece) for piece in (thought[0][:half], thought[0][half:]) if piece]
            events.append(Thought(signature=thought[1]))
    return [*events, Said("So."), Finished("stop")]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
def test_several_thoughts_keep_their_signatures(stream: bool) -> None:
    """Each comes back with the text that was signed, in order, ciphertexts between them."""
    thoughts = [("First.", "sig1"), "xyz", ("Zwölf 🦀.", "sig2"), ("", "sig3")]

    message = sent_back(answer(*thoughts), stream=stream)

    assert message["reasoning_content"] == "First.Zwölf 🦀."
    assert thoughts_of(message) == thoughts


signed = st.tuples(st.text(max_size=9), st.text("abc", min_size=1, max_size=4))
hidden = st.text("xyz", min_size=1)


@given(st.lists(signed | hidden, min_size=1), st.booleans())
def test_any_thoughts_there_and_back(thoughts: list[Pair | str], stream: bool) -> None:
    """Whatever was thought, signed or hidden: the model gets the very same."""
    thoughts = [t if isinstance(t, str) else (t[0].encode("utf-8", "replace").decode(), t[1]) for t in thoughts]

    assert thoughts_of(sent_back(answer(*thoughts), stream=stream)) == thoughts


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"reasoning_content": "First. Second"}, id="text changed"),
        pytest.param({"length": 7}, id="length changed"),
        pytest.param({"length": -1}, id="length negative"),
        pytest.param({"length": True}, id="length no number"),
        pytest.param({"length": 10**15}, id="length absurd"),
    ],
)
def test_a_text_that_was_changed_is_not_signed(changed: dict[str, Any]) -> None:
    """Where lengths and text do not match, no signature is put to a text that it may not be of."""
    message = sent_back(answer(("First.", "sig1"), ("Second", "sig2")), stream=False)
    if "length" in changed:
        message["reasoning_details"][0]["text_length"] = changed["length"]
    else:
        message |= changed

    assert thoughts_of(message) == []


def thoughts_told(details: list[dict[str, Any]]) -> list[AnswerEvent]:
    """What a provider of OpenAI's dialect tells by *details*."""
    reader, splitter = OpenAIReader(), FrameSplitter(1 << 20)
    stream = R() + chunk({"reasoning_details": details}) + FIN() + DONE
    return [said for event in splitter.feed(stream) for said in reader.take(event) if isinstance(said, Thought)]


def test_what_another_family_signed_is_not_handed_on() -> None:
    """A client of Anthropic's dialect would send it to Claude, which refuses it; the text itself stays."""
    foreign = ("openai-responses-v1", "google-gemini-v1", "xai-responses-v1", 7)
    details = [{"type": "reasoning.text", "text": "a", "signature": "s", "format": each} for each in foreign]
    details += [{"type": "reasoning.encrypted", "data": "d", "format": each} for each in foreign]

    assert thoughts_told(details) == [Thought("a")] * len(foreign)


@pytest.mark.parametrize("family", [{}, {"format": None}, {"format": "anthropic-claude-v1"}])
def test_what_claude_signed_is_handed_on(family: dict[str, Any]) -> None:
    """Also where the provider does not say whose it is, as another gateway of ours does not."""
    details = [{"type": "reasoning.text", "text": "a", "signature": "s"}, {"type": "reasoning.encrypted", "data": "d"}]

    told = thoughts_told([{**entry, **family} for entry in details])

    assert told == [Thought("a", signature="s"), Thought(redacted="d")]
