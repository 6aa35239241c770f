"""The turns of a conversation as a Gemini provider gets them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.call import CallOptions
from gateway.dialects.gemini_body import write_body
from gateway.dialects.neutral import Notes, Target
from gateway.dialects.openai_chat import read_call
from gateway.dialects.openai_prompt import read_prompt
from tests.unit.dialects.gemini import (
    BUDGETS,
    HI,
    LEVELS,
    NEWEST,
    called,
    contents,
    gave,
    of_chat,
    of_messages,
    refusal,
)
from tests.unit.dialects.translating import written as written_for_claude

PNG = "iVBORw0="
PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
INLINE = {"inlineData": {"mimeType": "image/png", "data": PNG}}
SKIP = "skip_thought_signature_validator"


def sealed(data: str) -> dict[str, Any]:
    return {"reasoning_details": [{"type": "reasoning.encrypted", "data": data}]}


def call_part(call_id: str, signature: str | None = None) -> dict[str, Any]:
    part = {"functionCall": {"id": call_id, "name": "f", "args": {"a": 1.5}}}
    return {**part, "thoughtSignature": signature} if signature else part


def result_part(call_id: str, **response: Any) -> dict[str, Any]:
    return {"functionResponse": {"id": call_id, "name": "f", "response": response or {"result": "done"}}}


def test_neighbours_are_one_turn() -> None:
    """Turns alternate: neighbours of one role become one."""
    turns = contents(HI, HI, {"role": "assistant", "content": "A"}, {"role": "assistant", "content": "B"}, HI)

    assert turns == [
        {"role": "user", "parts": [{"text": "Hi"}, {"text": "Hi"}]},
        {"role": "model", "parts": [{"text": "A"}, {"text": "B"}]},
        {"role": "user", "parts": [{"text": "Hi"}]},
    ]


def test_the_model_does_not_speak_first() -> None:
    """A conversation that the assistant begins gets a word of the user's in front, which is noted."""
    body, notes = of_chat({"role": "assistant", "content": "A"}, HI)

    assert [turn["role"] for turn in body["contents"]] == ["user", "model", "user"]
    assert notes.translated == ["messages[0]"]


def test_an_answer_begun() -> None:
    """Older models go on from the assistant's last words; newer ones refuse that, and are told to continue."""
    last = {"role": "assistant", "content": "A"}

    older, newer = of_chat(HI, last, model=BUDGETS), of_chat(HI, last, model=NEWEST)

    assert older[0]["contents"][-1] == {"role": "model", "parts": [{"text": "A"}]}
    assert older[1].translated == []
    assert newer[0]["contents"][-1] == {"role": "user", "parts": [{"text": "Continue."}]}
    assert newer[1].translated == ["messages[1]"]


def test_results_stand_in_the_order_of_the_calls() -> None:
    """Results follow their calls in the calls' order and with their names, before anything else that the user says."""
    turns = contents(
        HI, called("1", "2"), gave("2"), gave("1", "no"), {"role": "user", "content": "Go on."}, model=BUDGETS
    )

    assert turns[1:] == [
        {"role": "model", "parts": [call_part("1"), call_part("2")]},
        {"role": "user", "parts": [result_part("1", result="no"), result_part("2"), {"text": "Go on."}]},
    ]


def test_failures_of_tools() -> None:
    """A result that is an error says so by the key that Google names for it."""
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]}
    result = {"type": "tool_result", "tool_use_id": "1", "is_error": True, "content": "no"}

    body, _ = of_messages(HI, use, {"role": "user", "content": [result]})

    assert body["contents"][-1]["parts"] == [result_part("1", error="no")]


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([HI, called("1")], "messages[1].tool_calls[0]"),
        ([HI, called("1"), HI], "messages[1].tool_calls[0]"),
        ([HI, gave("1")], "messages[1]"),
        ([HI, called("1", "1"), gave("1")], "messages[1].tool_calls[1]"),
        ([HI, called("1"), gave("2")], "messages[2]"),
    ],
    ids=["no result", "something else", "no call", "twice", "another call"],
)
def test_half_pairs(messages: list[dict[str, Any]], param: str) -> None:
    """A call without its result, or a result without its call, is refused at its place."""
    assert refusal(*messages).param == param


@pytest.mark.parametrize("model", [LEVELS, NEWEST, "gemini-4-argon"])
def test_files_inside_of_results(model: str) -> None:
    """Models that see results get their pictures and PDFs inside of them."""
    pdf = {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0="}}
    turns = contents(HI, called("1"), gave("1", [{"type": "text", "text": "x"}, PICTURE, pdf]), model=model)

    assert turns[-1]["parts"] == [
        {
            "functionResponse": {
                "id": "1",
                "name": "f",
                "response": {"result": "x"},
                "parts": [INLINE, {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}}],
            }
        }
    ]


def test_files_beside_results() -> None:
    """For other models they follow the results, with a line that says whose they are, and so does a PDF by URL."""
    public = {"type": "file", "file": {"file_data": "https://x.example/a"}}

    older, notes = of_chat(HI, called("1"), gave("1", [PICTURE]), model=BUDGETS)
    newer, _ = of_chat(HI, called("1"), gave("1", [public]), model=NEWEST)

    whose = {"text": "The result of f (1):"}
    assert older["contents"][-1]["parts"] == [result_part("1", result="Its files follow."), whose, INLINE]
    assert notes.translated == ["messages[2]"]
    by_url = {"fileData": {"fileUri": "https://x.example/a", "mimeType": "application/pdf"}}
    assert newer["contents"][-1]["parts"] == [result_part("1", result="Its files follow."), whose, by_url]


