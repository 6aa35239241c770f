"""A provider's moderation in the running gateway, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.support.acts import Status, no_answer, status
from tests.support.client import Reply
from tests.support.config import CANARY, Config, openai_provider, standard
from tests.support.frames import chat, messages
from tests.support.gateway import CHAT, MESSAGES, PLAIN, Gateway
from tests.support.notation import Dialect, json_answer
from tests.support.provider import FakeProvider

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("moderation")]

KEYS = {mode: f"anm-sk-{CANARY}-{mode}" for mode in ("block", "monitor")}
MODEL = "omni-moderation-latest"


@dataclass
class Place:
    gateway: Gateway
    provider: FakeProvider

    async def post(self, mode: str, path: str, payload: dict[str, Any]) -> Reply:
        return await self.gateway.client(KEYS[mode]).request("POST", path, payload)

    @property
    def asked(self) -> list[str]:
        """The models of all requests that the provider got."""
        return [seen.json["model"] for seen in self.provider.requests]


def config(base_url: str) -> Config:
    out = standard(base_url)
    out["providers"]["judge"] = openai_provider(base_url)
    out["moderation"] = {"provider": "judge"}
    for mode, key in KEYS.items():
        guardrails = {"pii": {"mode": "redact"}, "moderation": {"mode": mode, "deadline_ms": 800}}
        out.setdefault("policies", {})[mode] = {"guardrails": guardrails}
        out["keys"][key] = {"tenant": "judged", "tier": "enterprise", "policy": mode}
    return out


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_place() -> AsyncIterator[Place]:
    async with FakeProvider() as provider, Gateway(config(provider.base_url), flags=PLAIN) as gateway:
        yield Place(gateway, provider)


@pytest.fixture
def place(module_place: Place) -> Place:
    module_place.provider.requests.clear()
    return module_place


def judged(violence: float) -> Status:
    """The answer for one text."""
    one = {
        "flagged": violence > 0.5,
        "categories": {"violence": violence > 0.5},
        "category_scores": {"violence": violence},
    }
    return status(200, (), {"id": "modr-1", "model": MODEL, "results": [one]})


def question(path: str, text: str, stream: bool = False) -> dict[str, Any]:
    payload = chat("m", stream=stream) if path == CHAT else messages("claude", stream=stream)
    return {**payload, "messages": [{"role": "user", "content": text}]}


WAYS: list[tuple[str, str, Dialect]] = [(CHAT, "m", "openai"), (MESSAGES, "claude", "anthropic")]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "model", "dialect"), WAYS)
async def test_what_is_flagged_is_refused(place: Place, path: str, model: str, dialect: Dialect, stream: bool) -> None:
    """It is a plain 403, and the provider of the model hears nothing of it."""
    place.provider.script(MODEL, [judged(0.9)])

    reply = await place.post("block", path, question(path, f"flagged {path} {stream}", stream))

    assert (reply.status, reply.json["error"]["code"]) == (403, "content_violation")
    assert reply.headers.get("x-anoman-guardrail-moderation") == "block score=0.90"
    assert place.asked == [MODEL]


@pytest.mark.parametrize(("path", "model", "dialect"), WAYS)
async def test_what_passes(place: Place, path: str, model: str, dialect: Dialect) -> None:
    """It is judged as it leaves, with placeholders for personal data, and the answer tells the verdict."""
    place.provider.script(MODEL, [judged(0.01)])
    place.provider.script(model, [json_answer("Hello", dialect=dialect)])

    reply = await place.post("block", path, question(path, f"mail jane@mail.co.id {path}"))

    assert reply.status == 200
    assert place.asked == [MODEL, place.provider.requests[1].json["model"]]
    assert place.provider.requests[0].json["input"] == [f"mail [EMAIL_1] {path}"]
    assert place.provider.requests[0].path == "/v1/moderations"
    assert reply.json["_anoman"]["guardrails"]["moderation"] == {"status": "pass", "score": 0.01}


@pytest.mark.parametrize("script", [[status(500)], [no_answer()]], ids=["fails", "silent"])
async def test_without_a_judgement(place: Place, script: list[Any]) -> None:
    """Where it is only watched the call goes on; where it has to pass, it is refused for now."""
    place.provider.script(MODEL, script)
    place.provider.script("m", [json_answer("Hello")])
    text = f"nobody judges {script}"

    watched = await place.post("monitor", CHAT, question(CHAT, text))
    refused = await place.post("block", CHAT, question(CHAT, text))

    assert (watched.status, watched.json["_anoman"]["guardrails"]["moderation"]) == (200, {"status": "error"})
    assert (refused.status, refused.json["error"]["code"]) == (503, "guards_unavailable")
