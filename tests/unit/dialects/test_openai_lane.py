"""Conversations on the OpenAI lane: what a provider says, and what a client makes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.call import CallOptions
from gateway.core.usage import Usage
from gateway.dialects.registry import DIALECTS
from tests.support.notation import DONE, FIN, TC, R, T, U, chunk, crlf, data
from tests.unit.dialects.conversations import (
    RESET,
    SLUG,
    Heard,
    hear,
    hear_openai,
    journey,
    openai,
    openai_call,
    texts,
)


def choice_chunk(index: int, delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
    """A chunk of one choice of several."""
    return chunk({}, choices=[{"index": index, "delta": delta, "finish_reason": finish}], **more)


def shape(heard: Heard) -> list[str]:
    """The conversation in the notation of the case catalogue."""
    out = []
    for item in heard.items:
        if not isinstance(item, dict):
            out.append(item)
        elif "error" in item:
            out.append("ERRF({completion_tokens}, {failure_class})".format(**item["error"]["_anoman"]))
        elif item.get("object") == "anoman.metadata":
            out.append("META")
        else:
            out.extend(f"{choice['index']}:{_sign(choice)}" for choice in item["choices"])
    return out


def _sign(choice: dict[str, Any]) -> str:
    delta, finish = choice["delta"], choice.get("finish_reason")
    calls = "".join(f"TC{c['index']}[{c['function'].get('arguments')}]" for c in delta.get("tool_calls") or ())
    said = "R" if delta.get("role") else calls or delta.get("content") or ""
    return said + (f"FIN({finish})" if finish else "")


def finish_of(heard: Heard) -> dict[str, Any]:
    """The finish chunk of a finished conversation: third from last."""
    out: dict[str, Any] = heard.items[-3]
    return out


# -- the plain conversation --


def test_the_plain_conversation() -> None:
    """Role, content, one finish chunk with the usage of the swallowed usage chunk, metadata, terminator."""
    heard = hear_openai(R(), T("a"), T("b"), FIN("stop"), U(7, 2), DONE)

    assert shape(heard) == ["0:R", "0:a", "0:b", "0:FIN(stop)", "META", "[DONE]"]
    assert finish_of(heard)["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert heard.lane.measure() == (Usage(7, 2), "provider_final")


def test_content_passes_as_the_very_bytes() -> None:
    """A chunk with a whole envelope differs from the provider's only in the model's name, spelling included."""
    odd = b'{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","x":1.50,"choices":' + (
        b'[{"index":0,"delta":{"content":"\\u0061\\/"},"logprobs":null,"finish_reason":null}],"usage":null}'
    )
    lane = openai()
    lane.feed(R() + T("a"))

    out = lane.feed(data(odd.decode()))

    assert out == data(odd.decode()).replace(b'"model":"m"', f'"model":"{SLUG}"'.encode())


def test_nothing_leaves_before_the_first_content() -> None:
    """A role chunk is held back, since a failure after it can still be a plain HTTP error."""
    lane = openai()

    held, released = lane.feed(R()), lane.feed(T("a"))

    assert held == b""
    assert released.count(b"data: ") == 2


def test_a_long_start_is_let_out() -> None:
    """More than the bound is not held back, content or not: memory is bounded."""
    lane = DIALECTS["openai_chat"].open_lane(journey(openai_call(), sniff_bytes=300))

    outs = [lane.feed(R()) for _ in range(4)]

    assert [bool(out) for out in outs] == [False, True, True, True]
    assert not lane.talking


def test_an_empty_answer_is_an_answer() -> None:
    """An answer of no tokens ends like any other."""
    heard = hear_openai(R(), FIN("stop"), U(7, 0), DONE)

    assert shape(heard) == ["0:R", "0:FIN(stop)", "META", "[DONE]"]
    assert heard.lane.measure() == (Usage(7, 0), "provider_final")


def test_stripping_leaves_the_metadata_out() -> None:
    """With the strip header the stream has no frame that OpenAI's would not have; usage stays."""
    lane = DIALECTS["openai_chat"].open_lane(journey(openai_call(), options=CallOptions(strip_extension=True)))

    heard = hear(lane, [R() + T("a") + FIN("stop") + U(7, 1) + DONE])

    assert b"_anoman" not in heard.out
    assert heard.items[-1] == "[DONE]"
    assert heard.items[-2]["usage"]["total_tokens"] == 8


