"""Converse's answers as clients of either dialect hear them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.errors import UpstreamFailed
from gateway.core.usage import Usage
from gateway.dialects.bedrock_events import MAX_HELD_CHARS, MAX_OPEN_BLOCKS, BedrockReader
from gateway.dialects.neutral import Begin, Counted, Finished, Refused, Said
from gateway.dialects.pairs import read_completion
from gateway.wire.eventstream import MessageSplitter
from tests.support.bedrock import START, argues, begins, closes, metadata, stop, text, usage
from tests.support.eventstream import error, event, exception
from tests.support.reads import bytewise
from tests.unit.dialects.conversations import anthropic_call, journey, openai_call
from tests.unit.dialects.converse import ANSWER, each_client, lane, thinks, translate
from tests.unit.dialects.translated import Told, told

WHOLE = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}},
                {"text": "Once 北🦀"},
                {"toolUse": {"toolUseId": "c1", "name": "f", "input": {"a": 1}}},
                {"toolUse": {"toolUseId": "c2", "name": "now", "input": {}}},
            ],
        }
    },
    "stopReason": "tool_use",
    "usage": usage(14, 30, cacheReadInputTokens=4, cacheWriteInputTokens=2),
    "metrics": {"latencyMs": 9},
}  # fmt: skip
COUNTS = Usage(prompt_tokens=20, completion_tokens=30, cached_tokens=4, cache_write_tokens=2)


def reader_events(*raw: bytes) -> tuple[BedrockReader, list[Any]]:
    """What a reader makes of the events of *raw*, last words included."""
    reader, said = BedrockReader(), []
    for one in MessageSplitter(1 << 20).feed(b"".join(raw)):
        said += reader.take(one)
    return reader, [*said, *reader.end()]


@each_client
def test_a_stream(client: Any) -> None:
    """Reasoning with its signature, text, calls with their arguments, counts with what was cached."""
    heard = translate(client, *ANSWER)

    got = told(heard)
    calls = [["c1", "f", '{"a":1}'], ["c2", "now", "{}"]]
    assert (got.thought, got.text, [*got.calls.values()]) == ("hm", "Once 北🦀", calls)
    assert got.reason == ("tool_calls" if client == "openai_chat" else "tool_use")
    assert b'"sig"' in heard.out
    assert heard.lane.measure() == (COUNTS, "provider_final")
    assert (heard.end, heard.lane.note) == ("finished", None)


@each_client
def test_a_whole_answer(client: Any) -> None:
    """A JSON answer says the same as a stream."""
    call = openai_call() if client == "openai_chat" else anthropic_call()

    completion = read_completion(json.dumps(WHOLE).encode(), journey(call, speaks="bedrock_converse"))

    assert (completion.usage, completion.basis, completion.note) == (COUNTS, "provider_final", None)


def test_cached_tokens_are_part_of_the_prompt() -> None:
    """`inputTokens` is what was neither read from the cache nor written to it."""
    _, said = reader_events(
        START, text("a"), stop(), metadata(10, 1, cacheReadInputTokens=100, cacheWriteInputTokens=5)
    )

    assert said[-1] == Counted(115, 1, 100, 5)


@pytest.mark.parametrize(
    ("details", "kept"),
    [
        ([{"ttl": "1h", "inputTokens": 3}, {"ttl": "5m", "inputTokens": 2}], 3),
        ([{"ttl": "5m", "inputTokens": 5}], None),
        ([{"ttl": "1h", "inputTokens": -1}, "x", {"ttl": []}], 0),
        ("1h", None),
        (None, None),
    ],
)
def test_how_long_tokens_are_kept(details: object, kept: int | None) -> None:
    """Those written for an hour are told beside all that were written; what is no count is none."""
    told = usage(10, 1, cacheWriteInputTokens=5) | {"cacheDetails": details}

    _, said = reader_events(START, text("a"), stop(), event("metadata", {"usage": told}))

    assert said[-1] == Counted(15, 1, None, 5, cache_write_1h_tokens=kept)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop_sequence"),
        ("max_tokens", "length"),
        ("tool_use", "tool_calls"),
        ("guardrail_intervened", "refusal"),
        ("content_filtered", "refusal"),
        ("model_context_window_exceeded", "context_window"),
    ],
)
def test_stop_reasons(word: str, reason: Any) -> None:
    """Each word of the reference has its meaning."""
    reader, said = reader_events(START, text("a"), stop(word))

    assert (said[-1], reader.note) == (Finished(reason), None)


def test_odd_stop_reasons() -> None:
    """A word that we do not know is told to the log; one that says nothing of the calls that came is corrected."""
    odd, said = reader_events(START, text("a"), stop("some_new_reason"))
    called, after = reader_events(START, begins("c", "f"), closes(), stop("end_turn"))

    assert (said[-1], odd.note) == (Finished("stop", said="some_new_reason"), "unknown_stop_reason")
    assert (after[-1], called.note) == (Finished("tool_calls"), None)


@pytest.mark.parametrize("word", ["malformed_model_output", "malformed_tool_use"])
def test_answers_that_are_none(word: str) -> None:
    """What the model wrote is no answer, streamed or whole: the attempt has failed, and says nothing of the route."""
    body = json.dumps({**WHOLE, "stopReason": word}).encode()

    with pytest.raises(UpstreamFailed) as streamed:
        reader_events(START, begins("c", "f"), argues('{"a":'), closes(), stop(word), metadata(5, 3))
    with pytest.raises(UpstreamFailed) as whole:
        BedrockReader().whole(body)

    for failure in (streamed.value.failure, whole.value.failure):
        assert (failure.reason, failure.retryable, failure.counts) == (f"stop_{word}", True, False)


@each_client
def test_a_broken_call_is_no_answer(client: Any) -> None:
    """Behind the first word the client gets the error frame, not a call whose arguments are half a JSON."""
    broken = [begins("c", "f", 1), argues('{"a":', 1), closes(1), stop("malformed_tool_use"), metadata(5, 3)]

    heard = translate(client, START, text("Once "), closes(), *broken)

    assert heard.end == "interrupted"


def test_which_sequence_stopped_it() -> None:
    """The model's own answer is asked for it, and tells it in a field of its own."""
    fields = {"stopReason": "stop_sequence", "additionalModelResponseFields": {"stop_sequence": "END"}}
    _, said = reader_events(START, text("a"), event("messageStop", fields))

    assert said[-1] == Finished("stop_sequence", "END")


