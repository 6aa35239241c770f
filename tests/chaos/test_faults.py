"""What providers do wrong, A1 to A20 of the catalogue, as the client sees it: alone and among 50 live streams.

Names that do not resolve and bad certificates need a resolver and an authority of one's own: `chaos/upstream` has them.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.chaos.scenes import ALL_SIDES, OPENAI, SIDES, Book, Side, ends_well, interruption, refusal, serving, until
from tests.support.acts import Answer, Script, end, fin, head, pause_ms, repeat, reset, send_raw, stall, status
from tests.support.client import Reply, Stream
from tests.support.config import anthropic_provider, model, openai_provider, standard
from tests.support.frames import text_of
from tests.support.gateway import Gateway
from tests.support.notation import AERR, DONE, FIN, HANG, MD, MX, U, data, event, json_answer
from tests.support.provider import FakeProvider, refusing_port, silent_port
from tests.support.stage import Seen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("faults")]

FIRST_TOKEN_S, IDLE_S, NON_STREAM_S, CONNECT_S, WAIT_MAX_S = 1.0, 0.7, 1.0, 0.3, 0.5
LIVE = 50
WORDS = "unrepeatable remarks org-zzzz9 provider.test"  # what a provider says, and no client may read

alone_and_among_50 = pytest.mark.parametrize("place", [0, LIVE], indirect=True, ids=["alone", "among_50"])
each_side = pytest.mark.parametrize("side", ALL_SIDES, ids=lambda side: side.name)


@dataclass(slots=True)
class Place:
    gateway: Gateway
    provider: FakeProvider

    async def ask(self, side: Side, *answers: Answer, name: str = "", **more: Any) -> tuple[Reply, list[Seen]]:
        """The answer to a request, and what its provider saw of it. Nothing of the provider is in the answer."""
        self.provider.script(side.model, *answers)
        before = len(self.provider.requests)
        reply = await self.gateway.client().request("POST", side.path, side.ask(name or side.model, **more))
        text = reply.body.decode()
        assert not [word for word in WORDS.split() if word in text]
        assert not re.search(rf"(?<![0-9a-f]){self.provider.port}(?![0-9a-f])", text)  # an id may have its digits
        assert reply.ended_properly
        return reply, self.provider.requests[before:]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[0], ids=["alone"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with FakeProvider() as provider, refusing_port() as refusing, silent_port() as silent:
        times = {"first_token_s": FIRST_TOKEN_S, "idle_s": IDLE_S, "non_stream_s": NON_STREAM_S, "commit_after_s": 60}
        config = standard(
            provider.base_url,
            stream={**times, "max_event_bytes": 65_536, "sniff_bytes": 16_384},
            upstream={"connect_s": CONNECT_S, "retry_wait_max_s": WAIT_MAX_S},
        )
        for name, url in {
            "refusing": f"http://127.0.0.1:{refusing}",
            "silent": f"http://127.0.0.1:{silent}",
            "tls": f"https://127.0.0.1:{provider.port}",
        }.items():
            config["providers"] |= {name: openai_provider(url), f"{name}-claude": anthropic_provider(url)}
            config["models"] |= {name: model(f"{name}/m"), f"{name}-claude": model(f"{name}-claude/m")}
        config["models"]["live"] = model("fake-openai/live")
        async with serving(config) as gateway:
            place = Place(gateway, provider)
            async with Living(place, request.param):
                yield place


class Living:
    """Streams that flow all the while, and are whole at the end whatever happened beside them."""

    def __init__(self, place: Place, count: int) -> None:
        self._place, self._count, self._over = place, count, asyncio.Event()
        self._streams: list[Stream] = []
        self._readers: list[asyncio.Task[list[bytes]]] = []

    async def __aenter__(self) -> None:
        over = self._over

        class UntilOver:
            async def play(self, stage: Any) -> None:
                while not over.is_set():
                    await stage.body(OPENAI.piece(" cat"))
                    await asyncio.sleep(0.1)

        self._place.provider.script("live", [OPENAI.start, UntilOver(), OPENAI.finish])
        client = self._place.gateway.client()
        for _ in range(self._count):
            self._streams.append(await client.open("POST", OPENAI.path, OPENAI.ask("live")))
            self._readers.append(asyncio.create_task(self._streams[-1].all_frames(110)))
        await until(lambda: len(self._place.provider.requests) == self._count)

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        answers = await asyncio.gather(*self._readers)
        for stream in self._streams:
            await stream.dispose()
        assert all(ends_well(OPENAI, frames) for frames in answers)


@pytest_asyncio.fixture(loop_scope="module")
async def book(place: Place) -> Book:
    return Book(place.gateway)


# -- before the first good frame: a plain HTTP error --


@dataclass(frozen=True, slots=True)
class Refused:
    """What a fault ends in while no frame is out. `requests` counts the attempts that the provider sees."""

    status: int = 503
    code: str = "provider_unavailable"
    requests: int = 2


def error(code: int, **headers: str) -> list[Any]:
    body = {"error": {"message": f"{WORDS}", "type": "server_error", "code": "x"}}
    return [status(code, {name.replace("_", "-"): value for name, value in headers.items()}, body)]


JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
DIALECTS = [side.dialect for side in SIDES]
IN_BAND: dict[str, bytes] = {
    "openai": data({"error": {"message": WORDS, "code": 500}}),
    "anthropic": AERR("overloaded_error", WORDS),
}

EITHER_WAY: dict[str, tuple[Script, Refused]] = {
    "A6 reset instead of an answer": ([reset()], Refused()),
    "A6 fin instead of an answer": ([fin()], Refused()),
    "A10 500": (error(500), Refused()),
    "A10 502": (error(502), Refused()),
    "A10 503": (error(503), Refused()),
    "A10 529": (error(529), Refused()),
    "A10 408": (error(408), Refused()),
    "A10 429": (error(429), Refused()),
    "A10 429, a wait that is too long": (error(429, Retry_After="30"), Refused(requests=1)),
    "A10 an error body that never ends": ([head("application/json", framing=9, code=500), b"{", fin()], Refused()),
    "A11 401": (error(401), Refused(requests=1)),
    "A11 402": (error(402), Refused(requests=1)),
    "A11 403": (error(403), Refused(requests=1)),
    "A12 302": (error(302, Location="http://127.0.0.1:9/elsewhere"), Refused(requests=1)),
    "A12 307": (error(307, Location="/elsewhere"), Refused(requests=1)),
    "A13 garbage": ([send_raw(b"GARBAGE " + WORDS.encode() + b"\r\n\r\n"), stall()], Refused()),
    "A13 a header of 20 kB": ([send_raw(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 20_000 + b"\r\n\r\n"), stall()], Refused()),
    "A13 NUL in a header": ([send_raw(b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n"), stall()], Refused()),
    "A13 a bad chunk size": ([send_raw(JSON_HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"), stall()], Refused()),
    "A13 101": ([send_raw(b"HTTP/1.1 101 Odd\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), stall()], Refused()),
    "A16 an unknown encoding": ([head(headers={"Content-Encoding": "zstd"}), b"x", end()], Refused()),
    "404": (error(404), Refused(requests=1)),
    # the caller's own fault is told in the provider's words, cleaned
    "400": ([status(400, (), {"error": {"message": "no such x"}})], Refused(400, "invalid_request", 1)),
    "413": ([status(413, (), {"error": {"message": "too much x"}})], Refused(413, "request_too_large", 1)),
    "422": ([status(422, (), {"error": {"message": "no such x"}})], Refused(400, "invalid_request", 1)),
}  # fmt: skip


@alone_and_among_50
@each_side
@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("fault", EITHER_WAY)
async def test_before_the_first_frame(place: Place, book: Book, fault: str, is_stream: bool, side: Side) -> None:
    """A plain HTTP error in the endpoint's envelope after the right number of attempts, at no cost."""
    script, wanted = EITHER_WAY[fault]

    reply, seen = await place.ask(side, script, stream=is_stream)
    (row,) = await book.settled(1)

    assert (reply.status, refusal(side, reply), len(seen)) == (wanted.status, wanted.code, wanted.requests)
    assert row["outcome"] == ("failed" if wanted.status >= 500 else "rejected")
    assert (row["status"], row["error_code"], len(row["attempts"])) == (reply.status, wanted.code, wanted.requests)
    assert (float(row["cost_usd"]), row["weighted_tokens"]) == (0, 0)
    if wanted.status == 503:
        assert 1 <= int(reply.headers.get("retry-after") or 0) <= 60