def test_the_bare_metadata_frame() -> None:
    """The documents' literal form has no key but `_anoman`."""
    lane = DIALECTS["openai_chat"].open_lane(journey(openai_call(), metadata_frame="bare"))

    heard = hear(lane, [R() + T("a") + FIN("stop") + DONE])

    assert list(heard.items[-2]) == ["_anoman"]


# -- usage --

OURS = 5  # our estimate of the prompt "Hi": one token and four of the message's frame

ENDINGS = {
    "on the finish chunk": ([FIN("stop", (7, 3)), DONE], Usage(7, 3), "provider_final"),
    "after the finish chunk": ([FIN("stop"), U(7, 3), DONE], Usage(7, 3), "provider_final"),
    "before the finish chunk": ([U(7, 3), FIN("stop"), DONE], Usage(7, 3), "provider_final"),
    "twice": ([FIN("stop", (7, 2)), U(7, 3), DONE], Usage(7, 3), "provider_final"),
    "without terminator": ([FIN("stop"), U(7, 3)], Usage(7, 3), "provider_final"),
    "details only later": (
        [FIN("stop", (7, 3)), U(7, 3, prompt_tokens_details={"cached_tokens": 4}), DONE],
        Usage(7, 3, cached_tokens=4),
        "provider_final",
    ),
    "null on every chunk": ([FIN("stop", None), data({"choices": [], "usage": None}), U(7, 3)], Usage(7, 3), "provider_final"),
    "never": ([FIN("stop"), DONE], Usage(OURS, 2), "estimated"),
    "only the prompt": ([FIN("stop", {"prompt_tokens": 7}), DONE], Usage(7, 2), "estimated"),
    "only the completion": ([FIN("stop", {"completion_tokens": 9}), DONE], Usage(OURS, 9), "estimated"),
    "a placeholder up front": ([FIN("stop", (7, 0)), DONE], Usage(7, 2), "estimated"),
    "after the terminator": ([FIN("stop"), DONE, U(7, 3)], Usage(OURS, 2), "estimated"),
}  # fmt: skip


@pytest.mark.parametrize(("ending", "usage", "basis"), ENDINGS.values(), ids=ENDINGS)
def test_where_usage_can_be(ending: list[bytes], usage: Usage, basis: str) -> None:
    """Wherever a provider puts its usage, the client finds it once, on the finish chunk; ours fills what is missing."""
    heard = hear_openai(R(), T("a"), T("b"), *ending)

    assert (usage, basis) == heard.lane.measure()
    assert finish_of(heard)["usage"]["prompt_tokens"] == usage.prompt_tokens
    assert finish_of(heard)["usage"]["completion_tokens"] == usage.completion_tokens


def test_use_04_cumulative_usage_on_every_chunk() -> None:
    """Usage on every chunk is cumulative, not to be added up."""
    heard = hear_openai(R(), T("a", (7, 1)), T("b", (7, 2)), T("c", (7, 3)), FIN("stop", (7, 3)), DONE)

    assert heard.lane.measure() == (Usage(7, 3), "provider_final")


def test_a_broken_stream_counts_what_came() -> None:
    """The error frame and the books agree; a running count of the provider's is taken where it is ahead."""
    plain = hear_openai(R(), T("a"), T("b"))
    counted = hear_openai(R(), T("a", (7, 1)), T("b", (7, 5)))
    behind = hear_openai(R(), T("a", (7, 1)), T("b"))

    assert shape(plain)[-2:] == ["ERRF(2, upstream_truncated)", "[DONE]"]
    assert plain.lane.measure() == (Usage(OURS, 2), "estimated")
    assert counted.lane.measure() == (Usage(7, 5), "received")
    assert behind.lane.measure() == (Usage(7, 2), "estimated")


@pytest.mark.parametrize(
    "said",
    [
        {"prompt_tokens": -5, "completion_tokens": "12", "total_tokens": 9 * 10**12},
        {"prompt_tokens": 10**12, "completion_tokens": 1.5},
        {"prompt_tokens": True, "completion_tokens": [], "x": 10**40},
        [1, 2],
        "many",
    ],
)
def test_use_15_absurd_usage(said: Any) -> None:
    """Counts that cannot be counts are ignored and remarked upon; ours take their place."""
    heard = hear_openai(R(), T("a"), chunk({}, "stop", None, usage=said), DONE)

    assert heard.lane.note == "usage_odd"
    assert heard.lane.measure() == (Usage(OURS, 1), "estimated")
    assert finish_of(heard)["usage"]["total_tokens"] == OURS + 1


