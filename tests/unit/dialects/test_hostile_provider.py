"""What a provider may say to harm us, our callers, or its own customers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.catalog import Provider
from gateway.core.errors import TRUNCATED, UpstreamFailed
from gateway.core.money import Weight
from gateway.dialects.base import Lane
from gateway.dialects.lane import MAX_EVENT_STRUCTURAL
from gateway.dialects.registry import DIALECTS
from gateway.dialects.scrub import hide, redact
from gateway.providers.sigv4 import Credential, Signer
from gateway.wire.body import MAX_DEPTH
from tests.support.notation import CBD, CBS, FIN, MS, R, T, chunk, data, event
from tests.unit.dialects.conversations import anthropic, anthropic_call, hear, journey, openai, openai_call

LEAK = "node gpu7.internal key sk-ant-1234567890abcdef"
SECRET = "hunter2-secret-of-ours"
BEARER = ("Authorization", f"Bearer {SECRET}")
PROVIDER = Provider("p", "openai_chat", "http://gpu-node-7:8000/v1", "self_hosted", "ID", Weight(1, 1), BEARER)


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    "bad",
    [
        event("error", {"type": "overloaded_error", "message": LEAK}),
        event("message_stop", {"type": "x_error", "error": {"message": LEAK}}),
        event("content_block_delta", {"type": "content_block_delta", "index": 0, "error": {"message": LEAK}}),
    ],
)
def test_an_error_under_any_name_is_an_error(bad: bytes) -> None:
    """By the event's name or by a member that says something: the answer has failed, and the words stay here."""
    heard = hear(anthropic(), [MS(7), CBS(0), CBD(0, "a"), bad])

    assert heard.end == "interrupted"
    assert LEAK.encode() not in heard.out
    assert heard.frames[-1].startswith(b"event: error")


@pytest.mark.parametrize(
    "bad",
    [
        chunk({}, "error"),
        chunk({}, "insufficient_system_resource"),
        data({"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": None, "error": {"message": LEAK}}]}),
        data({"choices": [{"index": 0, "delta": {"content": 7}, "finish_reason": "error", "error": LEAK}]}),
    ],
)
def test_a_choice_that_failed_is_a_failure(bad: bytes) -> None:
    """Providers that report errors per choice are not taken for having finished."""
    heard = hear(openai(), [R(), T("a"), bad, data("[DONE]")])

    assert heard.end == "interrupted"
    assert LEAK.encode() not in heard.out


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("openai_chat", {"choices": [None]}),
        ("openai_chat", {"choices": [{}]}),
        ("openai_chat", {"choices": [{"message": None, "finish_reason": "stop"}]}),
        ("openai_chat", {"choices": [{"message": {"content": "a"}, "finish_reason": None}]}),
        ("openai_chat", {"choices": [{"message": {"content": "a"}, "finish_reason": "error"}]}),
        ("openai_chat", {"choices": [{"message": {"content": "a"}, "finish_reason": "stop", "error": {"m": LEAK}}]}),
        ("anthropic_messages", {"content": [None], "stop_reason": "end_turn"}),
        ("anthropic_messages", {"content": [], "stop_reason": "end_turn", "error": {"message": LEAK}}),
        ("anthropic_messages", {"content": [{"type": "text", "text": "a"}]}),
    ],
)
def test_an_answer_that_is_none_is_a_failure(dialect: str, body: dict[str, object]) -> None:
    """A JSON answer counts as one when it has an answer in it, and says that it is finished."""
    call = openai_call() if dialect == "openai_chat" else anthropic_call()

    with pytest.raises(UpstreamFailed):
        DIALECTS[call.dialect].read_completion(json.dumps(body).encode(), journey(call))


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 900, 962, 965, 1_000, 100_000])
@pytest.mark.parametrize("where", ['{"x":%s,"choices":[]}', '{"choices":[{"index":0,"delta":{"content":"a","x":%s}}]}'])
def test_depth_is_refused_at_one_place(where: str, depth: int) -> None:
    """An event nested beyond the limit is malformed, whatever depth a decoder would give up at."""
    heard = hear(openai(), [R(), T("a"), data(where % nested(depth))])

    assert heard.end == "interrupted"


