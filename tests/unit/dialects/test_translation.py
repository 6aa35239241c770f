"""The lane whose two ends speak different dialects, as the pipeline uses it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gateway.core.errors import TRUNCATED
from gateway.core.usage import Usage
from gateway.dialects.translation import TranslationLane
from tests.support.notation import (
    AERR,
    CBD,
    CBJ,
    CBS,
    CBX,
    DONE,
    FIN,
    MD,
    MS,
    MX,
    PING,
    R,
    T,
    U,
    chunk,
    data,
    event,
)
from tests.unit.dialects.conversations import (
    OURS,
    RESET,
    hear,
    settled,
)
from tests.unit.dialects.translated import (
    ANSWERS,
    ANTHROPIC,
    LANE,
    LAST,
    OPENAI,
    WAYS,
    both_ways,
    to_chat,
    to_messages,
    told,
    translate,
)

# -- what is said --


@both_ways
def test_the_whole_answer(way: str) -> None:
    """Thinking, text, calls with their arguments, the reason and every count arrive."""
    heard = translate(way, *ANSWERS[way])
    client = told(heard)

    assert (heard.end, heard.lane.note) == ("finished", None)
    assert (client.thought, client.text) == ("hm", "Once 北🦀")
    assert [call[1:] for call in client.calls.values()] == [["f", '{"a":1}'], ["now", "{}"]]
    assert client.reason == {"to_chat": "tool_calls", "to_messages": "tool_use"}[way]
    written = 2 if way == "to_chat" else 0
    assert heard.lane.measure() == (Usage(26, 30, 4, written, 8), "provider_final")


def test_the_counts_that_clients_are_told() -> None:
    """Cached, written and thinking tokens are in the client's own members, each token once."""
    chat, messages = translate("to_chat", *ANTHROPIC), translate("to_messages", *OPENAI)

    assert chat.items[-3]["usage"] == {
        "prompt_tokens": 26,
        "completion_tokens": 30,
        "total_tokens": 56,
        "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 8},
    }
    assert messages.items[-2]["usage"] == {
        "input_tokens": 22,
        "cache_read_input_tokens": 4,
        "output_tokens": 30,
        "output_tokens_details": {"thinking_tokens": 8},
    }


def test_counts_that_come_bit_by_bit() -> None:
    """The last explicit value of each count stands; none is added to another."""
    later = MD(None, {"output_tokens": 3, "cache_read_input_tokens": 5})
    heard = translate("to_chat", MS(10, 1), CBS(0), CBD(0, "a"), CBX(0), later, MD("end_turn", 9), MX)

    assert heard.lane.measure() == (Usage(15, 9, 5), "provider_final")


def test_counts_on_every_chunk() -> None:
    """Vendors that count along are read by their last count."""
    heard = translate("to_messages", R(), T("a", (7, 1)), T("b", (7, 2)), FIN("stop", (7, 3)), DONE)

    assert heard.lane.measure() == (Usage(7, 3), "provider_final")
    assert heard.items[-2]["usage"] == {"input_tokens": 7, "output_tokens": 3}


def test_an_hours_tokens_are_counted_apart() -> None:
    """The books have how much of what was written to the cache is kept for an hour, whoever asked."""
    lane = to_chat()
    lane.feed(MS(9, 1, cache_creation_input_tokens=4, cache_creation={"ephemeral_1h_input_tokens": 3}))
    lane.feed(CBS(0) + CBD(0, "a") + CBX(0) + MD("end_turn", 3) + MX)

    assert lane.measure() == (Usage(13, 3, cache_write_tokens=4, cache_write_1h_tokens=3), "provider_final")


@both_ways
def test_an_answer_without_counts_is_estimated(way: str) -> None:
    """A provider that counts nothing leaves us with our own estimate of prompt and answer."""
    bare = {"id": "m", "role": "assistant", "content": []}
    start = event("message_start", {"type": "message_start", "message": bare})
    answers = {
        "to_chat": [start, CBS(0), CBD(0, "a"), CBX(0), MD("end_turn", {}), MX],
        "to_messages": [R(), T("a"), FIN(), DONE],
    }
    usage, basis = translate(way, *answers[way]).lane.measure()

    assert (usage.completion_tokens, basis) == (1, "estimated")
    assert usage.prompt_tokens >= OURS