def test_sane_counts_survive_absurd_ones() -> None:
    """A merge per field: a later absurd value does not undo an earlier sane one."""
    heard = hear_openai(R(), T("a", (7, 1)), FIN("stop", {"prompt_tokens": -1, "completion_tokens": 2}), DONE)

    assert heard.lane.measure() == (Usage(7, 2), "provider_final")
    assert heard.lane.note == "usage_odd"


# -- the end --


def test_error_before_the_finish() -> None:
    """An error object in mid-stream ends it with the documented frame; the provider's words stay inside."""
    error = data({"error": {"message": "engine queue full at 10.0.0.3", "code": 503}})

    heard = hear_openai(R(), T("a"), error, T("b"), FIN("stop"), DONE)

    assert shape(heard) == ["0:R", "0:a", "ERRF(1, upstream_error)", "[DONE]"]
    assert b"10.0.0.3" not in heard.out


def test_error_after_the_finish() -> None:
    """An error after the terminal marker cannot turn the answer into a failure; it is remarked upon."""
    heard = hear_openai(R(), T("a"), FIN("stop", (7, 1)), data({"error": {"message": "late"}}))

    assert heard.end == "finished"
    assert heard.lane.note == "after_finish:in_band"


def test_garbage_after_the_finish() -> None:
    """Neither does garbage after it."""
    heard = hear_openai(R(), T("a"), FIN("stop", (7, 1)), data("<html>"), T("b"))

    assert shape(heard) == ["0:R", "0:a", "0:FIN(stop)", "META", "[DONE]"]
    assert heard.lane.note == "after_finish:malformed"


@pytest.mark.parametrize("nothing", [None, "", {}, [], False])
def test_an_error_that_is_none(nothing: Any) -> None:
    """An empty `error` key is no error, and is not passed on: clients look for the key alone."""
    heard = hear_openai(R(), chunk({"content": "a"}, error=nothing), FIN("stop", (7, 1)), DONE)

    assert shape(heard) == ["0:R", "0:a", "0:FIN(stop)", "META", "[DONE]"]


def test_an_error_before_any_content_can_be_plain_http() -> None:
    """Nothing has left, so nothing needs an error frame."""
    heard = hear_openai(R(), data({"error": {"message": "m", "type": "overloaded", "code": None}}))

    assert (heard.end, heard.out) == ("refused", b"")


def test_terminator_without_finish() -> None:
    """A terminator alone proves nothing."""
    heard = hear_openai(R(), T("a"), DONE)

    assert shape(heard) == ["0:R", "0:a", "ERRF(1, upstream_truncated)", "[DONE]"]


@pytest.mark.parametrize("spelled", ["[DONE]", " [DONE]", "[DONE] ", "  [DONE]\t", "[DONE]\n "])
def test_spellings_of_the_terminator(spelled: str) -> None:
    """Spaces around the terminator are no garbage."""
    lines = "".join(f"data: {line}\n" for line in spelled.split("\n"))

    heard = hear_openai(R(), T("a"), FIN("stop", (7, 1)), f"{lines}\n".encode())

    assert heard.end == "finished"
    assert heard.lane.note is None


def test_a_half_event_at_the_end_is_a_cut() -> None:
    """A clean end inside an event is a truncated stream, not a malformed one."""
    heard = hear_openai(R(), T("a"), T("b")[:40])

    assert shape(heard)[-2] == "ERRF(1, upstream_truncated)"


def test_a_reset_drops_the_half_frame() -> None:
    """The half frame is dropped; the client sees one error, then the terminator."""
    heard = hear(openai(), [R() + T("Once") + T("upon")[:40]], RESET)

    assert shape(heard) == ["0:R", "0:Once", "ERRF(1, upstream_error)", "[DONE]"]


def test_an_event_beyond_the_bound() -> None:
    """An event longer than the bound ends the stream; whole ones before it are delivered."""
    lane = DIALECTS["openai_chat"].open_lane(journey(openai_call(), max_event_bytes=2000))

    heard = hear(lane, [R() + T("a") + T("x" * 3000) + FIN("stop") + DONE])

    assert shape(heard) == ["0:R", "0:a", "ERRF(1, upstream_error)", "[DONE]"]


