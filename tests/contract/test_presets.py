"""What every row of the vendors' table must keep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.core.call import CallOptions
from gateway.core.catalog import Provider, Route
from gateway.core.money import parse_weight
from gateway.dialects.registry import DIALECTS
from gateway.providers.presets import PRESETS, Preset
from gateway.providers.requests import build_request
from gateway.settings import checks

FIXTURES = Path(__file__).parents[1] / "golden" / "fixtures"
KEY = "sk-of-a-test"
BODY = b'{"model":"mine","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}'

every_preset = pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)


@every_preset
def test_row(preset: Preset) -> None:
    """A dialect that we speak, a header that is the key and little more, a base URL as an operator may write one."""
    name, value = preset.auth(KEY)

    assert preset.dialect in DIALECTS
    assert (name.lower(), value) in {("authorization", f"Bearer {KEY}"), ("x-api-key", KEY)}
    assert preset.base_url is None or checks.base_url(preset.base_url) == preset.base_url
    assert preset.base_url is None or preset.base_url.startswith("https://")
    assert checks.region(preset.region).isupper()


@every_preset
def test_recorded(preset: Preset) -> None:
    """A vendor with an address of its own has recorded answers."""
    assert preset.base_url is None or list((FIXTURES / preset.name).glob("*/source.txt"))


@every_preset
def test_request(preset: Preset) -> None:
    """A request for it goes to its address and its dialect's path, with its credential and its name of the model."""
    dialect, base_url = DIALECTS[preset.dialect], preset.base_url or "http://10.0.0.1:8000/v1"
    provider = Provider(
        preset.name, preset.dialect, base_url, preset.type, preset.region, parse_weight("1"), preset.auth(KEY)
    )
    call = dialect.read_call(BODY, CallOptions(), ())

    request = build_request(call, Route(provider, "theirs"), dialect)

    assert request.url == base_url + dialect.upstream_path
    assert preset.auth(KEY) in request.headers
    assert json.loads(request.body)["model"] == "theirs"
    assert KEY not in repr(request)
