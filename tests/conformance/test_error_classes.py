"""What SDKs for Python make of each status, beside what the page about clients says."""

from __future__ import annotations

import re
from pathlib import Path

import anthropic
import openai
import pytest

from tests.support.acts import status
from tests.support.provider import FakeProvider

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
# As the gateway has them, with what it says besides, see `docs/errors.md`.
REFUSALS = {
    400: ("invalid_request_error", "model_not_found"),
    401: ("authentication_error", "invalid_api_key"),
    402: ("billing_error", "budget_exceeded"),
    403: ("permission_error", "right_denied"),
    409: ("invalid_request_error", "idempotency_in_progress"),
    422: ("invalid_request_error", "idempotency_mismatch"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("api_error", "limits_unavailable"),
}


def promised(code: int, sdk: str) -> str:
    """The class that the page names for *code* with *sdk* for Python."""
    (cell,) = re.findall(rf"^\| {code} \| ([^|]*) \|", PAGE.read_text(), re.MULTILINE)
    own = re.search(rf"{sdk}: `(\w+)`", cell)
    anybody = re.match(r"`(\w+)`", cell)
    found = own or anybody
    assert found is not None, cell
    return found[1]


def body_of(code: int) -> dict[str, object]:
    kind, name = REFUSALS[code]
    error = {"type": kind, "code": name, "message": "No.", "details": {"error_code": name}}
    return {"type": "error", "error": error}


@pytest.mark.parametrize("code", REFUSALS)
async def test_openai(code: int) -> None:
    """The class that OpenAI's SDK raises is the one that is promised."""
    async with FakeProvider() as provider:
        provider.script("m", [status(code, body=body_of(code))])
        client = openai.AsyncOpenAI(base_url=f"{provider.base_url}/v1", api_key="k", max_retries=0)

        with pytest.raises(openai.APIStatusError) as caught:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
        await client.close()

    assert type(caught.value).__name__ == promised(code, "openai")


@pytest.mark.parametrize("code", REFUSALS)
async def test_anthropic(code: int) -> None:
    """The class that Anthropic's SDK raises is the one that is promised."""
    async with FakeProvider() as provider:
        provider.script("m", [status(code, body=body_of(code))])
        client = anthropic.AsyncAnthropic(base_url=provider.base_url, api_key="k", max_retries=0)

        with pytest.raises(anthropic.APIStatusError) as caught:
            await client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}])
        await client.close()

    assert type(caught.value).__name__ == promised(code, "anthropic")
