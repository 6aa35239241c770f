"""A client's body read: documented bounds, null as absent, unknown fields untouched, refusals that name the field."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.call import Call, CallOptions
from gateway.core.catalog import DialectName, Provider
from gateway.core.errors import GatewayError
from gateway.core.money import parse_weight
from gateway.dialects.families import ANY_FAMILY
from gateway.dialects.neutral import Target
from gateway.dialects.pairs import native_body
from gateway.dialects.prompt_tokens import prompt_tokens
from gateway.dialects.registry import CLIENT_DIALECTS as DIALECTS
from gateway.providers.presets import PRESETS
from tests.support.frames import chat, messages
from tests.support.scale import examples

BODIES: dict[DialectName, dict[str, Any]] = {
    "openai_chat": chat("m", stream=False),
    "anthropic_messages": messages("m", stream=False),
}
NAMES = list(BODIES)
PLAIN = Provider("p", "openai_chat", "https://p.test", "cloud_direct", "US", parse_weight("1"))
ODD = replace(PLAIN, quirks=PRESETS["openai_compatible_plain"].quirks)


def sent(call: Call) -> bytes:
    """What a provider of the same dialect gets."""
    return native_body(call, PLAIN, Target("theirs", call.stream))[0]


def read(dialect: DialectName, body: bytes) -> Call:
    return DIALECTS[dialect].read_call(body, CallOptions(), ())


def with_fields(dialect: DialectName, **fields: Any) -> Call:
    """The plain body with *fields*; a value of `...` takes a field out."""
    body = {name: value for name, value in {**BODIES[dialect], **fields}.items() if value is not ...}
    return read(dialect, json.dumps(body).encode())


def refusal(dialect: DialectName, **fields: Any) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        with_fields(dialect, **fields)
    assert caught.value.kind.status == 400
    return caught.value


OPENAI_GOOD: list[dict[str, Any]] = [
    {"max_tokens": 1}, {"max_tokens": 10_000_000}, {"max_completion_tokens": 1}, {"temperature": 0}, {"temperature": 2},
    {"temperature": 0.5}, {"top_p": 0}, {"top_p": 1}, {"presence_penalty": -2}, {"presence_penalty": 2},
    {"frequency_penalty": -2}, {"frequency_penalty": 2}, {"n": 1}, {"n": 128}, {"stop": "END"}, {"stop": ["a"] * 4},
    {"stop": []}, {"seed": 0}, {"seed": -1}, {"tools": []}, {"tool_choice": "auto"}, {"tool_choice": {"type": "x"}},
    {"response_format": {"type": "json_object"}}, {"user": "u"}, {"metadata": {str(n): "v" for n in range(16)}},
    {"stream": True, "stream_options": {"include_usage": False}}, {"messages": [{"role": "tool", "content": []}]},
]  # fmt: skip
OPENAI_BAD: list[tuple[dict[str, Any], str]] = [
    ({"model": ...}, "model"), ({"model": ""}, "model"), ({"model": 7}, "model"), ({"model": None}, "model"),
    ({"model": "x" * 257}, "model"), ({"messages": ...}, "messages"), ({"messages": []}, "messages"),
    ({"messages": None}, "messages"), ({"messages": {}}, "messages"), ({"messages": ["x"]}, "messages"),
    ({"messages": [{}]}, "messages"), ({"messages": [{"role": ""}]}, "messages"),
    ({"messages": [{"role": 1}]}, "messages"),
    ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": -1}, "max_tokens"), ({"max_tokens": 10**12}, "max_tokens"),
    ({"max_tokens": "5"}, "max_tokens"), ({"max_tokens": 1.5}, "max_tokens"), ({"max_tokens": True}, "max_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"), ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.1}, "temperature"), ({"temperature": "1"}, "temperature"), ({"top_p": 1.1}, "top_p"),
    ({"top_p": -1}, "top_p"), ({"presence_penalty": -2.1}, "presence_penalty"),
    ({"frequency_penalty": 2.1}, "frequency_penalty"), ({"n": 0}, "n"), ({"n": 129}, "n"), ({"n": "2"}, "n"),
    ({"stop": ["a"] * 5}, "stop"), ({"stop": 7}, "stop"), ({"stop": [7]}, "stop"), ({"seed": "x"}, "seed"),
    ({"tools": {}}, "tools"), ({"tools": ["x"]}, "tools"), ({"tool_choice": 1}, "tool_choice"),
    ({"response_format": "json"}, "response_format"), ({"user": 7}, "user"), ({"metadata": "x"}, "metadata"),
    ({"metadata": {str(n): "v" for n in range(17)}}, "metadata"), ({"metadata": {"k": 7}}, "metadata"),
    ({"metadata": {"k": None}}, "metadata"), ({"metadata": {65 * "k": "v"}}, "metadata"),
    ({"metadata": {"k": 513 * "v"}}, "metadata"), ({"stream": "true"}, "stream"),
    ({"stream": 1}, "stream"), ({"stream_options": True}, "stream_options"),
]  # fmt: skip
ANTHROPIC_GOOD: list[dict[str, Any]] = [
    {"max_tokens": 1}, {"temperature": 0}, {"temperature": 1}, {"system": "x"},
    {"system": [{"type": "text", "text": "x"}]},
    {"stop_sequences": ["a"] * 9}, {"tools": []}, {"tool_choice": {"type": "auto"}}, {"metadata": {"user_id": "u"}},
    {"thread": {"type": "create"}}, {"previous_message_id": "x"}, {"thinking": {"type": "enabled"}},
]  # fmt: skip
ANTHROPIC_BAD: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": ...}, "max_tokens"), ({"max_tokens": None}, "max_tokens"), ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 10**12}, "max_tokens"), ({"temperature": 1.1}, "temperature"), ({"temperature": -1}, "temperature"),
    ({"system": 7}, "system"), ({"stop_sequences": "x"}, "stop_sequences"), ({"tool_choice": "auto"}, "tool_choice"),
    ({"metadata": []}, "metadata"), ({"messages": []}, "messages"), ({"messages": [{}]}, "messages"),
    ({"stream": "true"}, "stream"), ({"model": ...}, "model"),
]  # fmt: skip
NOT_SENT = {("openai_chat", "stream_options"), ("openai_chat", "tools")}  # but changed; those tools are no tools
GOOD = [("openai_chat", row) for row in OPENAI_GOOD] + [("anthropic_messages", row) for row in ANTHROPIC_GOOD]
BAD = [("openai_chat", *row) for row in OPENAI_BAD] + [("anthropic_messages", *row) for row in ANTHROPIC_BAD]


@pytest.mark.parametrize(("dialect", "fields"), GOOD)
def test_within_the_bounds(dialect: DialectName, fields: dict[str, Any]) -> None:
    """Every documented parameter is taken up to its bounds, bounds included."""
    call = with_fields(dialect, **fields)

    said = {name: value for name, value in fields.items() if (dialect, name) not in NOT_SENT}
    assert json.loads(sent(call)).items() >= {**said, "model": "theirs"}.items()


@pytest.mark.parametrize(("dialect", "fields", "param"), BAD)
def test_beyond_the_bounds(dialect: DialectName, fields: dict[str, Any], param: str) -> None:
    """Beyond a bound, or of a wrong type, a parameter is refused by its name."""
    error = refusal(dialect, **fields)

    assert error.param is not None
    assert error.param.startswith(param)
    assert error.message.startswith(error.param) or f"`{error.param}`" in error.message
    assert error.message.endswith(".")


@pytest.mark.parametrize("dialect", NAMES)
def test_null_is_absent(dialect: DialectName) -> None:
    """Optional parameters may be null, and go on as null."""
    names = ("stream", "temperature", "tools", "tool_choice", "metadata", "system", "n", "stop", "stream_options")

    call = with_fields(dialect, **dict.fromkeys(names))

    assert not call.stream
    assert json.loads(sent(call))["temperature"] is None


@pytest.mark.parametrize("dialect", NAMES)
def test_unknown_fields_are_byte_identical(dialect: DialectName) -> None:
    """What we do not know goes on as the very bytes, in the caller's order and spelling."""
    unknown = '"x_new": {"a":1.50, "b" : [1e5,"\\u00e9\\/", "é"]}'
    plain = json.dumps(BODIES[dialect])

    call = read(dialect, f"{{{unknown}, {plain[1:]}".encode())

    body = sent(call)
    assert body.startswith('{"x_new":{"a":1.50, "b" : [1e5,"\\u00e9\\/", "é"]},'.encode())


