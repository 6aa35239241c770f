"""Streams that break after they began to speak, of models with `on_interrupt = "continue"`."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.chaos.scenes import ANTHROPIC, OPENAI, Book, Side, ends_well, interruption, serving, until
from tests.support.acts import Answer, pause_ms, reset, status
from tests.support.client import Reply, Stream
from tests.support.config import Config, anthropic_provider, model, openai_provider, standard
from tests.support.frames import blocks, named, text_of
from tests.support.gateway import Gateway
from tests.support.notation import CBD, CBS, CBX, DONE, FIN, HANG, MD, MS, MX, TC, R, T, U
from tests.support.provider import FakeProvider
from tests.support.stage import Seen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("continuation")]

PREFIXED, PREFILLED = "mistral-large", "claude-haiku-4-5"  # names of models that go on with the beginning of an answer
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
BROKEN: dict[str, Answer] = {
    "chat": [R(), T("Once "), T("upon "), pause_ms(20), reset()],
    "messages": [MS(7), CBS(0), CBD(0, "Once "), CBD(0, "upon "), pause_ms(20), reset()],
}
# The first repeats what it was given, as Mistral does; the second begins with the blank that it was not given.
WHOLE: dict[str, list[bytes]] = {
    PREFIXED: [R(), T("Once upon"), T(" a"), T(" time"), FIN() + U(11, 2) + DONE],
    PREFILLED: [MS(11), CBS(0), CBD(0, " a"), CBD(0, " time"), CBX(0), MD(usage=2) + MX],
}
TOLD = 3  # tokens of "Once upon " at least: our own count goes by the family of the model
each_side = pytest.mark.parametrize("side", [OPENAI, ANTHROPIC], ids=lambda side: side.name)
each_second = pytest.mark.parametrize("second", [PREFIXED, PREFILLED])


@dataclass(slots=True)
class Place:
    gateway: Gateway
    provider: FakeProvider

    def script(self, side: Side, second: str, more: Answer | None = None) -> None:
        """The first route breaks; the second does *more*, by default it goes on to the end."""
        self.provider.script("first", BROKEN[side.name])
        self.provider.script(second, WHOLE[second] if more is None else more)

    async def ask(self, side: Side, slug: str, **more: Any) -> tuple[Reply, list[Seen]]:
        """The answer, and the requests that it took."""
        before = len(self.provider.requests)
        reply = await self.gateway.client().request("POST", side.path, side.ask(slug, **more))
        return reply, self.provider.requests[before:]


def slug(side: Side, second: str) -> str:
    return f"{side.name}-{second}"


def config(base_url: str) -> Config:
    """For each endpoint and each kind of second route a model that is continued."""
    models = {}
    for side, first in ((OPENAI, "o1/first"), (ANTHROPIC, "a1/first")):
        for second, route in ((PREFIXED, f"o2/{PREFIXED}"), (PREFILLED, f"a2/{PREFILLED}")):
            # Routes that speak the endpoint's dialect come first; both are at accounts of their own.
            models[slug(side, second)] = model(first, route, on_interrupt="continue")
    models["default"] = model("o1/first", f"o2/{PREFIXED}")
    models["one-route"] = model("o1/first", on_interrupt="continue")
    models["no-prefill"] = model("o1/first", "o2/other", on_interrupt="continue")
    models["same-prefill"] = model(f"o2/{PREFIXED}", on_interrupt="continue")
    models["three"] = model("o1/first", "o2/other", f"o2/{PREFIXED}", on_interrupt="continue")
    return standard(
        base_url,
        server={"accept_s": 0.1, "drain_s": 0.5},
        upstream={"pool_idle_s": 0.01},
        providers={
            "o1": openai_provider(base_url),
            "o2": openai_provider(base_url, type="local_id"),
            "a1": anthropic_provider(base_url),
            "a2": anthropic_provider(base_url, type="local_id"),
        },
        models=models,
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Place]:
    async with FakeProvider() as provider, serving(config(provider.base_url)) as gateway:
        yield Place(gateway, provider)


@pytest_asyncio.fixture(loop_scope="module")
async def book(place: Place) -> Book:
    return Book(place.gateway)


def told(row: dict[str, Any]) -> int:
    """The tokens of the first part."""
    return int(row["parts"][0].rpartition("+")[2])


def extension_of(side: Side, reply: Reply) -> dict[str, Any]:
    """The last `_anoman` of a stream."""
    found = [data["_anoman"] for _, data in named(blocks(reply.body)) if isinstance(data, dict) and "_anoman" in data]
    block: dict[str, Any] = found[-1]
    return block


@each_side
@each_second
async def test_one_answer(place: Place, book: Book, side: Side, second: str) -> None:
    """The client hears one answer: one beginning, one id, all of the text once, one end, and the usage of the whole."""
    place.script(side, second)

    reply, _ = await place.ask(side, slug(side, second))
    (row,) = await book.settled(1)

    frames = blocks(reply.body)
    said = named(frames)
    assert ends_well(side, frames)
    assert text_of(frames) == "Once upon a time"
    if side is OPENAI:
        chunks = [data for _, data in said[:-1]]
        assert {data["id"] for data in chunks} == {"c1"}
        assert sum("role" in data["choices"][0]["delta"] for data in chunks) == 1
        usage = next(data["usage"] for data in chunks if data.get("usage"))
        assert usage["completion_tokens"] == row["completion_tokens"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + row["completion_tokens"]
    else:
        kinds = [name for name, _ in said if name not in ("ping", "content_block_delta")]
        assert kinds == [
            "message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop",
        ]  # fmt: skip
        assert {data["index"] for name, data in said if name and name.startswith("content_block")} == {0}
        assert said[-2][1]["usage"]["output_tokens"] == row["completion_tokens"]
    assert extension_of(side, reply)["routing"]["continued"] is True
    assert (row["outcome"], row["continued"], row["failure_class"]) == ("completed", True, None)
    assert [attempt.rpartition(":")[2] for attempt in row["attempts"]] == ["failed", "ok"]
    assert row["parts"][1].endswith(f"{second}:11+2")
    assert row["completion_tokens"] == told(row) + 2 >= TOLD + 2


@each_side
@each_second
async def test_what_the_second_is_asked(place: Place, book: Book, side: Side, second: str) -> None:
    """The call with the text so far as the assistant's last turn, without the blank at its end, and the rest of the
    limit."""
    place.script(side, second)

    _, (_, asked) = await place.ask(side, slug(side, second), max_tokens=50)
    (row,) = await book.settled(1)

    last = asked.json["messages"][-1]
    texts = last["content"] if isinstance(last["content"], str) else last["content"][0]["text"]
    assert (last["role"], texts, len(asked.json["messages"])) == ("assistant", "Once upon", 2)
    assert last.get("prefix", False) is (second == PREFIXED)
    assert asked.json["max_tokens"] == 50 - told(row)


async def test_each_provider_weighs_its_part(place: Place, book: Book) -> None:
    """Weighted tokens are the first's prompt and text by its factor, and the second's text by its own, rounded once."""
    place.script(OPENAI, PREFIXED)

    reply, _ = await place.ask(OPENAI, slug(OPENAI, PREFIXED))
    (row,) = await book.settled(1)

    first = row["prompt_tokens"] + told(row)
    assert row["weighted_tokens"] == int(4 * (first * 1.0 + 2 * 0.3) + 0.5)
    assert extension_of(OPENAI, reply)["weighted_tokens"] == row["weighted_tokens"]


@each_side
@each_second
async def test_the_second_breaks_too(place: Place, book: Book, side: Side, second: str) -> None:
    """Then the documented error frame ends the stream, with the tokens of both; there is no third."""
    place.script(side, second, [*WHOLE[second][:-2], pause_ms(20), reset()])

    reply, seen = await place.ask(side, slug(side, second))
    (row,) = await book.settled(1)

    frames = blocks(reply.body)
    tokens = row["completion_tokens"]
    assert interruption(side, frames) == {"failure_class": "upstream_error", "completion_tokens": tokens}
    assert tokens > told(row)
    assert text_of(frames).startswith("Once upon a")
    assert (row["outcome"], len(seen), row["continued"]) == ("interrupted", 2, True)
    assert [attempt.rpartition(":")[2] for attempt in row["attempts"]] == ["failed", "failed"]


@each_side
@pytest.mark.parametrize("at", range(0, 400, 37))
async def test_the_second_breaks_anywhere(place: Place, book: Book, side: Side, at: int) -> None:
    """Wherever the second part is cut, the client gets whole frames, one text without a gap, and one error frame."""
    second = PREFIXED if side is OPENAI else PREFILLED
    place.script(side, second, [b"".join(WHOLE[second])[:at], pause_ms(5), reset()])

    reply, _ = await place.ask(side, slug(side, second))
    (row,) = await book.settled(1)

    frames = blocks(reply.body)
    assert "Once upon a time".startswith(text_of(frames).rstrip())
    assert text_of(frames).startswith("Once upon ")
    assert interruption(side, frames)["completion_tokens"] >= TOLD
    assert (row["outcome"], reply.ended_properly) == ("interrupted", True)


@each_side
@pytest.mark.parametrize("fault", ["500", "400", "reset", "error event"])
async def test_the_second_never_speaks(place: Place, book: Book, side: Side, fault: str) -> None:
    """Then it is as if there were no second: the first's own failure and tokens, at the first's price."""
    second = PREFIXED if side is OPENAI else PREFILLED
    faults: dict[str, Answer] = {
        "500": [status(500, {}, {"error": {"message": "no"}})],
        "400": [status(400, {}, {"error": {"message": "no"}})],
        "reset": [reset()],
        "error event": [status(200, {"content-type": "application/json"}, {"error": {"message": "no"}})],
    }
    place.script(side, second, faults[fault])

    reply, _ = await place.ask(side, slug(side, second))
    (row,) = await book.settled(1)

    tokens = row["completion_tokens"]
    assert interruption(side, blocks(reply.body)) == {"failure_class": "upstream_error", "completion_tokens": tokens}
    assert tokens >= TOLD
    assert (row["provider_model"], row["continued"], row["parts"]) == ("first", False, [])
    assert row["outcome"] == "interrupted"


CHAT_DEMANDS: dict[str, dict[str, Any]] = {
    "tools": {"tools": [TOOL]},
    "several": {"n": 2},
    "form": {"response_format": {"type": "json_object"}},
    "unknown": {"a_member_of_tomorrow": 1},
    "nothing left": {"max_tokens": TOLD - 1},
    "own beginning": {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well,"}]},
}


@pytest.mark.parametrize("demand", CHAT_DEMANDS)
async def test_calls_that_are_not_continued(place: Place, book: Book, demand: str) -> None:
    """What would not be sound ends with the error frame, and nobody else is asked."""
    place.script(OPENAI, PREFIXED)

    reply, seen = await place.ask(OPENAI, slug(OPENAI, PREFIXED), **CHAT_DEMANDS[demand])
    (row,) = await book.settled(1)

    assert interruption(OPENAI, blocks(reply.body))["completion_tokens"] >= TOLD
    assert (len(seen), row["continued"]) == (1, False)


MESSAGES_DEMANDS: dict[str, dict[str, Any]] = {
    "tools": {"tools": [{"name": "f", "input_schema": {"type": "object"}}]},
    "thinking": {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4096},
    "form": {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
}


@pytest.mark.parametrize("demand", MESSAGES_DEMANDS)
async def test_messages_that_are_not_continued(place: Place, book: Book, demand: str) -> None:
    """The same at the other endpoint."""
    place.script(ANTHROPIC, PREFILLED)

    reply, seen = await place.ask(ANTHROPIC, slug(ANTHROPIC, PREFILLED), **MESSAGES_DEMANDS[demand])
    await book.settled(1)

    assert interruption(ANTHROPIC, blocks(reply.body))["completion_tokens"] >= TOLD
    assert len(seen) == 1


@pytest.mark.parametrize("name", ["default", "one-route", "no-prefill"])
async def test_models_that_are_not_continued(place: Place, book: Book, name: str) -> None:
    """By default, and without another route that takes the beginning of an answer, the error frame ends the stream."""
    place.script(OPENAI, PREFIXED)
    place.provider.script("other", WHOLE[PREFIXED])

    reply, seen = await place.ask(OPENAI, name)
    await book.settled(1)

    assert interruption(OPENAI, blocks(reply.body)) == {"failure_class": "upstream_error", "completion_tokens": TOLD}
    assert len(seen) == 1


async def test_a_route_without_prefill_is_passed_over(place: Place, book: Book) -> None:
    """The next route that can is asked, wherever it stands."""
    place.script(OPENAI, PREFIXED)

    reply, seen = await place.ask(OPENAI, "three")
    await book.settled(1)

    assert ends_well(OPENAI, blocks(reply.body))
    assert [each.json["model"] for each in seen] == ["first", PREFIXED]


async def test_a_tool_call_is_not_continued(place: Place, book: Book) -> None:
    """Where the broken part was no plain text: half a call has no rest that another model could know."""
    place.script(OPENAI, PREFIXED)
    place.provider.script("first", [R(), T("Let me see."), TC(0, '{"a', name="f"), pause_ms(20), reset()])

    reply, seen = await place.ask(OPENAI, slug(OPENAI, PREFIXED))
    await book.settled(1)

    interruption(OPENAI, blocks(reply.body))
    assert len(seen) == 1


async def test_before_the_first_token_it_is_a_fallback(place: Place, book: Book) -> None:
    """A route that fails before it has said anything is replaced as ever; the second is asked for all of it."""
    place.script(OPENAI, PREFIXED)
    place.provider.script("first", [R(), reset()])

    reply, seen = await place.ask(OPENAI, slug(OPENAI, PREFIXED))
    (row,) = await book.settled(1)

    assert text_of(blocks(reply.body)) == "Once upon a time"
    assert (len(seen[1].json["messages"]), row["continued"]) == (1, False)
    assert "continued" not in extension_of(OPENAI, reply)["routing"]


@each_side
@pytest.mark.parametrize("is_talking", [False, True], ids=["asked", "talking"])
async def test_the_client_leaves_meanwhile(place: Place, book: Book, side: Side, is_talking: bool) -> None:
    """The second provider is left within 50 ms, and the one receipt has what the client had."""
    second = PREFIXED if side is OPENAI else PREFILLED
    place.script(side, second, [*(WHOLE[second][:4] if is_talking else ()), HANG])
    before = len(place.provider.requests)

    async with place.gateway.client().stream(side.path, side.ask(slug(side, second))) as stream:
        await heard(stream, 5 if is_talking else 3)
        asked = await request_number(place, before + 2)
        if is_talking:
            await asked.sent_events(1)
        stream.close()
        await asked.gone(0.5)
    (row,) = await book.settled(1)

    assert (row["outcome"], row["routing_mode"]) == ("cancelled", "streaming_cancelled")
    assert [attempt.rpartition(":")[2] for attempt in row["attempts"]] == ["failed", "cancelled"]
    assert row["continued"] is is_talking
    assert row["completion_tokens"] >= TOLD
    assert row["cancel_ms"] < 50


async def heard(stream: Stream, count: int) -> None:
    """Wait until the client has *count* frames."""
    async for _ in stream.frames():
        count -= 1
        if not count:
            return


async def request_number(place: Place, number: int) -> Seen:
    await until(lambda: len(place.provider.requests) >= number)
    return place.provider.requests[number - 1]


async def test_shutdown_meanwhile() -> None:
    """A gateway that has to go while another provider is being asked says so, once, and exits with 0."""
    async with FakeProvider() as provider, serving(config(provider.base_url)) as gateway:
        place, book = Place(gateway, provider), Book(gateway)
        place.script(OPENAI, PREFIXED, [HANG])
        async with gateway.client().stream(OPENAI.path, OPENAI.ask(slug(OPENAI, PREFIXED))) as stream:
            await request_number(place, 2)
            gateway.signal(signal.SIGTERM)
            reply = await stream.reply(10)
        code = await gateway.exit_code(10)
        (row,) = await book.settled(1)

    assert interruption(OPENAI, blocks(reply.body)) == {"failure_class": "gateway_shutdown", "completion_tokens": TOLD}
    assert (code, row["outcome"], row["provider_model"]) == (0, "interrupted", "first")
