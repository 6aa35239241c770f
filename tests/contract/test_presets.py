"""What every row of the vendors' table must keep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.core.call import Call, CallOptions, UpstreamRequest
from gateway.core.catalog import ClientDialectName, Model, Provider, Route
from gateway.core.money import Price, parse_weight
from gateway.dialects.registry import CLIENT_DIALECTS, DIALECTS
from gateway.providers.presets import PRESETS, Preset
from gateway.providers.requests import build_request
from gateway.settings import checks

FIXTURES = Path(__file__).parents[1] / "golden" / "fixtures"
KEY = "sk-of-a-test"
LIMIT = 100  # tokens of an answer
BODY = b'{"model":"mine","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}'

every_preset = pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)


def asked(preset: Preset, base_url: str, call: Call, model: str = "theirs") -> UpstreamRequest:
    provider = Provider(
        preset.name,
        preset.dialect,
        base_url,
        preset.type,
        preset.region,
        parse_weight("1"),
        preset.auth(KEY),
        path=preset.path,
        omits=preset.omits,
        quirks=preset.quirks,
    )
    route = Route(provider, model)
    return build_request(
        call,
        route,
        Model("ours", "mid", parse_weight("1"), Price(1, 1, 1, 1), (route,), context_window=1, max_output_tokens=LIMIT),
    )


@every_preset
def test_row(preset: Preset) -> None:
    """A dialect that we speak, a header that is the key and little more, a base URL as an operator may write one."""
    name, value = preset.auth(KEY)

    assert preset.dialect in DIALECTS
    assert (name.lower(), value) in {
        ("authorization", f"Bearer {KEY}"),
        *((header, KEY) for header in ("x-api-key", "api-key", "x-goog-api-key")),
    }
    assert preset.base_url is None or checks.base_url(preset.base_url) == preset.base_url
    assert preset.base_url is None or preset.base_url.startswith(
        "https://" if preset.type == "cloud_direct" else "http://127.0.0.1:"
    )
    assert checks.region(preset.region).isupper()


@every_preset
def test_recorded(preset: Preset) -> None:
    """A vendor with an address of its own has recorded answers."""
    assert preset.base_url is None or list((FIXTURES / preset.name).glob("*/source.txt"))


@every_preset
@pytest.mark.parametrize("asking", CLIENT_DIALECTS)
def test_request(preset: Preset, asking: ClientDialectName) -> None:
    """A request for it goes to its address and path, with its credential and its name of the model."""
    dialect, base_url = DIALECTS[preset.dialect], preset.base_url or "http://10.0.0.1:8000/v1"
    call = CLIENT_DIALECTS[asking].read_call(BODY, CallOptions(), ())

    request = asked(preset, base_url, call)

    assert request.url == base_url + (preset.path or dialect.upstream_path)("theirs", stream=False)
    assert preset.auth(KEY) in request.headers
    assert json.loads(request.body).get("model", "in the path") in ("theirs", "in the path")
    assert "theirs" in request.url or b'"theirs"' in request.body
    assert KEY not in repr(request)


def test_azure_deployments() -> None:
    """Azure's path names the deployment, written so that no name of one can lead anywhere else."""
    call = CLIENT_DIALECTS["openai_chat"].read_call(BODY, CallOptions(), ())

    request = asked(PRESETS["azure"], "https://mine.openai.azure.com", call, "gpt 4o/../x?y")

    assert request.url == (
        "https://mine.openai.azure.com/openai/deployments/gpt%204o%2F..%2Fx%3Fy/chat/completions?api-version=2024-10-21"
    )
    assert ("api-key", KEY) in request.headers


@pytest.mark.parametrize(("stream", "method"), [(True, "streamGenerateContent?alt=sse"), (False, "generateContent")])
def test_gemini_methods(stream: bool, method: str) -> None:
    """Gemini's path names the model and the method, written so that no name of a model can lead anywhere else."""
    body = json.dumps({**json.loads(BODY), "stream": stream}).encode()
    call = CLIENT_DIALECTS["openai_chat"].read_call(body, CallOptions(), ())
    base_url = PRESETS["gemini"].base_url or ""

    urls = [asked(PRESETS["gemini"], base_url, call, name).url for name in ("models/g-1", "g/../x?key=y#z")]

    assert urls == [f"{base_url}/models/g-1:{method}", f"{base_url}/models/g%2F..%2Fx%3Fkey%3Dy%23z:{method}"]


@pytest.mark.parametrize("dialect", CLIENT_DIALECTS)
def test_what_a_vendor_refuses_is_not_sent(dialect: ClientDialectName) -> None:
    """A stream of Mistral's is not asked for its usage, in whatever dialect the call came; others are."""
    body = json.dumps({**json.loads(BODY), "stream": True, "stream_options": {"include_usage": True}}).encode()
    call = CLIENT_DIALECTS[dialect].read_call(body, CallOptions(), ())

    sent = {name: json.loads(asked(PRESETS[name], "http://h", call).body) for name in ("mistral", "openai")}

    assert "stream_options" not in sent["mistral"]
    assert sent["openai"]["stream_options"] == {"include_usage": True}
    assert sent["mistral"]["stream"] is sent["openai"]["stream"] is True


@pytest.mark.parametrize("preset", [preset for preset in PRESETS.values() if preset.dialect == "openai_chat"])
def test_what_no_vendor_takes(preset: Preset) -> None:
    """Lists of nothing and a limit beyond the model reach nobody; whatever else a vendor lacks, it is not asked for.

    What it is asked instead it may be asked again: its quirks find nothing to do then.
    """
    messages = [{"role": "developer", "content": [{"type": "text", "text": "a"}], "tool_calls": []}]
    body = {"model": "mine", "messages": messages, "max_completion_tokens": 9_999, "tools": [], "tool_choice": "none"}
    call = CLIENT_DIALECTS["openai_chat"].read_call(json.dumps(body).encode(), CallOptions(), ())

    request = asked(preset, "http://h", call)

    again = CLIENT_DIALECTS["openai_chat"].read_call(request.body, CallOptions(), ())
    sent = json.loads(request.body)
    assert asked(preset, "http://h", again).params.translated == ()
    assert not {"tools", "tool_choice"} & sent.keys()
    assert "tool_calls" not in sent["messages"][0]
    assert sent.get("max_tokens", sent.get("max_completion_tokens")) == LIMIT
    assert request.params.translated[0] == "max_completion_tokens"
