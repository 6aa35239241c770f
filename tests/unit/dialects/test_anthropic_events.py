"""What a provider of Anthropic's dialect says, and what is understood of it."""

from __future__ import annotations

import pytest

from gateway.core.errors import UpstreamFailed
from gateway.dialects.anthropic_blocks import MAX_HELD_BYTES
from gateway.dialects.anthropic_events import MAX_OPEN_BLOCKS, AnthropicReader
from gateway.dialects.neutral import (
    AnswerEvent,
    Argued,
    Begin,
    Called,
    Cited,
    Counted,
    Finished,
    Refused,
    Said,
    Thought,
)
from gateway.wire.sse import FrameSplitter
from tests.support.notation import AERR, CBD, CBJ, CBS, CBX, DONE, MD, MS, MX, PING, data, event
from tests.unit.dialects.anthropic import CITATION, body, delta, hear


def said_by(*pieces: bytes) -> list[AnswerEvent]:
    """The same of a new reader, without the counts."""
    return [each for each in hear(AnthropicReader(), *pieces) if not isinstance(each, Counted)]


def counts(*pieces: bytes) -> list[AnswerEvent]:
    """The counts alone."""
    return [each for each in hear(AnthropicReader(), *pieces) if isinstance(each, Counted)]


def test_text() -> None:
    """Each piece of text is told as it comes; how the model stopped only at the end."""
    reader = AnthropicReader()

    first = hear(reader, MS(7) + CBS(0) + PING + CBD(0, "a") + CBD(0, "é"))
    before = reader.complete
    rest = hear(reader, CBX(0) + MD("end_turn", 2) + MX)

    assert first == [Begin("msg_1"), Counted(prompt_tokens=7), Said("a"), Said("é")]
    assert not before
    assert rest == [Counted(7, 2), Finished("stop"), Counted(7, 2)]
    assert (reader.complete, reader.ended, reader.note) == (True, True, None)


def test_text_in_the_start_of_a_block() -> None:
    """A block may start with some of its text or thinking."""
    said = said_by(MS(7) + CBS(0, text="a") + CBD(0, "b") + CBX(0) + CBS(1, "thinking", thinking="hm") + CBX(1))

    assert said == [Begin("msg_1"), Said("a"), Said("b"), Thought("hm")]


def test_nothing_is_taken_after_the_end() -> None:
    """Behind `message_stop` neither text nor an error means anything."""
    reader = AnthropicReader()
    hear(reader, MS(7) + CBS(0) + CBD(0, "a") + CBX(0) + MD() + MX)

    late = [reader.take(each) for each in FrameSplitter(1 << 20).feed(CBD(0, "b") + AERR("api_error") + DONE)]

    assert late == [(), (), ()]


@pytest.mark.parametrize("told", [MS(7) + CBS(0) + CBD(0, "a"), MS(7) + CBS(0) + CBD(0, "a") + CBX(0) + MD()])
def test_complete_is_message_stop(told: bytes) -> None:
    """Without it no answer is complete, whatever else was said."""
    reader = AnthropicReader()

    hear(reader, told)

    assert (reader.complete, reader.ended) == (False, False)


def test_thinking_keeps_its_signature() -> None:
    """The signature comes whole at the end of its block, however it was cut; ciphertext comes as it is."""
    said = said_by(
        MS(7) + CBS(0, "thinking") + delta(0, type="thinking_delta", thinking="hm"),
        delta(0, type="signature_delta", signature="si") + delta(0, type="signature_delta", signature="g") + CBX(0),
        CBS(1, "redacted_thinking", data="xyz") + CBX(1) + MD() + MX,
    )

    assert said == [Begin("msg_1"), Thought("hm"), Thought(signature="sig"), Thought(redacted="xyz"), Finished("stop")]


def test_a_signature_without_text() -> None:
    """Thinking that the provider does not show has a signature all the same."""
    said = said_by(MS(7) + CBS(0, "thinking", signature="s") + CBX(0) + MD() + MX)

    assert said == [Begin("msg_1"), Thought(signature="s"), Finished("stop")]


TWO_TOOLS = (
    MS(7) + CBS(0) + CBD(0, "t") + CBX(0)
    + CBS(1, "tool_use", id="a", name="f") + CBJ(1, "") + CBJ(1, '{"x":') + CBJ(1, "1}") + CBX(1)
    + CBS(2, "tool_use", id="b", name="g") + CBJ(2, "{}") + CBX(2) + MD("tool_use") + MX
)  # fmt: skip


