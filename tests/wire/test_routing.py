"""Routes as they are chosen by the running gateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.chaos.scenes import until
from tests.support.acts import status
from tests.support.client import Reply
from tests.support.config import KEY, Config, model, openai_provider, standard, toml
from tests.support.frames import chat, messages
from tests.support.gateway import CHAT, MESSAGES, PLAIN, Gateway
from tests.support.notation import DONE, FIN, HANG, R, T, U
from tests.support.provider import FakeProvider
from tests.wire.test_command_line import run

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("routing")]

KEY_ID = f"{KEY}-id"
KEY_SG = f"{KEY}-sg"
WHOLE = [R(), T("Hi"), FIN(), U(3, 1), DONE]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


@dataclass
class Place:
    gateway: Gateway
    provider: FakeProvider

    async def settled(self, reply: Reply) -> list[dict[str, Any]]:
        """The receipts of *reply*'s request: one, as soon as it is there."""
        request_id = reply.headers.get("x-request-id")
        while True:
            lines = [line for line in await self.gateway.settled(1) if line["request_id"] == request_id]
            if lines:
                return lines

    def asked(self) -> list[str]:
        """The providers' names of the models that were asked for."""
        return [seen.json["model"] for seen in self.provider.requests]


def config(base_url: str) -> Config:
    """Three accounts of one fake, in three regions; what a request asks for says which route it took."""
    routes = ("us/in-us", "sg/in-sg", "id/in-id")
    out = standard(
        base_url,
        providers={name: openai_provider(base_url, region=name.upper()) for name in ("us", "sg", "id")},
        models={
            "all": model(*routes),
            "abroad": model("us/in-us"),
            "home": model(*routes, residency="id_only"),
            "least": model(*routes, strategy="least_loaded"),
            "weighted": model(*routes, strategy="weighted"),
            "toolless": model("us/in-us", tools=False),
        },
        keys={
            KEY_ID: {"tenant": "id", "tier": "enterprise", "region_preference": "id_only"},
            KEY_SG: {"tenant": "sg", "tier": "enterprise", "region_preference": "sg_only"},
        },
    )
    for route, weight in zip(out["models"]["weighted"]["routes"], (0, 1, 3), strict=True):
        route["weight"] = weight
    return out


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_place() -> AsyncIterator[Place]:
    async with FakeProvider() as provider, Gateway(config(provider.base_url), flags=PLAIN) as gateway:
        yield Place(gateway, provider)


@pytest.fixture
def place(module_place: Place) -> Place:
    module_place.provider.requests.clear()
    for region in ("us", "sg", "id"):
        module_place.provider.script(f"in-{region}", WHOLE)
    return module_place


async def test_a_restricted_key_stays_at_home(place: Place) -> None:
    """The first route abroad is passed over, and the region of the provider is the one that is reported."""
    reply = await place.gateway.client(KEY_ID).request("POST", CHAT, chat("all", stream=True))

    assert (reply.status, place.asked()) == (200, ["in-id"])
    assert b'"provider_region":"ID"' in reply.body


async def test_fallback_fails_closed(place: Place) -> None:
    """When the only route at home is down the answer is 503: no other is asked."""
    place.provider.script("in-id", [status(500, {}, {})])

    reply = await place.gateway.client(KEY_ID).request("POST", CHAT, chat("all"))

    assert (reply.status, set(place.asked())) == (503, {"in-id"})


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_residency_denied(place: Place, path: str) -> None:
    """A model that is nowhere at home is a 403 in the endpoint's envelope; no provider hears of it."""
    payload = chat("abroad") if path == CHAT else messages("abroad")

    reply = await place.gateway.client(KEY_SG).request("POST", path, payload)
    (row,) = await place.settled(reply)

    error = reply.json["error"]
    assert (reply.status, error["code"], reply.headers.get("x-should-retry")) == (403, "residency_denied", "false")
    assert error["type"] == ("invalid_request_error" if path == CHAT else "permission_error")
    assert (row["outcome"], row["status"], row["attempts"], place.asked()) == ("rejected", 403, [], [])


async def test_a_slug_that_stays_at_home(place: Place) -> None:
    """A model's own residency holds for every key, and two that exclude each other leave nothing."""
    anybody = await place.gateway.client().request("POST", CHAT, chat("home", stream=True))
    elsewhere = await place.gateway.client(KEY_SG).request("POST", CHAT, chat("home"))

    assert (anybody.status, elsewhere.status, place.asked()) == (200, 403, ["in-id"])


