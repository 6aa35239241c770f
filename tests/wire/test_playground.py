"""The playground: up to three panels side by side in one answer, each an exchange of its own (contract, 7)."""

from __future__ import annotations

import asyncio
import json
import random
import re
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.acts import pause_ms, status, wait
from tests.support.client import Reply
from tests.support.config import KEY, KEY_FEW, KEY_ONE
from tests.support.frames import blocks, chat, parsed
from tests.support.gateway import CHAT
from tests.support.notation import CBD, CBS, CBX, DONE, FIN, MD, MS, MX, RST, R, T, U, json_answer
from tests.support.panels import RUN, by_panel, run_of
from tests.support.pictures import chunk, png
from tests.wire.desk import Desk, error_of, items, open_desk, receipts, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

WHOLE = (R(), T("Hal"), T("o"), FIN(), U(7, 2), DONE)
WHOLE_ABROAD = (MS(7), CBS(0), CBD(0, "Bo"), CBD(0, "njour"), CBX(0), MD(usage=2), MX)
IDS = re.compile(rb"req_[0-9a-f]{32}|(?<=\"trace_id\":\")[0-9a-f]{32}|(?<=\"overhead_ms\":)[0-9.]+|17\d{8}|18\d{8}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    async with open_desk(stream={"heartbeat_s": 0.3, "commit_after_s": 0.5, "idle_s": 2}) as opened:
        yield opened


async def ask(desk: Desk, body: dict[str, Any], key: str = KEY, **headers: str) -> Reply:
    return await desk.gateway.client(key, **headers).request("POST", RUN, body)


def masked(body: bytes) -> bytes:
    return IDS.sub(b"*", body)


# -- one stream of several panels --


async def test_three_panels(desk: Desk) -> None:
    """Each panel is an ordinary stream whose frames have its id: role, content, one finish with usage, metadata."""
    desk.provider.script("m", WHOLE)
    desk.provider.script("chat-abroad", WHOLE_ABROAD)

    reply = await ask(desk, run_of("m", "chat-abroad", {"model": "m", "temperature": 0.5}))
    rows = await receipts(desk, reply.headers.get("x-request-id"), "abc")

    said = by_panel(items(reply))
    assert set(said) == set("abc")
    assert [text_of(said[panel]) for panel in "abc"] == ["Halo", "Bonjour", "Halo"]
    for panel, frames in said.items():
        chunks, metadata = frames[:-1], frames[-1]
        assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert [bool(chunk["choices"][0]["finish_reason"]) for chunk in chunks] == [False] * 3 + [True]
        assert [item.get("usage") for item in frames].count(None) == len(frames) - 1
        assert {item["object"] for item in chunks} == {"chat.completion.chunk"}
        assert (next(iter(metadata)), metadata["object"]) == ("_anoman", "anoman.metadata")
        assert metadata["_anoman"]["trace_id"] == rows[panel]["trace_id"]
        assert metadata["_anoman"]["cost_usd"] == rows[panel]["cost_usd"]


async def test_what_leaves_with_a_run(desk: Desk) -> None:
    """The head is that of a stream, with the run's id, which has the digits of the request's id."""
    desk.provider.script("m", WHOLE)

    reply = await ask(desk, run_of("m", "m"))
    plain = await desk.ask(WHOLE)
    await receipts(desk, reply.headers.get("x-request-id"), "ab")
    await desk.receipt(plain)

    request_id = reply.headers.get("x-request-id") or ""
    assert reply.headers.get("x-anoman-run-id") == f"run_{request_id.removeprefix('req_')}-0"
    assert reply.headers.get("request-id") == request_id
    assert [name for name, _ in reply.headers if name != "x-anoman-run-id"] == [name for name, _ in plain.headers]


async def test_metering(desk: Desk) -> None:
    """One receipt for each panel, like any call's, tagged by its source; a client's own calls have no such tag."""
    desk.provider.script("m", WHOLE)

    reply = await ask(desk, run_of("m", "nobody"))
    rows = await receipts(desk, reply.headers.get("x-request-id"), "ab")
    plain = await desk.receipt(await desk.ask(WHOLE))

    assert {row["source"] for row in rows.values()} == {"playground"}
    assert {row["endpoint"] for row in rows.values()} == {"playground"}
    assert [(row["outcome"], row["status"]) for row in rows.values()] == [("completed", 200), ("rejected", 400)]
    assert "source" not in plain
    assert {name for name in rows["a"] if rows["a"][name] == plain.get(name)} >= {
        "model", "prompt_tokens", "completion_tokens", "cost_usd", "weighted_tokens", "attempts", "routing_mode",
    }  # fmt: skip


async def test_members_reach_the_providers(desk: Desk) -> None:
    """Each panel's provider gets its own members over the shared ones, spelled as they were, and nothing of panels."""
    desk.provider.script("m", WHOLE)
    desk.provider.script("messages-abroad", WHOLE)
    before = len(desk.provider.requests)
    panels = b'[{"id":"a","model":"m","top_p":0.10},{"id":"b","model":"messages-abroad","temperature":1e-1,"x":[2.50]}]'
    body = b'{"messages":[{"role":"user","content":"Hi"}],"temperature":0.70,"stream":true,"panels":%b}' % panels

    reply = await desk.gateway.client().request("POST", RUN, body)
    await receipts(desk, reply.headers.get("x-request-id"), "ab")

    got = {seen.json["model"]: seen for seen in desk.provider.requests[before:]}
    assert got["m"].body == (
        b'{"messages":[{"role":"user","content":"Hi"}],"temperature":0.70,"stream":true,"model":"m","top_p":0.10,'
        b'"stream_options":{"include_usage":true}}'
    )
    assert got["messages-abroad"].body == (
        b'{"messages":[{"role":"user","content":"Hi"}],"temperature":1e-1,"stream":true,"model":"messages-abroad",'
        b'"x":[2.50],"stream_options":{"include_usage":true}}'
    )


LONG_PNG = png()[:-12] + chunk(b"tEXt", random.Random(7).randbytes(150_000)) + png()[-12:]


async def test_a_shared_picture(desk: Desk) -> None:
    """A long picture that the panels share is set aside once, and reaches each of their providers whole."""
    desk.provider.script("m", WHOLE)
    desk.provider.script("chat-abroad", WHOLE_ABROAD)
    before, url = len(desk.provider.requests), "data:image/png;base64," + b64encode(LONG_PNG).decode()
    parts = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": url}}]

    reply = await ask(desk, run_of("m", "chat-abroad", "m") | {"messages": [{"role": "user", "content": parts}]})
    await receipts(desk, reply.headers.get("x-request-id"), "abc")

    got = [seen.json for seen in desk.provider.requests[before:]]
    shown = [
        content["image_url"]["url"].partition(",")[2] if "image_url" in content else content["source"]["data"]
        for body in got
        for content in body["messages"][0]["content"]
        if content["type"] != "text"
    ]
    assert len(got) == len(shown) == 3
    assert {b64decode(text, validate=True) for text in shown} == {LONG_PNG}
    assert {text_of(frames) for frames in by_panel(items(reply)).values()} == {"Halo", "Bonjour"}


async def test_a_panel_that_breaks(desk: Desk) -> None:
    """A panel that breaks ends in the documented frame with its id; the others go on to their own ends."""
    go_on = asyncio.Event()
    desk.provider.script("m", [R(), T("a"), wait(go_on), T("b"), FIN(), U(7, 2), DONE])
    desk.provider.script("messages-abroad", [R(), T("x"), RST])

    stream = await desk.gateway.client().open("POST", RUN, run_of("m", "messages-abroad"))
    frames: list[bytes] = []
    async for frame in stream.frames():
        frames.append(frame)
        if b'"error"' in frame:
            go_on.set()
    await stream.dispose()
    rows = await receipts(desk, stream.headers.get("x-request-id"), "ab")

    broken = next(frame for frame in frames if frame.startswith(b'data: {"error"'))
    assert broken == (
        b'data: {"error":{"type":"provider_error","code":"stream_interrupted","message":"upstream stream interrupted",'
        b'"_anoman":{"failure_class":"upstream_error","completion_tokens":1}},"panel":"b"}'
    )
    assert text_of(by_panel(parsed(f + b"\n\n" for f in frames))["a"]) == "ab"
    assert {panel: row["outcome"] for panel, row in rows.items()} == {"a": "completed", "b": "interrupted"}


async def test_a_panel_that_is_refused(desk: Desk) -> None:
    """A panel that never begins says so in a frame, at once, with what the plain answer's head would have said."""
    go_on = asyncio.Event()
    desk.provider.script("m", [wait(go_on), *WHOLE])
    desk.provider.script("first", [status(503)])
    desk.provider.script("second", [status(503)])

    stream = await desk.gateway.client().open("POST", RUN, run_of("m", "nobody", "fallback"))
    frames: list[bytes] = []
    async for frame in stream.frames():
        frames.append(frame)
        if len([frame for frame in frames if b'"error"' in frame]) == 2:
            go_on.set()
    await stream.dispose()
    request_id = stream.headers.get("x-request-id")
    await receipts(desk, request_id, "abc")

    said = by_panel(parsed(f + b"\n\n" for f in frames))
    assert text_of(said["a"]) == "Halo"
    assert [item["error"]["code"] for item in said["b"]] == ["model_not_found"]
    assert said["b"][0]["error"]["_anoman"] == {"request_id": f"{request_id}-b", "status": 400}
    assert said["b"][0]["error"]["param"] == "model"
    assert [item["error"]["code"] for item in said["c"]] == ["provider_unavailable"]
    assert said["c"][0]["error"]["_anoman"] == {"request_id": f"{request_id}-c", "status": 503, "retry_after_s": 1}


async def test_all_panels_refused(desk: Desk) -> None:
    """Several panels of which none begins are a 200 whose frames say why of each."""
    reply = await ask(desk, run_of("nobody", "nobody-else"))
    await receipts(desk, reply.headers.get("x-request-id"), "ab")

    said = by_panel(items(reply))
    assert {panel: [item["error"]["code"] for item in said[panel]] for panel in said} == {
        "a": ["model_not_found"],
        "b": ["model_not_found"],
    }


async def test_fallback_after_another_panel_began(desk: Desk) -> None:
    """That one panel has begun does not end the attempts of another, of which the client has nothing yet."""
    began = asyncio.Event()
    desk.provider.script("m", WHOLE)
    desk.provider.script("first", [wait(began), status(503)])
    desk.provider.script("second", WHOLE)

    stream = await desk.gateway.client().open("POST", RUN, run_of("m", "fallback"))
    await stream.head()
    began.set()
    frames = await stream.all_frames()
    await stream.dispose()
    rows = await receipts(desk, stream.headers.get("x-request-id"), "ab")

    assert text_of(by_panel(parsed(f + b"\n\n" for f in frames))["b"]) == "Halo"
    assert rows["b"]["attempts"] == ["fake-openai/first:failed", "fake-openai/second:ok"]


async def test_strip_extension(desk: Desk) -> None:
    """The strip header leaves every panel's metadata frame out."""
    desk.provider.script("m", WHOLE)

    reply = await ask(desk, run_of("m", "m"), x_anoman_strip_extension="1")
    await receipts(desk, reply.headers.get("x-request-id"), "ab")

    assert b"_anoman" not in reply.body
    assert [text_of(frames) for frames in by_panel(items(reply)).values()] == ["Halo", "Halo"]


# -- silence --


async def test_pings_of_a_silent_run(desk: Desk) -> None:
    """While nothing comes of any panel, the run pings as one stream does: one ping at a time, between whole frames."""
    desk.provider.script("m", [R(), T("a"), pause_ms(1000), T("b"), FIN(), U(7, 2), DONE])

    reply = await ask(desk, run_of("m", "m", "m"))
    await receipts(desk, reply.headers.get("x-request-id"), "abc")

    assert 2 <= reply.body.count(b": ping\n\n") <= 3  # every 0.3 s of one
    assert {text_of(frames) for frames in by_panel(items(reply)).values()} == {"ab"}


async def test_no_pings_beside_a_panel_that_talks(desk: Desk) -> None:
    """A panel's silence is none of the run's while another one talks."""
    desk.provider.script("m", [R(), T("a"), pause_ms(900), T("b"), FIN(), U(7, 2), DONE])
    words = [step for _ in range(12) for step in (T("x"), pause_ms(90))]
    desk.provider.script("messages-abroad", [R(), *words, FIN(), U(7, 12), DONE])

    reply = await ask(desk, run_of("m", "messages-abroad"))
    await receipts(desk, reply.headers.get("x-request-id"), "ab")

    assert b": ping" not in reply.body
    assert text_of(by_panel(items(reply))["a"]) == "ab"


async def test_commit_before_any_panel_begins(desk: Desk) -> None:
    """After `commit_after_s` without a word of any panel the 200 and one ping go out; failures are frames then."""
    desk.provider.script("m", [pause_ms(700), *WHOLE])
    desk.provider.script("messages-abroad", [pause_ms(700), status(503)])

    reply = await ask(desk, run_of("m", "messages-abroad"))
    rows = await receipts(desk, reply.headers.get("x-request-id"), "ab")

    said = by_panel(items(reply))
    assert reply.body.startswith(b": ping\n\ndata: ")
    assert text_of(said["a"]) == "Halo"
    assert [item["error"]["code"] for item in said["b"]] == ["stream_interrupted"]
    assert rows["b"]["outcome"] == "interrupted"


# -- limits --


async def test_requests_per_minute_count_panels(desk: Desk) -> None:
    """Each panel is a request of the key: of three panels two find room where one call was made; the third is told."""
    plain = await desk.gateway.client(KEY_FEW).request("POST", CHAT, chat("nobody"))
    desk.provider.script("m", WHOLE)

    reply = await ask(desk, run_of("m", "m", "m"), KEY_FEW)
    rows = await receipts(desk, reply.headers.get("x-request-id"), "abc")
    await desk.receipt(plain)
    all_refused = await ask(desk, run_of("m", "m"), KEY_FEW)
    await receipts(desk, all_refused.headers.get("x-request-id"), "ab")

    said = by_panel(items(reply))
    assert [text_of(said[panel]) for panel in "ab"] == ["Halo", "Halo"]
    (refused,) = said["c"]
    assert (refused["error"]["code"], refused["error"]["_anoman"]["status"]) == ("rate_limit_exceeded", 429)
    assert 0 < refused["error"]["_anoman"]["retry_after_s"] <= 60
    assert reply.headers.get("x-anoman-rate-remaining-rpm") == "0"
    assert [row["outcome"] for row in rows.values()] == ["completed", "completed", "rejected"]
    assert {frames[0]["error"]["code"] for frames in by_panel(items(all_refused)).values()} == {"rate_limit_exceeded"}


async def test_requests_at_once_count_panels(desk: Desk) -> None:
    """Where the key may have one request at once, the second panel is told so; the place is free after the run."""
    desk.provider.script("m", WHOLE)

    replies = [await ask(desk, run_of("m", "m"), KEY_ONE) for _ in range(2)]
    for reply in replies:
        await receipts(desk, reply.headers.get("x-request-id"), "ab")

    for reply in replies:
        said = by_panel(items(reply))
        assert text_of(said["a"]) == "Halo"
        assert [item["error"]["code"] for item in said["b"]] == ["inflight_cap"]


# -- one panel --


@pytest.mark.parametrize("is_stream", [True, False])
async def test_without_panels_like_chat(desk: Desk, is_stream: bool) -> None:
    """A body without panels answers exactly as chat does, to the byte but for ids and times."""
    answers = [WHOLE if is_stream else [json_answer("Halo")]]
    desk.provider.script("m", *answers)
    body = chat("m", stream=is_stream)

    mine = await ask(desk, body)
    chats = await desk.gateway.client().request("POST", CHAT, body)
    row = await desk.receipt(mine)
    await desk.receipt(chats)

    assert masked(mine.body) == masked(chats.body)
    assert [name for name, _ in mine.headers] == [name for name, _ in chats.headers]
    assert (mine.status, row["source"], row["endpoint"]) == (200, "playground", "playground")


@pytest.mark.parametrize("body", [chat("nobody"), run_of("nobody"), run_of("nobody", stream=False)])
async def test_one_panel_fails_like_chat(desk: Desk, body: dict[str, Any]) -> None:
    """One panel that fails before it begins is a plain HTTP error, whether or not the body names panels."""
    reply = await ask(desk, body)
    chats = await desk.gateway.client().request("POST", CHAT, chat("nobody"))

    assert reply.status == 400
    assert masked(reply.body) == masked(chats.body)
    assert [name for name, _ in reply.headers] == [name for name, _ in chats.headers]
    await desk.receipt(chats)
    await desk.receipt_where(lambda row: row["request_id"].startswith(reply.headers.get("x-request-id") or "?"))


async def test_one_panel_by_name(desk: Desk) -> None:
    """One panel in the list is a run like any other: its frames have its id, its head the run's."""
    desk.provider.script("m", WHOLE)

    reply = await ask(desk, run_of({"id": "left", "model": "m"}))
    await desk.receipt_where(lambda row: row["request_id"] == f"{reply.headers.get('x-request-id')}-left")

    assert set(by_panel(items(reply))) == {"left"}
    assert (reply.headers.get("x-anoman-run-id") or "").startswith("run_")


# -- without streaming --


async def test_json(desk: Desk) -> None:
    """Without streaming every panel has its whole completion or its error under its id."""
    desk.provider.script("m", [json_answer("Halo")])
    desk.provider.script("chat-abroad", [json_answer("Bonjour", dialect="anthropic")])

    reply = await ask(desk, run_of("m", "nobody", "chat-abroad", stream=False))
    rows = await receipts(desk, reply.headers.get("x-request-id"), "abc")

    assert (reply.status, list(reply.json)) == (200, ["run_id", "panels"])
    assert reply.json["run_id"] == reply.headers.get("x-anoman-run-id")
    panels = reply.json["panels"]
    assert list(panels) == ["a", "b", "c"]
    for panel, text in (("a", "Halo"), ("c", "Bonjour")):
        assert list(panels[panel]) == ["completion"]
        assert panels[panel]["completion"]["choices"][0]["message"]["content"] == text
        assert panels[panel]["completion"]["_anoman"]["cost_usd"] == rows[panel]["cost_usd"]
    assert panels["b"]["error"]["code"] == "model_not_found"
    assert panels["b"]["error"]["_anoman"]["status"] == 400


async def test_json_without_extension(desk: Desk) -> None:
    """With the strip header cost and weight stand in the head, over all panels."""
    desk.provider.script("m", [json_answer("Halo", (7, 2))])

    reply = await ask(desk, run_of("m", "m", stream=False), x_anoman_strip_extension="1")
    rows = await receipts(desk, reply.headers.get("x-request-id"), "ab")

    assert b"_anoman" not in reply.body
    assert {row["cost_usd"] for row in rows.values()} == {"0.0000375"}
    assert reply.headers.get("x-anoman-cost-usd") == "0.0000750"
    assert reply.headers.get("x-anoman-weighted-tokens") == str(sum(row["weighted_tokens"] for row in rows.values()))


# -- what is refused --


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (run_of("m", "m", "m", "m"), "panels"),
        (run_of("m", {"model": "m", "id": "a"}), "panels[1].id"),
        (run_of({"model": "m", "id": "x" * 65}), "panels[0].id"),
        (run_of("m", {"model": "m", "temperature": "hot"}), "panels[1].temperature"),
        (run_of("m") | {"messages": []}, "messages"),
    ],
)
async def test_bad_bodies(desk: Desk, body: dict[str, Any], param: str) -> None:
    """A body that is wrong anywhere is a plain 400 naming the place, and nothing is asked for any panel."""
    before = len(desk.provider.requests)

    reply = await ask(desk, body)

    assert (reply.status, error_of(reply)["code"], error_of(reply)["param"]) == (400, "invalid_request", param)
    assert len(desk.provider.requests) == before