STREAM_ONLY: dict[str, tuple[dict[str, Script], Refused]] = {
    "A6 reset after the head": ({side.dialect: [side.start, reset()] for side in SIDES}, Refused()),
    "A6 fin after the head": ({side.dialect: [side.start, fin()] for side in SIDES}, Refused()),
    "A7 nothing": ({side.dialect: [head(), end()] for side in SIDES}, Refused()),
    "A7 only a start": ({side.dialect: [side.start] for side in SIDES}, Refused()),
    "A9 an error first": ({side.dialect: [side.start, IN_BAND[side.dialect], HANG] for side in SIDES}, Refused()),
    "A9 an error as JSON": (
        {side.dialect: [status(200, (), {"error": {"message": WORDS}})] for side in SIDES},
        Refused(),
    ),
    "A14 an endless line": ({side.dialect: [b"data: " + b"x" * 200_000, HANG] for side in SIDES}, Refused()),
    "A15 no JSON": ({side.dialect: [data("{nonsense " + WORDS), HANG] for side in SIDES}, Refused()),
    "A15 deep JSON": ({side.dialect: [data("[" * 30_000), HANG] for side in SIDES}, Refused()),
    "A15 a scalar": ({side.dialect: [data("17"), HANG] for side in SIDES}, Refused()),
}


