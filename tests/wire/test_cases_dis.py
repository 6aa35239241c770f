"""DIS-01 to DIS-16 of the case catalogue, over sockets: clients that leave, and what is left of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
import pytest_asyncio

from tests.support.acts import head, no_answer, pause_ms, repeat, stall
from tests.support.client import Stream
from tests.support.config import KEY_ONE, standard
from tests.support.frames import chat, messages
from tests.support.gateway import CHAT, MESSAGES, PLAIN, Gateway
from tests.support.notation import (
    CBD,
    CBS,
    CBX,
    DONE,
    FIN,
    FIN_CUT,
    HANG,
    MD,
    MS,
    MX,
    R,
    T,
    U,
    json_answer,
)
from tests.support.provider import FakeProvider
from tests.support.stage import Act, Seen
from tests.wire.desk import BOTH, Desk, items, open_desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

CANCEL_S = 0.05  # the documents' promise
START = {CHAT: R() + T("a"), MESSAGES: MS(25, 1) + CBS(0) + CBD(0, "a")}
WHOLE = {CHAT: R() + T("a") + FIN() + U(7, 1) + DONE, MESSAGES: MS(7) + CBS(0) + CBD(0, "a") + CBX(0) + MD() + MX}
Leave = Callable[[Stream], float]
LEAVING: dict[str, Leave] = {"FIN": Stream.close, "RST": Stream.rst}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    """Without debug mode, which would be part of every measured time; limits out of the way of silence."""
    async with open_desk(PLAIN, stream={"first_token_s": 30, "idle_s": 30, "non_stream_s": 30}) as desk:
        yield desk


async def first_content(stream: Stream) -> None:
    """Read up to the first piece of content."""
    async for frame in stream.frames():
        if b'"a"' in frame:
            return


@pytest.mark.alone
@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize("leave", LEAVING.values(), ids=LEAVING)
async def test_dis_01_between_tokens(desk: Desk, path: str, leave: Leave) -> None:
    """A client that leaves between two tokens of a silent provider: the upstream ends within 50 ms."""
    async with desk.stream([START[path], HANG], path=path) as stream:
        await first_content(stream)
        seen = desk.provider.requests[-1]
        left_s = leave(stream)
        closed = await seen.gone()
        receipt = await desk.receipt(stream)

    assert closed.when_s - left_s <= CANCEL_S
    assert (receipt["outcome"], receipt["routing_mode"]) == ("cancelled", "streaming_cancelled")
    assert receipt["completion_tokens"] == 1


@pytest.mark.alone
@pytest.mark.parametrize("leave", LEAVING.values(), ids=LEAVING)
async def test_dis_01_while_tokens_flow(desk: Desk, leave: Leave) -> None:
    """The same while tokens flow."""
    async with desk.stream([R(), T("a"), repeat(T("b"), pause_ms(1))]) as stream:
        await first_content(stream)
        seen = desk.provider.requests[-1]
        left_s = leave(stream)
        closed = await seen.gone()

    assert closed.when_s - left_s <= CANCEL_S


PHASES: dict[str, list[Act | bytes]] = {
    "before the head": [no_answer()],
    "after the head": [head(), stall()],
    "after comments": [b": x\n\n", stall()],
    "half an event": [R()[:20], stall()],
    "role only": [R(), stall()],
}


@pytest.mark.alone
@pytest.mark.parametrize("leave", LEAVING.values(), ids=LEAVING)
@pytest.mark.parametrize("script", PHASES.values(), ids=PHASES)
async def test_dis_02_before_the_first_token(desk: Desk, script: list[Act | bytes], leave: Leave) -> None:
    """A client that leaves in any phase before the first token: upstream closed, booked, prompt counted."""
    stream = await desk.send(script)
    seen = await _newest(desk)
    await asyncio.sleep(0.05)  # so that the head, where there is one, has been read: nobody tells
    left_s = leave(stream)
    closed = await seen.gone()
    receipt = await desk.receipt_where(lambda line: line["outcome"] == "cancelled" and not line["completion_tokens"])
    await stream.dispose()

    assert closed.when_s - left_s <= CANCEL_S
    assert receipt["routing_mode"] == "streaming_cancelled"
    assert receipt["prompt_tokens"] > 0


@pytest.mark.alone
@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize("script", [[no_answer()], [head("application/json", framing=50), b"{", stall()]])
async def test_dis_02_without_streaming(desk: Desk, path: str, script: list[Act | bytes]) -> None:
    """A client that leaves a request without streaming is noticed just so."""
    stream = await desk.send(script, path=path, stream=False)
    seen = await _newest(desk)
    left_s = stream.close()
    closed = await seen.gone()
    await stream.dispose()

    assert closed.when_s - left_s <= CANCEL_S


async def _newest(desk: Desk) -> Seen:
    """The request that has just been sent, passing over those of earlier tests."""
    seen = await desk.provider.next_request()
    while seen is not desk.provider.requests[-1] or seen.closed.done() or seen.played.is_set():
        seen = await desk.provider.next_request()
    return seen


@pytest.mark.parametrize("path", BOTH)
async def test_dis_04_the_slot_comes_back(desk: Desk, path: str) -> None:
    """A key that may have one request at once may have its next one after an abort."""
    client = desk.gateway.client(KEY_ONE)
    model, body = ("m", chat("m")) if path == CHAT else ("claude", messages("claude"))
    desk.provider.script(model, [START[path], HANG])
    async with client.stream(path, body) as stream:
        await first_content(stream)
        busy = await client.request("POST", path, body)
        stream.close()
        await desk.receipt(stream)
    desk.provider.script(model, [WHOLE[path]])

    free = await client.request("POST", path, body)

    assert (busy.status, busy.json["error"]["code"]) == (429, "inflight_cap")
    assert free.status == 200


async def test_dis_04_two_hundred_aborts(desk: Desk) -> None:
    """After many aborts no slot, stream or socket is left."""
    client = desk.gateway.client(KEY_ONE)
    desk.provider.script("m", [R() + T("a"), HANG])
    for _ in range(200):
        async with client.stream(CHAT, chat("m")) as stream:
            assert stream.status == 200
            stream.rst()
            await desk.receipt(stream)
    await desk.provider.all_gone()
    metrics = await desk.gateway.metrics()

    open_now = {sample.name for sample in metrics.samples if "open" in sample.name or "inflight" in sample.name}
    assert open_now
    assert all(metrics.value(name) == 0 for name in open_now if name != "process_open_fds")
    assert desk.gateway.sockets(desk.provider.port) == 0


@pytest.mark.parametrize("path", BOTH)
async def test_dis_06_closing_before_the_usage(desk: Desk, path: str) -> None:
    """Who reads the text and closes before the usage pays for the text and the prompt."""
    token = T(" word") if path == CHAT else CBD(0, " word")
    async with desk.stream([START[path] + token * 39, HANG], path=path) as stream:
        async for _ in stream.frames():
            if len(stream.frame_times) >= 41:
                break
        stream.close()
        receipt = await desk.receipt(stream)

    assert receipt["routing_mode"] == "streaming_cancelled"
    assert 32 <= receipt["completion_tokens"] <= 48
    assert receipt["prompt_tokens"] == (25 if path == MESSAGES else 5)
    assert float(receipt["cost_usd"]) > 0


async def test_dis_08_cancelled_twice() -> None:
    """A client that leaves in the very moment of a shutdown is settled once, and its slot is free."""
    async with FakeProvider() as provider, Gateway(standard(provider.base_url, server={"drain_s": 0.3})) as gateway:
        provider.script("m", [R() + T("a"), HANG])
        async with gateway.client(KEY_ONE).stream(CHAT, chat("m")) as stream:
            await first_content(stream)
            gateway.terminate()
            await asyncio.sleep(0.29)  # the moment is what is under test: just before the drain cuts the stream
            stream.rst()
            receipts = await gateway.settled(1)
            code = await gateway.exit_code()

    assert code == 0
    assert receipts[0]["outcome"] in ("cancelled", "interrupted")


@pytest.mark.parametrize("path", BOTH)
async def test_dis_09_a_provider_that_keeps_its_socket(desk: Desk, path: str) -> None:
    """A provider that does not end its body after the terminator holds nothing of ours."""
    reply = await desk.ask([WHOLE[path], HANG], path=path)
    seen = desk.provider.requests[-1]
    await seen.gone()

    assert items(reply)
    assert desk.gateway.sockets(desk.provider.port) == 0


@pytest.mark.parametrize("path", BOTH)
async def test_dis_11_half_close(desk: Desk, path: str) -> None:
    """A client that closes its sending half is taken for gone: cancelled, without a traceback."""
    async with desk.stream([START[path], HANG], path=path) as stream:
        await first_content(stream)
        seen = desk.provider.requests[-1]
        stream.half_close()
        await seen.gone()
        receipt = await desk.receipt(stream)

    assert receipt["outcome"] == "cancelled"


@pytest.mark.parametrize("path", BOTH)
async def test_dis_13_three_outcomes(desk: Desk, path: str) -> None:
    """Completed, cancelled and interrupted are told apart, in the receipt and in the metrics."""
    before = await desk.gateway.metrics()
    completed = await desk.receipt(await desk.ask([WHOLE[path]], path=path))
    interrupted = await desk.receipt(await desk.ask([START[path], pause_ms(30), FIN_CUT], path=path))
    async with desk.stream([START[path], HANG], path=path) as stream:
        await first_content(stream)
        stream.close()
        cancelled = await desk.receipt(stream)
    after = await desk.gateway.metrics()

    outcomes = [line["outcome"] for line in (completed, cancelled, interrupted)]
    grown = {
        sample.labels["outcome"]
        for sample in after.samples
        if "outcome" in sample.labels and sample.value > before.value(sample.name, **sample.labels)
    }
    assert outcomes == ["completed", "cancelled", "interrupted"]
    assert grown >= {"completed", "cancelled", "interrupted"}


async def test_dis_13_a_close_after_the_terminator(desk: Desk) -> None:
    """Who closes on the terminator, as SDKs do, has not cancelled."""
    async with desk.stream([WHOLE[CHAT], HANG]) as stream:
        async for frame in stream.frames():
            if frame == b"data: [DONE]":
                break
        stream.rst()
        receipt = await desk.receipt(stream)

    assert receipt["outcome"] == "completed"


async def test_dis_13_a_close_after_the_finish(desk: Desk) -> None:
    """Who closes when the provider has said everything but its usage has not cancelled either."""
    async with desk.stream([R() + T("a"), FIN(), HANG], model="m") as stream:
        await first_content(stream)
        await asyncio.sleep(0.1)  # the finish chunk is held back, so nothing tells that it is here
        stream.rst()
        receipt = await desk.receipt(stream)

    assert receipt["outcome"] == "completed"


async def test_dis_16_a_hundred_disconnects(desk: Desk) -> None:
    """Disconnects are everyday life: one info line each, no warning, no traceback."""
    desk.provider.script("m", [R() + T("a"), repeat(T("b"), pause_ms(5))])
    mark = len(desk.gateway.log)

    async def leave(number: int) -> Stream:
        async with desk.gateway.client().stream(CHAT, chat("m")) as stream:
            await first_content(stream)
            (stream.rst if number % 2 else stream.close)()
            return stream

    streams = [await leave(number) for number in range(100)]
    receipts = [await desk.receipt(stream) for stream in streams]

    assert {line["outcome"] for line in receipts} == {"cancelled"}
    assert [line for line in desk.gateway.log[mark:] if line["level"] != "info"] == []
    assert len(desk.gateway.log) - mark == 100
    assert desk.gateway.stderr == ""


async def test_the_answer_that_comes_as_the_client_leaves(desk: Desk) -> None:
    """Whichever comes first, the leaving or the answer, there is one receipt and nothing is left."""
    desk.provider.script("m", [pause_ms(20), json_answer("a")])

    for delay_s in (0.0, 0.018, 0.02, 0.022, 0.04):
        stream = await desk.send(stream=False)
        await asyncio.sleep(delay_s)  # the race is what is under test
        stream.rst()
        await stream.dispose()
        with suppress(TimeoutError):
            await desk.receipt_where(lambda line: line["routing_mode"] in ("streaming_cancelled", "realtime"))

    assert (await desk.ask([json_answer("b")], stream=False)).status == 200
