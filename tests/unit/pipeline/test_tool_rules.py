"""Answers under rules for tools, in time: originals, first words, broken streams, clients that leave."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.errors import GatewayError
from gateway.core.guarding import AnswerTerms, ArgumentRule, Rules, ToolTerms, Verdict
from tests.support.guards import Spotter
from tests.support.notation import DONE, FIN, TC, R, T, U
from tests.support.scripted_client import ScriptedSink
from tests.support.scripted_provider import EOF, JSON, Play, tell
from tests.unit.pipeline.plays import GOOD, RESET, STREAM_AND_JSON
from tests.unit.pipeline.scene import Scene, at

TERMS = ToolTerms(deny=("drop",), arguments=(ArgumentRule("send", "to", allow=("*@good.id",)),))
END = (FIN("tool_calls"), U(3, 7), DONE)


class Kept(ScriptedSink):
    """A client that keeps all it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""

    def write(self, data: bytes) -> None:
        super().write(data)
        self.data += data


def ruled(*plays: Play, terms: ToolTerms = TERMS, answers: AnswerTerms | None = None, **more: Any) -> Scene:
    scene = Scene(*plays, **more)
    if answers is not None:
        scene.guard_answers(answers, Spotter())
    scene.sink = Kept()
    scene.exchange.key = replace(scene.exchange.key, rules=Rules({}, answers or AnswerTerms(), terms))
    return scene


def got(scene: Scene) -> bytes:
    assert isinstance(scene.sink, Kept)
    return scene.sink.data


def sending(stream: bool, to: str) -> Play:
    """A provider that calls `send` with *to*."""
    arguments = json.dumps({"to": to})
    if stream:
        return tell(R(), TC(0, name="send"), TC(0, arguments[:9]), TC(0, arguments[9:]), *END)
    call = {"id": "c1", "type": "function", "function": {"name": "send", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choices = [{"index": 0, "finish_reason": "tool_calls", "message": message}]
    body = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}
    body["usage"] = {"prompt_tokens": 3, "completion_tokens": 7}
    return Play((json.dumps(body).encode(), EOF), headers=JSON)


@STREAM_AND_JSON
@pytest.mark.parametrize(("original", "outcome"), [("kim@good.id", "completed"), ("kim@evil.id", "interrupted")])
async def test_originals_are_judged(stream: bool, original: str, outcome: str) -> None:
    """Where the client gets an original for a placeholder, the original is what has to be allowed."""
    scene = ruled(sending(stream, "[EMAIL_1]"), stream=stream)
    scene.exchange.originals = {"[EMAIL_1]": original}

    if outcome == "interrupted" and not stream:
        with pytest.raises(GatewayError):
            await scene.start()
    else:
        await scene.start()

    assert await scene.end() == outcome
    assert scene.receipt.verdicts.get("policy") == (
        None if outcome == "completed" else Verdict("block", place="" if stream else "choices[0].message.tool_calls[0]")
    )
    if stream:
        assert (original.encode() in got(scene)) is (outcome == "completed")


@STREAM_AND_JSON
async def test_masks_are_judged(stream: bool) -> None:
    """So has a mask, where the client gets that: an address that was allowed is none any more."""
    scene = ruled(sending(stream, "kim@good.id"), answers=AnswerTerms("redact"), stream=stream)

    if stream:
        await scene.start()
    else:
        with pytest.raises(GatewayError):
            await scene.start()

    assert await scene.end() == "interrupted"
    assert scene.receipt.error_code == "tool_denied"


async def test_the_first_thing_that_comes() -> None:
    """The stream has begun by then, no other route is asked, and what came is paid for."""
    scene = ruled(tell(TC(0, "{}", name="drop"), 5.0, *END), GOOD, routes=("a", "b"))

    outcome = await scene.end()

    assert [word for _, word in scene.heard] == ["200", "role", "error policy_stop", "[DONE]", "end"]
    assert (outcome, scene.receipt.error_code, scene.left_s) == ("interrupted", "tool_denied", 0.0)
    assert (scene.attempts, scene.failures) == ([("a", "cancelled")], [])
    assert scene.receipt.cost_nano_usd > 0


async def test_nothing_but_a_call_that_waits() -> None:
    """A stream that has nothing for the client yet is a good one."""
    scene = ruled(tell(TC(0, '{"to":', name="send"), 1.0, TC(0, '"kim@good.id"}'), *END))

    assert await scene.end() == "completed"
    assert b"kim@good.id" in got(scene)


async def test_a_stream_that_breaks() -> None:
    """A call that waits when the provider breaks off never leaves."""
    scene = ruled(tell(R(), T("Hi"), TC(0, '{"to":"kim@good.id"', name="send"), RESET))

    assert await scene.end() == "interrupted"
    assert (b"send" in got(scene), b"stream_interrupted" in got(scene)) == (False, True)


async def test_a_client_that_leaves() -> None:
    """While a call waits that is a cancelled stream like any other."""
    scene = ruled(tell(R(), TC(0, '{"to":', name="send"), 9.0, *END))
    scene.start()
    await at(1.0)
    scene.leave()

    assert await scene.end() == "cancelled"
    assert scene.receipt.error_code is None


async def test_silence_goes_by_the_rules_too() -> None:
    """What guards of texts let go after a silence is judged before it leaves."""
    pieces = TC(0, '{"to":"some one or so', name="send"), 1.0, TC(0, ' else"}')
    scene = ruled(tell(R(), *pieces, *END), answers=AnswerTerms("redact"))

    assert await scene.end() == "interrupted"
    assert b"some one" not in got(scene)