def test_an_event_up_to_the_bound() -> None:
    """An event of almost 1 MiB passes whole."""
    text = "x" * (1024 * 1024 - 300)

    heard = hear_openai(R(), T(text), FIN("stop", (7, 1)), DONE)

    assert texts(heard.items)[0] == text


# -- finish reasons, one choice and several --


def test_tr_25_a_finish_reason_on_every_chunk() -> None:
    """A finish reason that is followed by more was none: null until the last."""
    heard = hear_openai(R(), chunk({"content": "a"}, "stop"), chunk({"content": "b"}, "stop"), FIN("stop", (7, 2)), DONE)

    assert shape(heard) == ["0:R", "0:a", "0:b", "0:FIN(stop)", "META", "[DONE]"]


def test_content_in_the_finish_chunk() -> None:
    """The last text and the finish reason may share a chunk."""
    heard = hear_openai(R(), chunk({"content": "a"}, "length"), U(7, 1), DONE)

    assert shape(heard) == ["0:R", "0:aFIN(length)", "META", "[DONE]"]


def test_a_finish_that_is_followed_by_a_cut() -> None:
    """When the provider goes on after a finish and then breaks off, the answer was not complete."""
    heard = hear_openai(R(), T("a"), FIN("stop"), T("b"))

    assert shape(heard) == ["0:R", "0:a", "0:b", "ERRF(2, upstream_truncated)", "[DONE]"]


def test_hollow_chunks_after_the_finish() -> None:
    """Chunks that add nothing do not reopen the answer."""
    heard = hear_openai(R(), T("a"), FIN("stop"), chunk({}), chunk({"content": ""}), U(7, 1), DONE)

    assert shape(heard) == ["0:R", "0:a", "0:", "0:", "0:FIN(stop)", "META", "[DONE]"]


def test_two_finishes() -> None:
    """The last finish of a choice is the one."""
    heard = hear_openai(R(), T("a"), FIN("length"), FIN("stop", (7, 1)), DONE)

    assert shape(heard) == ["0:R", "0:a", "0:FIN(stop)", "META", "[DONE]"]


def test_interleaved_choices() -> None:
    """With n > 1 the stream is complete when the last open choice has finished; only its chunk carries the usage."""
    heard = hear_openai(
        choice_chunk(0, {"role": "assistant"}),
        choice_chunk(1, {"role": "assistant"}),
        choice_chunk(0, {"content": "a"}),
        choice_chunk(1, {"content": "b"}),
        choice_chunk(0, {}, "stop"),
        choice_chunk(1, {"content": "c"}),
        choice_chunk(1, {}, "length"),
        U(7, 3),
        DONE,
        n=2,
    )

    assert shape(heard) == ["0:R", "1:R", "0:a", "1:b", "0:FIN(stop)", "1:c", "1:FIN(length)", "META", "[DONE]"]


def test_one_choice_after_the_other() -> None:
    """A finish is let go, in its place, when a further choice opens after it."""
    heard = hear_openai(
        choice_chunk(0, {"role": "assistant"}),
        choice_chunk(0, {"content": "a"}),
        choice_chunk(0, {}, "stop"),
        choice_chunk(1, {"role": "assistant"}),
        choice_chunk(1, {"content": "b"}),
        choice_chunk(1, {}, "stop"),
        U(7, 2),
        DONE,
        n=2,
    )

    assert shape(heard) == ["0:R", "0:a", "0:FIN(stop)", "1:R", "1:b", "1:FIN(stop)", "META", "[DONE]"]


def test_the_second_choice_breaks_off() -> None:
    """An open choice makes the answer incomplete, even one that has only said its role."""
    first = [choice_chunk(0, {"role": "assistant"}), choice_chunk(0, {"content": "a"}), choice_chunk(0, {}, "stop")]

    role_only = hear_openai(*first, choice_chunk(1, {"role": "assistant"}))
    some = hear_openai(*first, choice_chunk(1, {"content": "b"}), n=2)

    assert shape(role_only) == ["0:R", "0:a", "0:FIN(stop)", "1:R", "ERRF(1, upstream_truncated)", "[DONE]"]
    assert shape(some) == ["0:R", "0:a", "0:FIN(stop)", "1:R", "1:b", "ERRF(2, upstream_truncated)", "[DONE]"]


