"""Promises of the lane from a Gemini provider: reads do not matter, no provider can break it, nothing is lost back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.errors import UpstreamFailed
from gateway.dialects.base import Lane
from gateway.dialects.gemini_events import GeminiReader
from gateway.dialects.neutral import Called, Counted, Said
from gateway.dialects.pairs import read_completion
from gateway.wire.sse import FrameSplitter
from tests.support.notation import GC, GT, GU
from tests.support.scale import examples
from tests.unit.dialects.conversations import RESET, Heard, check_anthropic, check_openai, hear, journey, openai_call
from tests.unit.dialects.gemini import HI, TOOL, both_doors, contents, gave, to_chat, to_choices, to_messages
from tests.unit.dialects.streams import SLOW, WORDS, cut_lists, pieces, spellings
from tests.unit.dialects.test_translation_properties import mutations
from tests.unit.dialects.translated import told
from tests.unit.receipts import receipt

OpenDoor = Callable[[], Lane]
CHECKS = {to_chat: check_openai, to_messages: check_anthropic, to_choices: check_openai}
all_doors = pytest.mark.parametrize("open_door", CHECKS, ids=["chat", "messages", "choices"])
CALL = {
    "functionCall": {"name": "f", "args": {"a": 1, "b": {"c": [None, "é"]}}, "id": "i1"},
    "thoughtSignature": "s1==",
}
# One answer with all there is.
ANSWER = [
    GC({"text": "hm", "thought": True}, tokens=(20, 0, 5)),
    GT("Once ", tokens=(20, 2, 8)),
    GC({"text": "北🦀"}, {"text": "", "thoughtSignature": "s0=="}, tokens=(20, 5, 8)),
    GC({"inlineData": {"mimeType": "image/png", "data": "AA=="}, "thoughtSignature": "s2=="}, tokens=(20, 5, 8)),
    GC(CALL, {"functionCall": {"name": "now", "args": {}}}, tokens=(20, 30, 8)),
    GT("", finish="STOP", tokens=(20, 30, 8), usageMetadata={**GU(20, 30, 8), "cachedContentTokenCount": 4}),
]


def answered(open_door: OpenDoor, reads: list[bytes], **more: Any) -> Heard:
    """What the client hears, checked for everything that must hold of any output."""
    heard = hear(open_door(), reads, **more)
    CHECKS[open_door](heard)  # type: ignore[index]
    return heard


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """An answer, honest or not, in the spellings that the standard allows."""
    parts = st.one_of(
        st.builds(lambda text: {"text": text}, st.sampled_from(WORDS)),
        st.builds(lambda text: {"text": text, "thought": True}, st.sampled_from(WORDS)),
        st.builds(lambda text: {"text": text, "thoughtSignature": "s=="}, st.sampled_from(WORDS)),
        st.just(CALL),
        st.just({"inlineData": {"mimeType": "image/png", "data": "AA=="}}),
        st.just({"codeExecutionResult": {}}),
    )
    out = []
    for _ in range(draw(st.integers(0, 5))):
        tokens = draw(st.sampled_from([None, (7, 1), (7, 2, 3)]))
        out.append(GC(*draw(st.lists(parts, max_size=2)), tokens=tokens))
    if draw(st.integers(0, 3)):
        finish = draw(st.sampled_from(["STOP", "MAX_TOKENS", "SAFETY", "MALFORMED_FUNCTION_CALL", "NEW"]))
        out.append(GC(finish=finish, tokens=draw(st.sampled_from([None, (7, 3, 3)]))))
    if draw(st.integers(0, 9)) == 0:
        out.insert(draw(st.integers(0, len(out))), b'data: {"error":{"code":503}}\n\n')
    seconds = [raw.replace(b'"index": 0', b'"index": 1') if draw(st.integers(0, 3)) == 0 else raw for raw in out]
    return [draw(spellings(raw.replace(b"\r\n", b"\n"))) for raw in seconds]


@all_doors
@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=SLOW)
@given(chunks=streams(), partitions=cut_lists)
def test_partitions(open_door: OpenDoor, chunks: list[bytes], partitions: list[list[int]]) -> None:
    """However the provider's bytes are cut into reads, the client gets the same bytes."""
    stream = b"".join(chunks)
    whole = answered(open_door, [stream])

    for parts in [*(pieces(stream, cuts) for cuts in partitions), pieces(stream, [*range(len(stream))])]:
        heard = hear(open_door(), parts)
        assert (heard.out, heard.end, heard.lane.measure()) == (whole.out, whole.end, whole.lane.measure())
        assert heard.lane.note == whole.lane.note


@both_doors
def test_death_at_every_byte(open_door: OpenDoor) -> None:
    """Wherever the stream breaks: a plain refusal while nothing was said, else one clean error frame, never an end."""
    stream = b"".join(ANSWER)
    finished = stream.index(b'"finishReason"')
    ends = set()

    for cut in range(len(stream)):
        heard = answered(open_door, [stream[:cut]], failure=RESET)
        ends.add(heard.end)
        if heard.end == "interrupted":
            assert heard.out.count(b"stream_interrupted") == 1 + (open_door is to_messages)
            assert told(heard).reason is None
        assert heard.end == "finished" or cut < len(stream)
        assert heard.end != "finished" or cut > finished

    assert ends >= {"refused", "interrupted"}
    assert answered(open_door, [stream]).end == "finished"