async def test_models_of_a_restricted_key(place: Place) -> None:
    """`GET /v1/models` lists what the key could call, and where; another model is as good as unknown."""
    client = place.gateway.client(KEY_SG)

    listed = (await client.request("GET", "/v1/models")).json["data"]
    one = await client.request("GET", "/v1/models/abroad")

    regions = {entry["id"]: entry["_anoman"]["residency"] for entry in listed}
    assert (regions["all"], regions["least"]) == (["SG"], ["SG"])
    assert ({"abroad", "home"} & regions.keys(), one.status) == (set(), 400)


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_tools_of_a_model_without(place: Place, path: str) -> None:
    """A 400 that names the member."""
    payload = chat("toolless", tools=[TOOL]) if path == CHAT else messages("toolless", tools=[{"name": "f"}])

    reply = await place.gateway.client().request("POST", path, payload)

    assert (reply.status, reply.json["error"]["code"], place.asked()) == (400, "invalid_request", [])
    assert reply.json["error"]["message"] == "This model cannot call tools."


async def test_least_loaded(place: Place) -> None:
    """Streams that hang are counted until their clients leave, then the routes are free again."""
    for region in ("us", "sg", "id"):
        place.provider.script(f"in-{region}", [R(), T("Hi"), HANG])
    streams = []
    for count in range(1, 7):
        streams.append(await place.gateway.client().open("POST", CHAT, chat("least", stream=True)))
        await until(partial(lambda wanted: len(place.provider.requests) == wanted, count))
    busy = Counter(place.asked())
    for stream, seen in zip(streams, [*place.provider.requests], strict=True):
        if seen.json["model"] == "in-sg":
            stream.close()
            await seen.gone()
    place.provider.script("in-sg", WHOLE)

    reply = await place.gateway.client().request("POST", CHAT, chat("least", stream=True))

    assert busy == {"in-us": 2, "in-sg": 2, "in-id": 2}
    assert (reply.status, place.asked()[-1]) == (200, "in-sg")
    for stream in streams:
        await stream.dispose()


async def test_weighted(place: Place) -> None:
    """Shares by weight; a weight of 0 is never first."""
    client = place.gateway.client()

    for _ in range(80):
        await client.request("POST", CHAT, chat("weighted", stream=True))

    counts = Counter(place.asked())
    assert counts["in-us"] == 0
    assert 40 <= counts["in-id"] <= 75  # 60 on average; six deviations either way
    assert counts["in-sg"] + counts["in-id"] == 80


def explained(tmp_path: Path, *arguments: str) -> tuple[int, list[str]]:
    path = tmp_path / "gateway.toml"
    path.write_text(toml(config("http://127.0.0.1:9")))
    done = run("models", "explain", *arguments, "--config", str(path))
    assert KEY not in done.stdout + done.stderr
    return done.returncode, (done.stdout + done.stderr).splitlines()


async def test_explain(tmp_path: Path) -> None:
    """`models explain` prints the routes as they would be asked, for the key in question, and asks nobody."""
    code, lines = explained(tmp_path, "all", "--key", KEY_ID)

    assert code == 0
    assert lines[0] == "all: openai_chat, strategy fallback, residency any"
    assert lines[2:] == [
        "  1. taken  id/in-id (ID): native, number 3 in the file",
        "  -  left   us/in-us (US): it computes in US, and the key is id_only: only ID",
        "  -  left   sg/in-sg (SG): it computes in SG, and the key is id_only: only ID",
    ]


async def test_explain_a_prompt(tmp_path: Path) -> None:
    """Its length and an image in it are options."""
    code, lines = explained(tmp_path, "all", "--key", KEY_ID, "--tokens", "999999999", "--image")

    assert (code, lines[-1].partition(" > ")[0]) == (0, "999999999 tokens")


async def test_explain_by_the_id_of_a_key(tmp_path: Path) -> None:
    """A key may be named by the id in the log, since a shell's history is no place for secrets."""
    _, lines = explained(tmp_path, "abroad", "--key", KEY_SG, "--endpoint", "messages")
    key_id = lines[1].split(" ")[1].removesuffix(":")

    code, again = explained(tmp_path, "abroad", "--key", key_id, "--endpoint", "messages")

    assert (code, again) == (0, lines)
    assert again[-1].startswith("no route is left: 403 residency_denied")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("nothing",), "400 model_not_found"),
        (("all", "--key", "anm-sk-wrong"), "There is no such key"),
    ],
)
async def test_explain_what_is_not_there(tmp_path: Path, arguments: tuple[str, ...], problem: str) -> None:
    """One clear line and exit 1."""
    code, lines = explained(tmp_path, *arguments)

    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith(problem)