@alone_and_among_50
@each_side
@pytest.mark.parametrize("fault", STREAM_ONLY)
async def test_before_the_first_frame_of_a_stream(place: Place, book: Book, fault: str, side: Side) -> None:
    """What breaks before a piece of the answer is here is a plain HTTP error, after one more attempt."""
    scripts, wanted = STREAM_ONLY[fault]

    reply, seen = await place.ask(side, scripts[side.dialect])
    (row,) = await book.settled(1)

    assert (reply.status, refusal(side, reply), len(seen)) == (wanted.status, wanted.code, wanted.requests)
    assert (row["outcome"], float(row["cost_usd"])) == ("failed", 0)


JSON_ONLY: dict[str, Script] = {
    "A6 reset in the body": [head("application/json", framing=1000), b"{", pause_ms(20), reset()],
    "A6 fin in the body": [head("application/json", framing=1000), b"{", fin()],
    "A6 fin in a chunked body": [head("application/json"), b'{"id":', fin()],
    "A7 half a body, ended": [head("application/json", framing="eof"), b'{"id":"c1","choices":[', end()],
    "A9 an error in a 200": [status(200, (), {"error": {"message": WORDS}})],
    "A15 no JSON": [status(200, (), b"<html>" + WORDS.encode())],
    "A15 a scalar": [status(200, (), b"17")],
    "A15 deep JSON": [status(200, (), b"[" * 100_000)],
    "A15 nothing": [status(200, (), b"")],
    "A15 no content": [status(200, (), {"id": "c1", "object": "x"})],
    "A16 half a gzip body": [
        head("application/json", {"Content-Encoding": "gzip"}), gzip.compress(b'{"choices":[]}' * 99)[:-20], end()
    ],
}  # fmt: skip


@alone_and_among_50
@each_side
@pytest.mark.parametrize("fault", JSON_ONLY)
async def test_json_bodies(place: Place, book: Book, fault: str, side: Side) -> None:
    """A JSON answer that is cut, or is none, is a 503 after one more attempt, at no cost."""
    reply, seen = await place.ask(side, JSON_ONLY[fault], stream=False)
    (row,) = await book.settled(1)

    assert (reply.status, refusal(side, reply), len(seen)) == (503, "provider_unavailable", 2)
    assert (row["outcome"], float(row["cost_usd"])) == ("failed", 0)