@all_doors
@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@settings(max_examples=examples(300), deadline=None, suppress_health_check=SLOW)
@given(stream=mutations([raw.replace(b"\r\n", b"\n") for raw in ANSWER]))
def test_hostile(open_door: OpenDoor, stream: bytes) -> None:
    """Whatever a provider sends, the lane does not raise, and ends in a finish or a failure of its client's form."""
    whole = answered(open_door, [stream])
    if whole.end != "finished":
        assert whole.lane.failure is not None
        assert told(whole).reason is None

    by_bytes = hear(open_door(), pieces(stream, [*range(len(stream))]))

    assert (by_bytes.out, by_bytes.end) == (whole.out, whole.end)


@pytest.mark.fuzz
@settings(max_examples=examples(100), deadline=None, suppress_health_check=SLOW)
@given(body=mutations([b"data: " + raw[6:].replace(b"\r\n", b"\n") for raw in ANSWER[-2:-1]]))
def test_hostile_json(body: bytes) -> None:
    """Whatever a JSON answer is, it is an answer or a failure of the upstream."""
    try:
        events = GeminiReader().whole(body.strip().removeprefix(b"data: "))
    except UpstreamFailed:
        return
    assert events


# -- there and back --


def test_an_answer_goes_back_as_it_came() -> None:
    """What a chat client sends back of an answer is, part by part, what the provider said, signed as it was."""
    message = _message(answered(to_chat, ANSWER))

    turns = contents(HI, message, gave("i1"), gave("call_1_1"), tools=[TOOL])

    assert turns[1] == {
        "role": "model",
        "parts": [
            {"text": "Once 北🦀", "thoughtSignature": "s0=="},
            {"inlineData": {"mimeType": "image/png", "data": "AA=="}, "thoughtSignature": "s2=="},
            CALL,
            {"functionCall": {"id": "call_1_1", "name": "now", "args": {}}},
        ],
    }


def _message(heard: Heard) -> dict[str, Any]:
    """The message of a chat stream, put together as its SDKs do, extra members included."""
    out: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [], "reasoning_details": [], "images": []}
    for item in heard.items[:-2]:
        delta = item["choices"][0]["delta"]
        out["content"] += delta.get("content") or ""
        for name in ("reasoning_details", "images"):
            out[name] += delta.get(name, [])
        for call in delta.get("tool_calls", []):
            if "id" in call:
                out["tool_calls"].append({"type": "function", "id": call["id"], "function": dict(call["function"])})
            else:
                out["tool_calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    return out


@settings(max_examples=examples(100), deadline=None, suppress_health_check=SLOW)
@given(
    said=st.lists(st.sampled_from(["a", "é\n", '"', "\\"]), max_size=3),
    calls=st.lists(st.dictionaries(st.sampled_from("ab"), st.integers() | st.text(max_size=3)), max_size=3),
    signed=st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_there_and_back(said: list[str], calls: list[dict[str, Any]], signed: list[bool]) -> None:
    """Text, calls, arguments, signatures and counts of an answer survive the way to a client and back."""
    parts = [
        {
            "functionCall": {"name": "f", "args": args, "id": f"i{at}"},
            **({"thoughtSignature": f"s{at}"} if mark else {}),
        }
        for at, (args, mark) in enumerate(zip(calls, signed, strict=False))
    ]
    chunks = [*map(GT, said), *map(GC, parts), GC(finish="STOP", tokens=(9, 8, 7))]

    heard = answered(to_chat, chunks)
    turns = contents(HI, _message(heard), *(gave(f"i{at}") for at in range(len(calls))), model="gemini-2.5-flash")

    text = [{"text": "".join(said)}] if said else []
    assert [part for turn in turns if turn["role"] == "model" for part in turn["parts"]] == text + parts
    assert heard.lane.measure()[0].completion_tokens == 15
    events = _read(b"".join(chunks))
    assert "".join(event.text for event in events if isinstance(event, Said)) == "".join(said)
    assert sum(isinstance(event, Called) for event in events) == len(calls)
    assert Counted(prompt_tokens=9, completion_tokens=15, reasoning_tokens=7) in events


def _read(stream: bytes) -> list[Any]:
    reader = GeminiReader()
    return [said for event in FrameSplitter(1 << 20).feed(stream) for said in reader.take(event)] + [*reader.end()]


def test_json_is_the_same_message() -> None:
    """A JSON answer and a stream of the same parts are the same message for a client."""
    parts = [
        part for chunk in ANSWER for part in json.loads(chunk[6:])["candidates"][0].get("content", {}).get("parts", [])
    ]
    body = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}], "responseId": "r1"}
    completion = read_completion(json.dumps(body).encode(), journey(openai_call(), speaks="gemini_content"))

    whole = json.loads(completion.render(receipt()))["choices"][0]["message"]

    streamed = _message(answered(to_chat, ANSWER))
    assert {name: whole[name] for name in streamed} == streamed
