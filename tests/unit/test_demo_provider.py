"""The built-in provider as its users meet it: a process on a port."""

from __future__ import annotations

import base64
import json
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway.demo_provider.examples import example
from gateway.demo_provider.models import MAX_OUTPUT_TOKENS, MODELS
from gateway.demo_provider.pieces import pieces_of
from gateway.demo_provider.texts import ESSAY, STORY
from tests.support.client import Client
from tests.support.frames import chat, messages, named, parsed, text_of

ROOT = Path(__file__).resolve().parents[2]
FAST = "0.002"  # scale of time: the 25 s of the slow model become 50 ms
OPENAI, ANTHROPIC = "/v1/chat/completions", "/v1/messages"
DIALECTS = [(OPENAI, chat), (ANTHROPIC, messages)]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 3}, "unit": {"enum": ["C", "F"]}},
}
OPENAI_TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
ANTHROPIC_TOOLS = [{"name": "weather", "input_schema": SCHEMA}]
ARGUMENTS = {"city": "Jakarta", "days": 3, "unit": "C"}
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 40, 30) + b"\x08\x02\0\0\0"


class Demo(NamedTuple):
    process: subprocess.Popen[str]
    client: Client


def start(scale: str = FAST) -> Demo:
    process = subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-m", "gateway.demo_provider", "--time-scale", scale],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert re.fullmatch(r"listening \d+\n", line), line
    return Demo(process, Client(int(line.split()[1])))


def finish(demo: Demo) -> str:
    """End it if it still runs; what it said on standard error."""
    demo.process.send_signal(signal.SIGTERM)
    _, errors = demo.process.communicate(timeout=10)
    return re.sub(r"Executing <.*> took [0-9.]+ seconds\n", "", errors)


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    demo = start()
    yield demo
    errors = finish(demo)
    assert (demo.process.returncode, errors) == (0, "")


async def streamed(demo: Demo, target: str, body: dict[str, Any]) -> tuple[list[bytes], bool]:
    async with demo.client.stream(target, body) as stream:
        return await stream.all_frames(), stream.ended_properly