@pytest.mark.parametrize(
    ("way", "reads"),
    [
        ("to_chat", [MS(7) + MD("end_turn", 0) + MX]),
        ("to_chat", [MS(7), CBS(0), CBX(0), MD("end_turn", 0), MX]),
        ("to_messages", [R() + FIN() + U(7, 0) + DONE]),
        ("to_messages", [FIN(), U(7, 0), DONE]),
    ],
)
def test_an_empty_answer(way: str, reads: list[bytes]) -> None:
    """An answer of nothing is whole all the same: a start, an end, the provider's counts."""
    heard = translate(way, *reads)

    assert (heard.end, told(heard).text, told(heard).calls) == ("finished", "", {})
    assert told(heard).reason == {"to_chat": "stop", "to_messages": "end_turn"}[way]
    assert heard.lane.measure() == (Usage(7), "provider_final")
    kinds = {"to_chat": "role", "to_messages": "message_start"}
    assert heard.out.count(b'"%s"' % kinds[way].encode()) >= 1


# -- what the pipeline asks a lane --


@both_ways
def test_the_states_of_a_lane(way: str) -> None:
    """Held back until content, flowing after it, complete at the mark, ended when nothing can follow."""
    lane = LANE[way]()
    first, *rest = [event for event in ANSWERS[way] if event != PING]
    start = rest.pop(0) if way == "to_chat" else b""

    assert isinstance(lane, TranslationLane)
    assert (lane.feed(first + start), lane.started, lane.talking) == (b"", False, False)
    assert lane.feed(rest.pop(0)).count(b"hm") == 1
    assert (lane.started, lane.talking, lane.complete, lane.ended, lane.failure) == (True, True, False, False, None)
    for said in rest:
        lane.feed(said)
        if said == LAST[way]:
            assert lane.complete
    assert (lane.complete, lane.ended, lane.failure, lane.note) == (True, True, None, None)


@both_ways
def test_the_end_is_told_once(way: str) -> None:
    """Measuring does not say the last words; finishing does, however often was measured before."""
    lane = LANE[way]()
    for said in ANSWERS[way]:
        lane.feed(said)
    lane.measure()
    lane.measure()
    out = lane.finish(settled(lane))

    ends = {"to_chat": [b'"finish_reason":"tool_calls"', b"[DONE]"], "to_messages": [b'"message_delta"', b'"tool_use"']}
    assert [out.count(end) for end in ends[way]] == [1, 1]


@both_ways
def test_progress_moves_with_every_word(way: str) -> None:
    """Each event that moves the answer on is progress; a ping or a comment is none."""
    lane = LANE[way]()
    counts = [lane.progress]
    for said in ANSWERS[way][: ANSWERS[way].index(LAST[way])]:
        lane.feed(b": keep-alive\n\n")
        lane.feed(said)
        counts.append(lane.progress)

    moved = [later > earlier for earlier, later in pairwise(counts)]
    assert moved == [said != PING for said in ANSWERS[way][: len(moved)]]


def test_what_the_client_cannot_hear_is_progress() -> None:
    """A provider that works at what its client's dialect has no form for is not idle."""
    foreign = [CBS(0, "server_tool_use", id="s", name="web_search", input={}), CBJ(0, '{"q":'), CBJ(0, '"x"}'), CBX(0)]
    lane = to_chat()
    lane.feed(MS(7))
    counts = [lane.progress]
    for said in foreign:
        lane.feed(said)
        counts.append(lane.progress)

    assert counts == sorted({*counts})


def test_unknown_content_is_progress() -> None:
    """So is a delta with nothing but members that we have no event for."""
    lane = to_messages()
    lane.feed(R() + T("a"))
    before = lane.progress
    lane.feed(chunk({"audio": {"data": "x"}}))

    assert lane.progress > before


def test_a_finish_that_was_none() -> None:
    """Content behind a finish reason takes it back: a cut after it is a cut answer."""
    lane = to_messages()
    lane.feed(R() + T("a") + FIN())
    assert lane.complete
    lane.feed(T("b"))

    assert (lane.complete, lane.ended) == (False, False)
    lane.end()
    assert lane.failure == TRUNCATED


def test_usage_that_is_not_waited_for() -> None:
    """A complete answer whose usage is overdue can be finished as it is."""
    lane = to_messages()
    out = lane.feed(R() + T("a") + FIN())
    out += lane.finish(settled(lane))

    assert (lane.complete, lane.ended) == (True, False)
    assert out.endswith(b"\n\n")
    assert out.count(b"event: message_stop") == 1


def test_an_answer_of_nothing_starts_with_its_end() -> None:
    """It holds nothing back for words that will not come: the pipeline can commit."""
    lane = to_messages()

    assert (lane.feed(R()), lane.started) == (b"", False)
    assert (lane.feed(FIN()), lane.started, lane.complete) == (b"", True, True)


# -- how it can end --

GARBAGE = [
    data("nonsense"),
    data('{"choices":'),
    AERR("overloaded_error"),
    data({"error": {"message": "m"}}),
    T("late"),
]