@pytest.mark.parametrize(
    "bad",
    [
        data({"choices": [{"index": 5_000, "delta": {"content": "a"}}]}),
        data({"choices": [{"index": -1, "delta": {"content": "a"}}]}),
        data({"choices": [{"index": index} for index in range(20_000)]}),
        data({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 10**6, "function": {"name": "f"}}]}}]}),
    ],
)
def test_indices_are_bounded(bad: bytes) -> None:
    """Each index costs frames and memory, so those nobody can have asked for end the stream, and quickly."""
    started_s = time.perf_counter()
    heard = hear(openai(), [R(), T("a"), bad])

    assert heard.end == "interrupted"
    assert time.perf_counter() - started_s < 1


SLOW_NUMBERS = "[" + ",".join(["1e300"] * (MAX_EVENT_STRUCTURAL - 100)) + "]"
SLOW_CHUNKS = {
    "odd delta": '{"choices":[{"index":0,"delta":{"content":7,"x":%s}}]}',
    "finish": '{"choices":[{"index":0,"delta":{},"finish_reason":"stop","x":%s}]}',
    "usage": '{"choices":[],"usage":{"completion_tokens":1,"x":%s}}',
    "to be mended": '{"choices":[{"index":0,"delta":{"content":"\x01","x":%s}}]}',
}
SLOW_EVENTS = {
    "message_start": '{"type":"message_start","message":{"x":%s}}',
    "message_delta": '{"type":"message_delta","usage":{"output_tokens":1,"x":%s}}',
    "content_block_delta": '{"type":"content_block_delta","delta":{"text":7,"x":%s}}',
}


@pytest.mark.parametrize(
    ("lane", "payload"),
    [(openai, payload) for payload in SLOW_CHUNKS.values()]
    + [(anthropic, payload) for payload in SLOW_EVENTS.values()],
    ids=[*SLOW_CHUNKS, *SLOW_EVENTS],
)
def test_numbers_hold_nobody_up(lane: Callable[[], Lane], payload: str) -> None:
    """An event full of numbers that take long to convert is read in no time, and is no failure."""
    started_s = time.perf_counter()
    heard = hear(lane(), [data(payload % SLOW_NUMBERS)])

    assert time.perf_counter() - started_s < 0.4  # 0.01-0.05 s alone on a machine; 0.5-2 s if they were converted
    assert heard.lane.failure in (None, TRUNCATED)


@pytest.mark.parametrize("room", [0, 1])
def test_elements_of_an_event_are_bounded(room: int) -> None:
    """As many elements as an event can need are read; one more, in a megabyte of little things, is malformed."""
    shell = '{"choices":[{"index":0,"delta":{"content":"x"},"x":[%s]}]}'
    ones = MAX_EVENT_STRUCTURAL - sum(map(shell.count, "{}[],:")) + room
    filled = shell % ("1," * ones + "1" + " " * MAX_EVENT_STRUCTURAL)

    heard = hear(openai(), [R(), T("a"), data(filled), FIN("stop"), data("[DONE]")])

    assert heard.end == ("interrupted" if room else "finished")


@pytest.mark.parametrize(
    ("lane", "opening", "idle"),
    [
        (openai(), [R(), T("a")], data({"choices": [{"index": 0, "delta": {"tool_calls": [{}]}}]})),
        (anthropic(), [MS(7), CBS(0), CBD(0, "a")], event("novelty", {"type": "novelty"})),
    ],
)
def test_what_moves_nothing_is_no_progress(lane: Lane, opening: list[bytes], idle: bytes) -> None:
    """Empty deltas and events that we do not know pass, and do not reset the idle timer."""
    for piece in opening:
        lane.feed(piece)
    before = lane.progress
    out = lane.feed(idle)

    assert lane.progress == before
    assert out != b""


def test_our_own_credential_and_address_are_hidden() -> None:
    """Whatever they look like, they are not told to a caller whose request was refused."""
    said = f"invalid key {SECRET} at gpu-node-7:8000, gpu-node-7".encode()

    assert hide(said, PROVIDER) == b"invalid key [removed] at [removed], [removed]"