def test_files_of_the_account() -> None:
    """A URL of a file that the gateway's own account keeps at the provider is no client's to use."""
    url = "https://GenerativeLanguage.googleapis.com/v1beta/files/abc"
    pdf = {"type": "file", "file": {"file_data": url}}

    assert refusal({"role": "user", "content": [pdf]}).param == "messages[0].content[0]"


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_no_picture_goes_by_its_url(role: str) -> None:
    """Should one not have been fetched, the call is refused: Google fetches none for a client of ours."""
    public = {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}
    shown = {"content": [public]} if role == "user" else {"content": "There.", "images": [public]}

    place = "content[0]" if role == "user" else "images[0]"
    assert refusal(HI, {"role": role, **shown}, HI).param == f"messages[1].{place}"


# -- signatures --


def test_signatures_come_back_on_their_parts() -> None:
    """Each signature stands again on the very part that it came with: call by slot, picture by slot, text, thinking."""
    details = [
        {"type": "reasoning.encrypted", "data": f"partsig1.{mark}.{mark}=="} for mark in ("h0", "t0", "i0", "c1")
    ]
    said = {**called("1", "2"), "content": "A", "images": [{"index": 0, **PICTURE}], "reasoning_content": "Hm"}

    turns = contents(HI, {**said, "reasoning_details": details}, gave("1"), gave("2"))

    assert turns[1]["parts"] == [
        {"text": "Hm", "thought": True, "thoughtSignature": "h0=="},
        {"text": "A", "thoughtSignature": "t0=="},
        {**INLINE, "thoughtSignature": "i0=="},
        call_part("1", SKIP),
        call_part("2", "c1=="),
    ]


def test_lost_signatures() -> None:
    """A model that wants its calls signed gets the documented stand-in where a client has lost the signature."""
    turns = {model: contents(HI, called("1", "2"), gave("1"), gave("2"), model=model) for model in (LEVELS, BUDGETS)}

    assert turns[LEVELS][1]["parts"] == [call_part("1", SKIP), call_part("2")]
    assert turns[BUDGETS][1]["parts"] == [call_part("1"), call_part("2")]


def test_signatures_of_others() -> None:
    """What another provider signed or sealed is left out and noted, and never sent as a signature."""
    thoughts = [
        {"type": "thinking", "thinking": "Hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "EmwKAhgB"},
        {"type": "text", "text": "A"},
    ]

    body, notes = of_messages(HI, {"role": "assistant", "content": thoughts}, HI)

    assert body["contents"][1]["parts"] == [{"text": "A"}]
    assert notes.dropped == ["messages[1].content[0]", "messages[1].content[1]"]


def test_summaries() -> None:
    """A summary of thinking goes without a word where the thinking itself comes with it, sealed, and is noted else."""
    said = {"role": "assistant", "content": "A", "reasoning_content": "Hm"}

    sealed_, bare = of_chat(HI, {**said, **sealed("partsig1.t0.c2ln")}, HI), of_chat(HI, said, HI)

    assert sealed_[0]["contents"][1]["parts"] == [{"text": "A", "thoughtSignature": "c2ln"}]
    assert sealed_[1].dropped == []
    assert bare[0]["contents"][1]["parts"] == [{"text": "A"}]
    assert bare[1].dropped == ["messages[1].reasoning_content"]


@pytest.mark.parametrize("data", ["partsig1.", "partsig1.x0.a", "partsig1.c.a", "partsig1.c9999.a", "partsig1.c0.", ""])
def test_what_only_looks_like_a_signature(data: str) -> None:
    """A broken one of ours signs nothing."""
    turns = contents(HI, {**called("1"), **sealed(data)}, gave("1"), model=BUDGETS)

    assert turns[1]["parts"] == [call_part("1")]


def test_other_targets_do_not_get_them() -> None:
    """A conversation that goes on at Claude leaves the signatures of parts out, as that API would refuse them."""
    body = written_for_claude(HI, {**called("1"), **sealed("partsig1.c0.c2ln")}, gave("1"))

    assert [block["type"] for block in body["messages"][1]["content"]] == ["tool_use"]
    assert body.dropped == ["messages[1].reasoning_details[0]"]


def test_pictures_of_the_assistant_elsewhere() -> None:
    """A picture that a model drew is noted and left out where only the user can show any."""
    drew = {"role": "assistant", "content": "Here.", "images": [{"index": 0, **PICTURE}]}

    body = written_for_claude(HI, drew, HI)

    assert body["messages"][1]["content"] == [{"type": "text", "text": "Here."}]
    assert body.dropped == ["messages[1].images[0]"]


def test_arguments_keep_their_spelling() -> None:
    """Numbers of a call go back as they came."""
    body = json.dumps({"model": "m", "messages": [HI, called("1"), gave("1")]}).encode()
    raw = write_body(read_prompt(read_call(body, CallOptions(), ())), Target("m", stream=False), Notes())

    assert b'"args":{"a":1.50}' in raw
