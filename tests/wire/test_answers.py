"""Answers under guards in the running gateway: GRD-05 and what else becomes of them on their way out, over sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.support.acts import pause_ms, stall
from tests.support.client import Reply
from tests.support.config import CANARY, Config, standard
from tests.support.frames import chat, messages, parsed
from tests.support.gateway import CHAT, MESSAGES, Gateway
from tests.support.notation import CBD, CBS, CBX, DONE, EOF_OK, FIN, MD, MS, MX, TC, R, T, U, chunk, json_answer
from tests.support.panels import RUN, by_panel, run_of
from tests.support.provider import FakeProvider
from tests.wire.desk import error_of, items, text_of

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("answers")]

KEYS = {mode: f"anm-sk-{CANARY}-{mode}" for mode in ("redact", "block", "monitor", "back")}
NIK = "3171011505900001"
LONG = "and so it goes on and on. " * 20
PIECES = ("mail jane.", "doe@exam", "ple.com now")
BOTH = (CHAT, MESSAGES)


@dataclass
class Place:
    gateway: Gateway
    provider: FakeProvider

    async def post(self, mode: str, path: str, payload: dict[str, Any], **headers: str) -> Reply:
        return await self.gateway.client(KEYS[mode], **headers).request("POST", path, payload)

    async def row(self, reply: Reply) -> dict[str, Any]:
        """The line that tells how *reply*'s request ended."""
        request_id = reply.headers.get("x-request-id")
        return await self.gateway.line(lambda line: line.get("request_id") == request_id and "outcome" in line)


def config(base_url: str) -> Config:
    out = standard(base_url)
    out["policies"] = {
        mode: {"guardrails": {"response_content": {"mode": mode, "guards": ["pii", "content"]}}}
        for mode in ("redact", "block", "monitor")
    }
    out["policies"]["back"] = {"guardrails": {"pii": {"mode": "redact", "reversible": True}}}
    for mode, key in KEYS.items():
        out["keys"][key] = {"tenant": "guarded", "tier": "enterprise", "policy": mode}
    return out


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_place() -> AsyncIterator[Place]:
    async with FakeProvider() as provider, Gateway(config(provider.base_url)) as gateway:
        yield Place(gateway, provider)


@pytest.fixture
def place(module_place: Place) -> Place:
    module_place.provider.requests.clear()
    return module_place


def answer(path: str, *pieces: str, abroad: bool = False) -> list[Any]:
    """A stream of *pieces* by a provider of *path*'s dialect, or of the other one."""
    if (path == CHAT) is not abroad:
        return [R(), *map(T, pieces), FIN("stop"), U(7, 3), DONE, EOF_OK]
    return [MS(7), CBS(0), *(CBD(0, piece) for piece in pieces), CBX(0), MD(usage=3), MX, EOF_OK]


def asked(path: str, text: str = "Hi", *, stream: bool = True, abroad: bool = False) -> tuple[str, dict[str, Any]]:
    """The model, and a request for it."""
    if path == CHAT:
        model = "chat-abroad" if abroad else "m"
        return model, chat(model, text, stream=stream)
    model = "messages-abroad" if abroad else "claude"
    return model, messages(model, text, stream=stream)


def told(reply: Reply, path: str) -> dict[str, Any]:
    """What a stream's `_anoman` says of guards."""
    last = items(reply)[-2] if path == CHAT else items(reply)[-1]
    out: dict[str, Any] = last["_anoman"]["guardrails"]["response_content"]
    return out


@pytest.mark.parametrize("abroad", [False, True], ids=["native", "translated"])
@pytest.mark.parametrize("path", BOTH)
async def test_grd_05(place: Place, path: str, abroad: bool) -> None:
    """GRD-05: a value split over chunks is masked in its place; no piece that allows to read it ever leaves."""
    model, payload = asked(path, abroad=abroad)
    place.provider.script(model, answer(path, *PIECES, abroad=abroad))

    reply = await place.post("redact", path, payload)

    assert text_of(items(reply)) == "mail [EMAIL_1] now"
    for piece in (b"jane", b"doe@", b"exam", b"ple.com"):
        assert piece not in reply.body
    assert told(reply, path) == {"status": "pass", "redacted": 1, "findings": {"email": 1}}
    row = await place.row(reply)
    assert (row["outcome"], row["guards"]) == ("completed", ["response_content: pass redacted 1 entity"])
    assert (row["prompt_tokens"], row["completion_tokens"]) == (7, 3)


@pytest.mark.parametrize("path", BOTH)
async def test_silence_within_a_value(place: Place, path: str) -> None:
    """Words leave in a silence; what could be half a value does not, however long it lasts."""
    model, payload = asked(path)
    words = answer(path, *PIECES)
    at = words.index(T(PIECES[1]) if path == CHAT else CBD(0, PIECES[1]))
    place.provider.script(model, [*words[:at], pause_ms(300), *words[at:]])

    async with place.gateway.client(KEYS["redact"]).stream(path, payload) as stream:
        said = [text for frame in await stream.all_frames() if (text := text_of(parsed([frame])))]

    assert said == ["mail ", "[EMAIL_1] now"]


