"""Conversations on the Anthropic lane: what a provider says, and what a client makes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.call import CallOptions
from gateway.core.usage import Usage
from gateway.dialects.anthropic_messages import ANTHROPIC_MESSAGES
from gateway.dialects.registry import DIALECTS
from tests.support.notation import AERR, CBD, CBJ, CBS, CBX, MD, MS, MX, PING, crlf, data, event
from tests.unit.dialects.conversations import (
    OURS,
    RESET,
    SLUG,
    anthropic,
    anthropic_call,
    hear,
    hear_anthropic,
    journey,
)

OPEN = MS(25) + CBS(0)
CLOSE = CBX(0) + MD("end_turn", 2) + MX


def kinds(frames: list[bytes]) -> list[str]:
    """The event names."""
    return [frame.split(b"\n")[0].removeprefix(b"event: ").decode() for frame in frames]


def test_the_plain_conversation() -> None:
    """The provider's events in their order, our model name, `_anoman` in three places, usage in two."""
    heard = hear_anthropic(OPEN, PING, CBD(0, "a"), CBD(0, "b"), CLOSE)

    assert kinds(heard.frames) == [
        "message_start", "content_block_start", "ping", "content_block_delta", "content_block_delta",
        "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip
    assert heard.items[0]["message"]["usage"] == {"input_tokens": 25, "output_tokens": 1}
    assert heard.items[-2]["usage"] == {"output_tokens": 2, "input_tokens": 25}
    assert heard.items[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert heard.lane.measure() == (Usage(25, 2), "provider_final")


def test_content_passes_as_the_very_bytes() -> None:
    """What needs no rewriting is not rewritten, spelling included."""
    lane = anthropic()
    lane.feed(OPEN + CBD(0, "a"))
    odd = b'event: content_block_delta\ndata: {"type" : "content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\u0061"}}\n\n'  # fmt: skip # noqa: E501

    assert lane.feed(odd) == odd


def test_nothing_leaves_before_the_first_content() -> None:
    """Until a delta is here a failure can still be a plain HTTP error."""
    lane = anthropic()

    held, released = lane.feed(OPEN + PING), lane.feed(CBD(0, "a"))

    assert held == b""
    assert released.count(b"event: ") == 4
    assert hear_anthropic(OPEN, AERR("overloaded_error")).end == "refused"


def test_stripping_leaves_the_extension_out() -> None:
    """With the strip header no event has a key that Anthropic's would not have; usage stays."""
    lane = DIALECTS["anthropic_messages"].open_lane(
        journey(anthropic_call(), options=CallOptions(strip_extension=True))
    )

    heard = hear(lane, [OPEN + CBD(0, "a") + CLOSE])

    assert b"_anoman" not in heard.out
    assert heard.items[-2]["usage"]["output_tokens"] == 2


def test_mid_07_error_event() -> None:
    """An error event ends the answer in this dialect's own way; what the prompt cost is known."""
    heard = hear_anthropic(OPEN, CBD(0, "a"), AERR("overloaded_error", "secret words"), CBD(0, "b"), CLOSE)

    assert kinds(heard.frames) == ["message_start", "content_block_start", "content_block_delta", "error"]
    assert heard.items[-1] == {
        "type": "error",
        "error": {
            "type": "api_error",
            "message": "upstream stream interrupted",
            "code": "stream_interrupted",
            "details": {"error_code": "stream_interrupted"},
            "_anoman": {"failure_class": "upstream_error", "completion_tokens": 1},
        },
        "request_id": "req_1",
    }
    assert heard.lane.measure() == (Usage(25, 1), "estimated")


def test_error_without_an_event_line() -> None:
    """The payload's type decides, also where the provider does not name its events."""
    unnamed = b"".join(b"data: " + part.split(b"\ndata: ")[1] for part in (MS(25), CBS(0), CBD(0, "a"), MD(), MX))

    assert hear_anthropic(unnamed).end == "finished"
    assert hear_anthropic(OPEN, CBD(0, "a"), data({"type": "error", "error": {}})).end == "interrupted"


def test_the_name_decides_where_the_payload_has_no_type() -> None:
    """An event that only has its name is what its name says."""
    heard = hear(anthropic(), [OPEN, CBD(0, "a"), event("error", {"error": {"message": "m"}})])

    assert heard.end == "interrupted"


@pytest.mark.parametrize("cut", [OPEN + CBD(0, "a"), OPEN + CBD(0, "a") + CBX(0), OPEN + CBD(0, "a") + CBX(0) + MD()])
def test_an_end_without_message_stop(cut: bytes) -> None:
    """Complete means that `message_stop` was seen; a clean end before it is none."""
    heard = hear_anthropic(cut)

    assert heard.end == "interrupted"
    assert heard.items[-1]["error"]["_anoman"]["failure_class"] == "upstream_truncated"


def test_what_follows_message_stop() -> None:
    """An error after the terminal marker is nobody's business; nothing is passed on after it."""
    heard = hear_anthropic(OPEN, CBD(0, "a"), CLOSE, AERR("overloaded_error"), CBD(0, "b"))

    assert kinds(heard.frames)[-2:] == ["message_delta", "message_stop"]


def test_a_reset_drops_the_half_frame() -> None:
    """The half event is dropped; the error event is the last word."""
    heard = hear(anthropic(), [OPEN + CBD(0, "a") + CBD(0, "b")[:30]], RESET)

    assert kinds(heard.frames)[-2:] == ["content_block_delta", "error"]


def test_message_stop_without_message_delta() -> None:
    """A provider that leaves `message_delta` out still gets a proper end."""
    heard = hear_anthropic(OPEN, CBD(0, "a"), CBX(0), MX)

    assert heard.end == "finished"
    assert heard.lane.measure() == (Usage(25, 1), "estimated")


def test_an_event_with_message_stop_and_no_blank_line() -> None:
    """An unfinished last event at the end of the body counts."""
    heard = hear_anthropic(OPEN, CBD(0, "a"), CLOSE.rstrip(b"\n"))

    assert heard.end == "finished"


# -- usage --

USAGES: dict[str, tuple[bytes, bytes, Usage, str]] = {
    "use_05": (
        MS(9, 1, cache_read_input_tokens=1),
        MD("end_turn", {"output_tokens": 16, "cache_read_input_tokens": 1, "input_tokens": 9}),
        Usage(10, 16, cached_tokens=1),
        "provider_final",
    ),
    "both cache classes": (
        MS(9, 1, cache_read_input_tokens=100, cache_creation_input_tokens=20),
        MD("end_turn", 3),
        Usage(129, 3, cached_tokens=100, cache_write_tokens=20),
        "provider_final",
    ),
    "an hour's": (
        MS(9, 1, cache_creation_input_tokens=20, cache_creation={"ephemeral_1h_input_tokens": 15}),
        MD("end_turn", {"output_tokens": 3, "cache_creation_input_tokens": 20}),
        Usage(29, 3, cache_write_tokens=20, cache_write_1h_tokens=15),
        "provider_final",
    ),
    "an hour's, more than all": (
        MS(9, 1, cache_creation_input_tokens=20, cache_creation={"ephemeral_1h_input_tokens": 99}),
        MD("end_turn", 3),
        Usage(29, 3, cache_write_tokens=20, cache_write_1h_tokens=20),
        "provider_final",
    ),
    "nulls change nothing": (
        MS(9, 1, cache_read_input_tokens=5),
        MD("end_turn", {"output_tokens": 3, "cache_read_input_tokens": None, "input_tokens": None}),
        Usage(14, 3, cached_tokens=5),
        "provider_final",
    ),
    "the prompt counted late": (
        event("message_start", {"type": "message_start", "message": {"id": "x"}}),
        MD("end_turn", {"output_tokens": 3, "input_tokens": 7}),
        Usage(7, 3),
        "provider_final",
    ),
    "the answer never counted": (MS(9), MD("end_turn", {}), Usage(9, 1), "estimated"),
    "a delta without usage": (
        MS(9, 500),
        event("message_delta", {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        Usage(9, 1),
        "estimated",
    ),
    "a placeholder at the end": (MS(9), MD("end_turn", 0), Usage(9, 1), "estimated"),
    "only cached tokens": (
        event("message_start", {"type": "message_start", "message": {"usage": {"cache_read_input_tokens": 1000}}}),
        MD("end_turn", 3),
        Usage(1000, 3, cached_tokens=1000),
        "estimated",
    ),
    "nothing at all": (
        event("message_start", {"type": "message_start", "message": {}}),
        MD("end_turn", {}),
        Usage(OURS, 1),
        "estimated",
    ),
}


@pytest.mark.parametrize(("start", "delta", "usage", "basis"), USAGES.values(), ids=USAGES)
def test_usage_is_merged_field_by_field(start: bytes, delta: bytes, usage: Usage, basis: str) -> None:
    """The last explicit value of each field counts; sums are never made; placeholders are no counts."""
    heard = hear_anthropic(start, CBS(0), CBD(0, "a"), CBX(0), delta, MX)

    assert (usage, basis) == heard.lane.measure()
    said = heard.items[-2]["usage"]
    cached, written = said.get("cache_read_input_tokens", 0), said.get("cache_creation_input_tokens", 0)
    assert said["input_tokens"] + cached + written == usage.prompt_tokens
    assert heard.items[0]["message"]["usage"]["input_tokens"] >= 0


def test_unknown_usage_members_stay() -> None:
    """Members of the provider's usage that we do not know reach the client."""
    usage = {"output_tokens": 3, "server_tool_use": {"web_search_requests": 2}}

    heard = hear_anthropic(MS(9), CBS(0), CBD(0, "a"), CBX(0), MD("end_turn", usage), MX)

    assert heard.items[-2]["usage"]["server_tool_use"] == {"web_search_requests": 2}


@pytest.mark.parametrize(
    "usage", [{"input_tokens": -5, "output_tokens": "12"}, {"input_tokens": 10**12}, [1], "x", {"x": 10**40}]
)
def test_use_15_absurd_usage(usage: Any) -> None:
    """Absurd counts are ignored and remarked upon, and no client sees them."""
    start = event("message_start", {"type": "message_start", "message": {"id": "x", "usage": usage}})

    heard = hear_anthropic(start, CBS(0), CBD(0, "a"), CBX(0), MD("end_turn", usage), MX)

    if heard.end == "finished":
        assert heard.lane.measure() == (Usage(OURS, 1), "estimated")
        assert heard.items[0]["message"]["usage"]["input_tokens"] == OURS


def test_cancelled_before_the_first_token() -> None:
    """`message_start`'s one output token is a placeholder: nothing was said, nothing is counted."""
    lane = anthropic()
    lane.feed(OPEN)

    assert lane.measure() == (Usage(25, 0), "received")


def test_two_message_deltas() -> None:
    """A `message_delta` that was not the last passes as it was; only the last has the extension."""
    heard = hear_anthropic(OPEN, CBD(0, "a"), CBX(0), MD(None, 1), MD("end_turn", 2), MX)

    assert kinds(heard.frames)[-3:] == ["message_delta", "message_delta", "message_stop"]
    assert heard.lane.measure() == (Usage(25, 2), "provider_final")


def test_content_after_a_message_delta() -> None:
    """Order is kept when a provider goes on after `message_delta`."""
    heard = hear_anthropic(OPEN, CBD(0, "a"), MD(None, 1), CBD(0, "b"), CLOSE)

    assert kinds(heard.frames)[2:5] == ["content_block_delta", "message_delta", "content_block_delta"]


# -- content --


def test_every_kind_of_delta_is_content() -> None:
    """Thinking, tool input, signatures and kinds nobody knows yet pass; text of each is counted."""
    deltas = [
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": "EqQB"},
        {"type": "citations_delta", "citation": {"cited_text": "x"}},
        {"type": "brand_new_delta", "x": [1, None]},
    ]
    bodies = [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas]

    heard = hear_anthropic(OPEN, *(event("content_block_delta", body) for body in bodies), CBJ(0, '{"a":1}'), CLOSE)

    assert heard.items[2:6] == bodies
    assert heard.lane.measure()[0].completion_tokens == 2


def test_a_tool_call_without_arguments() -> None:
    """The block opens with `input: {}` and stays that way."""
    heard = hear_anthropic(MS(25), CBS(0, "tool_use"), CBJ(0, ""), CBX(0), MD("tool_use", 4), MX)

    assert heard.items[1]["content_block"]["input"] == {}
    assert heard.items[-2]["delta"]["stop_reason"] == "tool_use"


def test_unknown_events_pass() -> None:
    """An event type nobody knows yet reaches the client under its name."""
    heard = hear_anthropic(OPEN, CBD(0, "a"), event("brand_new", {"type": "brand_new", "x": 1}), CLOSE)

    assert kinds(heard.frames)[3] == "brand_new"


@pytest.mark.parametrize("kind", ["a b", "x\\ndata: {}", "", "a:b", "7"])
def test_event_types_that_are_no_words(kind: str) -> None:
    """A type becomes a line of ours, so what is no word ends the stream."""
    body = b'data: {"type":"%b","x":1}\n\n' % kind.encode()

    heard = hear_anthropic(OPEN, CBD(0, "a"), body, CLOSE)

    assert heard.end == "interrupted"


ODD = [
    {"type": "content_block_delta", "index": "x", "delta": "text"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 7}},
    {"type": "content_block_delta"},
    {"type": "message_delta", "delta": None, "usage": None},
    {"type": "ping", "delta": 7},
]


@pytest.mark.parametrize("odd", ODD, ids=[json.dumps(item)[:60] for item in ODD])
def test_odd_types(odd: dict[str, Any]) -> None:
    """Members of unexpected types never break a stream."""
    heard = hear_anthropic(OPEN, CBD(0, "a"), event(odd["type"], odd), CLOSE)

    assert heard.end == "finished"


@pytest.mark.parametrize("start", [{"type": "message_start"}, {"type": "message_start", "message": 7}])
def test_a_start_without_a_message(start: dict[str, Any]) -> None:
    """A start that is none is refused while an HTTP error is still possible."""
    heard = hear_anthropic(event("message_start", start), CBS(0), CBD(0, "a"))

    assert heard.end == "refused"


@pytest.mark.parametrize("number", ["1e999", "1" * 400])
def test_numbers_nobody_can_hold(number: str) -> None:
    """A number beyond 64 bits passes untouched or ends the stream; it never ends the gateway."""
    start = f'event: message_start\ndata: {{"type":"message_start","message":{{"x":{number}}}}}\n\n'.encode()
    delta = f'event: message_delta\ndata: {{"type":"message_delta","usage":{{"x":{number},"output_tokens":2}}}}\n\n'.encode()  # noqa: E501

    assert hear_anthropic(start, CBS(0), CBD(0, "a")).end in ("refused", "interrupted")
    assert hear_anthropic(OPEN, CBD(0, "a"), delta, MX).end in ("finished", "interrupted")


def test_lone_surrogates_and_odd_spelling() -> None:
    """Half a surrogate pair becomes a replacement character; several data lines become one."""
    half = CBD(0, "X").replace(b"X", rb"\ud83d")
    spread = b'event: content_block_delta\ndata: {"type":"content_block_delta",\ndata: "index":0,"delta":{"text":"y"}}\n\n'  # noqa: E501

    heard = hear_anthropic(OPEN, half, spread, CLOSE)

    assert [item["delta"]["text"] for item in heard.items[2:4]] == ["\ufffd", "y"]


def test_words_of_every_script_are_ascii_on_the_wire() -> None:
    """Characters outside ASCII leave as escapes everywhere, rewritten events included."""
    start = event("message_start", {"type": "message_start", "message": {"id": "é", "usage": {"input_tokens": 3}}})

    heard = hear_anthropic(start, CBS(0), CBD(0, "北🦀\u2028"), CBX(0), MD("é", {"output_tokens": 3, "é": "ü"}), MX)

    assert heard.items[2]["delta"]["text"] == "北🦀\u2028"
    assert heard.items[-2]["usage"]["é"] == "ü"


def test_crlf_changes_nothing() -> None:
    """Line ends of another kind give the same bytes."""
    stream = OPEN + PING + CBD(0, "a") + CLOSE

    outs = [hear_anthropic(spelled).out for spelled in (stream, crlf(stream), stream.replace(b"\n", b"\r"))]

    assert outs[1:] == outs[:1] * 2


def test_a_gateway_behind_us() -> None:
    """What another gateway of this kind has to say of itself is not passed on."""
    marked = {"_anoman": {"cost_usd": "1"}}
    start = event("message_start", {"type": "message_start", "message": {**marked, "usage": {"input_tokens": 3}}})
    delta = event("message_delta", {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 2}, **marked})
    stop = event("message_stop", {"type": "message_stop", **marked})
    options = CallOptions(strip_extension=True)
    lane = DIALECTS["anthropic_messages"].open_lane(journey(anthropic_call(), options=options))

    heard = hear(lane, [start + CBS(0) + CBD(0, "a") + CBX(0) + delta + stop])

    assert b"_anoman" not in heard.out
    assert heard.items[0]["message"]["model"] == SLUG


def test_heartbeats() -> None:
    """A heartbeat is what Anthropic's own is; on the OpenAI lane it is a comment."""
    assert ANTHROPIC_MESSAGES.heartbeat == b'event: ping\ndata: {"type":"ping"}\n\n'
