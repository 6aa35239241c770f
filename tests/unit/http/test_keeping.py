"""What is kept of calls whose texts guards have read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw, structs

from gateway.core.accounts import Key, Tier
from gateway.core.call import CallOptions
from gateway.core.errors import GUARDS_UNAVAILABLE
from gateway.core.exchange import Answer, Attempt, Exchange
from gateway.core.guarding import Verdict
from gateway.core.ports import Sink
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.http.keeping import BodyWatch
from tests.support.scripted_client import ScriptedSink
from tests.unit.pipeline.scene import route

ASKED = {"model": "m", "messages": [{"role": "user", "content": "mail jane@e.com"}]}


async def kept(change: dict[str, Any], said: str = "") -> tuple[Any, str]:
    """Request and answer as they are kept of a call that the pipeline changes so."""
    out: list[tuple[bytes, str]] = []
    call = CLIENT_DIALECTS["openai_chat"].read_call(json.dumps(ASKED).encode(), CallOptions(), ())
    exchange = Exchange("req_1", "t", "e", call, Key("k", "acme", Tier("pro"), log_bodies=True), 0.0)

    async def relay(passing: Exchange, sink: Sink) -> Answer | None:
        for name, value in change.items():
            setattr(passing, name, value)
        return Answer(200, json.dumps({"choices": [{"message": {"content": said}}]}).encode())

    watch = BodyWatch(lambda _id, _tenant, request, answer: out.append((request, answer)), 1000)
    await watch.through(relay, exchange)(exchange, ScriptedSink())
    ((request, answer),) = out
    return json.loads(request), answer


async def test_placeholders_are_kept() -> None:
    """The request is kept as its provider got it, and the answer without the originals that have come back."""
    call = CLIENT_DIALECTS["openai_chat"].read_call(json.dumps(ASKED).encode(), CallOptions(), ())
    messages = Raw(b'[{"role":"user","content":"mail [EMAIL_1]"}]')
    redacted = structs.replace(call, fields={**call.fields, "messages": messages})

    request, answer = await kept(
        {"call": redacted, "originals": {"[EMAIL_1]": "jane@e.com"}}, said="jane@e.com, or jane@e.com"
    )

    assert request["messages"][0]["content"] == "mail [EMAIL_1]"
    assert answer == "[EMAIL_1], or [EMAIL_1]"


@pytest.mark.parametrize("change", [{"verdicts": {"pii": Verdict("block")}}, {"error_code": GUARDS_UNAVAILABLE.code}])
async def test_what_was_refused_is_not_kept(change: dict[str, Any]) -> None:
    """Nothing says what in it would have to be masked."""
    request, _ = await kept(change)

    assert request == {}


async def test_what_passed_is_kept() -> None:
    """Where the answer was stopped the call had passed, and left as it is kept."""
    attempt = Attempt(route("a"))

    request, _ = await kept({"verdicts": {"response_content": Verdict("block")}, "attempts": [attempt]})

    assert request == ASKED


async def test_what_was_watched_is_kept() -> None:
    """A policy that only watches masks nothing."""
    request, _ = await kept({"verdicts": {"pii": Verdict("flag")}})

    assert request == ASKED