@pytest.mark.parametrize("path", BOTH)
async def test_stop(place: Place, path: str) -> None:
    """A stream that is stopped ends with the typed frame and the terminator, the provider is left, tokens are paid."""
    model, payload = asked(path)
    said = answer(path, *PIECES, LONG)
    place.provider.script(model, [*said[: 6 if path == CHAT else 7], stall()])

    reply = await place.post("block", path, payload)
    row = await place.row(reply)

    frames = items(reply)
    error = next(item["error"] for item in frames if isinstance(item, dict) and "error" in item)
    assert text_of(frames) == "mail "
    assert (error["code"], error["_anoman"]["failure_class"]) == ("content_violation", "policy_stop")
    assert frames[-1] == "[DONE]" if path == CHAT else frames[-1]["type"] == "error"
    assert (row["outcome"], row["status"], row["error_code"]) == ("interrupted", 200, "content_violation")
    assert error["_anoman"]["completion_tokens"] == row["completion_tokens"] > 0
    assert float(row["cost_usd"]) > 0
    await place.provider.requests[-1].gone(within_s=2.0)


@pytest.mark.parametrize("path", BOTH)
async def test_forms_that_few_providers_send(place: Place, path: str) -> None:
    """GRD-05: arguments as an object, and a page that the provider has fetched, are masked like all else."""
    model, payload = asked(path)
    mail = "kim@example.com"
    if path == CHAT:
        call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": {"to": mail}}}
        said = [R(), chunk({"tool_calls": [call]}), FIN("tool_calls"), U(7, 3), DONE, EOF_OK]
    else:
        page = {"content": {"type": "document", "source": {"type": "text", "data": f"by {mail}"}}}
        said = [MS(7), CBS(0, "web_fetch_tool_result", content=page), CBX(0), MD(usage=3), MX, EOF_OK]
    place.provider.script(model, said)

    reply = await place.post("redact", path, payload)

    assert b"kim" not in reply.body
    assert told(reply, path) == {"status": "pass", "redacted": 1, "findings": {"email": 1}}


@pytest.mark.parametrize("path", BOTH)
async def test_whole_answers(place: Place, path: str) -> None:
    """A JSON answer is masked, or a plain 403 that is paid for; a header has the verdict."""
    model, payload = asked(path, stream=False)
    whole = json_answer("mail kim@example.com", (7, 3), dialect="openai" if path == CHAT else "anthropic")
    place.provider.script(model, [whole], [whole])

    masked = await place.post("redact", path, payload)
    stopped = await place.post("block", path, payload)
    row = await place.row(stopped)

    assert b"mail [EMAIL_1]" in masked.body
    assert masked.headers.get("x-anoman-guardrail-response-content") == "pass redacted 1 entity"
    assert masked.json["_anoman"]["guardrails"]["response_content"]["redacted"] == 1
    assert (stopped.status, error_of(stopped)["code"]) == (403, "content_violation")
    assert stopped.headers.get("x-should-retry") == "false"
    assert b"kim@" not in stopped.body
    assert (row["outcome"], row["status"], row["completion_tokens"]) == ("interrupted", 403, 3)
    assert float(row["cost_usd"]) > 0


async def test_monitor(place: Place) -> None:
    """What is only watched leaves as it is, and is told of."""
    model, payload = asked(CHAT)
    place.provider.script(model, answer(CHAT, *PIECES))

    reply = await place.post("monitor", CHAT, payload)

    assert text_of(items(reply)) == "".join(PIECES)
    assert told(reply, CHAT) == {"status": "flag", "findings": {"email": 1}}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("path", BOTH)
async def test_originals(place: Place, path: str, stream: bool) -> None:
    """The provider has a placeholder, and the caller gets the original back, also where it comes in pieces."""
    model, payload = asked(path, f"NIK saya {NIK}, cek", stream=stream)
    dialect = "openai" if path == CHAT else "anthropic"
    said = json_answer("of [NIK_1].", dialect=dialect)  # type: ignore[arg-type]  # a dialect
    place.provider.script(model, answer(path, "of [NI", "K_1", "].") if stream else [said])

    reply = await place.post("back", path, payload)

    (sent,) = place.provider.requests
    assert NIK.encode() not in sent.body
    assert b"[NIK_1]" in sent.body
    text = text_of(items(reply)) if stream else reply.body.decode()
    assert f"of {NIK}." in text


async def test_originals_in_arguments(place: Place) -> None:
    """Arguments of a tool get them back too."""
    model, payload = asked(CHAT, f"NIK saya {NIK}, cek")
    calls = [TC(0, '{"nik":"[NI', name="check"), TC(0, 'K_1]"}')]
    place.provider.script(model, [R(), *calls, FIN("tool_calls"), U(7, 3), DONE, EOF_OK])

    reply = await place.post("back", CHAT, payload)

    said = [item["choices"][0]["delta"].get("tool_calls") for item in items(reply)[:-1]]
    assert "".join(call[0]["function"]["arguments"] for call in said if call) == f'{{"nik":"{NIK}"}}'


async def test_panels(place: Place) -> None:
    """Each panel of the playground has its own masks, and its own verdict."""
    place.provider.script("m", answer(CHAT, *PIECES))
    place.provider.script("chat-abroad", answer(CHAT, "and kim@example.com", abroad=True))

    reply = await place.post("redact", RUN, run_of("m", "chat-abroad"))

    panels = by_panel(items(reply))
    assert [text_of(panels[name]) for name in "ab"] == ["mail [EMAIL_1] now", "and [EMAIL_1]"]
    assert [panels[name][-1]["_anoman"]["guardrails"]["response_content"]["redacted"] for name in "ab"] == [1, 1]


async def test_named_calls(place: Place) -> None:
    """A named call that is asked for again has the answer that left, byte for byte."""
    model, payload = asked(CHAT)
    place.provider.script(model, answer(CHAT, *PIECES))

    first = await place.post("redact", CHAT, payload, idempotency_key="answers-1")
    again = await place.post("redact", CHAT, payload, idempotency_key="answers-1")

    assert text_of(items(first)) == "mail [EMAIL_1] now"
    assert again.body == first.body
    assert len(place.provider.requests) == 1
