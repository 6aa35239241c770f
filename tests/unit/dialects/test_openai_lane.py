"""Conversations on the OpenAI lane: what a provider says, and what a client makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.call import CallOptions
from gateway.core.errors import TRUNCATED
from gateway.core.usage import Usage
from gateway.dialects.registry import DIALECTS
from tests.support.notation import DONE, FIN, R, T, U, chunk, data
from tests.unit.dialects.conversations import (
    RESET,
    SLUG,
    choice_chunk,
    finish_of,
    hear,
    hear_openai,
    journey,
    openai,
    openai_call,
    shape,
    texts,
)

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
    text = [chunk({"content": piece}, "stop") for piece in "ab"]

    heard = hear_openai(R(), *text, FIN("stop", (7, 2)), DONE)

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
    """With n > 1 the stream is complete when the last open choice has finished; finishes follow, one with the usage."""
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

    assert shape(heard) == ["0:R", "1:R", "0:a", "1:b", "0:", "1:c", "0:FIN(stop)", "1:FIN(length)", "META", "[DONE]"]


@pytest.mark.parametrize("n", [None, 2])
def test_the_first_choice_finishes_and_the_second_is_cut(n: int | None) -> None:
    """While a choice is open the finish of another is no terminal marker; it is told before the error."""
    opened = [choice_chunk(index, {"role": "assistant", "content": "a"}) for index in (0, 1)]

    heard = hear_openai(*opened, choice_chunk(0, {}, "stop"), n=n)

    assert shape(heard) == ["0:R", "1:R", "0:", "0:FIN(stop)", "ERRF(2, upstream_truncated)", "[DONE]"]


def test_one_choice_after_the_other() -> None:
    """When a further choice opens after a finish, the chunk passes in its place, and its reason at the end."""
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

    assert shape(heard) == ["0:R", "0:a", "0:", "1:R", "1:b", "0:FIN(stop)", "1:FIN(stop)", "META", "[DONE]"]


def test_the_second_choice_breaks_off() -> None:
    """An open choice makes the answer incomplete, even one that has only said its role."""
    first = [choice_chunk(0, {"role": "assistant"}), choice_chunk(0, {"content": "a"}), choice_chunk(0, {}, "stop")]

    role_only = hear_openai(*first, choice_chunk(1, {"role": "assistant"}))
    some = hear_openai(*first, choice_chunk(1, {"content": "b"}), n=2)

    assert shape(role_only) == ["0:R", "0:a", "0:", "1:R", "0:FIN(stop)", "ERRF(1, upstream_truncated)", "[DONE]"]
    assert shape(some) == ["0:R", "0:a", "0:", "1:R", "1:b", "0:FIN(stop)", "ERRF(2, upstream_truncated)", "[DONE]"]


def test_a_choice_that_goes_on_after_its_finish() -> None:
    """With n > 1 too, each choice finishes once: after all its text, with the last reason that was given."""
    opened = [choice_chunk(index, {"role": "assistant"}) for index in (0, 1)]
    early, late = choice_chunk(0, {}, "length"), choice_chunk(0, {}, "stop")
    more, other = choice_chunk(0, {"content": "a"}), choice_chunk(1, {"content": "b"}, "stop")

    first = hear_openai(*opened, early, more, late, other, U(7, 2), DONE, n=2)
    last = hear_openai(*opened, early, other, more, late, U(7, 2), DONE, n=2)
    cut = hear_openai(*opened, early, other, more, n=2)

    assert shape(first) == ["0:R", "1:R", "0:", "0:a", "0:", "0:FIN(stop)", "1:bFIN(stop)", "META", "[DONE]"]
    assert shape(last) == ["0:R", "1:R", "0:", "1:b", "0:a", "1:FIN(stop)", "0:FIN(stop)", "META", "[DONE]"]
    assert shape(cut) == ["0:R", "1:R", "0:", "1:b", "0:a", "1:FIN(stop)", "ERRF(2, upstream_truncated)", "[DONE]"]


def test_a_choice_that_is_only_named_has_not_gone_on() -> None:
    """An empty delta of a finished choice, in a chunk that is about another one, does not take its finish back."""
    both = {"choices": [{"index": 0, "delta": {}}, {"index": 1, "delta": {"role": "assistant", "content": "b"}}]}
    opened = [choice_chunk(0, {"role": "assistant", "content": "a"})]

    later = hear_openai(*opened, choice_chunk(0, {}, "stop"), data(both), choice_chunk(1, {}, "stop"), DONE, n=2)
    held = hear_openai(
        *opened,
        choice_chunk(1, {"role": "assistant"}),
        choice_chunk(0, {}, "stop"),
        choice_chunk(1, {}, "length"),
        data(both),
        choice_chunk(1, {}, "stop"),
        DONE,
        n=2,
    )

    assert (later.end, shape(later)[-4:]) == ("finished", ["0:FIN(stop)", "1:FIN(stop)", "META", "[DONE]"])
    assert (held.end, shape(held)[-4:]) == ("finished", ["0:FIN(stop)", "1:FIN(stop)", "META", "[DONE]"])


@pytest.mark.parametrize("first", [0, 1])
def test_a_choice_goes_on_with_events_like_before(first: int) -> None:
    """A finish is taken back also by text that comes in just the form of the text before it."""
    heard = hear_openai(
        choice_chunk(first, {"role": "assistant", "content": "a"}),
        choice_chunk(1 - first, {"role": "assistant", "content": "b"}),
        choice_chunk(0, {"content": "c"}),
        choice_chunk(0, {"content": "d"}),
        choice_chunk(0, {}, "stop"),
        choice_chunk(0, {"content": "e"}),
        choice_chunk(0, {"content": "f"}),
        choice_chunk(1, {}, "stop"),
        n=2,
    )

    assert shape(heard)[-3:] == ["1:FIN(stop)", "ERRF(6, upstream_truncated)", "[DONE]"]


def arguments(items: list[Any]) -> str:
    """The arguments of all tool calls in *items*, as a client puts them together."""
    chunks = [item for item in items if isinstance(item, dict)]
    deltas = [choice["delta"] for item in chunks for choice in item.get("choices", ())]
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    return "".join(call["function"].get("arguments", "") for call in calls)


@pytest.mark.parametrize("n", [1, 2])
def test_tr_25_arguments_behind_a_finish(n: int) -> None:
    """`{}` is put for arguments that never came, not for those that come behind a finish that was none."""
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
    opening = choice_chunk(0, {"role": "assistant", "tool_calls": [call]}, "tool_calls")
    pieces = [
        choice_chunk(0, {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}, "tool_calls")
        for piece in ('{"a":', "1}")
    ]

    assert arguments(hear_openai(opening, *pieces, DONE, n=n).items) == '{"a":1}'
    assert arguments(hear_openai(opening, DONE, n=n).items) == "{}"


def test_a_usage_for_each_choice() -> None:
    """A provider that counts each choice by itself is heard to the end."""
    said = [
        (choice_chunk(index, {"role": "assistant", "content": "a"}), choice_chunk(index, {}, "stop"), U(7, 1 + index))
        for index in (0, 1)
    ]

    heard = hear_openai(*said[0], *said[1], DONE, n=2)

    assert (heard.end, texts(heard.items)) == ("finished", {0: "a", 1: "a"})


def test_tr_25_a_finish_reason_on_every_chunk_of_two() -> None:
    """With n > 1 too, a finish reason that is followed by more was none."""
    said = [choice_chunk(index, {"role": "assistant", "content": text}, "stop") for index, text in enumerate("ab")]

    heard = hear_openai(*said, choice_chunk(0, {"content": "c"}, "stop"), choice_chunk(1, {}, "length"), DONE, n=2)

    assert shape(heard) == ["0:R", "1:R", "0:c", "0:FIN(stop)", "1:FIN(length)", "META", "[DONE]"]
    assert texts(heard.items) == {0: "ac", 1: "b"}


def test_what_has_no_name_reopens_a_finish_like_text() -> None:
    """Audio of one choice beside the text of another belongs to its own: only that choice has not finished."""
    said = [{"index": 0, "delta": {"content": "b"}}, {"index": 1, "delta": {"audio": {"data": "AAAA"}}}]
    stream = [choice_chunk(index, {"content": "a"}, "stop") for index in (1, 2)]

    heard = hear_openai(
        choice_chunk(0, {"content": "a"}), *stream, chunk({}, choices=said), choice_chunk(0, {}, "stop"), n=3
    )

    assert shape(heard)[-2:] == ["ERRF(4, upstream_truncated)", "[DONE]"]
    assert "2:FIN(stop)" in shape(heard)
    assert "1:FIN(stop)" not in shape(heard)


def test_what_an_early_finish_chunk_brings() -> None:
    """The other members of a finish chunk reach the client when it comes, without its reason."""
    early = choice_chunk(0, {}, "stop", x={"y": 1.50})

    heard = hear_openai(choice_chunk(0, {"content": "a"}), choice_chunk(1, {"content": "b"}), early, n=2)

    (told,) = [item for item in heard.items[:-2] if "x" in item]
    assert (told["x"], told["choices"][0]["finish_reason"]) == ({"y": 1.5}, None)


def test_fewer_choices_than_asked_for() -> None:
    """Until the terminator says that no choice is to come, the answer is not complete."""
    first = [R(), T("a"), FIN("stop")]
    lane = openai(n=2)
    lane.feed(b"".join(first))

    assert not lane.complete
    assert shape(hear_openai(*first, n=2)) == ["0:R", "0:a", "0:FIN(stop)", "ERRF(1, upstream_truncated)", "[DONE]"]
    assert hear_openai(*first, DONE, n=2).end == "finished"
    assert hear_openai(*first, U(7, 1), DONE, n=2).end == "finished"


def test_a_count_of_fewer_choices_than_asked_for() -> None:
    """It may be the first choice's alone, so neither it nor the end of the body behind it completes the answer."""
    lane = openai(n=2)
    lane.feed(b"".join([R(), T("a"), FIN("stop"), U(7, 1)]))
    lane.end()

    assert (lane.complete, lane.failure) == (False, TRUNCATED)


def test_both_finishes_in_one_chunk() -> None:
    """Several choices in one chunk are several choices."""
    opening = [{"index": i, "delta": {"role": "assistant", "content": str(i)}, "finish_reason": None} for i in (0, 1)]
    closing: list[dict[str, Any]] = [{"index": i, "delta": {}, "finish_reason": "stop"} for i in (0, 1)]

    heard = hear_openai(chunk({}, choices=opening), chunk({}, choices=closing), U(7, 2), DONE, n=2)

    assert texts(heard.items) == {0: "0", 1: "1"}
    assert [choice["finish_reason"] for choice in finish_of(heard)["choices"]] == ["stop", "stop"]
