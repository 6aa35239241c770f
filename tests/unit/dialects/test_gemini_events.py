"""What a Gemini provider says, and what clients of either dialect hear of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from gateway.core.errors import UpstreamFailed
from gateway.core.usage import Usage
from gateway.dialects.gemini_events import GeminiReader
from gateway.dialects.neutral import (
    Argued,
    Begin,
    Called,
    Cited,
    Counted,
    Finished,
    Likely,
    Pictured,
    Said,
    Scored,
    Thought,
)
from gateway.dialects.pairs import open_lane, read_completion
from gateway.wire.sse import FrameSplitter
from tests.support.notation import GC, GT, GU
from tests.unit.dialects.conversations import RESET, check_anthropic, check_openai, hear, journey, openai_call
from tests.unit.dialects.gemini import OpenDoor, both_doors, to_chat, to_messages
from tests.unit.receipts import receipt

CALL = {"functionCall": {"name": "f", "args": {"a": 1}}}


def read(*chunks: bytes) -> list[Any]:
    """The events of *chunks*, last words included, without counts."""
    reader, out = GeminiReader(), []
    for event in FrameSplitter(1 << 20).feed(b"".join(chunks)):
        out += reader.take(event)
    assert reader.complete
    return [event for event in [*out, *reader.end()] if not isinstance(event, Counted)]


def counts(*chunks: bytes) -> Counted:
    """The last count of *chunks*."""
    reader, out = GeminiReader(), []
    for event in FrameSplitter(1 << 20).feed(b"".join(chunks)):
        out += reader.take(event)
    return [event for event in [*out, *reader.end()] if isinstance(event, Counted)][-1]


def whole(*parts: dict[str, Any], finish: str = "STOP", **more: Any) -> list[Any]:
    """The events of a JSON answer."""
    candidate = {"content": {"parts": [*parts], "role": "model"}, "finishReason": finish, "index": 0}
    return [*GeminiReader().whole(json.dumps({"candidates": [candidate], "responseId": "r1", **more}).encode())]


def failure_of(*chunks: bytes) -> str:
    with pytest.raises(UpstreamFailed) as caught:
        read(*chunks)
    return caught.value.failure.reason


def test_text() -> None:
    """Texts as they come; empty ones say nothing."""
    assert read(GT("Once "), GT("upon"), GT("", finish="STOP")) == [
        Begin("r1"), Said("Once "), Said("upon"), Finished("stop"),
    ]  # fmt: skip


def test_thoughts() -> None:
    """Summaries of thinking are thoughts, never text."""
    assert read(GC({"text": "hm", "thought": True}), GT("a", finish="STOP"))[1:3] == [Thought("hm"), Said("a")]


def test_calls() -> None:
    """Calls come whole, count from 0, and have their ids, but for one that was there before."""
    named = {"functionCall": {"name": "f", "args": {}, "id": "i"}}

    said = read(GC(named, CALL), GC(named, finish="STOP"))

    assert said[1:] == [
        Called(0, "i", "f"),
        Called(1, "", "f"),
        Argued(1, '{"a":1}'),
        Called(2, "", "f"),
        Finished("tool_calls"),
    ]


def test_numbers_keep_their_spelling() -> None:
    """Arguments pass numbers that no machine has room for, as they were written."""
    said = read(
        GC({"functionCall": {"name": "f", "args": {"a": 10**30, "b": "X"}}}).replace(b'"X"', b"1.50"), GC(finish="STOP")
    )

    assert Argued(0, '{"a":1000000000000000000000000000000,"b":1.50}') in said


def test_a_stop_with_calls() -> None:
    """A stop behind calls means that they wait for results; a length means that it was cut all the same."""
    assert [read(GC(CALL, finish=finish))[-1] for finish in ("STOP", "MAX_TOKENS")] == [
        Finished("tool_calls"),
        Finished("length"),
    ]


def test_signatures() -> None:
    """A signature stands in front of its call, behind its text or picture, and says which it belongs to."""
    signed = {"thoughtSignature": "s=="}
    picture = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}

    said = read(
        GC({"text": "hm", "thought": True, **signed}),
        GC({"text": "a"}, {"text": "", **signed}, {**picture, **signed}),
        GC(CALL, {**CALL, **signed}, finish="STOP"),
    )

    assert [event.redacted for event in said if isinstance(event, Thought) and event.redacted] == [
        "partsig1.h0.s==", "partsig1.t0.s==", "partsig1.i0.s==", "partsig1.c1.s==",
    ]  # fmt: skip
    assert [type(event) for event in said] == [
        Begin, Thought, Thought, Said, Thought, Pictured, Thought, Called, Argued, Thought, Called, Argued, Finished,
    ]  # fmt: skip


def test_citations_are_told_once() -> None:
    """Each source is told once, though every chunk repeats those before it; a licence without an address is none."""
    one, two = {"startIndex": 0, "endIndex": 3, "uri": "https://a.example"}, {"uri": "https://b.example", "title": "B"}

    chunks = [
        GC({"text": "abc"}, candidates=[_cited([one])]),
        GC(candidates=[_cited([one, two, {"license": "mit"}])], finish="STOP"),
    ]
    said = [event for event in read(*chunks, GC(finish="STOP")) if isinstance(event, Cited)]

    assert [event.citation["url"] for event in said] == ["https://a.example", "https://b.example"]
    assert said[1].citation["title"] == "B"


def _cited(sources: list[dict[str, Any]]) -> dict[str, Any]:
    content = {"parts": [{"text": "abc"}], "role": "model"}
    return {"content": content, "citationMetadata": {"citationSources": sources}}


@pytest.mark.parametrize(
    ("finish", "reason", "said"),
    [
        ("STOP", "stop", None),
        ("MAX_TOKENS", "length", None),
        ("SAFETY", "refusal", "SAFETY"),
        ("RECITATION", "refusal", "RECITATION"),
        ("LANGUAGE", "refusal", "LANGUAGE"),
        ("BLOCKLIST", "refusal", "BLOCKLIST"),
        ("PROHIBITED_CONTENT", "refusal", "PROHIBITED_CONTENT"),
        ("SPII", "refusal", "SPII"),
        ("IMAGE_SAFETY", "refusal", "IMAGE_SAFETY"),
        ("OTHER", "stop", "OTHER"),
        ("SOMETHING_NEW", "stop", "SOMETHING_NEW"),
    ],
)
def test_reasons(finish: str, reason: str, said: str | None) -> None:
    """Every reason of the reference has its meaning; one that is no plain end is kept for the log."""
    assert read(GT("a", finish=finish))[-1] == Finished(reason, said=said)  # type: ignore[arg-type]


@pytest.mark.parametrize("finish", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"])
def test_answers_that_are_none(finish: str) -> None:
    """What the model wrote is no answer: the attempt has failed, and says nothing against the route."""
    with pytest.raises(UpstreamFailed) as caught:
        read(GT("a"), GC(finish=finish))

    assert caught.value.failure.reason == f"finish_{finish.lower()}"
    assert (caught.value.failure.retryable, caught.value.failure.counts) == (True, False)


@both_doors
@pytest.mark.parametrize("reason", ["SAFETY", "PROHIBITED_CONTENT", "BLOCK_REASON_UNSPECIFIED"])
def test_blocked_prompts(open_door: OpenDoor, reason: str) -> None:
    """A prompt that is refused gets an empty answer that ends in the client's word for it, its prompt counted."""
    chunk = json.dumps({"promptFeedback": {"blockReason": reason}, "usageMetadata": GU(9)}).encode()

    heard = hear(open_door(), [b"data: " + chunk + b"\n\n"])

    assert heard.end == "finished"
    words = b'"finish_reason":"content_filter"' if open_door is to_chat else b'"stop_reason":"refusal"'
    assert words in heard.out
    assert heard.lane.measure() == (Usage(prompt_tokens=9), "provider_final")
    assert heard.lane.note == f"finish:{reason}"


