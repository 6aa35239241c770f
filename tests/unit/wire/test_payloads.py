"""Long base64 is taken out of a body and put back, and nothing else of it changes."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from gateway.core.call import Call, CallOptions
from gateway.core.catalog import ClientDialectName, DialectName, Provider, Route
from gateway.core.held import Held, mark_of
from gateway.dialects.families import ANY_FAMILY
from gateway.dialects.prompt_tokens import prompt_tokens
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.http.intake import set_aside
from gateway.providers.requests import build_request
from gateway.wire.payloads import MIN_PAYLOAD_BYTES, is_base64, payloads
from tests.unit.pipeline.scene import ONE, catalog

MARK = mark_of("req_0123456789ab0123456789abcdef0123")
LONG = base64.b64encode(bytes(range(256)) * 200).decode()  # 68 KB
PNG_URL = f"data:image/png;base64,{LONG}"
SOURCE = {"type": "base64", "media_type": "image/png", "data": LONG}

OPENAI_IMAGE = {"type": "image_url", "image_url": {"url": PNG_URL}}
ANTHROPIC_IMAGE = {"type": "image", "source": SOURCE}


def body_of(*parts: Any, **more: Any) -> bytes:
    messages = [{"role": "user", "content": list(parts)}]
    return json.dumps({"model": "m", "max_tokens": 9, "messages": messages, **more}).encode()


def aside(body: bytes) -> tuple[bytes, Held | None]:
    return asyncio.run(set_aside(body, MARK))


TAKEN: dict[str, Any] = {
    "data URL": OPENAI_IMAGE,
    "data URL in capitals": {"url": f"DATA:Image/PNG;name=x;BASE64,{LONG}"},
    "PDF": {"file_data": f"data:application/pdf;base64,{LONG}"},
    "source": ANTHROPIC_IMAGE,
    "padded": {"data": LONG[:-4] + "AA=="},
    "at the bound": {"data": "A" * MIN_PAYLOAD_BYTES},
    "two": [OPENAI_IMAGE, "between", ANTHROPIC_IMAGE],
}
LEFT: dict[str, Any] = {
    "text": {"text": LONG},
    "short": {"data": "A" * (MIN_PAYLOAD_BYTES - 4), "x": "A" * 80_000},
    "text as a data URL": {"url": f"data:text/plain;base64,{LONG}"},
    "not base64": {"url": f"data:image/png,{LONG}"},
    "bad character": {"data": LONG[:-8] + "!!!!" + LONG[-4:]},
    "bad length": {"data": LONG + "A"},
    "padding inside": {"data": LONG[:400] + "====" + LONG},
    "too much padding": {"data": LONG + "A==="},
    "escaped": {"data": LONG[:-4] + "\\\\AA"},
    "wide": {"data": "\u00e9" * 40_000},
}


@pytest.mark.parametrize("content", TAKEN.values(), ids=TAKEN)
def test_taken_out_and_put_back(content: Any) -> None:
    """Base64 where a picture or a file stands is taken out; filled in again, the body is the same to the byte."""
    body = body_of(content)

    small, held = aside(body)

    assert held is not None
    assert len(small) < 1000
    json.loads(small)
    assert held.fill(small) == body


@pytest.mark.parametrize("content", LEFT.values(), ids=LEFT)
def test_left_where_it_is(content: Any) -> None:
    """What is no sound base64, what somebody reads or decodes, and what is short stays in the body."""
    body = body_of(content)

    assert aside(body) == (body, None)


def test_short_bodies_are_not_looked_at() -> None:
    """Below the length of a payload nothing is searched."""
    body = b'"data":"' + b"A" * (MIN_PAYLOAD_BYTES - 9)

    assert aside(body) == (body, None)


def test_bytes_that_are_no_utf8() -> None:
    """Bytes that the parser would refuse are left for it to refuse."""
    body = body_of(ANTHROPIC_IMAGE).replace(LONG[:4].encode(), b"\xff\xfe\xfd\xfc", 1)

    assert aside(body) == (body, None)


def test_a_token_cannot_be_brought_along() -> None:
    """Tokens of another request are text like any other."""
    forged = mark_of("req_" + "f" * 32) + "00000000"
    body = body_of(ANTHROPIC_IMAGE, {"type": "text", "text": forged})

    small, held = aside(body)

    assert held is not None
    assert held.fill(small) == body
    assert held.find(forged) is None


_fillers = st.text(max_size=40) | st.just("x" * 40_000) | st.just('"' * 300) | st.just("\\" * 301)


@settings(max_examples=25)
@given(st.lists(st.sampled_from([OPENAI_IMAGE, ANTHROPIC_IMAGE]) | _fillers, max_size=5), st.sampled_from([None, 1]))
def test_any_mixture(content: list[Any], indent: int | None) -> None:
    """Whatever stands around them, all pictures are found and the body comes back whole."""
    body = json.dumps({"model": "m", "content": content}, indent=indent).encode()

    small, held = aside(body)

    pictures = sum(isinstance(item, dict) for item in content)
    assert len(held.parts if held else ()) == (pictures if len(body) >= MIN_PAYLOAD_BYTES else 0)
    assert (held.fill(small) if held else small) == body


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    """Bytes that are no JSON at all end the search, whatever they are."""
    body = data + b"A" * MIN_PAYLOAD_BYTES * 2 + data

    assert all(0 < start < end <= len(body) for start, end in payloads(body))


def call_of(client: ClientDialectName, body: bytes, held: Held | None) -> Call:
    return structs.replace(CLIENT_DIALECTS[client].read_call(body, CallOptions(), ()), held=held)


def write(call: Call, provider: DialectName) -> bytes:
    """The body that asks a provider of this dialect."""
    route = Route(Provider("p", provider, "https://p.test", "cloud_direct", "US", ONE), "m")
    return build_request(call, route, catalog(route).models["m"]).body


def request_body(call: Call, provider: DialectName) -> Any:
    return json.loads(write(call, provider))


@pytest.mark.parametrize("provider", ["openai_chat", "anthropic_messages"])
@pytest.mark.parametrize(("client", "image"), [("openai_chat", OPENAI_IMAGE), ("anthropic_messages", ANTHROPIC_IMAGE)])
def test_providers_get_the_same(client: ClientDialectName, image: Any, provider: ClientDialectName) -> None:
    """With pictures set aside, the request to a provider of either dialect is what it is without."""
    body = body_of({"type": "text", "text": "look"}, image)

    small, held = aside(body)

    assert held is not None
    assert request_body(call_of(client, small, held), provider) == request_body(call_of(client, body, None), provider)


@pytest.mark.parametrize("provider", ["openai_chat", "anthropic_messages", "gemini_content", "bedrock_converse"])
def test_a_text_of_base64_alone(provider: DialectName) -> None:
    """A document whose text is base64 is read by whoever has to write it otherwise, and a picture beside it is sent."""
    source = {"type": "text", "media_type": "text/plain", "data": LONG}
    body = body_of({"type": "document", "source": source}, ANTHROPIC_IMAGE, {"type": "text", "text": "look"})

    small, held = aside(body)

    assert held is not None
    assert len(held.parts) == 2
    sent = request_body(call_of("anthropic_messages", small, held), provider)
    assert sent == request_body(call_of("anthropic_messages", body, None), provider)


@pytest.mark.alone
@pytest.mark.parametrize("provider", ["openai_chat", "anthropic_messages"])
async def test_nobody_is_held_up(provider: ClientDialectName) -> None:
    """While a picture of 5 MB is set aside and sent on, whoever shares the loop never waits longer than 5 ms."""
    url = "data:image/png;base64," + base64.b64encode(bytes(5 * 1024 * 1024 - 2)).decode()
    body = body_of({"type": "image_url", "image_url": {"url": url}})
    longest_s: list[float] = []

    async def pass_on() -> None:
        small, held = await set_aside(body, MARK)
        write(call_of("openai_chat", small, held), provider)

    for _ in range(7):  # of the processor, and the best: fresh memory from the system may cost as much again
        task, gaps_s, last_s = asyncio.ensure_future(pass_on()), [0.0], time.thread_time()
        while not task.done():
            await asyncio.sleep(0)
            now_s = time.thread_time()
            gaps_s.append(now_s - last_s)
            last_s = now_s
        await task
        longest_s.append(max(gaps_s))

    assert min(longest_s) < 0.005


@pytest.mark.parametrize(
    ("data", "sound"),
    [
        (b"AAAA", True),
        (b"AAA=", True),
        (b"AA==", True),
        (b"A===", False),
        (b"====", False),
        (b"", False),
        (b"AAA", False),
        (b"AAAA=", False),
        (b"AA=A", False),
        (b"AA\nA", False),
        (b"AA-_", False),
    ],
)
def test_base64(data: bytes, sound: bool) -> None:
    """Base64 has its own alphabet, no line ends, and padding at its end alone (RFC 4648, 3.1, 3.3 and 4)."""
    assert is_base64(data) is sound


def test_text_that_was_set_aside_is_counted() -> None:
    """A picture pasted where the model reads text counts among the prompt's tokens."""
    body = body_of({"type": "text", "text": PNG_URL})

    small, held = aside(body)

    assert held is not None
    counted = [prompt_tokens(call_of("openai_chat", *each), ANY_FAMILY) for each in ((small, held), (body, None))]
    assert counted[0] == counted[1]


def test_marks_of_panels() -> None:
    """The mark of a panel's request is that of its run, without what the client has called the panel."""
    assert mark_of("req_0123456789ab0123456789abcdef0123-a_panel") == MARK
    assert (len(MARK), len(mark_of("req_short"))) == (32, 32)