@each_side
@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("fault", ["refusing", "silent", "tls"])
async def test_a1_a3_no_connection(place: Place, book: Book, fault: str, is_stream: bool, side: Side) -> None:
    """A1, A3: refused, never answered, or no TLS where TLS is due: 503 in time, and not a byte in the clear."""
    name = fault if side.dialect == "openai" else f"{fault}-claude"
    loop = asyncio.get_running_loop()
    started_s = loop.time()

    reply, seen = await place.ask(side, [], name=name, stream=is_stream)
    (row,) = await book.settled(1)

    assert (reply.status, refusal(side, reply), len(seen)) == (503, "provider_unavailable", 0)
    assert loop.time() - started_s < FIRST_TOKEN_S
    assert row["attempts"] == [f"{name}/m:failed"] * 2
    assert float(row["cost_usd"]) == 0


@each_side
async def test_a4_no_first_token(place: Place, book: Book, side: Side) -> None:
    """A4: a stream that does not begin is a 504 at the first-token limit, and the upstream is left."""
    reply, seen = await place.ask(side, [HANG])
    closed = await seen[0].gone(0.5)
    (row,) = await book.settled(1)

    assert (reply.status, refusal(side, reply), len(seen)) == (504, "provider_timeout", 1)
    assert FIRST_TOKEN_S - 0.1 < closed.when_s - seen[0].received_s < FIRST_TOKEN_S + 0.5
    assert (row["outcome"], row["failure_class"]) == ("failed", "upstream_timeout")
    assert row["failure_reason"] == "first_token"


@each_side
@pytest.mark.parametrize("script", [[HANG], [head("application/json", framing=9), b"{", HANG]], ids=["none", "half"])
async def test_a4_no_json_in_time(place: Place, book: Book, script: Script, side: Side) -> None:
    """A4: without streaming the limit is one for all: 504, and the SDKs are told not to try again."""
    reply, seen = await place.ask(side, script, stream=False)
    await seen[0].gone(0.5)
    (row,) = await book.settled(1)

    assert (reply.status, refusal(side, reply), len(seen)) == (504, "gateway_timeout", 1)
    assert reply.headers.get("x-should-retry") == "false"
    assert (row["outcome"], row["failure_class"]) == ("failed", "upstream_timeout")


@each_side
async def test_one_deadline_for_all_attempts(place: Place, book: Book, side: Side) -> None:
    """Failing slowly twice does not double the wait: one deadline covers the attempts and the waits between them."""
    slow = [pause_ms(FIRST_TOKEN_S * 700), *error(500)]
    started_s = asyncio.get_running_loop().time()

    reply, seen = await place.ask(side, slow)
    (row,) = await book.settled(1)

    assert (reply.status, refusal(side, reply), len(seen)) == (504, "provider_timeout", 2)
    assert asyncio.get_running_loop().time() - started_s < FIRST_TOKEN_S + 0.4
    assert len(row["attempts"]) == 2


@each_side
async def test_a11_our_credential(place: Place, book: Book, side: Side) -> None:
    """A11: a provider that refuses our key is an error a person should look at, and never a 401 for the caller."""
    reply, _ = await place.ask(side, error(401))
    await book.settled(1)

    assert reply.status == 503
    assert [line["event"] for line in book.errors] == ["provider.credential_refused"]


# -- after the first good frame: the documented error frame, and never a second request --

PIECES = 3


def begun(side: Side, *rest: Any) -> list[Any]:
    return [side.start, *[side.piece(" cat")] * PIECES, *rest]


MIDSTREAM: dict[str, tuple[dict[str, list[Any]], str]] = {
    "A5 silence": ({side.dialect: [HANG] for side in SIDES}, "upstream_timeout"),
    "A5 comments only": ({side.dialect: [repeat(b": ping\n\n", pause_ms(50))] for side in SIDES}, "upstream_timeout"),
    "A6 reset": ({side.dialect: [pause_ms(30), reset()] for side in SIDES}, "upstream_error"),
    "A6 fin": ({side.dialect: [fin()] for side in SIDES}, "upstream_error"),
    "A6 half an event, fin": ({side.dialect: [side.piece(" lost")[:30], fin()] for side in SIDES}, "upstream_error"),
    "A7 a proper end": ({side.dialect: [end()] for side in SIDES}, "upstream_truncated"),
    "A7 half an event": ({side.dialect: [side.piece(" lost")[:30], end()] for side in SIDES}, "upstream_truncated"),
    "A9 an error": ({side.dialect: [IN_BAND[side.dialect], HANG] for side in SIDES}, "upstream_error"),
    "A13 a bad chunk": ({key: [pause_ms(30), send_raw(b"zz\r\n"), stall()] for key in DIALECTS}, "upstream_error"),
    "A14 an endless line": ({side.dialect: [b"data: " + b"x" * 200_000, HANG] for side in SIDES}, "upstream_error"),
    "A15 no JSON": ({side.dialect: [data("{nonsense " + WORDS), HANG] for side in SIDES}, "upstream_error"),
    "A15 deep JSON": ({side.dialect: [data("[" * 30_000), HANG] for side in SIDES}, "upstream_error"),
    "no finish": ({"openai": [DONE], "anthropic": [MD(usage=PIECES), end()]}, "upstream_truncated"),
}  # fmt: skip


