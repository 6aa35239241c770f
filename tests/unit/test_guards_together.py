"""All guards there are, over texts of any kind: nothing is left to be found in what leaves, and all else stays."""

from __future__ import annotations

import asyncio
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.accounts import Key, Tier
from gateway.core.call import Call, CallOptions
from gateway.core.exchange import Exchange
from gateway.core.guarding import REDACTING, GuardName, GuardTerms, Rules
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.guards.table import make_engines
from gateway.pipeline.scanning import Means, Memory, Scanner
from gateway.pipeline.stages.guard import Guard, GuardWatch
from gateway.pipeline.turns import Turns
from tests.support.scale import examples

ENGINES = make_engines()
PATIENT_S = 60.0
PLACEHOLDER = re.compile(r"\[[A-Z_]+_\d+\]")
FAILURES: list[Any] = []
# What is found, what only looks like it, and what belongs to the words around.
BITS = st.sampled_from((
    "3171012301900001", "NIK ", "jane.doe@example.com", "+62 812-3456-7890", "4111 1111 1111 1111", "kartu ",
    "S1234567D", "AKIAIOSFODNN7EXAMPLE", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "[NIK_1]", "[EMAIL_2]",
    "2026-08-31", "\u200b", "\n", "http://a.b/?q=", "user:pass@", "{", "}", '"', "\\", "@", "0", ".", "-", " ",
))  # fmt: skip
TEXTS = st.lists(BITS | st.text(max_size=8), max_size=8).map("".join)


def terms() -> Rules:
    modes: dict[GuardName, GuardTerms] = {
        name: GuardTerms("redact" if name in REDACTING else "monitor", reversible=True, deadline_s=PATIENT_S)
        for name in ENGINES
    }
    return Rules(modes)


def passed(call: Call) -> Exchange:
    """The exchange of *call* past the stage, which remembers nothing."""
    exchange = Exchange("req_1", "t", "e", call, Key("k", "acme", Tier("pro"), rules=terms()), 0.0)
    with ThreadPoolExecutor(1) as threads:
        watch = GuardWatch(lambda *_: None, lambda *told: FAILURES.append(told))
        stage = Guard(Scanner(ENGINES, Memory(b"salt"), Means(Turns(threads), time.monotonic)), watch, time.monotonic)
        asyncio.run(stage.admit(exchange))
    return exchange


def content(exchange: Exchange) -> str:
    (message,) = json.loads(bytes(exchange.call.fields["messages"]))
    text: str = message["content"]
    return text


@pytest.mark.fuzz
@settings(max_examples=examples(200), deadline=None)
@given(TEXTS)
def test_redacted_once_and_for_all(text: str) -> None:
    """A second pass changes nothing, and the originals in their places again are the text that it was."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()

    once = passed(CLIENT_DIALECTS["openai_chat"].read_call(body, CallOptions(), ()))
    twice = passed(once.call)

    assert FAILURES == []
    assert content(twice) == content(once)
    assert twice.originals == {}
    assert PLACEHOLDER.sub(lambda one: once.originals.get(one[0], one[0]), content(once)) == text
