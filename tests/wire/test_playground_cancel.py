"""Cancelling one panel of a run of the playground (contract, 7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.acts import wait
from tests.support.client import Stream
from tests.support.config import KEY_ONE
from tests.support.frames import parsed
from tests.support.notation import DONE, FIN, HANG, R, T, U
from tests.support.panels import RUN, by_panel, run_of
from tests.wire.desk import Desk, error_of, open_desk, receipts, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

WHOLE = (R(), T("Hal"), T("o"), FIN(), U(7, 2), DONE)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    async with open_desk(stream={"heartbeat_s": 0.3, "commit_after_s": 0.5, "idle_s": 2}) as opened:
        yield opened


async def started(desk: Desk, *models: str, frames: int = 1) -> tuple[Stream, str]:
    """A run of which some *frames* have come, and the path of its panels."""
    stream = await desk.gateway.client().open("POST", RUN, run_of(*models))
    await stream.head()
    got = 0
    async for _ in stream.frames():
        got += 1
        if got == frames:
            break
    return stream, f"{RUN}/{stream.headers.get('x-anoman-run-id')}/panels"


async def test_cancel_one(desk: Desk) -> None:
    """The cancelled panel's last frame says so with the tokens that had come; the others go on to the terminator."""
    go_on = asyncio.Event()
    desk.provider.script("m", [R(), T("a"), wait(go_on), T("b"), FIN(), U(7, 2), DONE])
    desk.provider.script("messages-abroad", [R(), T("x"), HANG])
    stream, path = await started(desk, "m", "messages-abroad", frames=4)

    reply = await desk.gateway.client().request("DELETE", f"{path}/b")
    go_on.set()
    frames = await stream.all_frames()
    await stream.dispose()
    rows = await receipts(desk, stream.headers.get("x-request-id"), "ab")

    assert reply.status == 200
    assert reply.json == {"run_id": path.split("/")[-2], "panel": "b", "cancelled": True}
    assert frames[0] == (
        b'data: {"error":{"type":"cancelled","code":"panel_cancelled","message":"the panel was cancelled",'
        b'"_anoman":{"completion_tokens":1}},"panel":"b"}'
    )
    assert text_of(by_panel(parsed(f + b"\n\n" for f in frames))["a"]) == "b"
    assert (rows["b"]["outcome"], rows["b"]["routing_mode"]) == ("cancelled", "streaming_cancelled")
    assert (rows["b"]["completion_tokens"], rows["a"]["outcome"]) == (1, "completed")


async def test_cancel_every_one(desk: Desk) -> None:
    """When the last panel is cancelled the run ends as it should: its frame, the terminator, a clean end."""
    desk.provider.script("m", [R(), HANG])
    desk.provider.script("messages-abroad", [R(), T("a"), HANG])
    stream, path = await started(desk, "m", "messages-abroad", frames=2)

    replies = [await desk.gateway.client().request("DELETE", f"{path}/{panel}") for panel in "ab"]
    frames = await stream.all_frames()
    await stream.dispose()
    rows = await receipts(desk, stream.headers.get("x-request-id"), "ab")

    assert [reply.status for reply in replies] == [200, 200]
    assert [item["panel"] for item in parsed(f + b"\n\n" for f in frames[:-1])] == ["a", "b"]
    assert (frames[-1], stream.ended_properly) == (b"data: [DONE]", True)
    assert [row["outcome"] for row in rows.values()] == ["cancelled", "cancelled"]


async def test_what_is_not_there_to_cancel(desk: Desk) -> None:
    """404 for another key's run, a panel that has ended or was cancelled, an unknown one, and ids of any other form."""
    desk.provider.script("m", WHOLE)
    desk.provider.script("messages-abroad", [R(), T("x"), HANG])
    stream, path = await started(desk, "m", "messages-abroad", frames=8)
    run_id, client = path.split("/")[-2], desk.gateway.client()
    elsewhere = [f"{RUN}/{run_id[:-1]}{slot}/panels/b" for slot in (1, 99999)]
    odd = [f"{RUN}/{odd}/panels/b" for odd in (run_id.upper(), f"{run_id}9", "x", "run_" + "0" * 32 + "-0")]

    strange = await desk.gateway.client(KEY_ONE).request("DELETE", f"{path}/b")
    missing = [
        await client.request("DELETE", target)
        for target in (f"{path}/a", f"{path}/c", f"{path}/{'b' * 3000}", f"{path}/%62", *elsewhere, *odd)
    ]
    found = await client.request("DELETE", f"{path}/b")
    again = await client.request("DELETE", f"{path}/b")
    await stream.all_frames()
    after = await client.request("DELETE", f"{path}/b")
    await stream.dispose()
    await receipts(desk, stream.headers.get("x-request-id"), "ab")

    assert found.status == 200
    for reply in (strange, *missing, again, after):
        assert (reply.status, error_of(reply)["code"]) == (404, "not_found")