# -- what is no answer --


def test_errors_in_the_stream() -> None:
    """An error object ends the stream, whatever came before it."""
    error = b'data: {"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}\n\n'

    assert failure_of(error) == failure_of(GT("a"), error) == "in_band"


def test_a_finish_that_was_none() -> None:
    """Words behind a finish take it back: the answer is whole when the model has stopped again, and cut before."""
    early = [GT("a", finish="STOP", tokens=(1, 1)), GT("b", tokens=(1, 2))]

    cut, whole_ = hear(to_chat(), early), hear(to_chat(), [*early, GC(finish="MAX_TOKENS", tokens=(1, 2))])

    assert (cut.end, whole_.end) == ("interrupted", "finished")
    assert whole_.items[-3]["choices"][0]["finish_reason"] == "length"


def test_errors_behind_the_finish_are_a_remark() -> None:
    """Once the model has stopped nothing turns its answer into a failure."""
    heard = hear(to_chat(), [GT("a", finish="STOP", tokens=(1, 1)), b'data: {"error":{"code":500}}\n\n'])

    assert heard.end == "finished"
    assert heard.lane.note == "after_finish:in_band"


@pytest.mark.parametrize(
    "chunk",
    [
        b"data: []\n\n",
        b"data: [1]\n\n",
        b"data: nothing\n\n",
        GC({"functionCall": {"args": {}}}),
        GC({"functionCall": None}),
        GC({"functionCall": {"name": "f", "args": []}}),
        GC(*[CALL] * 129),
    ],
    ids=["array", "number", "text", "nameless", "null", "args", "too many"],
)
def test_what_cannot_be_understood(chunk: bytes) -> None:
    """What is no event, or half a call, fails the attempt."""
    assert failure_of(chunk) == "malformed"


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{}",
        b'{"candidates":[]}',
        b'{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}',
        b'{"error":{"code":500}}',
    ],
)
def test_json_without_an_answer(body: bytes) -> None:
    """A body without a finished candidate is no answer."""
    with pytest.raises(UpstreamFailed):
        GeminiReader().whole(body)


