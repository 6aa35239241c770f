"""What the database has of clients that left: the cases DIS-02, DIS-06, DIS-11 and DIS-13 to their last word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.support.acts import head, no_answer, pause_ms, stall
from tests.support.client import Stream
from tests.support.config import KEY, KEY_ONE, standard
from tests.support.frames import chat, messages
from tests.support.gateway import CHAT, MESSAGES, Gateway
from tests.support.notation import CBD, CBS, CBX, DONE, FIN, FIN_CUT, HANG, MD, MS, MX, R, T, U
from tests.support.provider import FakeProvider
from tests.support.store import Store, new_store

pytestmark = pytest.mark.asyncio(loop_scope="module")

BEGUN = {CHAT: R() + T("a"), MESSAGES: MS(25, 1) + CBS(0) + CBD(0, "a")}
WHOLE = {CHAT: R() + T("a") + FIN() + U(7, 1) + DONE, MESSAGES: MS(7) + CBS(0) + CBD(0, "a") + CBX(0) + MD() + MX}
MODELS = {CHAT: "m", MESSAGES: "claude"}
BODIES = {CHAT: chat("m"), MESSAGES: messages("claude")}
both = pytest.mark.parametrize("path", [CHAT, MESSAGES])


@dataclass
class Records:
    """A gateway, its provider, and the database that the two of them fill."""

    provider: FakeProvider
    gateway: Gateway
    store: Store

    async def begin(self, path: str, answer: list[Any], key: str = KEY) -> Stream:
        """A stream that the provider has got."""
        self.provider.script(MODELS[path], answer)
        before = len(self.provider.requests)
        stream = await self.gateway.client(key).open("POST", path, BODIES[path])
        await self.provider.requests_seen(before + 1)
        return stream

    async def trace(self, request_id: str) -> dict[str, Any]:
        """The trace of a call, as soon as it is there."""
        (row,) = await self._rows("SELECT * FROM traces WHERE request_id = ?", request_id)
        return row

    async def ledger(self, request_id: str) -> dict[str, dict[str, Any]]:
        """The rows of a call in the ledger, by kind: a call with one attempt has two."""
        await self.trace(request_id)
        rows = await self._rows("SELECT * FROM ledger WHERE request_id = ?", request_id)
        return {row["kind"]: row for row in rows}

    async def _rows(self, statement: str, *values: object) -> list[dict[str, Any]]:
        async with asyncio.timeout(10):
            while not (rows := self.store.rows(statement, *values)):  # noqa: ASYNC110 - only the database knows
                await asyncio.sleep(0.02)
        return rows

    async def left(self) -> str:
        """The id of the newest call that was settled."""
        (line,) = await self.gateway.settled(1)
        return str(line["request_id"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def records(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Records]:
    store = await new_store(tmp_path_factory.mktemp("records"))
    async with FakeProvider() as provider:
        config = standard(provider.base_url, storage=store.settings, stream={"first_token_s": 30, "idle_s": 30})
        async with Gateway(config) as gateway:
            yield Records(provider, gateway, store)


@both
@pytest.mark.parametrize("answer", [[no_answer()], [head(), stall()]], ids=["silent", "headed"])
async def test_dis_02_the_trace_and_the_slot(records: Records, path: str, answer: list[Any]) -> None:
    """DIS-02: who leaves before the first token leaves a trace `streaming_cancelled`, and the slot is free."""
    stream = await records.begin(path, answer, KEY_ONE)
    stream.rst()
    await records.provider.requests[-1].gone()
    trace = await records.trace(await records.left())
    await stream.dispose()

    records.provider.script(MODELS[path], [WHOLE[path]])
    after = await records.gateway.client(KEY_ONE).request("POST", path, BODIES[path])
    await records.gateway.settled(1)

    assert (trace["routing_mode"], trace["outcome"]) == ("streaming_cancelled", "cancelled")
    assert (trace["completion_tokens"], trace["prompt_tokens"] > 0) == (0, True)
    assert after.status == 200


@both
async def test_dis_06_the_ledger(records: Records, path: str) -> None:
    """DIS-06: reading the text and closing before the usage is billed by what was read: prompt, tokens and cost."""
    token = T(" word") if path == CHAT else CBD(0, " word")
    stream = await records.begin(path, [BEGUN[path] + token * 39, HANG])
    async for _ in stream.frames():
        if len(stream.frame_times) >= 41:
            break
    stream.close()
    request_id = await records.left()
    trace, rows = await records.trace(request_id), await records.ledger(request_id)
    await stream.dispose()

    assert trace["routing_mode"] == "streaming_cancelled"
    assert set(rows) == {"charge", "cost"}
    charge = rows["charge"]
    assert 32 <= charge["completion_tokens"] <= 48
    assert charge["prompt_tokens"] > 0
    assert charge["cost_nano_usd"] == trace["cost_nano_usd"] > 0


@both
async def test_dis_11_a_half_close(records: Records, path: str) -> None:
    """DIS-11: a client that closes its sending half counts as gone, as docs/streaming.md says: one trace, cancelled."""
    stream = await records.begin(path, [BEGUN[path], HANG])
    await anext(stream.frames())
    stream.half_close()
    await records.provider.requests[-1].gone()
    trace = await records.trace(await records.left())
    await stream.dispose()

    assert (trace["routing_mode"], trace["outcome"]) == ("streaming_cancelled", "cancelled")


@both
async def test_dis_13_three_outcomes(records: Records, path: str) -> None:
    """DIS-13: an answered, a cancelled and a broken stream are three different things in the traces."""
    modes = []
    for answer in ([WHOLE[path]], [BEGUN[path], HANG], [BEGUN[path], pause_ms(20), FIN_CUT]):
        stream = await records.begin(path, answer)
        if answer[-1] is HANG:
            await anext(stream.frames())
            stream.close()
        else:
            await stream.all_frames()
        trace = await records.trace(await records.left())
        await stream.dispose()
        modes.append((trace["outcome"], trace["routing_mode"], trace["status"]))

    assert modes == [
        ("completed", "streaming", 200),
        ("cancelled", "streaming_cancelled", 200),
        ("interrupted", "streaming_interrupted", 200),
    ]