@alone_and_among_50
@each_side
@pytest.mark.parametrize("fault", MIDSTREAM)
async def test_mid_stream(place: Place, book: Book, fault: str, side: Side) -> None:
    """All that came is delivered, then the error frame and a clean end; the tokens are billed; no second request."""
    scripts, failure_class = MIDSTREAM[fault]

    reply, seen = await place.ask(side, begun(side, *scripts[side.dialect]), [HANG])
    frames = [frame for frame in reply.body.split(b"\n\n") if frame]
    (row,) = await book.settled(1)

    assert (reply.status, len(seen)) == (200, 1)
    assert text_of(frames) == " cat" * PIECES
    assert interruption(side, frames) == {"failure_class": failure_class, "completion_tokens": side.counted(PIECES)}
    assert (row["outcome"], row["routing_mode"]) == ("interrupted", "streaming_interrupted")
    assert (row["failure_class"], row["completion_tokens"]) == (failure_class, side.counted(PIECES))
    assert row["prompt_tokens"] > 0
    assert float(row["cost_usd"]) > 0
    if not seen[0].played.is_set():  # a provider that still holds on is left
        await seen[0].gone(0.5)
    if fault.startswith("A5"):
        closed = await seen[0].gone(0)
        assert IDLE_S - 0.1 < closed.when_s - seen[0].received_s < IDLE_S + 0.6


@alone_and_among_50
@each_side
@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a6_a_body_that_ends_with_its_connection(place: Place, book: Book, how: str, side: Side) -> None:
    """H12: a body without length that just ends is no answer, whichever way it ends."""
    script = [head(framing="eof"), *begun(side), pause_ms(30), fin() if how == "fin" else reset()]

    reply, seen = await place.ask(side, script)
    frames = [frame for frame in reply.body.split(b"\n\n") if frame]
    (row,) = await book.settled(1)

    assert len(seen) == 1
    assert interruption(side, frames)["completion_tokens"] == side.counted(PIECES)
    assert row["outcome"] == "interrupted"


# -- odd, but whole --

_STOPPED = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
NO_USAGE = {"openai": FIN() + DONE, "anthropic": event("message_delta", _STOPPED) + MX}
AFTER_FINISH = {
    "openai": FIN() + U(7, PIECES) + data({"error": {"message": WORDS}}),
    "anthropic": MD(usage=PIECES) + MX + AERR("api_error", WORDS),
}


@each_side
async def test_a8_no_usage(place: Place, book: Book, side: Side) -> None:
    """A8: a whole answer without usage is complete; the tokens are estimated, and the receipt says so."""
    reply, _ = await place.ask(side, begun(side, NO_USAGE[side.dialect]))
    (row,) = await book.settled(1)

    assert ends_well(side, [frame for frame in reply.body.split(b"\n\n") if frame])
    assert (row["outcome"], row["usage_basis"]) == ("completed", "estimated")
    assert row["completion_tokens"] == side.counted(PIECES)
    assert row["prompt_tokens"] > 0


@each_side
async def test_an_error_after_the_finish(place: Place, book: Book, side: Side) -> None:
    """An error behind the terminal marker does not spoil the answer."""
    reply, _ = await place.ask(side, begun(side, AFTER_FINISH[side.dialect], fin()))
    (row,) = await book.settled(1)

    assert ends_well(side, [frame for frame in reply.body.split(b"\n\n") if frame])
    assert (row["outcome"], row["completion_tokens"]) == ("completed", PIECES)