@pytest.mark.parametrize("open_door", [to_chat, to_messages])
def test_whole_and_streamed_answers_are_the_same(open_door: OpenDoor) -> None:
    """A JSON answer has the events of a stream of one chunk."""
    parts = [{"text": "hm", "thought": True}, {"text": "a"}, {**CALL, "thoughtSignature": "s"}]

    streamed = read(GC(*parts, finish="STOP"))

    assert [event for event in whole(*parts) if not isinstance(event, Counted)] == streamed


def asked(n: int, *chunks: bytes, **fields: Any) -> Any:
    """What a chat client that asked for *n* answers hears."""
    return hear(open_lane(journey(openai_call(n=n, **fields), speaks="gemini_content")), chunks)


SECOND = [
    {"index": 1, "content": {"parts": [{"text": "b"}, {**CALL, "thoughtSignature": "s"}]}},
    {"index": 1, "finishReason": "MAX_TOKENS"},
]


def test_several_answers() -> None:
    """Each candidate is a choice of its own, with a beginning, an end and calls that no other has the ids of."""
    first = {"content": {"parts": [{"text": "a"}, CALL]}, "finishReason": "STOP"}

    heard = asked(2, GC(candidates=[first, SECOND[0]]), GC(candidates=[SECOND[1]], tokens=(9, 8)))

    chunks = [choice for item in heard.items[:-2] for choice in item["choices"]]
    assert heard.end == "finished"
    assert [(c["index"], c["finish_reason"]) for c in chunks if c["finish_reason"]] == [
        (0, "tool_calls"),
        (1, "length"),
    ]
    texts = [(c["index"], c["delta"]["content"]) for c in chunks if c["delta"].get("content")]
    assert texts == [(0, "a"), (1, "b")]
    ids = [call["id"] for c in chunks for call in c["delta"].get("tool_calls", []) if "id" in call]
    assert ids == ["call_1_0", "call_1_1_0"]
    assert heard.lane.measure() == (Usage(prompt_tokens=9, completion_tokens=8), "provider_final")