NOTHING = [b"", b": late\n\n", b"\xff\xfe"]


@pytest.mark.parametrize("after", [*NOTHING, b'data: {"id":"c1","cho', *GARBAGE[:4]])
def test_what_follows_a_complete_answer(after: bytes) -> None:
    """Errors, garbage or a cut behind the finish reason do not spoil the answer; what was odd is noted."""
    heard = translate("to_messages", R() + T("a") + FIN() + after)

    assert (heard.end, told(heard).text, told(heard).reason) == ("finished", "a", "end_turn")
    assert str(heard.lane.note).startswith("None" if after in NOTHING else "after_finish:")


@pytest.mark.parametrize("after", GARBAGE)
def test_what_follows_message_stop(after: bytes) -> None:
    """Nothing is read behind `message_stop`."""
    heard = translate("to_chat", b"".join(ANTHROPIC) + after)

    assert (heard.end, heard.out) == ("finished", translate("to_chat", b"".join(ANTHROPIC)).out)


@both_ways
def test_an_event_that_is_too_long(way: str) -> None:
    """It breaks an answer, and is a mere remark on a complete one."""
    whole = b"".join(ANSWERS[way][: ANSWERS[way].index(LAST[way])])
    broken = hear(LANE[way](max_event_bytes=500), [whole, b"data: " + b"x" * 600])
    complete = hear(LANE[way](max_event_bytes=500), [whole + LAST[way], b"data: " + b"x" * 600])

    assert (broken.end, complete.end) == ("interrupted", "finished")
    assert broken.lane.failure is not None
    assert broken.lane.failure.reason == "malformed"
    assert complete.lane.note == (None if way == "to_chat" else "after_finish:malformed")  # there it is not even read


def test_nothing_is_read_behind_what_spoiled_the_rest() -> None:
    """A complete answer is not waited on for its usage once its stream cannot be read any more."""
    lane = to_messages(max_event_bytes=500)
    lane.feed(R() + T("a") + FIN())
    lane.feed(b"data: " + b"x" * 600)

    assert (lane.complete, lane.ended, lane.failure) == (True, True, None)


@both_ways
@pytest.mark.parametrize("word", ["\u5317" * 40_000, "\x01" * 30_000, "\U0001f980" * 20_000])
def test_an_event_that_grows_in_translation(way: str, word: str) -> None:
    """An event within the bound is taken, although our spelling of it is longer."""
    answers = {
        "to_chat": [MS(7), CBS(0), CBD(0, word), CBX(0), MD("end_turn", 5), MX],
        "to_messages": [R(), T(word), FIN(), U(7, 5), DONE],
    }
    heard = translate(way, *answers[way], max_event_bytes=200_000)

    assert (heard.end, told(heard).text) == ("finished", word)


@both_ways
def test_an_error_before_the_first_word_can_be_a_plain_one(way: str) -> None:
    """Nothing has left by then, so another route can be tried."""
    start = {"to_chat": MS(7) + AERR("overloaded_error"), "to_messages": R() + data({"error": {"message": "m"}})}
    heard = translate(way, start[way])

    assert (heard.end, heard.out) == ("refused", b"")


@both_ways
def test_an_error_behind_words_of_the_same_read(way: str) -> None:
    """The words leave, then the error frame."""
    said = {
        "to_chat": MS(7) + CBS(0) + CBD(0, "a") + AERR("overloaded_error"),
        "to_messages": R() + T("a") + data({"error": {"message": "m"}}),
    }
    heard = translate(way, said[way])

    assert (heard.end, told(heard).text, told(heard).reason) == ("interrupted", "a", None)


@both_ways
def test_death_at_every_byte(way: str) -> None:
    """Whole frames and one error frame, never a finish, until the answer is complete; from then on the whole end."""
    stream, end = b"".join(ANSWERS[way]), len(b"".join(ANSWERS[way][: ANSWERS[way].index(LAST[way]) + 1]))
    text = told(translate(way, stream)).text
    marks = {"to_chat": b'data: {"error"', "to_messages": b"event: error"}
    for cut in range(len(stream) + 1):
        for failure in (None, RESET):
            heard = hear(LANE[way](), [stream[:cut]], failure)
            WAYS[way][1](heard)
            client = told(heard)
            assert (heard.end == "finished") == (cut >= end - (2 if failure is None else 0)), cut
            assert heard.out.count(marks[way]) == (heard.end == "interrupted")
            assert (client.reason is None) == (heard.end != "finished")
            assert text.startswith(client.text)
            assert heard.end == "finished" or failure is not None or heard.lane.failure == TRUNCATED