def test_fewer_choices_than_asked_for() -> None:
    """Until a terminator or the usage says that no choice is to come, the answer is not complete."""
    first = [R(), T("a"), FIN("stop")]
    lane = openai(n=2)
    lane.feed(b"".join(first))

    assert not lane.complete
    assert hear_openai(*first, n=2).end == "interrupted"
    assert hear_openai(*first, DONE, n=2).end == "finished"
    assert hear_openai(*first, U(7, 1), n=2).end == "finished"


def test_both_finishes_in_one_chunk() -> None:
    """Several choices in one chunk are several choices."""
    opening = [{"index": i, "delta": {"role": "assistant", "content": str(i)}, "finish_reason": None} for i in (0, 1)]
    closing = [{"index": i, "delta": {}, "finish_reason": "stop"} for i in (0, 1)]

    heard = hear_openai(chunk({}, choices=opening), chunk({}, choices=closing), U(7, 2), DONE, n=2)

    assert texts(heard.items) == {0: "0", 1: "1"}
    assert [choice["finish_reason"] for choice in finish_of(heard)["choices"]] == ["stop", "stop"]


# -- tool calls --


def test_tool_calls_without_arguments() -> None:
    """A tool call that gets no argument text gets `{}`, once; one that has arguments is left alone."""
    heard = hear_openai(
        R(),
        TC(0, name="now"),
        TC(1, name="add"),
        TC(1, '{"a":'),
        TC(1, "1}"),
        TC(0, ""),
        FIN("tool_calls", (7, 9)),
        DONE,
    )

    assert shape(heard) == [
        "0:R", "0:TC0[]", "0:TC1[]", '0:TC1[{"a":]', "0:TC1[1}]", "0:TC0[]", "0:TC0[{}]", "0:FIN(tool_calls)", "META", "[DONE]",
    ]  # fmt: skip


def test_a_call_without_arguments_in_the_finish_chunk() -> None:
    """A call that opens in the finish chunk gets its `{}` there: it cannot have it before its name."""
    call = {"index": 0, "id": "call_0", "type": "function", "function": {"name": "now", "arguments": ""}}

    heard = hear_openai(R(), chunk({"tool_calls": [call]}, "tool_calls"), U(7, 1), DONE)

    assert shape(heard) == ["0:R", "0:TC0[{}]FIN(tool_calls)", "META", "[DONE]"]


def test_a_call_whose_arguments_are_missing() -> None:
    """`arguments` may be absent or null as well as empty."""
    calls: list[dict[str, Any]] = [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "x"}},
        {"index": 1, "id": "b", "type": "function", "function": {"name": "y", "arguments": None}},
    ]

    heard = hear_openai(R(), *(chunk({"tool_calls": [call]}) for call in calls), FIN("tool_calls"), DONE)

    assert shape(heard)[3:5] == ["0:TC0[{}]", "0:TC1[{}]"]


def test_arguments_of_the_choice_that_finishes_first() -> None:
    """Each choice has its arguments whole before its own finish."""
    call = [{"index": 0, "id": "a", "type": "function", "function": {"name": "x", "arguments": ""}}]

    heard = hear_openai(
        choice_chunk(0, {"role": "assistant", "tool_calls": call}),
        choice_chunk(1, {"role": "assistant", "tool_calls": call}),
        choice_chunk(0, {}, "tool_calls"),
        choice_chunk(1, {}, "tool_calls"),
        DONE,
        n=2,
    )

    assert shape(heard)[2:6] == ["0:TC0[{}]", "0:FIN(tool_calls)", "1:TC0[{}]", "1:FIN(tool_calls)"]


def test_a_broken_stream_never_completes_a_call() -> None:
    """Half a tool call is not made whole by us."""
    heard = hear_openai(R(), TC(0, name="now"))

    assert shape(heard) == ["0:R", "0:TC0[]", "ERRF(1, upstream_truncated)", "[DONE]"]


def test_arguments_that_are_an_object() -> None:
    """A vendor that streams arguments as an object is passed on; no `{}` is added to it."""
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "x", "arguments": {"a": 1}}}

    heard = hear_openai(R(), chunk({"tool_calls": [call]}), FIN("tool_calls"), DONE)

    assert shape(heard) == ["0:R", "0:TC0[{'a': 1}]", "0:FIN(tool_calls)", "META", "[DONE]"]