async def test_openai_stream(demo: Demo) -> None:
    """Role, one chunk per token, finish, usage where it was asked for, terminator."""
    body = chat("demo-echo", "Halo dunia, 北🦀é!", stream_options={"include_usage": True})

    frames, ended = await streamed(demo, OPENAI, body)

    first, *middle, last, usage, done = parsed(frames)
    assert ended
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert text_of(frames) == "Halo dunia, 北🦀é!"
    assert last["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == len(middle) == usage["usage"]["prompt_tokens"]
    assert {item["id"] for item in (first, *middle, last, usage)} == {first["id"]}
    assert done == "[DONE]"


async def test_usage_only_when_asked_for(demo: Demo) -> None:
    """Without include_usage no chunk has a usage, as with the vendor it plays."""
    frames, _ = await streamed(demo, OPENAI, chat("demo-echo"))

    assert not [item for item in parsed(frames) if "usage" in item]


async def test_anthropic_stream(demo: Demo) -> None:
    """Named events in the documented order, and honest counts."""
    frames, ended = await streamed(demo, ANTHROPIC, messages("demo-echo", "Halo dunia"))

    names, items = zip(*named(frames), strict=True)
    deltas = names.count("content_block_delta")
    assert ended
    assert list(names) == (
        ["message_start", "ping", "content_block_start"]
        + ["content_block_delta"] * deltas
        + ["content_block_stop", "message_delta", "message_stop"]
    )
    assert text_of(frames) == "Halo dunia"
    assert items[0]["message"]["usage"]["input_tokens"] == deltas == items[-2]["usage"]["output_tokens"]
    assert items[-2]["delta"]["stop_reason"] == "end_turn"


async def test_json_answers(demo: Demo) -> None:
    """Both dialects answer in JSON with the same text and counts."""
    openai = (await demo.client.request("POST", OPENAI, chat("demo-echo", "Halo", stream=False))).json
    anthropic = (await demo.client.request("POST", ANTHROPIC, messages("demo-echo", "Halo", stream=False))).json

    assert openai["choices"][0]["message"]["content"] == anthropic["content"][0]["text"] == "Halo"
    assert openai["usage"]["total_tokens"] == sum(anthropic["usage"].values()) == 2
    assert (openai["choices"][0]["finish_reason"], anthropic["stop_reason"]) == ("stop", "end_turn")


async def test_story(demo: Demo) -> None:
    """The story is told whole."""
    frames, _ = await streamed(demo, OPENAI, chat("demo-story"))

    assert text_of(frames) == STORY


async def test_pace() -> None:
    """The story flows at about 40 tokens a second."""
    demo = start("1")
    async with demo.client.stream(OPENAI, chat("demo-story")) as stream:
        frames = stream.frames()
        begun_s = [time.monotonic() async for _ in _first(frames, 2)][-1]
        ended_s = [time.monotonic() async for _ in _first(frames, 20)][-1]
        await frames.aclose()

    assert finish(demo) == ""
    assert 0.45 < ended_s - begun_s < 1.0


async def _first(frames: Any, count: int) -> Any:
    for _ in range(count):
        yield await anext(frames)


async def test_tool_call_in_pieces(demo: Demo) -> None:
    """Given a tool, it calls it with arguments that fit the schema; they come in pieces, beside no text."""
    openai, _ = await streamed(demo, OPENAI, chat("demo-tools", tools=OPENAI_TOOLS))
    anthropic, _ = await streamed(demo, ANTHROPIC, messages("demo-tools", tools=ANTHROPIC_TOOLS))

    calls = [item["choices"][0]["delta"].get("tool_calls") for item in parsed(openai)[:-1]]
    pieces = [call[0] for call in calls if call]
    starts = [item["content_block"] for item in parsed(anthropic) if item["type"] == "content_block_start"]
    assert (pieces[0]["function"]["name"], pieces[0]["type"], {piece["index"] for piece in pieces}) == (
        "weather",
        "function",
        {0},
    )
    assert len(pieces) > 3
    assert json.loads(text_of(openai)) == json.loads(text_of(anthropic)) == ARGUMENTS
    assert parsed(openai)[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert [(start["type"], start["name"], start["input"]) for start in starts] == [("tool_use", "weather", {})]
    assert parsed(openai)[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert parsed(anthropic)[-2]["delta"]["stop_reason"] == "tool_use"


async def test_tool_call_in_json(demo: Demo) -> None:
    """The same call in a JSON answer."""
    body = chat("demo-tools", stream=False, tools=OPENAI_TOOLS)
    openai = (await demo.client.request("POST", OPENAI, body)).json
    body = messages("demo-tools", stream=False, tools=ANTHROPIC_TOOLS)
    anthropic = (await demo.client.request("POST", ANTHROPIC, body)).json

    assert json.loads(openai["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]) == ARGUMENTS
    assert anthropic["content"][0]["input"] == ARGUMENTS


async def test_tool_result_is_spoken_about(demo: Demo) -> None:
    """With a result in the history it talks instead of calling again."""
    openai = chat("demo-tools", tools=OPENAI_TOOLS)
    openai["messages"] += [{"role": "tool", "tool_call_id": "c", "content": "31 degrees"}]
    anthropic = messages("demo-tools", tools=ANTHROPIC_TOOLS)
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "31 degrees"}]}
    anthropic["messages"] += [{"role": "user", "content": [result]}]

    said = [text_of((await streamed(demo, *pair))[0]) for pair in ((OPENAI, openai), (ANTHROPIC, anthropic))]

    assert said == ["The tool says: 31 degrees"] * 2


@pytest.mark.parametrize(
    ("choice", "called"),
    [("none", None), ("auto", "weather"), ({"type": "function", "function": {"name": "other"}}, "other")],
)
async def test_tool_choice(demo: Demo, choice: object, called: str | None) -> None:
    """A tool is called only if it may be, and the one that was named if one was."""
    tools = [*OPENAI_TOOLS, {"type": "function", "function": {"name": "other"}}]
    body = chat("demo-tools", stream=False, tools=tools, tool_choice=choice)

    message = (await demo.client.request("POST", OPENAI, body)).json["choices"][0]["message"]

    assert [call["function"]["name"] for call in message.get("tool_calls", [])] == ([called] if called else [])


async def test_images_are_told(demo: Demo) -> None:
    """It tells type and size of what it got, in either dialect."""
    data = base64.b64encode(PNG).decode()
    openai = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    anthropic = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    linked = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}

    said = []
    for target, part in ((OPENAI, openai), (ANTHROPIC, anthropic), (OPENAI, linked)):
        body = {"model": "demo-vision", "stream": True, "messages": [{"role": "user", "content": [part]}]}
        said.append(text_of((await streamed(demo, target, body))[0]))

    assert said == [f"I see image/png of {len(PNG)} bytes, 40 x 30 pixels."] * 2 + [
        "I see a linked image that was not fetched."
    ]


async def test_slow_start() -> None:
    """The first byte of the slow model takes 25 s (here scaled to half a second)."""
    demo = start("0.02")
    begun_s = time.monotonic()

    async with demo.client.stream(OPENAI, chat("demo-slow")) as stream:
        head_s = time.monotonic() - begun_s
        frames = await stream.all_frames()

    assert finish(demo) == ""
    assert 0.5 <= head_s < 2
    assert parsed(frames)[-1] == "[DONE]"


@pytest.mark.parametrize(("target", "body"), DIALECTS)
async def test_stall(demo: Demo, target: str, body: Any) -> None:
    """A few tokens, then silence on an open socket."""
    async with demo.client.stream(target, body("demo-stall")) as stream:
        with pytest.raises(TimeoutError):
            await stream.all_frames(within_s=0.5)
        spoken = len(stream.frame_times)

        assert spoken >= 6
        assert not stream.closed.done()


@pytest.mark.parametrize(("target", "body"), DIALECTS)
async def test_broken(demo: Demo, target: str, body: Any) -> None:
    """A few tokens, then a reset."""
    async with demo.client.stream(target, body("demo-broken")) as stream:
        frames = await stream.all_frames()
        closed = await stream.peer.gone(1)

    assert text_of(frames) == "".join(pieces_of(STORY)[:6])
    assert (stream.ended_properly, closed.how) == (False, "rst")


@pytest.mark.parametrize(("target", "body"), DIALECTS)
async def test_truncated(demo: Demo, target: str, body: Any) -> None:
    """A few tokens, then a clean end of the body with no finish and no terminator."""
    frames, ended = await streamed(demo, target, body("demo-truncated"))

    assert text_of(frames) == "".join(pieces_of(STORY)[:6])
    assert ended
    assert not [frame for frame in frames if b"DONE" in frame or b"message_stop" in frame or b'"stop"' in frame]


async def test_faults_in_json(demo: Demo) -> None:
    """Without streaming the broken model resets before an answer, and the truncated one sends half a JSON text."""
    with pytest.raises(ConnectionError, match="rst"):
        await demo.client.request("POST", OPENAI, chat("demo-broken", stream=False))
    half = await demo.client.request("POST", OPENAI, chat("demo-truncated", stream=False))

    assert (half.status, half.ended_properly) == (200, True)
    with pytest.raises(ValueError, match=r"JSON|delimiter|string|value|quotes"):
        json.loads(half.body)


@pytest.mark.parametrize(("target", "body"), DIALECTS)
async def test_busy(demo: Demo, target: str, body: Any) -> None:
    """429 with a Retry-After, in the dialect's envelope."""
    reply = await demo.client.request("POST", target, body("demo-busy"))

    assert (reply.status, reply.headers.get("retry-after")) == (429, "2")
    assert reply.json["error"].get("code", reply.json["error"]["type"]) in ("rate_limit_exceeded", "rate_limit_error")


@pytest.mark.parametrize(("target", "body"), DIALECTS)
async def test_long_never_ends(demo: Demo, target: str, body: Any) -> None:
    """The essay goes round and round, for longer than anybody reads."""
    async with demo.client.stream(target, body("demo-long", max_tokens=None)) as stream:
        said = ""
        async for frame in stream.frames():
            said += text_of([frame])
            if len(said) > 2 * len(ESSAY):
                break

    assert said.startswith(ESSAY + ESSAY)


async def test_max_tokens(demo: Demo) -> None:
    """The caller's limit, or the model's, is kept to the token and named as the reason, also of an endless answer."""
    openai, _ = await streamed(demo, OPENAI, chat("demo-long", max_completion_tokens=7))
    anthropic = await demo.client.request("POST", ANTHROPIC, messages("demo-long", max_tokens=7, stream=False))
    endless = await demo.client.request("POST", OPENAI, chat("demo-long", stream=False))
    most = [await streamed(demo, ANTHROPIC, messages("demo-long", max_tokens=limit)) for limit in (100_000, None)]

    assert text_of(openai) == anthropic.json["content"][0]["text"] == "".join(pieces_of(ESSAY)[:7])
    assert parsed(openai)[-2]["choices"][0]["finish_reason"] == "length"
    assert (anthropic.json["stop_reason"], anthropic.json["usage"]["output_tokens"]) == ("max_tokens", 7)
    assert endless.json["usage"]["completion_tokens"] == 400
    assert [named(frames)[-2][1]["usage"]["output_tokens"] for frames, _ in most] == [MAX_OUTPUT_TOKENS] * 2


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b'{"model": 5, "messages": [{}]}', 400),
        (b'{"model": "demo-echo", "messages": []}', 400),
        (b'{"model": "demo-echo", "messages": ["x", {"content": 5}], "tools": [1], "tool_choice": 3}', 200),
        (b'{"model": "gpt-4o", "messages": [{"role": "user", "content": "x"}]}', 404),
    ],
)
async def test_bad_requests(demo: Demo, body: bytes, status: int) -> None:
    """What cannot be read is refused in the envelope of the endpoint; what can be ignored is."""
    openai = await demo.client.request("POST", OPENAI, body)
    anthropic = await demo.client.request("POST", ANTHROPIC, body)

    assert (openai.status, anthropic.status) == (status, status)
    if status != 200:
        assert openai.json["error"]["message"]
        assert (anthropic.json["type"], bool(anthropic.json["error"]["type"])) == ("error", True)


