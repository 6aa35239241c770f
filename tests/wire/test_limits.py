"""Limits of keys over sockets, counted in one process: LIM-01, LIM-08 to LIM-10, and streams that reach a budget."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.acts import head, pause_ms, repeat, status
from tests.support.client import Client, Reply
from tests.support.config import Config
from tests.support.frames import chat, messages
from tests.support.gateway import CHAT, MESSAGES, PLAIN, Gateway
from tests.support.limits import limited, secret, tables
from tests.support.notation import CBD, CBS, DONE, FIN, MS, R, T, U, json_answer
from tests.support.provider import FakeProvider

# By `config.model`: 2.50 USD per million tokens of prompts and 10.00 of answers. A call with `max_tokens` 50 holds some
# 0.00052: two fit in it, three do not.
TWO_CALLS = "0.0012"
EIGHT_CALLS = "0.0042"  # half of it is for four
PLAYGROUND = "/anoman/v1/playground/run"
MANY = 5_000  # tokens that the provider would send: more than any budget here


class Scene:
    """A provider, a gateway before it, and a client with the key `mine`."""

    def __init__(self, provider: FakeProvider, gateway: Gateway) -> None:
        self.provider, self.gateway = provider, gateway
        self.client: Client = gateway.client(secret("mine"))

    async def ask(self, **more: Any) -> Reply:
        return await self.client.request("POST", CHAT, call(**more))

    async def receipt(self) -> dict[str, Any]:
        (line,) = await self.gateway.settled(1)
        return line


@asynccontextmanager
async def scene(folder: Path, mine: dict[str, Any], **overrides: Config) -> AsyncIterator[Scene]:
    async with FakeProvider() as provider:
        config = limited(provider.base_url, await tables(folder), {"mine": mine}, **overrides)
        async with Gateway(config) as gateway:
            provider.script("m", [json_answer("Hi", (7, 50))])
            yield Scene(provider, gateway)


def call(**more: Any) -> dict[str, Any]:
    return chat("m", **{"stream": False, "max_tokens": 50, **more})


async def test_lim_01_parallel_calls_share_a_budget(tmp_path: Path) -> None:
    """LIM-01: of twenty at once on a budget for two, two reach the provider and eighteen are refused with 402."""
    async with scene(tmp_path, {"budget_usd": TWO_CALLS}) as it:
        replies = await asyncio.gather(*[it.ask() for _ in range(20)])

        refused = next(reply for reply in replies if reply.status == 402)
        assert sorted(reply.status for reply in replies) == [200, 200] + [402] * 18
        assert len(it.provider.requests) == 2
        assert refused.headers.get("x-should-retry") == "false"
        error = refused.json["error"]
        assert (error["code"], error["type"]) == ("budget_exceeded", "insufficient_quota")
        assert re.fullmatch(SHORT, error["message"]), error["message"]


SHORT = (
    r"The budget does not cover this request: at worst it comes to 0\.000\d+ USD, for \d+ tokens of prompt and 50 of "
    r"answer, and 0\.000\d+ USD are left of 0\.0012 USD per month for this key"
    r"(, besides 0\.00\d+ USD that calls under way hold)?\. It would fit with `max_tokens` of at most \d+\."
)


async def test_a_refusal_says_which_answer_fits(tmp_path: Path) -> None:
    """What a 402 says would fit does, to the token, whatever the member is called and however many budgets are short;
    one more is refused again."""
    short = {"budget_usd": "0.0005", "budgets": [{"scope": "tenant", "period": "day", "usd": "0.0004"}]}
    async with scene(tmp_path, short) as it:
        refused = await it.ask(n=2)
        error = refused.json["error"]
        fits = int(error["message"].rsplit(" ", 1)[1][:-1])
        longer = await it.ask(n=2, max_tokens=fits + 1)
        body = {name: value for name, value in call(n=2).items() if name != "max_tokens"}
        renamed = {**body, "max_completion_tokens": fits + 1}
        named = await it.client.request("POST", CHAT, renamed)
        it.provider.script("m", [json_answer("Hi", (7, 1))])
        last = await it.ask(n=2, max_tokens=fits)

    assert [reply.status for reply in (refused, longer, named, last)] == [402, 402, 402, 200]
    assert (error["param"], named.json["error"]["param"]) == ("max_tokens", "max_completion_tokens")
    assert named.json["error"]["message"].endswith(f"It would fit with `max_completion_tokens` of at most {fits}.")


async def test_a_refusal_for_an_allowance(tmp_path: Path) -> None:
    """Of a plan that ends, weighted tokens are told; no answer is short enough once nothing is left."""
    async with scene(tmp_path, {"weighted_tokens_per_month": 230}) as it:
        first = await it.ask(max_tokens=60)
        it.provider.script("m", [json_answer("Hi", (7, 50))])
        await it.ask(max_tokens=40)
        last = await it.ask()

    assert re.fullmatch(
        r"The budget does not cover this request: at worst it comes to \d+ weighted tokens, for \d+ tokens of prompt "
        r"and 60 of answer, and 230 weighted tokens are left of 230 weighted tokens per month for this tenant\. "
        r"It would fit with `max_tokens` of at most \d+\.",
        first.json["error"]["message"],
    )
    assert last.json["error"]["message"].endswith(
        " and 2 weighted tokens are left of 230 weighted tokens per month for this tenant."
    )
    assert last.json["error"]["param"] is None


async def test_a_refusal_in_anthropics_words(tmp_path: Path) -> None:
    """The other endpoint says the same as a billing error."""
    async with scene(tmp_path, {"budget_usd": "0"}) as it:
        reply = await it.client.request("POST", MESSAGES, messages("claude", stream=False))

        assert (reply.status, reply.json["error"]["type"]) == (402, "billing_error")
        assert reply.json["error"]["details"] == {"error_code": "budget_exceeded"}
        assert reply.json["error"]["message"].endswith(" and 0.00 USD are left of 0.00 USD per month for this key.")


async def test_a_successor_grants_nothing_twice(tmp_path: Path) -> None:
    """Without Redis too: what a killed worker spent of its part of a budget, those in its place do not spend again."""
    async with FakeProvider() as provider:
        config = limited(provider.base_url, await tables(tmp_path), {"mine": {"budget_usd": EIGHT_CALLS}})
        async with Gateway(config, workers=2, flags=PLAIN) as gateway:
            provider.script("m", [json_answer("Hi", (7, 50))])
            it = Scene(provider, gateway)
            await gateway.logged("server.started", 2, within_s=30)
            dear = await asyncio.gather(*[it.ask(max_tokens=16_000) for _ in range(40)])  # both load what was spent
            spared = max(gateway.pids)
            for _ in range(2):
                os.kill(spared, signal.SIGSTOP)
                asked = [(await it.ask()).status for _ in range(5)]
                os.kill(spared, signal.SIGCONT)
                (killed,) = {*gateway.pids} - {gateway.pid, spared}
                os.kill(killed, signal.SIGKILL)
                await gateway.logged("server.started", within_s=30)
            replies = await asyncio.gather(*[it.ask() for _ in range(40)])

    assert {reply.status for reply in dear} == {402}
    assert asked == [402] * 5
    assert [reply.status for reply in replies].count(200) == 4
    assert len(provider.requests) == 8


async def test_lim_08_what_failed_spends_nothing(tmp_path: Path) -> None:
    """LIM-08: ten wrong bodies and ten failures of the provider leave budget and tokens as they were; rpm counts."""
    async with scene(tmp_path, {"budget_usd": TWO_CALLS, "tpm": 1000, "rpm": 100}) as it:
        for _ in range(10):
            assert (await it.client.request("POST", CHAT, {"model": "m", "messages": 1})).status == 400
        it.provider.script("m", [status(503, (), {})])
        for _ in range(10):
            assert (await it.ask()).status == 503
        it.provider.script("m", [json_answer("Hi", (7, 50))])

        replies = [await it.ask() for _ in range(3)]

        assert [reply.status for reply in replies] == [200, 200, 402]
        assert replies[0].headers.get("x-anoman-rate-remaining-rpm") == "89"
        assert int(replies[1].headers.get("x-anoman-rate-remaining-tpm") or 0) > 1000 - 2 * 70


async def test_lim_09_a_used_up_budget_is_asked_for_once(tmp_path: Path) -> None:
    """LIM-09: openai-python with its own retries sends one request for each call that is refused with 402."""
    async with scene(tmp_path, {"budget_usd": "0"}) as it:
        base_url = f"http://127.0.0.1:{it.gateway.port}/v1"
        async with openai.AsyncOpenAI(base_url=base_url, api_key=secret("mine")) as sdk:
            for _ in range(2):
                with pytest.raises(openai.APIStatusError) as caught:
                    await sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
                assert caught.value.status_code == 402
        await it.gateway.settled(2)
        await it.client.request("GET", "/v1/models")

        assert len([line for line in it.gateway.log if line["event"] == "exchange.settled"]) == 2
        assert it.provider.requests == []


async def test_lim_10_what_never_reached_a_provider_is_given_back(tmp_path: Path) -> None:
    """LIM-10: after fifty calls that nobody took, a budget for two has room for two."""
    async with scene(tmp_path, {"budget_usd": TWO_CALLS}, upstream={"retry_base_s": 0.001}) as it:
        await it.provider.stop()
        lost = [(await it.ask()).status for _ in range(50)]
        await it.provider.start()

        assert (set(lost), [(await it.ask()).status for _ in range(3)]) == ({503}, [200, 200, 402])


async def test_burst_credits_are_told(tmp_path: Path) -> None:
    """Requests above the rate cost credits, and every answer says so: in a header while it lasts, and in `_anoman`."""
    async with scene(tmp_path, {"rpm": 2, "burst": {"capacity": 2, "refill_per_min": 1}}) as it:
        replies = [await it.ask() for _ in range(5)]

        assert [reply.status for reply in replies] == [200] * 4 + [429]
        assert [reply.headers.get("x-anoman-burst-active") for reply in replies] == [None, None, "true", "true", "true"]
        assert [reply.json["_anoman"]["burst"] for reply in replies[1:3]] == [
            {"active": False, "credits": 2, "capacity": 2},
            {"active": True, "credits": 1, "capacity": 2},
        ]
        wait = replies[4].headers.get("retry-after") or ""
        assert replies[4].json["error"]["message"].endswith(f"its limit is 2 per minute; try again in {wait} s.")
        assert 0 < int(wait) <= 60


async def test_tokens_per_minute_are_reserved_and_reconciled(tmp_path: Path) -> None:
    """A call reserves what it may come to; once it is settled, what it came to counts, and the next one is measured."""
    async with scene(tmp_path, {"tpm": 150}) as it:
        first = await it.ask()
        second = await it.ask()
        third = await it.ask(text="word " * 60)

        assert (first.status, second.status, third.status) == (200, 200, 429)
        assert first.headers.get("x-anoman-rate-limit-tpm") == "150"
        assert third.headers.get("x-anoman-rate-remaining-tpm") == "36"
        error = third.json["error"]
        assert (error["type"], error["message"]) == (
            "tokens",
            "Too many tokens this minute for this key; its limit is 150 tokens per minute; "
            f"try again in {third.headers.get('retry-after')} s.",
        )


async def test_what_remains_of_an_allowance_is_told(tmp_path: Path) -> None:
    """Weighted tokens of the month: 57 raw ones weigh 228 here; beyond a plan with overage the answer says so."""
    plan = {"weighted_tokens_per_month": 500, "overage_usd_per_million": "1.20"}
    async with scene(tmp_path, plan) as it:
        billing = [(await it.ask()).json["_anoman"]["billing"] for _ in range(4)]

        assert billing == [
            {"allowance": 500, "remaining": 272, "overage": False},
            {"allowance": 500, "remaining": 44, "overage": False},
            {"allowance": 500, "remaining": 0, "overage": True},
            {"allowance": 500, "remaining": 0, "overage": True},
        ]


async def test_errors_before_admission_tell_the_limits(tmp_path: Path) -> None:
    """A wrong body takes nothing, and its answer says where the key stands all the same."""
    async with scene(tmp_path, {"rpm": 7}) as it:
        await it.ask()
        wrong = await it.client.request("POST", CHAT, b"{")
        models = await it.client.request("GET", "/v1/models")

        for reply in (wrong, models):
            assert reply.headers.get("x-anoman-rate-limit-rpm") == "7"
            assert reply.headers.get("x-anoman-rate-remaining-rpm") == "6"


async def test_each_panel_draws(tmp_path: Path) -> None:
    """A run of three panels on a budget for two: one of them is refused, in its own frame."""
    panels = [{"id": name, "model": "m", "max_tokens": 50} for name in "abc"]
    body = {"messages": [{"role": "user", "content": "Hi"}], "panels": panels, "stream": False}
    async with scene(tmp_path, {"budget_usd": TWO_CALLS}) as it:
        reply = await it.client.request("POST", PLAYGROUND, body)

        results = reply.json["panels"].values()
        refused = [result["error"]["code"] for result in results if "error" in result]
        assert (reply.status, refused, len(it.provider.requests)) == (200, ["budget_exceeded"], 2)


STREAMS = {
    "m": (CHAT, [head(), R(), repeat(T(" word"), pause_ms(1), times=MANY)]),
    "claude": (MESSAGES, [head(), MS(7), CBS(0), repeat(CBD(0, " word"), pause_ms(1), times=MANY)]),
    "chat-abroad": (CHAT, [head(), MS(7), CBS(0), repeat(CBD(0, " word"), pause_ms(1), times=MANY)]),
    "messages-abroad": (MESSAGES, [head(), R(), repeat(T(" word"), pause_ms(1), times=MANY)]),
}

COUNTED = {"claude": 1.2}  # our tokens of a word, see `providers.families`; one elsewhere


@pytest.mark.parametrize("model", STREAMS)
async def test_a_stream_ends_before_its_budget_does(tmp_path: Path, model: str) -> None:
    """It is let in with what is left, and stopped before it passes that: typed, billed by what came, never over."""
    path, script = STREAMS[model]
    async with scene(tmp_path, {"budget_usd": "0.005"}) as it:
        it.provider.script(model, script)
        body = (chat if path == CHAT else messages)(model, max_tokens=MANY)

        reply = await it.client.request("POST", path, body)
        receipt = await it.receipt()

        last = reply.body.split(b"\n\n")[-3 if path == CHAT else -2]
        assert b'"code":"budget_exceeded"' in last
        assert b'"failure_class":"policy_stop"' in last
        told = b"request: the answer was stopped before it passes 0.005 USD per month for this key."
        assert told in last
        assert (reply.status, reply.ended_properly, b"[DONE]" in reply.body) == (200, True, path == CHAT)
        assert (receipt["outcome"], receipt["error_code"], receipt["usage_basis"]) == (
            "interrupted", "budget_exceeded", "estimated",
        )  # fmt: skip
        came = round(reply.body.count(b'" word"') * COUNTED.get(model, 1))
        assert (receipt["completion_tokens"], b'"completion_tokens":%d' % came in last) == (came, True)
        assert Decimal("0.004") < Decimal(receipt["cost_usd"]) <= Decimal("0.005")
        assert (await it.client.request("POST", CHAT, call(max_tokens=100))).status == 402
        assert receipt["attempts"][0].endswith(":cancelled")


@pytest.mark.parametrize("model", ["m", "chat-abroad"])
async def test_a_panel_that_is_stopped_has_what_it_is_charged(tmp_path: Path, model: str) -> None:
    """In a panel too all that is charged of an answer has come before the frame that stops it."""
    script = STREAMS[model][1]
    panels = [{"id": "a", "model": model, "max_tokens": MANY}]
    async with scene(tmp_path, {"budget_usd": "0.005"}) as it:
        it.provider.script(model, script)

        body = {"messages": chat("m")["messages"], "panels": panels, "stream": True}
        reply = await it.client.request("POST", PLAYGROUND, body)
        receipt = await it.receipt()

        assert (reply.status, receipt["error_code"]) == (200, "budget_exceeded")
        assert reply.body.count(b'" word"') == receipt["completion_tokens"]


async def test_a_second_bound_does_not_open_a_budget(tmp_path: Path) -> None:
    """A provider that gets two bounds goes by either: a stream is watched as if by the larger."""
    async with scene(tmp_path, {"budget_usd": "0.005"}) as it:
        it.provider.script("m", STREAMS["m"][1])

        await it.client.request("POST", CHAT, chat("m", max_tokens=1, max_completion_tokens=MANY))
        receipt = await it.receipt()

        assert receipt["error_code"] == "budget_exceeded"
        assert Decimal(receipt["cost_usd"]) <= Decimal("0.005")


@pytest.mark.parametrize("model", STREAMS)
async def test_a_provider_that_does_not_keep_to_the_bound(tmp_path: Path, model: str) -> None:
    """A stream whose whole answer is held is stopped where it goes on all the same; a little more does no harm."""
    path, script = STREAMS[model]
    async with scene(tmp_path, {"budget_usd": "5"}) as it:
        it.provider.script(model, script)
        body = (chat if path == CHAT else messages)(model, max_tokens=100)

        reply = await it.client.request("POST", path, body)
        receipt = await it.receipt()

        assert b"stopped before it passes twice the length that it was to have at most." in reply.body
        assert (receipt["outcome"], receipt["error_code"]) == ("interrupted", "budget_exceeded")
        assert 100 < receipt["completion_tokens"] < 500  # within a read: of a provider that stood still, a large one


async def test_an_answer_somewhat_beyond_its_bound(tmp_path: Path) -> None:
    """A provider's count is not ours: an answer that is half as long again by ours is whole."""
    async with scene(tmp_path, {"budget_usd": "5"}) as it:
        it.provider.script("m", [head(), R(), repeat(T(" word"), times=150), FIN("length"), U(9, 100), DONE])

        reply = await it.client.request("POST", CHAT, chat("m", max_tokens=100))
        receipt = await it.receipt()

        assert (reply.status, receipt["outcome"]) == (200, "completed")