# -- the envelope --


def test_a_role_chunk_is_made_once_per_choice() -> None:
    """A provider that sends no role gets one put in front, for every choice."""
    heard = hear_openai(T("a"), T("b"), choice_chunk(1, {"content": "c"}), FIN("stop"), choice_chunk(1, {}, "stop"), DONE)

    assert shape(heard) == ["0:R", "0:a", "0:b", "1:R", "1:c", "0:FIN(stop)", "1:FIN(stop)", "META", "[DONE]"]


def test_sse_18_chunks_without_choices() -> None:
    """Filter results without a choice are not passed on, and fix nothing of the envelope."""
    azure = data({"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": [{}]})

    heard = hear_openai(azure, R(), T("a"), FIN("stop"), U(7, 1), DONE)

    assert shape(heard) == ["0:R", "0:a", "0:FIN(stop)", "META", "[DONE]"]
    assert heard.items[0]["id"] == "c1"


def test_sse_33_missing_members_are_filled() -> None:
    """id, object, created, model and the choice's index are there whatever the provider leaves out."""
    bare = data({"choices": [{"delta": {"content": "a"}}]})

    heard = hear_openai(bare, bare, data({"choices": [{"finish_reason": "stop"}]}), DONE)

    assert shape(heard) == ["0:R", "0:a", "0:a", "0:FIN(stop)", "META", "[DONE]"]
    assert (heard.items[0]["id"], heard.items[0]["created"]) == ("chatcmpl-req_1", 1_700_000_000)


@pytest.mark.parametrize(
    "envelope",
    [
        {"id": "other"},
        {"created": 2},
        {"created": 1.0},
        {"created": "1"},
        {"created": None},
        {"created": 10**30},
        {"object": "text_completion"},
        {"model": "m-2024"},
        {"model": None},
        {"id": None, "object": None},
    ],
)
def test_an_envelope_that_changes(envelope: dict[str, Any]) -> None:
    """What changes in mid-stream, or has a wrong type from the start, is constant for the client."""
    later = hear_openai(R(), chunk({"content": "a"}, None, None, **envelope), FIN("stop"), DONE)
    from_the_start = hear_openai(
        chunk({"role": "assistant"}, None, None, **envelope), chunk({"content": "a"}, "stop", None, **envelope), DONE
    )

    assert texts(later.items) == texts(from_the_start.items) == {0: "a"}


def test_a19_the_provider_calls_the_model_something_else() -> None:
    """The client reads the name it asked for, whatever name the provider answers under."""
    heard = hear_openai(*(event.replace(b'"m"', b'"vendor-model-2024-08-06"') for event in (R(), T("a"), FIN("stop"))))

    assert b"vendor-model" not in heard.out


def test_the_models_name_in_the_content() -> None:
    """Only the member is renamed: text that looks like it, nested members and other places stay."""
    spelled = '"model":"m" {"model":"m"}'
    nested = chunk({"content": "a", "model": "m"}, None, None, x={"model": "m"})

    heard = hear_openai(R(), T(spelled), nested, FIN("stop"), DONE)

    assert texts(heard.items)[0] == spelled + "a"
    assert heard.items[2]["x"] == {"model": "m"}
    assert heard.items[2]["choices"][0]["delta"]["model"] == "m"


@pytest.mark.parametrize("where", ["before", "after"])
def test_nested_model_beside_a_spaced_one(where: str) -> None:
    """A nested member in compact spelling is not taken for the outer one in another."""
    outer, nested = '"model": "m"', '"x":{"model":"m"}'
    both = f"{nested},{outer}" if where == "before" else f"{outer},{nested}"
    event = data('{"id":"c1","object":"chat.completion.chunk","created":1,' + both + ',"choices":[{"index":0,"delta":{"content":"a"}}]}')  # fmt: skip

    heard = hear_openai(R(), event, FIN("stop"), DONE)

    assert heard.items[1]["x"] == {"model": "m"}


def test_spaces_after_colons() -> None:
    """Frames in the spelling of Python's json module are understood and rewritten."""
    spaced = [b"data: " + json.dumps(json.loads(event[6:])).encode() + b"\n\n" for event in (R(), T("a"), FIN("stop", (7, 1)))]  # fmt: skip

    heard = hear_openai(*spaced, DONE)

    assert shape(heard) == ["0:R", "0:a", "0:FIN(stop)", "META", "[DONE]"]


