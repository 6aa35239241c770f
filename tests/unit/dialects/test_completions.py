"""Whole JSON answers of both dialects: read once, mended where that is possible, rendered with the settled facts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.call import CallOptions
from gateway.core.catalog import DialectName
from gateway.core.errors import UpstreamFailed
from gateway.core.usage import Usage
from gateway.dialects.base import Completion
from gateway.dialects.registry import DIALECTS
from tests.support.notation import json_answer
from tests.unit.dialects.conversations import OURS, SLUG, anthropic_call, journey, openai_call
from tests.unit.receipts import receipt

CALLS = {"openai_chat": openai_call(stream=False), "anthropic_messages": anthropic_call(stream=False)}
NAMES: list[DialectName] = ["openai_chat", "anthropic_messages"]


def answer(dialect: DialectName, text: str = "ok", **more: Any) -> bytes:
    return json_answer(text, dialect="openai" if dialect == "openai_chat" else "anthropic", **more).body


def read(dialect: DialectName, body: bytes, options: CallOptions | None = None) -> Completion:
    return DIALECTS[dialect].read_completion(body, journey(CALLS[dialect], options=options))


def render(completion: Completion) -> dict[str, Any]:
    """The client's body, parsed."""
    facts = receipt(usage=completion.usage, usage_basis=completion.basis)
    out: dict[str, Any] = json.loads(completion.render(facts))
    return out


@pytest.mark.parametrize("dialect", NAMES)
def test_the_plain_answer(dialect: DialectName) -> None:
    """The provider's body in its order, our model name, whole usage, `_anoman` at the end."""
    completion = read(dialect, answer(dialect, x_new={"a": 1.50}))

    body = render(completion)

    assert (completion.usage, completion.basis, completion.note) == (Usage(7, 1), "provider_final", None)
    assert list(body)[-2:] == ["x_new", "_anoman"]
    assert body["model"] == SLUG
    assert body["x_new"] == {"a": 1.5}


@pytest.mark.parametrize("dialect", NAMES)
def test_stripping_leaves_the_extension_out(dialect: DialectName) -> None:
    """With the strip header there is none, not even that of a gateway behind us."""
    completion = read(dialect, answer(dialect, _anoman={"cost_usd": "1"}), CallOptions(strip_extension=True))

    assert "_anoman" not in render(completion)


@pytest.mark.parametrize("dialect", NAMES)
@pytest.mark.parametrize(("raw", "shown"), [(rb"a\ud83d", "a\ufffd"), (b"a\x01", "a\x01"), (b"a\xff", "a\ufffd")])
def test_what_can_be_mended(dialect: DialectName, raw: bytes, shown: str) -> None:
    """Lone surrogates, raw controls and bytes that are no UTF-8 cost a character, not the answer."""
    completion = read(dialect, answer(dialect, "TEXT").replace(b"TEXT", raw))

    body = render(completion)

    text = body["content"][0]["text"] if dialect == "anthropic_messages" else body["choices"][0]["message"]["content"]
    assert text == shown


NO_ANSWERS = [
    b"", b"{", b"[]", b"null", b"7", b"{}", b"<html>", b"[" * 99_999, b'{"choices":{},"content":{}}', b'{"x":1e999}',
]  # fmt: skip


@pytest.mark.parametrize("dialect", NAMES)
@pytest.mark.parametrize("body", NO_ANSWERS, ids=[repr(body[:20]) for body in NO_ANSWERS])
def test_what_is_no_answer(dialect: DialectName, body: bytes) -> None:
    """A body that is no answer is the provider's failure."""
    with pytest.raises(UpstreamFailed) as caught:
        read(dialect, body)

    assert caught.value.failure.reason == "malformed"


def test_errors_inside_a_200() -> None:
    """An error object is an error under any status; a null one is none, and is not passed on."""
    for dialect, body in (
        ("openai_chat", answer("openai_chat", error={"message": "m"})),
        ("anthropic_messages", b'{"type":"error","error":{"type":"api_error","message":"m"}}'),
    ):
        with pytest.raises(UpstreamFailed) as caught:
            read(dialect, body)  # type: ignore[arg-type]  # both are names of dialects
        assert caught.value.failure.reason == "in_band"

    assert "error" not in render(read("openai_chat", answer("openai_chat", error=None)))


@pytest.mark.parametrize("dialect", NAMES)
@pytest.mark.parametrize("usage", [None, {}, [], "x", {"prompt_tokens": -1, "input_tokens": -1}, {"x": 10**40}])
def test_missing_usage_is_estimated(dialect: DialectName, usage: Any) -> None:
    """Without a usable count ours takes its place, in the books and in the body."""
    completion = read(dialect, answer(dialect, "Jakarta", usage=usage))

    body = render(completion)

    assert (completion.usage.prompt_tokens, completion.basis) == (OURS, "estimated")
    assert completion.usage.completion_tokens > 0
    assert OURS in body["usage"].values()


@pytest.mark.parametrize("missing", ["", None, ...])
def test_tool_calls_without_arguments(missing: Any) -> None:
    """`{}` stands for the arguments of a call that has none; others stay as they are."""
    silent = {"name": "now"} if missing is ... else {"name": "now", "arguments": missing}
    calls = [{"id": "a", "type": "function", "function": silent}, {"id": "b", "function": {"arguments": '{"a": 1}'}}]
    choices = [{"index": 0, "message": {"role": "assistant", "tool_calls": calls}, "finish_reason": "tool_calls"}]

    body = render(read("openai_chat", answer("openai_chat", choices=choices)))

    told = [call["function"]["arguments"] for call in body["choices"][0]["message"]["tool_calls"]]
    assert told == ["{}", '{"a": 1}']


def test_what_a_vendor_leaves_out() -> None:
    """id, object and created are there; odd members of a message break nothing."""
    choice = b'{"message":{"tool_calls":7,"content":"x"},"finish_reason":"stop"}'
    body = render(read("openai_chat", b'{"choices":[' + choice + b"]}"))

    assert (body["id"], body["object"], body["created"]) == ("chatcmpl-req_1", "chat.completion", 1_700_000_000)


def test_anthropic_cache_fields() -> None:
    """Cached and written tokens are told apart in the usage, and together in the prompt's count."""
    usage = {"input_tokens": 9, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 3}

    completion = read("anthropic_messages", answer("anthropic_messages", usage=usage))

    assert completion.usage == Usage(129, 3, cached_tokens=100, cache_write_tokens=20)
    assert render(completion)["usage"] == usage