DRAIN = {"on_cancel": "drain", "drain_max_s": 30, "drain_max_tokens": 100_000}


@pytest.mark.parametrize("model", ["m", "claude"])
async def test_what_is_read_on_ends_before_its_budget_does(tmp_path: Path, model: str) -> None:
    """A client that leaves leaves its provider talking, where it is to be read on: up to the budget, as for one that
    stays."""
    path, script = STREAMS[model]
    read_on = {"fake-openai": DRAIN, "fake-anthropic": DRAIN}
    async with scene(tmp_path, {"budget_usd": "0.005"}, providers=read_on) as it:
        it.provider.script(model, script)
        stream = await it.client.open("POST", path, (chat if path == CHAT else messages)(model, max_tokens=MANY))
        await stream.head()

        stream.close()
        (receipt,) = await it.gateway.settled(1, within_s=20)
        await stream.dispose()

        assert (receipt["outcome"], receipt["on_cancel"], receipt["note"]) == ("cancelled", "drain", "drain:budget")
        assert Decimal("0.004") < Decimal(receipt["cost_usd"]) <= Decimal("0.005")
        assert (await it.client.request("POST", CHAT, call(max_tokens=100))).status == 402
        await it.provider.requests[0].gone()


async def test_a_stream_that_ends_in_time_is_not_stopped(tmp_path: Path) -> None:
    """What is left was less than the worst case, and enough for what came."""
    async with scene(tmp_path, {"budget_usd": "0.005"}) as it:
        it.provider.script("m", [head(), R(), *[T(" word")] * 50, FIN(), U(7, 50), DONE])

        reply = await it.client.request("POST", CHAT, chat("m", max_tokens=MANY))

        assert b"[DONE]" in reply.body
        assert (await it.receipt())["outcome"] == "completed"