def test_tr_01_tr_02_calls_have_slots_of_their_own_from_0() -> None:
    """Slots count the calls, not the blocks; arguments are told as they come."""
    assert said_by(TWO_TOOLS) == [
        Begin("msg_1"), Said("t"), Called(0, "a", "f"), Argued(0, '{"x":'), Argued(0, "1}"), Called(1, "b", "g"),
        Argued(1, "{}"), Finished("tool_calls"),
    ]  # fmt: skip


def test_tr_02_the_json_answer_has_the_same_slots() -> None:
    """The order of a JSON answer is that of the stream."""
    tools = [{"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}]
    tools += [{"type": "tool_use", "id": "b", "name": "g", "input": {}}]

    said = AnthropicReader().whole(body({"type": "text", "text": "t"}, *tools, stop_reason="tool_use"))

    assert said == [
        Begin("msg_1"), Said("t"), Called(0, "a", "f"), Argued(0, '{"x":1}'), Called(1, "b", "g"),
        Finished("tool_calls"), Counted(7, 3),
    ]  # fmt: skip


def test_tr_05_no_arguments_are_no_event() -> None:
    """A call that gets none, or the empty text, is a call alone."""
    said = said_by(MS(7) + CBS(0, "tool_use", id="a", name="f") + CBJ(0, "") + CBX(0) + MD("tool_use") + MX)

    assert said == [Begin("msg_1"), Called(0, "a", "f"), Finished("tool_calls")]


def test_arguments_in_the_start_of_a_call() -> None:
    """An input that came whole with the start counts where no pieces follow it, also with numbers beyond 64 bits."""
    huge = {"x": 10**30, "y": 0.1}

    alone = said_by(MS(7) + CBS(0, "tool_use", id="a", name="f", input=huge) + CBX(0) + MD("tool_use") + MX)
    followed = said_by(MS(7) + CBS(0, "tool_use", id="a", name="f", input=huge) + CBJ(0, "{}") + CBX(0))

    assert alone[2] == Argued(0, '{"x":1000000000000000000000000000000,"y":0.1}')
    assert followed[2:] == [Argued(0, "{}")]


def test_a_block_without_an_end_ends_with_the_message() -> None:
    """What is told at the end of a block is not lost where its stop is missing."""
    said = said_by(MS(7) + CBS(0, "tool_use", id="a", name="f", input={"x": 1}) + MD("tool_use") + MX)

    assert said[2] == Argued(0, '{"x":1}')


def test_a_second_start_ends_the_first_block() -> None:
    """What is told at the end of a block is not lost where another one takes its number."""
    said = said_by(MS(7) + CBS(0, "tool_use", id="a", name="f", input={"x": 1}) + CBS(0, "tool_use", id="b", name="g"))

    assert said[1:] == [Called(0, "a", "f"), Argued(0, '{"x":1}'), Called(1, "b", "g")]


@pytest.mark.parametrize("kind", ["server_tool_use", "mcp_tool_use", "web_search_tool_result", "brand_new"])
def test_what_the_provider_does_by_itself_is_left_out(kind: str) -> None:
    """Its own tools take no slot of the client's, and their input goes nowhere."""
    reader = AnthropicReader()

    said = hear(
        reader,
        MS(7) + CBS(0, kind, id="s", name="web_search", input={"q": 1}, content=[{"type": "x"}]) + CBJ(0, '{"q":2}'),
        CBX(0) + CBS(1, "tool_use", id="a", name="f") + CBJ(1, "{}") + CBX(1) + MD("tool_use") + MX,
    )

    assert [each for each in said if not isinstance(each, Counted)] == [
        Begin("msg_1"), Called(0, "a", "f"), Argued(0, "{}"), Finished("tool_calls"),
    ]  # fmt: skip
    assert reader.note == "foreign_block"


def test_citations_follow_their_text() -> None:
    """A citation is told when its text is whole, since a provider may send it before, during or after that."""
    cited = delta(0, type="citations_delta", citation=CITATION)

    before = said_by(MS(7) + CBS(0) + cited + CBD(0, "ab") + CBD(0, "c") + CBX(0))
    after = said_by(MS(7) + CBS(0) + CBD(0, "ab") + CBD(0, "c") + cited + CBX(0))
    at_start = said_by(MS(7) + CBS(0, citations=[CITATION]) + CBD(0, "ab") + CBD(0, "c") + CBX(0))

    assert before == after == at_start == [Begin("msg_1"), Said("ab"), Said("c"), Cited(CITATION, 3)]


def test_use_05_counts_are_cumulative() -> None:
    """The prompt includes cached and written tokens; the answer's count is the last one, not a sum."""
    start = MS(9, 1, cache_read_input_tokens=1, cache_creation_input_tokens=4)
    usage = {"output_tokens": 16, "cache_read_input_tokens": 1, "input_tokens": 9}

    told = counts(start + CBS(0) + CBD(0, "a") + CBX(0) + MD("end_turn", 5) + MD("end_turn", usage) + MX)

    assert told == [Counted(14, None, 1, 4), Counted(14, 5, 1, 4), Counted(14, 16, 1, 4), Counted(14, 16, 1, 4)]


def test_how_long_tokens_are_kept() -> None:
    """Those written for an hour are told beside all that were written, as `message_start` has them."""
    kept = {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 3}
    start = MS(9, 1, cache_creation_input_tokens=4, cache_creation=kept)

    told = counts(start + CBS(0) + CBD(0, "a") + CBX(0) + MD("end_turn", 5) + MX)

    assert told[-1] == Counted(13, 5, None, 4, cache_write_1h_tokens=3)


def test_the_placeholder_of_message_start_is_no_count() -> None:
    """Where no `message_delta` counts the answer, its tokens are unknown."""
    told = counts(MS(9, 8) + CBS(0) + CBD(0, "a") + CBX(0) + MD("end_turn", {}) + MX)

    assert told == [Counted(9)] * 3


def test_use_11_thinking_is_part_of_the_answers_count() -> None:
    """The tokens of thinking are told beside the count that includes them, unless they are more."""
    usage = {"output_tokens": 500, "output_tokens_details": {"thinking_tokens": 400}}
    lie = {"output_tokens": 5, "output_tokens_details": {"thinking_tokens": 400}}

    honest, lying = counts(MS(9) + MD("end_turn", usage) + MX)[-1], counts(MS(9) + MD("end_turn", lie) + MX)[-1]

    assert (honest, lying) == (Counted(9, 500, reasoning_tokens=400), Counted(9, 5))


def test_use_15_absurd_counts_are_not_told() -> None:
    """Negative, textual and astronomic numbers count as unsaid, with a note."""
    reader = AnthropicReader()

    said = hear(reader, MS(-5) + CBS(0) + CBD(0, "a") + CBX(0) + MD("end_turn", {"output_tokens": "12"}) + MX)

    assert [each for each in said if isinstance(each, Counted)] == []
    assert reader.note == "usage_odd"


def test_parts_of_an_unknown_prompt_are_not_told() -> None:
    """Without the count of the prompt, its cached part could be more than what we take the whole for."""
    told = counts(MS(None, cache_read_input_tokens=90) + MD("end_turn", 2) + MX)  # type: ignore[arg-type]  # odd

    assert told[-1] == Counted(None, 2)


REASONS = [
    ("end_turn", Finished("stop"), None),
    ("stop_sequence", Finished("stop_sequence", stop_sequence="END"), None),
    ("max_tokens", Finished("length"), None),
    ("tool_use", Finished("tool_calls"), None),
    ("refusal", Finished("refusal"), None),
    ("pause_turn", Finished("pause"), None),
    ("model_context_window_exceeded", Finished("context_window"), None),
    ("brand_new", Finished("stop", said="brand_new"), "unknown_stop_reason"),
    (None, Finished("stop"), "no_stop_reason"),
]


@pytest.mark.parametrize(("word", "finished", "note"), REASONS)
def test_tr_23_how_the_model_stopped(word: str | None, finished: Finished, note: str | None) -> None:
    """Every reason that is documented has a meaning; an unknown one is a stop that keeps the provider's word."""
    last = event("message_delta", {"type": "message_delta", "delta": {"stop_reason": word, "stop_sequence": "END"}})
    reader = AnthropicReader()

    stream = hear(reader, MS(7) + CBS(0) + CBD(0, "a") + CBX(0) + last + MX)

    assert [each for each in stream if isinstance(each, Finished)] == [finished]
    assert reader.note == note


@pytest.mark.parametrize(("word", "finished", "note"), REASONS[:-1])
def test_tr_23_how_the_model_stopped_in_json(word: str, finished: Finished, note: str | None) -> None:
    """The same of a JSON answer."""
    reader = AnthropicReader()

    said = reader.whole(body({"type": "text", "text": "a"}, stop_reason=word, stop_sequence="END"))

    assert said == [Begin("msg_1"), Said("a"), finished, Counted(7, 3)]
    assert reader.note == note


def test_the_last_message_delta_tells_the_reason() -> None:
    """One that says nothing of it takes nothing back."""
    said = said_by(MS(7) + MD("max_tokens") + MD("tool_use") + MD(None) + MX)

    assert said == [Begin("msg_1"), Finished("tool_calls")]


def test_a_refusal_with_its_reason() -> None:
    """The explanation of a refusal is what the client reads as the refusal."""
    why = {"stop_reason": "refusal", "stop_details": {"type": "refusal", "category": None, "explanation": "No."}}

    stream = said_by(MS(7) + event("message_delta", {"type": "message_delta", "delta": why}) + MX)
    json_answer = AnthropicReader().whole(body(**why))

    assert stream == [Begin("msg_1"), Refused("No."), Finished("refusal")]
    assert json_answer == [*stream, Counted(7, 3)]
    assert AnthropicReader().whole(body(**{**why, "stop_reason": "end_turn"}))[1] == Finished("stop")


ERRORS = [
    event("error", {"type": "api_error"}),
    AERR("overloaded_error"),
    data({"type": "error", "error": {"type": "x"}}),
    event("error", {"message": "x"}),
    event("content_block_delta", {"type": "content_block_delta", "error": {"message": "x"}}),
]


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_fails_the_answer(error: bytes) -> None:
    """An error before the end is the provider's failure, however it is dressed."""
    reader = AnthropicReader()

    with pytest.raises(UpstreamFailed) as caught:
        hear(reader, MS(7) + CBS(0) + CBD(0, "a") + CBX(0) + MD() + error)

    assert (caught.value.failure.reason, reader.complete) == ("in_band", False)


BROKEN = [
    data("nonsense"),
    data("[1]"),
    event("message_start", {"type": "message_start"}),
    CBS(0, "tool_use", id="", name="f"),
    CBS(0, "tool_use", id="a", name=7),
    CBS(0, "tool_use", id="a", name="f", input={"x": "RAW"}).replace(b'"RAW"', b"01"),
    b"".join(CBS(index) for index in range(MAX_OPEN_BLOCKS + 1)),
    CBS(0, "thinking") + delta(0, signature="s" * (MAX_HELD_BYTES // 2)) * 3,
    CBS(0) + delta(0, citation={"url": "u" * (MAX_HELD_BYTES // 2)}) * 3,
    b"".join(CBS(at, "thinking") + delta(at, signature="s" * (MAX_HELD_BYTES // 2)) for at in range(3)),
    b"".join(
        CBS(at, "tool_use", id=f"a{at}", name="f", input={"x": "y" * (MAX_HELD_BYTES // 2)}) for at in range(3)
    ),
]


def test_blocks_that_are_over_hold_nothing() -> None:
    """The bound is on what is open: an answer of any number of long signatures and arguments is no attack."""
    long = "s" * (MAX_HELD_BYTES // 2)
    blocks = [CBS(at, "thinking") + delta(at, signature=long) + CBX(at) for at in range(3)]
    blocks += [CBS(9, "tool_use", id="a", name="f", input={"x": long}) + CBX(9)] * 3

    said = hear(AnthropicReader(), MS(7), *blocks, MD(), MX)

    assert sum(isinstance(each, Thought) for each in said) == 3
    assert sum(isinstance(each, Argued) for each in said) == 3


@pytest.mark.parametrize("broken", BROKEN)
def test_what_cannot_be_understood_fails_the_answer(broken: bytes) -> None:
    """No JSON object, a call without id or name, more than a sane answer has: all that is the provider's failure."""
    with pytest.raises(UpstreamFailed) as caught:
        hear(AnthropicReader(), MS(7) + broken)

    assert caught.value.failure.reason == "malformed"


ODD = [
    (event("thread_update", {"type": "thread_update"}), "unknown_event"),
    (MS(8), "second_start"),
    (CBJ(9, "{}"), "stray_delta"),
    (CBS(9, "tool_use") + CBD(9, "a") + CBX(9), "stray_delta"),
]


@pytest.mark.parametrize(("odd", "note"), ODD)
def test_what_is_odd_is_noted(odd: bytes, note: str) -> None:
    """What has no place in an answer is left out with a note, and the answer goes on."""
    reader = AnthropicReader()

    said = hear(reader, MS(7) + odd + CBS(0) + CBD(0, "a") + CBX(0) + MD() + MX)

    assert [each for each in said if isinstance(each, Begin | Said | Argued)] == [Begin("msg_1"), Said("a")]
    assert reader.note == note


def test_text_without_any_frame_around_it() -> None:
    """Text is text, and begins the answer, also where the events before it are missing."""
    assert said_by(CBD(0, "a") + MX) == [Begin(), Said("a"), Finished("stop")]


def test_members_of_unexpected_types_count_as_absent() -> None:
    """One odd member does not spoil the others of its event."""
    odd = {"type": "content_block_delta", "index": "0", "delta": {"text": "a", "thinking": 7, "citation": 1}}

    said = said_by(MS(7) + CBS(0) + event("content_block_delta", odd) + CBX(0) + MD() + MX)

    assert said == [Begin("msg_1"), Said("a"), Finished("stop")]


def test_mended_text() -> None:
    """Bytes that are not UTF-8 and halves of surrogate pairs become the replacement character."""
    lone = CBD(0, "LONE").replace(b"LONE", rb"\ud83d")
    bad = CBD(0, "BAD").replace(b"BAD", b"\xff")
    cited = delta(0, citation={"url": "LONE"}).replace(b"LONE", rb"\ud83d")

    said = said_by(MS(7) + CBS(0) + lone + bad + cited + CBX(0))

    assert said[1:] == [Said("\ufffd"), Said("\ufffd"), Cited({"url": "\ufffd"}, 2)]


def test_parts_are_mended_in_any_company() -> None:
    """A delta beside them does not make the raw parts of an event fit to be read."""
    block = {"type": "tool_use", "id": "a", "name": "f", "input": {"x": "BAD"}}
    odd = data({"type": "content_block_start", "index": 0, "delta": {"text": "a"}, "content_block": block})

    said = said_by(MS(7) + odd.replace(b"BAD", b"\xff") + CBX(0))

    assert said[1:] == [Called(0, "a", "f"), Argued(0, r'{"x":"\ufffd"}')]


def test_the_whole_json_answer() -> None:
    """Every block of a JSON answer is told as its stream would be; its usage counts the answer."""
    thinking = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    text = {"type": "text", "text": "ab", "citations": [CITATION]}

    reader = AnthropicReader()
    said = reader.whole(body(thinking, {"type": "redacted_thinking", "data": "x"}, text, {"type": "mcp_tool_use"}))

    assert said == [
        Begin("msg_1"), Thought("hm"), Thought(signature="sig"), Thought(redacted="x"), Said("ab"), Cited(CITATION, 2),
        Finished("stop"), Counted(7, 3),
    ]  # fmt: skip
    assert (reader.complete, reader.ended, reader.note) == (True, True, "foreign_block")


NO_ANSWERS = [
    (b"nonsense", "malformed"),
    (b"[]", "malformed"),
    (b'{"content":"x","stop_reason":"end_turn"}', "malformed"),
    (b'{"content":[1],"stop_reason":"end_turn"}', "malformed"),
    (body(stop_reason=None), "malformed"),
    (body({"type": "tool_use", "id": "a"}), "malformed"),
    (b'{"type":"error","error":{"type":"api_error","message":"m"}}', "in_band"),
]


@pytest.mark.parametrize(("answer", "reason"), NO_ANSWERS)
def test_what_is_no_json_answer(answer: bytes, reason: str) -> None:
    """An error, or anything without content and stop reason, is the provider's failure."""
    with pytest.raises(UpstreamFailed) as caught:
        AnthropicReader().whole(answer)

    assert caught.value.failure.reason == reason