@each_client
def test_a_guardrail(client: Any) -> None:
    """Its words are the answer's text; that the answer was stopped is told in the client's way."""
    got = told(translate(client, START, text("Blocked."), closes(), stop("guardrail_intervened"), metadata(5, 3)))

    assert got == Told(text="Blocked.", reason="content_filter" if client == "openai_chat" else "refusal")


def test_what_is_not_ours() -> None:
    """Tools that the provider runs, pictures, citations: left out, with a note, and what is around them stays."""
    foreign = {
        "contentBlockIndex": 0,
        "start": {"toolUse": {"toolUseId": "s", "name": "web", "type": "server_tool_use"}},
    }
    result = {"contentBlockIndex": 1, "start": {"toolResult": {"toolUseId": "s"}}}
    cited = {"contentBlockIndex": 2, "delta": {"citation": {"title": "t"}}}
    reader, said = reader_events(
        START,
        event("contentBlockStart", foreign), argues("{}", 0), closes(0),
        event("contentBlockStart", result), text("gone", 1), closes(1),
        text("a", 2), event("contentBlockDelta", cited), closes(2),
        stop(),
    )  # fmt: skip

    assert [one for one in said if isinstance(one, Said)] == [Said("a")]
    assert (said[-1], reader.note) == (Finished("stop"), "foreign_block")


def test_citations_of_a_whole_answer() -> None:
    """Their text is text."""
    content = [{"citationsContent": {"content": [{"text": "a"}, {"text": "b"}], "citations": []}}, {"audio": {}}]
    body = {**WHOLE, "output": {"message": {"role": "assistant", "content": content}}, "stopReason": "end_turn"}

    reader = BedrockReader()
    said = reader.whole(json.dumps(body).encode())

    assert said[:3] == [Begin(), Said("a"), Said("b")]
    assert reader.note == "citations"


def test_events_that_nobody_knows() -> None:
    """A new kind of event, and one behind the end, change nothing."""
    reader, said = reader_events(START, event("newEvent", {"a": 1}), text("a"), stop(), text("late"), metadata(1, 1))

    assert [one for one in said if isinstance(one, Said | Refused)] == [Said("a")]
    assert reader.note == "unknown_event"
    assert reader.ended


@each_client
def test_an_end_without_counts(client: Any) -> None:
    """The answer is whole once the model has said how it stopped; what it cost is estimated."""
    heard = translate(client, START, text("Once upon"), closes(), stop())

    assert heard.end == "finished"
    assert heard.lane.measure()[1] == "estimated"


@each_client
@pytest.mark.parametrize(
    "last",
    [
        exception("modelStreamErrorException", {"message": "m", "originalStatusCode": 500}),
        exception("someNewException", {}),
        error("InternalError", "oh"),
        event("contentBlockDelta", "text"),
        event("contentBlockDelta", {"contentBlockIndex": "x"}),
        event("contentBlockStart", {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "", "name": "f"}}}),
        b"data: {}\n\n" * 2,
        text("damaged")[:-1] + b"x",
        b"".join(begins("c", "f", n) for n in range(1, MAX_OPEN_BLOCKS + 1)),
    ],
)
def test_what_breaks_a_stream(client: Any, last: bytes) -> None:
    """An exception, what is no event, or one without what it must have: the words so far, then one error frame."""
    heard = translate(client, START, text("Once "), last)

    assert heard.end == "interrupted"
    assert told(heard).text == "Once "


def test_what_is_held_is_bounded() -> None:
    """Signatures are told at the end of their blocks; of all together no more than an event's bound is kept."""
    piece = "s" * (MAX_HELD_CHARS // 4)
    fits = [thinks({"signature": piece}, n) for n in range(4)]

    reader_events(START, *fits)
    with pytest.raises(UpstreamFailed):
        reader_events(START, *fits, thinks({"redactedContent": "s"}, 4))


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b'{"message":"x"}', b'{"output":{"message":{"content":"a"}},"stopReason":"x"}',
        b'{"output":{"message":{"content":[]}}}', b'{"output":{"message":{"content":[{"text":7}]}},"stopReason":"x"}',
        b'{"Output":{"__type":"com.amazon.coral.service#UnknownOperationException"},"Version":"1.0"}',
        b'{"output":{"message":{"content":[{"toolUse":{"name":"f","input":{}}}]}},"stopReason":"tool_use"}',
    ],
)  # fmt: skip
def test_what_is_no_answer(body: bytes) -> None:
    """A 200 that is no answer fails the attempt."""
    with pytest.raises(UpstreamFailed):
        BedrockReader().whole(body)


def test_the_answer_begins_with_its_first_content() -> None:
    """`messageStart` alone commits nothing; text flows from then on, each piece with the read that completes it."""
    translation = lane("openai_chat")

    opened = translation.feed(START)
    first = translation.feed(text("Once "))
    second = [translation.feed(piece) for piece in bytewise(text("upon"))]

    assert (opened, b"Once " in first) == (b"", True)
    assert b"upon" in second[-1]
    assert b"".join(second[:-1]) == b""
