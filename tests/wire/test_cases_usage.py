"""The USE cases of the catalogue that this version can have, over sockets: what is counted, charged and told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
import pytest_asyncio

from tests.support.acts import status
from tests.support.config import model, standard
from tests.support.gateway import CHAT, MESSAGES, Gateway, UncleanExitError
from tests.support.notation import CBD, CBS, CBX, DONE, FIN, MD, MS, MX, R, T, U, json_answer
from tests.support.stage import Act, Seen
from tests.wire.desk import BOTH, Desk, items, open_desk, sdk_loop

pytestmark = pytest.mark.asyncio(loop_scope="module")

FREE = model("fake-openai/free", price=("0", "0", "0"))
DOCUMENTS = model("fake-openai/documents", price=("3", "3", "5"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    async with open_desk(models={"free": FREE, "documents": DOCUMENTS}) as desk:
        yield desk


def usage_if_asked(seen: Seen) -> list[bytes | Act]:
    """A provider that counts only when it is asked to."""
    asked = (seen.json.get("stream_options") or {}).get("include_usage") is True
    return [R(), T("a"), T("b"), FIN(), U(7, 2) if asked else b"", DONE]


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": True}, {"x": 1}])
async def test_use_01_usage_is_always_asked_for(desk: Desk, options: dict[str, Any] | None) -> None:
    """The provider is asked for its usage whatever the caller said; what else the caller said stays."""
    fields: dict[str, Any] = {} if options is None else {"stream_options": options}

    reply = await desk.ask(usage_if_asked, **fields)
    receipt = await desk.receipt(reply)

    asked = desk.provider.requests[-1].json["stream_options"]
    assert asked == {**(options or {}), "include_usage": True}
    assert (receipt["prompt_tokens"], receipt["completion_tokens"], receipt["usage_basis"]) == (7, 2, "provider_final")


async def test_use_01_estimated_where_it_never_comes(desk: Desk) -> None:
    """A provider that does not count is counted by us, and the answer says so."""
    reply = await desk.ask([R(), T("Once "), T("upon"), FIN(), DONE])
    receipt = await desk.receipt(reply)

    assert (receipt["usage_basis"], receipt["prompt_tokens"], receipt["completion_tokens"]) == ("estimated", 5, 2)
    assert items(reply)[-2]["_anoman"]["usage_basis"] == "estimated"
    assert Decimal(receipt["cost_usd"]) > 0


async def test_use_01_nothing_is_added_without_streaming(desk: Desk) -> None:
    """A JSON answer has its usage anyway; `stream_options` would be refused there."""
    await desk.ask([json_answer("a")], stream=False)

    assert "stream_options" not in desk.provider.requests[-1].json


@pytest.mark.parametrize("options", [None, {"include_usage": False}, {"include_usage": True}])
async def test_use_02_usage_rides_on_the_finish_chunk(desk: Desk, options: dict[str, Any] | None) -> None:
    """No chunk without choices, and one usage, however the caller asked: clients index, and clients add."""
    fields: dict[str, Any] = {} if options is None else {"stream_options": options}

    reply = await desk.ask([R(), T("a"), FIN(), U(7, 2), DONE], **fields)

    with_usage = [item for item in items(reply)[:-1] if item.get("usage")]
    assert sdk_loop(reply)[0] == "a"
    assert [item["choices"][0]["finish_reason"] for item in with_usage] == ["stop"]


async def test_use_04_cumulative_counts(desk: Desk) -> None:
    """A usage on every chunk is cumulative."""
    reply = await desk.ask([R(), T("a", (7, 1)), T("b", (7, 2)), T("c", (7, 3)), FIN("stop", (7, 3)), DONE])
    receipt = await desk.receipt(reply)

    assert (receipt["prompt_tokens"], receipt["completion_tokens"]) == (7, 3)
    assert reply.body.count(b'"usage"') == 1


async def test_use_05_anthropic_counts(desk: Desk) -> None:
    """`message_delta` replaces what `message_start` said, field by field."""
    final = {"output_tokens": 16, "cache_read_input_tokens": 1, "input_tokens": 9}
    script = [MS(9, 1, cache_read_input_tokens=1), CBS(0), CBD(0, "a"), CBX(0), MD("end_turn", final), MX]

    reply = await desk.ask(script, path=MESSAGES)
    receipt = await desk.receipt(reply)

    assert (receipt["prompt_tokens"], receipt["cached_tokens"], receipt["completion_tokens"]) == (10, 1, 16)
    assert items(reply)[-2]["usage"] == final


CACHED = {
    "prompt_tokens": 2006,
    "completion_tokens": 300,
    "total_tokens": 2306,
    "prompt_tokens_details": {"cached_tokens": 1920},
}


@pytest.mark.parametrize("stream", [True, False])
async def test_use_07_cached_tokens_are_part_of_the_prompt(desk: Desk, stream: bool) -> None:
    """86 x 2.50 + 1920 x 1.25 + 300 x 10 per million: nothing is charged twice."""
    script = [R() + T("a") + FIN("stop", CACHED) + DONE if stream else json_answer("a", usage=CACHED)]

    reply = await desk.ask(script, stream=stream)
    receipt = await desk.receipt(reply)

    extension = items(reply)[-2]["_anoman"] if stream else reply.json["_anoman"]
    assert receipt["cost_usd"] == extension["cost_usd"] == "0.005615"
    assert extension["cache"] == {"hit": True, "type": "provider"}
    assert (reply.headers.get("x-anoman-cache"), receipt["cached_tokens"]) == ("none" if stream else "provider", 1920)


async def test_use_07_in_deepseeks_words(desk: Desk) -> None:
    """A vendor's own name for cached tokens counts as well, and stays in the usage."""
    usage = {"prompt_tokens": 2006, "completion_tokens": 300, "prompt_cache_hit_tokens": 1920}

    reply = await desk.ask([R() + T("a") + FIN("stop", usage) + DONE])
    receipt = await desk.receipt(reply)

    shown = items(reply)[-3]["usage"]
    assert receipt["cost_usd"] == "0.005615"
    assert (shown["prompt_tokens_details"], shown["prompt_cache_hit_tokens"]) == ({"cached_tokens": 1920}, 1920)