def test_a_stream_is_asked_for_its_usage() -> None:
    """`include_usage` is set, further options stay; without streaming nothing is added."""
    asked = sent(with_fields("openai_chat", stream=True, stream_options={"include_usage": False, "x": 1}))
    null = sent(with_fields("openai_chat", stream=True, stream_options=None))
    plain = sent(with_fields("openai_chat"))

    assert json.loads(asked)["stream_options"] == {"include_usage": True, "x": 1}
    assert json.loads(null)["stream_options"] == {"include_usage": True}
    assert "stream_options" not in json.loads(plain)


def test_who_the_end_user_is() -> None:
    """The end user's name is read from either dialect's own place, cleaned and cut for the log."""
    openai = with_fields("openai_chat", user="ani")
    anthropic = with_fields("anthropic_messages", metadata={"user_id": "ani"})
    odd = with_fields("anthropic_messages", metadata={"user_id": 7})
    wild = with_fields("openai_chat", user="a\n\u2028" + 300 * "b")

    assert [call.user for call in (openai, anthropic, odd)] == ["ani", "ani", None]
    assert wild.user == "a" + 255 * "b"


def test_metadata() -> None:
    """OpenAI's metadata is kept for the trace, cleaned; Anthropic's is the end user alone, the rest is passed on."""
    said = {64 * "k": 512 * "v", "te\u0000am\u2028": "a\r\n\u0000b", "": ""}
    openai = with_fields("openai_chat", metadata=said)
    anthropic = with_fields("anthropic_messages", metadata={"user_id": "ani", "team": "x"})

    assert openai.metadata == {64 * "k": 512 * "v", "team": "ab", "": ""}
    assert json.loads(sent(openai))["metadata"] == said
    assert anthropic.metadata == {}
    assert with_fields("openai_chat", metadata=None).metadata == with_fields("openai_chat").metadata == {}