def test_signing_keys_are_hidden() -> None:
    """Where requests are signed, the key's id, its secret and its token are what a provider's words may not show."""
    signer = Signer(Credential("AKIDEXAMPLE", "s/cret", "t0ken=="), "us-east-1", "bedrock")
    provider = replace(PROVIDER, secret=None, signer=signer)

    assert hide(b"AKIDEXAMPLE signed t0ken== with s/cret", provider) == b"[removed] signed [removed] with [removed]"
    assert provider.secrets == signer.secrets


def test_a_secret_that_was_cut_is_hidden() -> None:
    """Words that were cut to size may end in the beginning of a secret, which is as good as its name."""
    provider = replace(PROVIDER, secret=("x-api-key", "wJalrXUtnFEMI/K7MDENG/bPxRfiCY"))

    assert hide(b"no such key: wJalrXUtnFEMI/K7MD", provider) == b"no such key: [removed]MD"


def test_an_escape_does_not_bring_the_credential_to_a_caller() -> None:
    """What a provider spells with escapes is text again by the time a caller reads it, so it is hidden too."""
    escaped = "".join(f"\\u{ord(char):04x}" for char in f"{SECRET} at gpu-node-7:8000")
    body = b'{"error":{"message":"bad key ' + escaped.encode() + b'","param":"' + escaped.encode() + b'"}}'

    failure = DIALECTS["openai_chat"].read_failure(400, {}, hide(body, PROVIDER), 0.0)

    assert failure.public_message == "bad key [removed] at [removed]"
    assert failure.param == "[removed] at [removed]"


@pytest.mark.parametrize(
    "text",
    [
        f"key {SECRET}!",
        "key " + "".join(f"\\u{ord(char):04x}" for char in SECRET),
        f"key {SECRET[:17]}",  # cut by somebody
    ],
)
def test_no_credential_in_the_log(text: str) -> None:
    """Spelled out, escaped, or cut short: what a provider echoes is not logged."""
    assert redact(text, [SECRET]) in ("key ***!", "key ***", "key ***" + SECRET[16:17])


@pytest.mark.parametrize(
    "key",
    ["sk-proj-abcdefghijklmnop", "anm-sk-0123456789abcdef", "gsk_abcdefghijklmnop", "ASIAIOSFODNN7EXAMPLE"],
)
def test_other_keys_are_not_logged_either(key: str) -> None:
    """What looks like a key is taken for one, also when it is nobody's we know."""
    assert key not in redact(f"got {key}.", [])


@pytest.mark.parametrize(
    "finish",
    [
        {"index": 0.0, "delta": {}, "finish_reason": "tool_calls"},
        {"index": [], "delta": None, "finish_reason": "tool_calls"},
        {"index": 0, "delta": {"tool_calls": [{"index": 0.0, "id": "c", "function": None}]}, "finish_reason": "stop"},
        {"index": 0, "delta": {"tool_calls": [{"index": [], "function": {"name": "f"}}, 5]}, "finish_reason": "stop"},
        {"index": 0, "delta": {"tool_calls": {}}, "finish_reason": "stop"},
    ],
)
@pytest.mark.parametrize("other", [{"index": 1, "delta": {"content": "x"}}, {"index": 1}, {"index": 1.0}, 5])
@pytest.mark.parametrize("n", [1, 2])
def test_odd_tool_calls(finish: dict[str, Any], other: object, n: int) -> None:
    """A call without arguments is mended in whatever company and spelling it comes."""
    opening = {"index": 0, "delta": {"role": "assistant", "tool_calls": [{"index": 0, "id": "c", "function": None}]}}

    for first in (opening, {"index": 0, "delta": {"role": "assistant"}}):
        heard = hear(openai(n=n), [data({"choices": [first]}), data({"choices": [finish, other]}), data("[DONE]")])

        if heard.end == "finished":
            choices = [choice for item in heard.items if isinstance(item, dict) for choice in item["choices"]]
            assert any(choice["finish_reason"] for choice in choices)
            assert all(isinstance(choice["index"], int) and isinstance(choice["delta"], dict) for choice in choices)
        assert heard.lane.failure is None or heard.end in ("interrupted", "refused")