LIES: list[dict[str, Any]] = [
    {"prompt_tokens": -5, "completion_tokens": -7},
    {"prompt_tokens": 10**12, "completion_tokens": 10**12},
    {"prompt_tokens": "7", "completion_tokens": None},
    {"prompt_tokens": 1e300, "completion_tokens": 2.5},
    {},
]


@pytest.mark.parametrize("lie", LIES, ids=str)
@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "json"])
async def test_a17_usage_that_lies(place: Place, book: Book, lie: dict[str, Any], is_stream: bool) -> None:
    """A17: whatever a provider says of its usage, the bill is never negative and never beyond reason."""
    finish = FIN() + data({"id": "c1", "object": "chat.completion.chunk", "created": 1, "choices": [], "usage": lie})
    script = begun(OPENAI, finish, DONE) if is_stream else [json_answer("a word", usage=lie)]

    reply, _ = await place.ask(OPENAI, script, stream=is_stream)
    (row,) = await book.settled(1)

    assert (reply.status, row["outcome"]) == (200, "completed")
    assert 0 <= row["prompt_tokens"] < 10**9
    assert 0 <= row["completion_tokens"] < 10**9
    assert 0 <= float(row["cost_usd"]) < 10**6


@each_side
async def test_a13_early_hints(place: Place, book: Book, side: Side) -> None:
    """A13: an interim answer before the real one is skipped."""
    reply, _ = await place.ask(side, [send_raw(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"), *side.whole("Hi")])

    assert ends_well(side, [frame for frame in reply.body.split(b"\n\n") if frame])
    assert [row["outcome"] for row in await book.settled(1)] == ["completed"]


@each_side
async def test_a13_a18_bytes_after_the_answer(place: Place, book: Book, side: Side) -> None:
    """A13, A18: a second answer nobody asked for reaches nobody: its connection is not used again."""
    good = json_answer("ok", dialect=side.dialect).body
    raw = JSON_HEAD + b"Content-Length: %d\r\n\r\n" % len(good) + good
    stray = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray"
    first, (one,) = await place.ask(side, [send_raw(raw), send_raw(stray), stall()], stream=False)
    await asyncio.sleep(0.05)  # until the stray bytes are here

    second, (two,) = await place.ask(side, [json_answer("ok", dialect=side.dialect)], stream=False)
    await book.settled(2)

    assert (first.status, second.status) == (200, 200)
    assert b"stray" not in second.body
    assert one.peer is not two.peer


@each_side
async def test_a19_another_model_name(place: Place, book: Book, side: Side) -> None:
    """A19: a provider that answers under another name is priced by route; the client reads the name it asked for."""
    script = [json_answer("ok", dialect=side.dialect, model="other-2024")]

    reply, _ = await place.ask(side, script, stream=False)
    (row,) = await book.settled(1)

    assert reply.json["model"] == side.model
    assert (row["model"], row["provider_model"]) == (side.model, side.model)


@each_side
async def test_a14_any_split(place: Place, book: Book, side: Side) -> None:
    """A14: the same bytes in one piece and cut anywhere, with CRLF, comments and a BOM, give the same text."""
    whole = b"".join(begun(side, side.finish))
    cuts = [whole[i : i + 7] for i in range(0, len(whole), 7)]
    odd = b"\xef\xbb\xbf: hello\r\nretry: 5\r\n\r\n" + whole.replace(b"\n", b"\r\n")

    answers = [(await place.ask(side, script))[0] for script in ([whole], cuts, [odd])]
    await book.settled(3)

    frames = [[frame for frame in reply.body.split(b"\n\n") if frame] for reply in answers]
    assert all(ends_well(side, each) for each in frames)
    assert {text_of(each) for each in frames} == {" cat" * PIECES}


@each_side
async def test_a16_compressed(place: Place, book: Book, side: Side) -> None:
    """A16: a provider that compresses although it was asked not to is understood."""
    packed = gzip.compress(b"".join(side.whole("Hi")))

    reply, (seen,) = await place.ask(side, [head(headers={"Content-Encoding": "gzip"}), packed, end()])
    (row,) = await book.settled(1)

    assert seen.headers.get("accept-encoding") == "identity"
    assert ends_well(side, [frame for frame in reply.body.split(b"\n\n") if frame])
    assert row["outcome"] == "completed"