async def test_use_11_reasoning_is_part_of_the_completion(desk: Desk) -> None:
    """Reasoning tokens are charged once."""
    usage = {"prompt_tokens": 0, "completion_tokens": 500, "completion_tokens_details": {"reasoning_tokens": 400}}

    receipt = await desk.receipt(await desk.ask([R() + T("a") + FIN("stop", usage) + DONE]))

    assert (receipt["completion_tokens"], receipt["reasoning_tokens"]) == (500, 400)
    assert receipt["cost_usd"] == "0.005000"


@pytest.mark.parametrize("missing", [{"input": "1"}, {"output": "1"}, {}])
async def test_use_12_an_unknown_price(missing: dict[str, str]) -> None:
    """A model without a price stops the gateway at its start: an unknown price is never 0."""
    config = standard("http://127.0.0.1:1")
    config["models"]["m"]["price"] = missing

    with pytest.raises(UncleanExitError, match="before it was ready"):
        async with Gateway(config):
            pass


async def test_use_12_a_price_of_nothing(desk: Desk) -> None:
    """A price that is 0 on purpose works."""
    receipt = await desk.receipt(await desk.ask([R() + T("a") + FIN("stop", (7, 1)) + DONE], model="free"))

    assert (receipt["cost_usd"], receipt["weighted_tokens"]) == ("0.000000", 32)


ABSURD: list[dict[str, Any]] = [
    {"prompt_tokens": -5, "completion_tokens": "12", "total_tokens": 9 * 10**12},
    {"prompt_tokens": 10**12, "completion_tokens": -1},
    {"prompt_tokens": None, "completion_tokens": None},
    {"prompt_tokens": 1.5, "completion_tokens": True, "prompt_tokens_details": "x"},
    {"prompt_tokens": 10**30, "completion_tokens": {"x": 1}, "y": 10**30},
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("usage", ABSURD)
async def test_use_15_absurd_counts(desk: Desk, usage: dict[str, Any], stream: bool) -> None:
    """Counts that cannot be are replaced by ours: no negative or endless spend, no exception, a remark."""
    script = [R() + T("a") + FIN("stop", usage) + DONE if stream else json_answer("a", usage=usage)]

    reply = await desk.ask(script, stream=stream)
    receipt = await desk.receipt(reply)

    assert reply.status == 200
    assert (receipt["prompt_tokens"], receipt["completion_tokens"], receipt["usage_basis"]) == (5, 1, "estimated")
    assert receipt["note"] == ("usage_odd" if usage["prompt_tokens"] is not None else None)
    assert 0 < Decimal(receipt["cost_usd"]) < 1


@pytest.mark.parametrize("path", BOTH)
async def test_use_15_absurd_counts_of_either_dialect(desk: Desk, path: str) -> None:
    """The same without streaming in Anthropic's words, and with no usage at all."""
    usage = {"input_tokens": -5, "output_tokens": "12", "prompt_tokens": [], "completion_tokens": 10**12}
    dialect: Any = "openai" if path == CHAT else "anthropic"

    odd: list[Any] = [usage, None, [], "x", 7]

    for said in odd:
        reply = await desk.ask([json_answer("a", dialect=dialect, usage=said)], path=path, stream=False)
        receipt = await desk.receipt(reply)
        assert reply.status == 200
        assert (receipt["prompt_tokens"], receipt["usage_basis"]) == (5 if path == CHAT else 6, "estimated")
        assert receipt["completion_tokens"] >= 1


async def test_use_17_the_documents_example(desk: Desk) -> None:
    """Seven and four tokens of a mid model: 44 weighted tokens and 0.000041 USD, as a plain decimal string."""
    script = [R(), T("Once "), T("upon a "), T("time..."), FIN("stop", (7, 4)), DONE]

    reply = await desk.ask(script, model="documents")

    extension = items(reply)[-2]["_anoman"]
    assert (extension["cost_usd"], extension["weighted_tokens"]) == ("0.000041", 44)


async def test_use_17_money_adds_up(desk: Desk) -> None:
    """A sum of many small costs is exact."""
    desk.provider.script("documents", [R() + T("a") + FIN("stop", (7, 4)) + DONE])

    receipts = [await desk.receipt(await desk.ask(model="documents")) for _ in range(50)]

    assert sum(Decimal(line["cost_usd"]) for line in receipts) == Decimal("0.002050")


async def test_failures_cost_nothing(desk: Desk) -> None:
    """Refused and failed requests, and streams that break before a token, are not charged."""
    refused = await desk.receipt(await desk.ask([status(400, (), {"error": {"message": "m"}})]))
    failed = await desk.receipt(await desk.ask([status(500)], stream=False))

    assert [line["cost_usd"] for line in (refused, failed)] == ["0.000000"] * 2
    assert [line["outcome"] for line in (refused, failed)] == ["rejected", "failed"]