@pytest.mark.parametrize("dialect", NAMES)
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"x"', b"\xff{}", b"\xef\xbb\xbf{}", b"{}{}", b'{"model":1,"model":2}', b"[" * 9999],
)
def test_what_is_no_body(dialect: DialectName, body: bytes) -> None:
    """What is not one JSON object, read one way only, is a 400."""
    with pytest.raises(GatewayError) as caught:
        read(dialect, body)

    assert (caught.value.kind.status, caught.value.kind.code) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("fields", "least"),
    [
        ({"messages": [{"role": "user", "content": "one two three"}]}, 7),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "one two three"}]}]}, 7),
        ({"messages": [{"role": "tool", "content": [{"type": "tool_result", "content": [{"text": "one"}]}]}]}, 5),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "one two"}}]}]}, 6),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": {"a": "one"}}]}]}, 6),
        ({"messages": [{"role": "user", "content": "x"}], "system": "one two"}, 11),
        ({"messages": [{"role": "user", "content": "x"}], "tools": [{"name": "one two three"}]}, 14),
    ],
)
def test_our_own_count_of_a_prompt(fields: dict[str, Any], least: int) -> None:
    """Every text that a provider would see is counted: parts, tool results, arguments, system prompts, tools."""
    assert prompt_tokens(with_fields("openai_chat", **fields), ANY_FAMILY) >= least