def test_an_event_of_several_data_lines() -> None:
    """JSON spread over several data lines becomes one line, in content and in the held-back finish chunk."""

    def spread(event: bytes) -> bytes:
        text = json.dumps(json.loads(event[6:]), indent=1)
        return "".join(f"data: {line}\n" for line in text.split("\n")).encode() + b"\n"

    halves = b'data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m",\ndata: "choices":[{"index":0,"delta":{"content":"b"}}]}\n\n'  # fmt: skip

    heard = hear_openai(spread(R()), spread(T("a")), halves, spread(FIN("stop", (7, 2))), DONE)

    assert shape(heard) == ["0:R", "0:a", "0:b", "0:FIN(stop)", "META", "[DONE]"]


def test_crlf_changes_nothing() -> None:
    """Line ends of another kind give the same bytes."""
    stream = R() + T("a") + FIN("stop") + U(7, 1) + DONE

    assert hear_openai(crlf(stream)).out == hear_openai(stream).out == hear_openai(stream.replace(b"\n", b"\r")).out


# -- what vendors add --


@pytest.mark.parametrize(
    ("delta", "tokens"),
    [
        ({"reasoning_content": "hm"}, 1),
        ({"reasoning": "hm"}, 1),
        ({"refusal": "no"}, 1),
        ({"function_call": {"name": "f", "arguments": ""}}, 1),
        ({"audio": {"data": "AAAA"}}, 1),
        ({"content": [{"type": "text", "text": "hm"}]}, 1),
        ({"images": [{"image_url": {"url": "data:"}}]}, 1),
        ({"reasoning_details": [{"data": "x"}]}, 1),
    ],
)
def test_every_kind_of_content_is_content(delta: dict[str, Any], tokens: int) -> None:
    """Text is not all a model says: everything that moves the answer on starts the stream and counts as progress."""
    lane = openai()
    lane.feed(R())
    before = lane.progress

    out = lane.feed(chunk(delta))

    assert json.loads(out.split(b"\n\n")[1][6:])["choices"][0]["delta"] == delta
    assert lane.talking
    assert lane.progress == before + 1
    assert lane.measure()[0].completion_tokens == tokens


@pytest.mark.parametrize("delta", [{}, {"content": ""}, {"content": None, "tool_calls": []}, {"role": "assistant"}])
def test_hollow_chunks_are_no_progress(delta: dict[str, Any]) -> None:
    """A provider that only keeps the line warm does not hold off the idle timer."""
    lane = openai()
    lane.feed(R() + T("a"))
    before = lane.progress

    lane.feed(chunk(delta))

    assert lane.progress == before


def test_comments_and_control_fields_are_dropped() -> None:
    """Comments, `retry:`, `id:` and empty data reach nobody."""
    heard = hear_openai(
        b": PROCESSING\n\n", b"retry: 1000\n\n", R(), b"data:\n\n", b": x\n\n", T("a"), b"id: 5\n\n", FIN("stop"), DONE
    )

    assert shape(heard) == ["0:R", "0:a", "0:FIN(stop)", "META", "[DONE]"]


def test_named_events() -> None:
    """An event named `error` is an error whatever its data; other names say nothing."""
    named = b"event: message\n" + T("a")
    error = b"event: error\n" + data({"message": "boom"})

    assert shape(hear_openai(R(), named, error)) == ["0:R", "0:a", "ERRF(1, upstream_error)", "[DONE]"]


def test_a_gateway_behind_us() -> None:
    """The metadata of another gateway of this kind is not passed on as ours."""
    metadata = data({"_anoman": {"cost_usd": "1"}, "object": "anoman.metadata", "choices": [{"index": 0, "delta": {}}]})

    heard = hear_openai(R(), T("a"), FIN("stop", (7, 1)), metadata, DONE)

    assert heard.out.count(b'"_anoman"') == 1