def test_several_whole_answers() -> None:
    """A JSON answer has the same choices, each with its message."""
    parts = SECOND[0] | SECOND[1]
    body = {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}, parts]}
    completion = read_completion(json.dumps(body).encode(), journey(openai_call(n=2), speaks="gemini_content"))

    choices = json.loads(completion.render(receipt()))["choices"]

    assert [(c["index"], c["message"]["content"], c["finish_reason"]) for c in choices] == [
        (0, "a", "stop"),
        (1, "b", "length"),
    ]
    assert choices[1]["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a":1}'}


def test_an_answer_is_over_when_all_are() -> None:
    """While one candidate still speaks, the end of the other is not the end."""
    first = {"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}

    heard = asked(2, GC(candidates=[first, SECOND[0]]))

    assert heard.end == "interrupted"


def test_an_answer_that_has_not_begun() -> None:
    """One candidate may stop before the other begins: the answer waits for that, and an error until then breaks it."""
    first = GT("a", finish="STOP", tokens=(1, 1))
    lane = open_lane(journey(openai_call(n=2), speaks="gemini_content"))

    lane.feed(first)
    before = lane.complete
    lane.feed(GC(candidates=[SECOND[0] | SECOND[1]]))
    broken = asked(2, first, b'data: {"error":{"code":500}}\n\n')

    assert (before, lane.complete, broken.end) == (False, True, "interrupted")


def test_fewer_answers_than_asked_for() -> None:
    """The end of the body tells that there are no more: the others are whole. A body that is cut tells nothing."""
    first = GT("a", finish="STOP", tokens=(1, 1))

    ended = asked(2, first)
    cut = hear(open_lane(journey(openai_call(n=2), speaks="gemini_content")), [first], RESET)

    assert (ended.end, cut.end) == ("finished", "interrupted")


@both_doors
def test_answers_that_nobody_asked_for(open_door: OpenDoor) -> None:
    """A candidate beyond those that were asked for is left out, and noted."""
    heard = hear(open_door(), [GC(candidates=[SECOND[0] | SECOND[1]]), GT("a", finish="STOP", tokens=(1, 1))])

    assert heard.end == "finished"
    assert heard.lane.note == "other_choices"
    assert b'"b"' not in heard.out


@pytest.mark.parametrize("index", [-1, 8, "0", None, 10**12])
def test_indices_that_are_none(index: Any) -> None:
    """A candidate with an index that none can have is left out, and noted."""
    reader = GeminiReader()
    for event in FrameSplitter(1 << 20).feed(GC(candidates=[{"index": index, "finishReason": "STOP"}])):
        reader.take(event)

    assert (reader.complete, reader.note) == (False, "other_candidates")


LIKELY = {"token": "é", "tokenId": 5, "logProbability": -0.50}
SCORES = {
    "chosenCandidates": [LIKELY],
    "topCandidates": [{"candidates": [LIKELY, {"token": "e", "logProbability": -1}]}],
}
SHOWN = {"token": "é", "logprob": -0.5, "bytes": [195, 169]}
TOPS = [SHOWN, {"token": "e", "logprob": -1, "bytes": [101]}]


def test_likelihoods() -> None:
    """Likelihoods of tokens stand where OpenAI has them, with the alternatives, streamed and whole."""
    candidate = {"content": {"parts": [{"text": "é"}]}, "logprobsResult": SCORES, "finishReason": "STOP"}
    expected = {"content": [{**SHOWN, "top_logprobs": TOPS}], "refusal": None}
    body = json.dumps({"candidates": [candidate]}).encode()

    heard = asked(1, GC(candidates=[candidate], tokens=(1, 1)), logprobs=True, top_logprobs=2)
    completion = read_completion(body, journey(openai_call(logprobs=True), speaks="gemini_content"))

    check_openai(heard)
    chunks = [choice for item in heard.items[:-2] for choice in item["choices"]]
    assert [choice["logprobs"] for choice in chunks if choice.get("logprobs")] == [expected]
    assert json.loads(completion.render(receipt()))["choices"][0]["logprobs"] == expected


@pytest.mark.parametrize(
    "scores",
    [
        1,
        {"chosenCandidates": 1},
        {"chosenCandidates": [None, {"token": 1}, {"token": "a", "logProbability": "x"}], "topCandidates": [1]},
    ],
)
def test_likelihoods_that_are_none(scores: Any) -> None:
    """What is no likelihood is left out."""
    candidate = {"content": {"parts": [{"text": "a"}]}, "logprobsResult": scores, "finishReason": "STOP"}

    assert read(GC(candidates=[candidate])) == [Begin("r1"), Said("a"), Finished("stop")]


def test_the_likelihood_of_a_certain_token() -> None:
    """A probability of one, whose logarithm is left out as any zero is, is a zero."""
    scores = {"chosenCandidates": [{"token": "a"}]}

    said = read(GC(candidates=[{"logprobsResult": scores, "finishReason": "STOP"}]))

    assert said[1] == Scored(((Likely("a", Raw(b"0")), ()),))


def test_foreign_parts() -> None:
    """Parts that there is no event for are left out, and noted."""
    reader = GeminiReader()
    for event in FrameSplitter(1 << 20).feed(GC({"executableCode": {"code": "1"}}, {"text": "a"}, finish="STOP")):
        out = reader.take(event)

    assert Said("a") in out
    assert reader.note == "foreign_part"


def test_a_picture_may_be_long() -> None:
    """A picture is one event, longer than any other may be."""
    data = "A" * (3 * 1024 * 1024)

    heard = hear(to_chat(), [GC({"inlineData": {"mimeType": "image/png", "data": data}}, finish="STOP")])

    check_openai(heard)
    assert heard.end == "finished"
    assert heard.items[1]["choices"][0]["delta"]["images"][0]["image_url"]["url"] == f"data:image/png;base64,{data}"


def test_a_long_event_that_is_no_picture() -> None:
    """Room for pictures is no room for megabytes of escapes, which would hold every other stream."""
    heard = hear(to_chat(), [GT("é\n" * 600_000)])

    assert heard.lane.failure is not None
    assert heard.lane.failure.reason == "malformed"


def test_ids_that_are_no_ids() -> None:
    """An id of a call that is longer than any is as good as none, and the answer's is cut."""
    call = {"functionCall": {"name": "f", "args": {}, "id": "i" * 300}}

    said = read(GC(call, finish="STOP", responseId="r" * 300))

    assert said[0] == Begin("r" * 256)
    assert said[1] == Called(0, "", "f")


def test_pictures_for_messages() -> None:
    """A client of Anthropic's dialect, which has no picture in an answer, gets it as Markdown."""
    heard = hear(to_messages(), [GT("a"), GC({"inlineData": {"mimeType": "image/png", "data": "AA=="}}, finish="STOP")])

    check_anthropic(heard)
    assert heard.items[3]["delta"]["text"] == "\n![image](data:image/png;base64,AA==)\n"


@pytest.mark.parametrize(("n", "end"), [(1, "refused"), (2, "interrupted")])
def test_an_answer_without_its_first_candidate(n: int, end: str) -> None:
    """One that never came is no empty answer that ended well, neither in a stream nor as a whole."""
    streamed = asked(n, GC(candidates=[SECOND[0] | SECOND[1]]))
    body = json.dumps({"candidates": [SECOND[0] | SECOND[1]]}).encode()

    with pytest.raises(UpstreamFailed) as caught:
        read_completion(body, journey(openai_call(n=n), speaks="gemini_content"))

    assert streamed.end == end
    assert caught.value.failure.reason == "malformed"