# -- fuzz --

VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 10**12, 2**63, 2**64, -(2**63), 10**30, 1.5, 1e308, "", "x", "true", "\ud800", "\0",
    "é\u2028", [], {}, [[]], [None], [{}], {"": {}}, {"role": "user"}, ["x"] * 5, "x" * 300,
]  # fmt: skip
SHREDS = [
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u0022", b"\\ud83d", b"\0", b"\x1f", b"\xff", b"\xc3", b"1e999",
    b"NaN", b"-", b"null", b'"model"', b'"messages":', b'"mod\\u0065l":1,', b"\xef\xbb\xbf", b"9" * 30, b" ", b"\n",
]  # fmt: skip


def mutated(chance: random.Random, dialect: DialectName) -> bytes:
    """A body with values of wrong kinds in it, or bytes in the wrong places, or both."""
    body: dict[str, Any] = {**BODIES[dialect], "stop": ["a"], "metadata": {"k": "v"}, "tools": [{"name": "f"}], "n": 1}
    for _ in range(chance.randrange(3)):
        body[chance.choice([*body, "temperature", "system", "stream", "user", "x"])] = chance.choice(VALUES)
    if chance.random() < 0.3:
        body["messages"] = [chance.choice([{"role": "user", "content": chance.choice(VALUES)}, chance.choice(VALUES)])]
    raw = bytearray(json.dumps(body).encode())
    for _ in range(chance.choice([0, 0, 1, 1, 2, 5])):
        at = chance.randrange(len(raw) + 1)
        how = chance.randrange(4)
        if how == 0:
            raw[at:at] = chance.choice(SHREDS)
        elif how == 1:
            del raw[at : at + chance.randrange(1, 9)]
        elif how == 2:
            raw[at : at + 1] = bytes([chance.randrange(256)])
        else:
            del raw[at:]
        if not raw:
            break
    return bytes(raw)


@pytest.mark.fuzz
@pytest.mark.timeout(900)
@pytest.mark.parametrize("dialect", NAMES)
@pytest.mark.parametrize("seed", range(2))
def test_mutated_bodies(dialect: DialectName, seed: int) -> None:
    """Whatever a body is, it is read or it is a 400; what was read can be counted and sent on."""
    chance = random.Random(seed)
    reads, refused = 0, list[GatewayError]()
    for _ in range(examples(1000)):
        body = mutated(chance, dialect)
        try:
            call = read(dialect, body)
        except GatewayError as exc:
            refused.append(exc)
            continue
        reads += 1
        body, _ = native_body(call, ODD, Target("theirs", call.stream, max_output_tokens=7))
        assert json.loads(body)["model"] == "theirs"
        assert prompt_tokens(call, ANY_FAMILY) >= 0

    assert {error.kind.status for error in refused} == {400}
    assert not any("\n" in error.message for error in refused)
    assert min(reads, len(refused)) > examples(1000) / 20  # both sides of the door are tried


@pytest.mark.parametrize(
    ("body", "param", "reason"),
    [
        (b'{"model":"m","messages":[{"role":"user","content":"x"}],"stream":"yes"}',
         "stream", "Expected `boolean | null`, got `string`."),
        (b'{"model":"m"}', "messages", "This field is required."),
        (b'{"model":"m","messages":[{"role":"user","content":"x"},{"content":"x"}]}',
         "messages[1].role", "This field is required."),
        (b'{"model":"m","messages":[{"role":"user","content":"x"}],"n":0}', "n", "Expected `integer` >= 1."),
    ],
)
def test_refusals_speak_json(body: bytes, param: str, reason: str) -> None:
    """A refusal begins with the member, which is its `param`, and has JSON's words for types."""
    with pytest.raises(GatewayError) as caught:
        DIALECTS["openai_chat"].read_call(body, CallOptions(), ())

    assert (caught.value.param, caught.value.message) == (param, f"{param}: {reason}")