async def test_models_are_listed(demo: Demo) -> None:
    """Every model is in the list."""
    reply = await demo.client.request("GET", "/v1/models")

    assert [row["id"] for row in reply.json["data"]] == list(MODELS)


def test_leaves_when_stdin_closes() -> None:
    """Who started it only has to close the pipe."""
    demo = start()
    assert demo.process.stdin is not None

    demo.process.stdin.close()
    code = demo.process.wait(10)

    assert demo.process.stderr is not None
    assert (code, demo.process.stderr.read()) == (0, "")
    demo.process.stderr.close()
    assert demo.process.stdout is not None
    demo.process.stdout.close()


def test_leaves_when_nobody_hears_that_it_is_up() -> None:
    """A starter that is gone before its provider is up leaves it nothing to complain of."""
    command = [sys.executable, "-m", "gateway.demo_provider"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None

    process.stdout.close()
    _, errors = process.communicate(timeout=20)

    assert (process.returncode, errors) == (0, b"")


def test_leaves_when_its_parent_dies() -> None:
    """A starter that is killed takes it along, even when the pipe stays open elsewhere."""
    starter = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-m', 'gateway.demo_provider'], stdin=0)\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", starter], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    lines = sorted([parent.stdout.readline(), parent.stdout.readline()])  # the pid and "listening", in either order

    parent.kill()
    parent.wait()
    left = parent.stdout.read()  # ends when the last copy is closed: the child's

    parent.stdout.close()
    assert parent.stdin is not None
    parent.stdin.close()
    assert ([line[:9] for line in lines[1:]], left) == (["listening"], "")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (None, {}),
        ({}, {}),
        ({"properties": {"a": {"type": "string"}, "b": {"type": "null"}}, "required": ["a"]}, {"a": "example"}),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, [True, True]),
        ({"properties": {"a": {"anyOf": [{"type": "number", "maximum": -1}]}}}, {"a": -1}),
        ({"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"const": 7}}}, {"a": 7}),
        ({"properties": {"a": {"type": ["null", "string"], "minLength": 9}}}, {"a": "examplexx"}),
        ({"properties": {"a": {"type": "string", "format": "date"}}}, {"a": "2026-08-17"}),
        ({"properties": {"a": {"type": "string", "maxLength": 2}}}, {"a": "ex"}),
        ({"properties": "x", "required": 5}, {}),
    ],
)
def test_examples_fit_their_schema(schema: Any, value: Any) -> None:
    """Made-up arguments fit the schema they are made from."""
    assert example(schema, schema) == value


def test_an_example_of_a_schema_without_end_ends() -> None:
    """A schema that contains itself gives a finite example."""
    schema = {"properties": {"a": {"$ref": "#"}}}

    assert len(json.dumps(example(schema, schema))) < 200


@pytest.mark.parametrize("text", ["", " a  b\n", "北京 é🦀!?", STORY, ESSAY])
def test_pieces_are_the_text(text: str) -> None:
    """Nothing is lost between the pieces."""
    assert "".join(pieces_of(text)) == text