ODD = [
    {"choices": "none"},
    {"choices": {}},
    {"choices": [None, 1, {"index": 0, "delta": {"content": "x"}, "finish_reason": None}]},
    {"choices": [{"index": "0", "delta": {"content": "x"}}]},
    {"choices": [{"index": None, "delta": {"content": "x"}, "finish_reason": 0}]},
    {"choices": [{"index": 0, "delta": "text"}]},
    {"choices": [{"index": 0, "delta": {"content": 1, "role": []}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": "x"}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [None, {"index": "0", "function": "f"}]}}]},
    {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": {}}]},
    {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": True}], "model": 7, "id": [], "object": 1},
]


@pytest.mark.parametrize("odd", ODD, ids=[json.dumps(item)[:60] for item in ODD])
def test_odd_types(odd: dict[str, Any]) -> None:
    """Members of unexpected types never break a stream nor the shape of what a client gets."""
    heard = hear_openai(R(), T("a"), chunk({}, **odd), T("b"), FIN("stop", (7, 2)), DONE)

    assert heard.end == "finished"


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"1" * 400])
@pytest.mark.parametrize("place", [b'"delta":{"content":"x","n":%b}', b'"n":%b,"delta":{}', b'"delta":{},"finish_reason":"stop","n":%b'])
def test_numbers_nobody_can_hold(number: bytes, place: bytes) -> None:
    """A number beyond 64 bits passes untouched or ends the stream; it never ends the gateway."""
    body = b'data: {"id":"c1","choices":[{"index":0,' + place % number + b"}]}\n\n"

    heard = hear_openai(R(), T("a"), body, FIN("stop"), DONE)

    assert heard.end in ("finished", "interrupted")


def test_nesting_nobody_can_follow() -> None:
    """An event of endless nesting ends the stream."""
    heard = hear_openai(R(), T("a"), b"data: " + b"[" * 100_000 + b"\n\n", FIN("stop"), DONE)

    assert shape(heard)[-2:] == ["ERRF(1, upstream_error)", "[DONE]"]


@pytest.mark.parametrize("junk", [b"hello", b"<html>", b"{", b'{"a":NaN}', b"[1]", b"7", b'"x"', b"null", b"\xff\xfe"])
def test_what_is_no_json_object(junk: bytes) -> None:
    """Data that is no JSON object ends the stream with the error frame, and is not passed on."""
    heard = hear_openai(R(), T("a"), b"data: " + junk + b"\n\n", T("b"), FIN("stop"), DONE)

    assert shape(heard) == ["0:R", "0:a", "ERRF(1, upstream_error)", "[DONE]"]


def test_sse_28_lone_surrogates() -> None:
    """Half a surrogate pair becomes a replacement character; its chunk is not lost, nor the rest of the stream."""
    halves = [T("X").replace(b"X", half) for half in (rb"\ud83d", rb"\udf78")]

    heard = hear_openai(R(), *halves, T("ok"), FIN("stop"), DONE)

    assert texts(heard.items)[0] == "\ufffd\ufffdok"


def test_lone_surrogates_beside_odd_types() -> None:
    """Two oddities in one event are mended both."""
    event = chunk({"content": "X"}, None, None, created="1").replace(b"X", rb"\ud83d")

    heard = hear_openai(R(), event, FIN("stop"), DONE)

    assert texts(heard.items)[0] == "\ufffd"


def test_sse_15_characters_that_are_line_ends_elsewhere() -> None:
    """U+2028, U+0085, VT and FS inside JSON cut nothing, escaped or raw."""
    text = "a\u2028b\u0085c\u000bd\x1ce\u2029"

    heard = hear_openai(R(), T(text).replace(b"\\u000b", b"\x0b"), FIN("stop", (7, 1)), DONE)

    assert texts(heard.items)[0] == text


def test_words_of_every_script_are_ascii_on_the_wire() -> None:
    """Characters outside ASCII leave as escapes, and come out the same."""
    text = "北🦀é \u202e עברית"

    heard = hear_openai(R(), T(text), FIN("stop"), DONE)

    assert texts(heard.items)[0] == text


def test_nothing_follows_the_end() -> None:
    """After its end or failure a lane takes nothing more."""
    ended, failed = openai(), openai()
    ended.feed(R() + T("a") + FIN("stop", (7, 1)) + DONE)
    failed.feed(R() + T("a") + data("<html>"))

    assert (ended.feed(T("b")), failed.feed(T("b"))) == (b"", b"")
    assert (ended.end(), failed.end()) == (b"", b"")
    assert ended.failure is None
    assert failed.failure is not None
