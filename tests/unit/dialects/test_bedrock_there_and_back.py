"""What is said to Bedrock and by it means the same as with the dialects of clients, calls and answers alike."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.neutral import Target
from gateway.dialects.pairs import translated_body
from gateway.dialects.registry import DIALECTS
from gateway.providers.traits import traits_of
from tests.support.bedrock import START, argues, begins, closes, metadata, stop, text
from tests.support.notation import MD, MS, MX
from tests.support.scale import examples
from tests.unit.dialects.converse import CLAUDE
from tests.unit.dialects.test_there_and_back import (
    PNG,
    arguments,
    as_chat,
    as_messages,
    call_of,
    chat_calls,
    counts,
    gist,
    heard_of,
    spoken,
    words,
)

TARGET = Target(CLAUDE, stream=False, max_output_tokens=64_000, traits=traits_of(CLAUDE))
ANTHROPIC = Target("theirs", stream=False, max_output_tokens=64_000)
LINK, DATA = "https://a.test/a.png", f"data:image/png;base64,{PNG}"  # Converse takes data alone


def told_of(block: dict[str, Any], role: str) -> tuple[str, Any]:
    """What *block* of a Converse turn says, as `gist` has it."""
    ((kind, said),) = block.items()
    match kind:
        case "text":
            return f"{role} says", said
        case "image":
            return "shows", (None, f"image/{said['format']}", said["source"]["bytes"])
        case "toolUse":
            return "calls", (said["toolUseId"], said["name"], said["input"])
        case _:
            assert kind == "toolResult"
            return "gives", (said["toolUseId"], [part["text"] for part in said["content"]])


def gist_of(body: dict[str, Any]) -> dict[str, Any]:
    """What a Converse *body* says, as `gist` has it of a prompt."""
    turns: list[tuple[str, Any]] = []
    for message in body["messages"]:
        for block in message["content"]:
            what, said = told_of(block, message["role"])
            if turns and turns[-1][0] == what and what.endswith("says"):
                said = f"{turns.pop()[1]}\n{said}"
            turns.append((what, said))
    specs = [tool["toolSpec"] for tool in body["toolConfig"]["tools"]]
    config = body["inferenceConfig"]
    return {
        "turns": turns,
        "system": "\n\n".join(text["text"] for text in body.get("system", ())),
        "tools": [(spec["name"], spec["description"], spec["inputSchema"]["json"]) for spec in specs],
        "limits": (config["maxTokens"], tuple(config.get("stopSequences", ()))),
        "sampling": {name: config[name] for name in ("temperature",) if name in config},
    }


@settings(max_examples=examples(150), deadline=None)
@given(body=chat_calls())
def test_a_call(body: dict[str, Any]) -> None:
    """A call arrives at Bedrock as it was, and by way of a gateway that speaks Anthropic's dialect as the very same."""
    raw = json.dumps(body).replace(LINK, DATA).encode()
    call = call_of("openai_chat", raw)
    between, _ = translated_body(call, DIALECTS["anthropic_messages"], ANTHROPIC)

    theirs, _ = translated_body(call, DIALECTS["bedrock_converse"], TARGET)
    bent, _ = translated_body(call_of("anthropic_messages", between), DIALECTS["bedrock_converse"], TARGET)

    before = gist(DIALECTS["openai_chat"].read_prompt(call))
    before["limits"] = before["limits"][:2]  # no member of Converse's is the user's
    assert gist_of(json.loads(theirs)) == {name: before[name] for name in gist_of(json.loads(theirs))}
    assert json.loads(bent) == json.loads(theirs)


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A whole answer of Bedrock and of an Anthropic provider that says and counts the same."""
    said = draw(st.lists(words, max_size=4))
    calls = []
    for _ in range(draw(st.integers(0, 3))):
        whole = draw(arguments)
        cut = draw(st.integers(0, len(whole)))
        calls.append((draw(st.sampled_from(["f", "g"])), [] if whole == "{}" else [whole[:cut], whole[cut:]]))
    converse = START + b"".join(map(text, said)) + (closes() if said else b"")
    for at, (name, pieces) in enumerate(calls):
        block = at + bool(said)
        converse += begins(f"id_{at}", name, block) + b"".join(argues(piece, block) for piece in pieces) + closes(block)
    prompt, completion, cached, written = (draw(counts) for _ in range(4))
    why = "tool_use" if calls else draw(st.sampled_from(["end_turn", "max_tokens"]))
    kept = {"cacheReadInputTokens": cached, "cacheWriteInputTokens": written}
    start = MS(prompt, 1, cache_read_input_tokens=cached, cache_creation_input_tokens=written)
    return (
        converse + stop(why) + metadata(prompt, completion, **kept),
        start + spoken(said, calls)[1] + MD(why, completion) + MX,
    )


@settings(max_examples=examples(100), deadline=None)
@given(answer=answers())
def test_an_answer(answer: tuple[bytes, bytes]) -> None:
    """
    A client hears of Bedrock what it hears of an Anthropic provider that says the same: text, calls, end and usage. So
    it does behind a second gateway that speaks the other dialect.
    """
    converse, messages = answer

    assert heard_of(as_messages(converse, "bedrock_converse")) == heard_of(as_messages(messages, "anthropic_messages"))
    straight = heard_of(as_chat(converse, "bedrock_converse"))
    assert straight == heard_of(as_chat(messages, "anthropic_messages"))
    assert heard_of(as_chat(as_messages(converse, "bedrock_converse").out, "anthropic_messages")) == straight