async def test_who_may_ask(desk: Desk) -> None:
    """A run and a cancel need a key; other methods are told which there are."""
    path = f"{RUN}/run_{'0' * 32}-0/panels/a"

    asked = await desk.gateway.client(None).request("POST", RUN, run_of("m"))
    cancelled = await desk.gateway.client(None).request("DELETE", path)
    methods = [await desk.gateway.client().request("GET", target) for target in (RUN, path)]

    assert (asked.status, cancelled.status) == (401, 401)
    assert [(reply.status, reply.headers.get("allow")) for reply in methods] == [(405, "POST"), (405, "DELETE")]


async def test_one_order_of_writing(desk: Desk) -> None:
    """However the panels' frames come, each leaves whole, and in its panel's order."""
    words = [f"w{number} " for number in range(40)]
    desk.provider.script("m", lambda seen: [R(), *map(T, words), FIN(), U(7, 40), DONE])
    desk.provider.script("chat-abroad", [MS(7), CBS(0), *(CBD(0, word) for word in words), CBX(0), MD(usage=40), MX])

    reply = await ask(desk, run_of("m", "chat-abroad", "m"))
    await receipts(desk, reply.headers.get("x-request-id"), "abc")

    assert [text_of(frames) for frames in by_panel(items(reply)).values()] == ["".join(words)] * 3
    assert all(json.loads(block.removeprefix(b"data: ")) for block in blocks(reply.body)[:-1])
