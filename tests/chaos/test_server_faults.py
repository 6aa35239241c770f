"""What goes wrong in us, not in a provider: a bug, no more descriptors, a client that hides its leaving (B1, D9)."""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos.scenes import OPENAI, PROMISE_S, Book, ends_well, refusal, serving, until
from tests.support.acts import pause_ms, repeat
from tests.support.config import standard
from tests.support.gateway import PLAIN, Gateway
from tests.support.notation import HANG, json_answer
from tests.support.provider import FakeProvider

pytestmark = [pytest.mark.xdist_group("server_faults")]

# Starts the real command with a lane that stumbles over a word.
BUGGY = """
import gateway.__main__
from gateway.dialects.openai_chat import OpenAICompletion
from gateway.dialects.openai_stream import OpenAIChatLane

feed, render = OpenAIChatLane.feed, OpenAICompletion.render

def stumble(lane, data):
    if b"stumble" in data:
        raise RuntimeError("a bug")
    return feed(lane, data)

def fall(completion, receipt):
    if b"stumble" in bytes(completion._members["choices"]):
        raise RuntimeError("a bug")
    return render(completion, receipt)

OpenAIChatLane.feed, OpenAICompletion.render = stumble, fall
gateway.__main__.main()
"""


def altered(program: str, provider: FakeProvider) -> Gateway:
    """The gateway, started by *program*."""
    return Gateway(standard(provider.base_url), flags=PLAIN, command=("-c", program, "serve"))


async def test_a_bug_in_mid_stream() -> None:
    """A bug breaks its own stream without a clean end, tells nothing of itself, is settled and logged; others go on."""
    async with FakeProvider() as provider, altered(BUGGY, provider) as gateway:
        client, book = gateway.client(), Book(gateway)
        provider.script("first", [OPENAI.start, repeat(OPENAI.piece("a"), pause_ms(20), times=30), OPENAI.finish])
        other = await client.open("POST", OPENAI.path, OPENAI.ask("fallback"))
        await anext(other.frames())
        provider.script("m", [OPENAI.start, OPENAI.piece("a"), pause_ms(50), OPENAI.piece("stumble"), HANG])

        stream = await client.open("POST", OPENAI.path, OPENAI.ask("m"))
        reply = await stream.reply()
        await provider.requests[-1].gone(0.5)
        (row,) = await book.settled(1)
        whole = await other.all_frames()

        assert not reply.ended_properly
        assert b"bug" not in reply.body
        assert (row["outcome"], row["error_code"], row["level"]) == ("failed", "internal_error", "warning")
        await until(lambda: [line["event"] for line in book.errors] == ["internal.error"])
        assert ends_well(OPENAI, whole)
        await stream.dispose()
        await other.dispose()


@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "json"])
async def test_a_bug_before_the_answer(is_stream: bool) -> None:
    """A bug before anything was sent is a 500 that tells nothing but an id, and costs nothing."""
    async with FakeProvider() as provider, altered(BUGGY, provider) as gateway:
        client, book = gateway.client(), Book(gateway)
        provider.script("m", [OPENAI.piece("stumble"), HANG] if is_stream else [json_answer("stumble")])

        reply = await client.request("POST", OPENAI.path, OPENAI.ask("m", stream=is_stream))
        (row,) = await book.settled(1)
        provider.script("m", [json_answer("ok")])
        after = await client.request("POST", OPENAI.path, OPENAI.ask("m", stream=False))

        assert (reply.status, refusal(OPENAI, reply), after.status) == (500, "internal_error", 200)
        assert b"bug" not in reply.body
        assert len(book.receipts) >= 1
        await until(lambda: len(book.errors) == 1)
        if is_stream:
            assert (row["outcome"], float(row["cost_usd"])) == ("failed", 0)


FEW_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
import gateway.__main__
gateway.__main__.main()
"""


async def test_d9_no_more_descriptors() -> None:
    """D9: out of descriptors, requests fail as if the provider were not there; with descriptors free all is well."""
    async with FakeProvider() as provider, altered(FEW_FILES, provider) as gateway:
        client = gateway.client()
        provider.script("m", [OPENAI.start, OPENAI.piece("a"), HANG])
        streams = [await client.open("POST", OPENAI.path, OPENAI.ask("m")) for _ in range(120)]
        heads = await asyncio.gather(*(stream.head(3) for stream in streams), return_exceptions=True)
        statuses = {head.status for head in heads if head is not None and not isinstance(head, BaseException)}
        for stream in streams:
            await stream.dispose()
        await until(lambda: gateway.client_sockets() == 0)
        provider.script("m", OPENAI.whole("ok"))

        reply = await client.request("POST", OPENAI.path, OPENAI.ask("m"))

        assert statuses <= {200, 503}
        assert 200 in statuses
        assert ends_well(OPENAI, [frame for frame in reply.body.split(b"\n\n") if frame])
        await gateway.line(lambda line: line.get("request_id") == reply.headers.get("x-request-id"))
        assert [line for line in gateway.log if line["event"] == "internal.error"] == []


@pytest.mark.alone
@pytest.mark.parametrize(("requests", "words"), [(1, 1), (50, 1), (2000, 1), (1, 100_000)])
async def test_leaving_behind_pipelined_requests(requests: int, words: int) -> None:
    """A client that has sent requests in advance is seen to leave like any other; those it sent are not made."""
    async with FakeProvider() as provider, serving(standard(provider.base_url)) as gateway:
        provider.script("m", [OPENAI.start, OPENAI.piece("a"), HANG])
        client, book = gateway.client(), Book(gateway)
        one = client.request_bytes("POST", OPENAI.path, OPENAI.ask("m", "word " * words))
        stream = await client.open("POST", OPENAI.path, OPENAI.ask("m"))
        await anext(stream.frames())
        stream.peer.transport.write(one * requests)
        await asyncio.sleep(0.1)  # until the gateway has read as much of them as it will

        left_s = stream.rst()
        closed = await provider.requests[0].gone(2)
        (row,) = await book.settled(1)
        await stream.dispose()

        assert closed.when_s - left_s <= PROMISE_S
        assert row["outcome"] == "cancelled"
        assert len(provider.requests) == 1
