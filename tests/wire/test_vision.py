"""Pictures through the real process: checked, put right, and fetched by a client that keeps to the public internet."""

from __future__ import annotations

import asyncio
import contextlib
import io
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
import trustme
from PIL import Image

from tests.support import proc
from tests.support.client import Reply
from tests.support.config import Config, model, standard
from tests.support.frames import chat, messages
from tests.support.gateway import CHAT, MESSAGES, PLAIN, Gateway
from tests.support.notation import json_answer
from tests.support.pictures import data_url, gif, image, image_url, jpeg, linked, png
from tests.support.provider import FakeProvider
from tests.wire.desk import BOTH, error_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Loopback is no public address. So the judge of addresses is another one here, and so is the authority that is trusted;
# everything else is as it is served.
LAUNCH = """
import functools, os, ssl
import gateway.app
from gateway.upstream.guarded import GuardedClient
tls = ssl.create_default_context(cafile=os.environ["TRUSTED"])
gateway.app.GuardedClient = functools.partial(GuardedClient, is_allowed=lambda address: address == "127.0.0.1", tls=tls)
from gateway.__main__ import main
main()
"""
TEXT = {"type": "text", "text": "What is this?"}
LARGE = jpeg() + bytes(5_000_000)


class Shelf:
    """
    A host of pictures, over TLS.

    Attributes:
        heads: What was asked, as it came.
        left: Set when a connection on which nothing was answered is closed.
    """

    def __init__(self, pages: Mapping[str, bytes]) -> None:
        self.heads: list[bytes] = []
        self.asked = asyncio.Event()
        self.left = asyncio.Event()
        self.port = 0
        self._pages = pages

    def url(self, path: str) -> str:
        return f"https://localhost:{self.port}{path}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            self.asked.set()
            path = head.split(b" ")[1].decode()
            if path in self._pages:
                writer.write(self._pages[path])
                await writer.drain()
            else:
                await reader.read()
                self.left.set()
        writer.close()


def page(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


PAGES = {
    "/a.jpg": page(jpeg(), **{"Content-Type": "image/png", "Set-Cookie": "a=b"}),
    "/a.gif": page(gif(4, 3, frames=3)),
    "/large": page(LARGE),
    "/away": page(b"", "302 Found", Location="/a.jpg"),
    "/none": page(b"no", "404 Not Found"),
    "/endless": b"HTTP/1.1 200 OK\r\n\r\n" + jpeg() + bytes(6 * 1024 * 1024),
    "/page": page(b"<html>"),
    "/bomb": page(png(60_000, 60_000)),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shelf(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shelf]:
    authority, tls = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(tls)
    authority.cert_pem.write_to_path(tmp_path_factory.getbasetemp() / "authority.pem")
    shelf = Shelf(PAGES)
    server = await asyncio.start_server(shelf.answer, "127.0.0.1", 0, ssl=tls)
    shelf.port = server.sockets[0].getsockname()[1]
    yield shelf
    server.close()


PATIENT: Config = {"commit_after_s": 20}  # by default; a conversion may take a fifth of it


def config(provider: FakeProvider, **overrides: Config) -> Config:
    """The standard models, which fetch, "own" and "own-claude", which do not, and "blind"."""
    own = {"preset": "openai_compatible", "base_url": f"{provider.base_url}/v1"}
    providers = {"own": own, "own-claude": {"preset": "anthropic_compatible", "base_url": provider.base_url}}
    models = {
        "own": model("own/own"),
        "own-claude": model("own-claude/own-claude"),
        "blind": model("own/blind", input=["text"]),
    }
    return standard(provider.base_url, providers=providers, models=models, **overrides)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider() -> AsyncIterator[FakeProvider]:
    async with FakeProvider() as provider:
        for name in ("m", "own", "blind", "messages-abroad"):
            provider.script(name, [json_answer("A cat.")])
        for name in ("claude", "own-claude", "chat-abroad"):
            provider.script(name, [json_answer("A cat.", dialect="anthropic")])
        yield provider


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(
    provider: FakeProvider, shelf: Shelf, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Gateway]:
    trusted = str(tmp_path_factory.getbasetemp() / "authority.pem")
    async with launched(config(provider, vision={"fetch_s": 1.5}, stream=PATIENT), trusted) as gateway:
        yield gateway


def launched(configuration: Config, trusted: str, **options: Any) -> Gateway:
    return Gateway(configuration, command=("-c", LAUNCH, "serve"), env={"TRUSTED": trusted}, **options)


async def ask(gateway: Gateway, path: str, name: str, *content: Any) -> Reply:
    said = [{"role": "user", "content": [TEXT, *content]}]
    body = chat(name, stream=False, messages=said) if path == CHAT else messages(name, stream=False, messages=said)
    return await gateway.client().request("POST", path, body)


async def seen(provider: FakeProvider) -> list[Any]:
    """The content that the provider got last."""
    content: list[Any] = provider.requests[-1].json["messages"][0]["content"]
    return content


async def test_a_url_is_fetched_for_a_provider_that_does_not(
    gateway: Gateway, provider: FakeProvider, shelf: Shelf
) -> None:
    """The provider gets the picture, called what it is; its host hears a plain request that says nothing of us."""
    shelf.heads.clear()

    chat_reply = await ask(gateway, CHAT, "own", image_url(shelf.url("/a.jpg"), detail="low"))
    in_chat = await seen(provider)
    blocks_reply = await ask(gateway, MESSAGES, "own-claude", linked(shelf.url("/a.jpg")))
    in_blocks = await seen(provider)

    assert (chat_reply.status, blocks_reply.status) == (200, 200)
    assert in_chat == [TEXT, image_url(data_url(jpeg(), "image/jpeg"), detail="low")]
    assert in_blocks == [TEXT, image(jpeg(), "image/jpeg")]
    assert len(shelf.heads) == 2
    for head in shelf.heads:
        names = {line.split(b":")[0].lower() for line in head.split(b"\r\n")[1:] if line}
        assert names <= {b"host", b"user-agent", b"accept", b"accept-encoding", b"connection"}


async def test_a_large_picture_is_fetched_whole(gateway: Gateway, provider: FakeProvider, shelf: Shelf) -> None:
    """Five megabytes arrive, in the dialect of the provider, to the byte."""
    reply = await ask(gateway, MESSAGES, "own", linked(shelf.url("/large")))

    assert reply.status == 200
    assert await seen(provider) == [TEXT, image_url(data_url(LARGE, "image/jpeg"))]


@pytest.mark.parametrize(("path", "name"), [(CHAT, "m"), (MESSAGES, "claude")])
async def test_a_url_is_passed_on(gateway: Gateway, provider: FakeProvider, shelf: Shelf, path: str, name: str) -> None:
    """A provider that fetches gets the URL as it came, and the host of the picture hears nothing of us."""
    shelf.heads.clear()
    part = image_url(shelf.url("/a.jpg")) if path == CHAT else linked(shelf.url("/a.jpg"))

    reply = await ask(gateway, path, name, part)

    assert reply.status == 200
    assert await seen(provider) == [TEXT, part]
    assert shelf.heads == []


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/away", "could not be fetched"),
        ("/none", "could not be fetched"),
        ("/silence", "could not be fetched"),
        ("/endless", "larger than 5242880 bytes"),
        ("/page", "no image in PNG, JPEG, WebP or GIF"),
        ("/bomb", "more than 64000000 pixels"),
    ],
)
async def test_what_is_not_a_picture(
    gateway: Gateway, provider: FakeProvider, shelf: Shelf, path: str, sentence: str
) -> None:
    """A redirect, an error, silence, too much and no picture are each a 400 that names the place; nobody is asked."""
    asked = len(provider.requests)

    reply = await ask(gateway, CHAT, "own", image_url(shelf.url(path)))

    error = error_of(reply)
    assert (reply.status, error["code"]) == (400, "invalid_request")
    assert error["param"] == "messages[0].content[1].image_url.url"
    assert sentence in error["message"]
    assert str(shelf.port) not in reply.body.decode()
    assert len(provider.requests) == asked


async def test_a_client_that_leaves_ends_the_fetch(gateway: Gateway, provider: FakeProvider, shelf: Shelf) -> None:
    """The connection to the host of the picture is closed at once, and the exchange settled as cancelled."""
    shelf.asked.clear()
    shelf.left.clear()
    asked = len(provider.requests)
    said = [{"role": "user", "content": [image_url(shelf.url("/silence"))]}]
    stream = await gateway.client().open("POST", CHAT, chat("own", messages=said))
    async with asyncio.timeout(5):
        await shelf.asked.wait()

    stream.rst()

    async with asyncio.timeout(0.5):
        await shelf.left.wait()
    await stream.dispose()
    while (receipt := (await gateway.settled(1))[0])["outcome"] != "cancelled":
        pass
    assert receipt["model"] == "own"
    assert len(provider.requests) == asked


@pytest.mark.parametrize("path", BOTH)
async def test_an_animation_becomes_one_frame(gateway: Gateway, provider: FakeProvider, path: str) -> None:
    """A GIF arrives as a PNG of its first frame; no process is left."""
    part = image_url(data_url(gif(4, 3, frames=3), "image/gif")) if path == CHAT else image(gif(4, 3, frames=3))

    reply = await ask(gateway, path, "m" if path == CHAT else "claude", part)

    assert reply.status == 200
    sent = (await seen(provider))[1]
    url = sent["image_url"]["url"] if path == CHAT else "data:image/png;base64," + sent["source"]["data"]
    head, _, data = url.partition(",")
    assert head == "data:image/png;base64"
    with Image.open(io.BytesIO(b64decode(data)), formats=("PNG",)) as still:
        assert still.size == (4, 3)
        assert still.convert("RGB").getpixel((0, 0)) == (255, 0, 0)
    assert proc.tree(gateway.pid) == [gateway.pid]


async def test_a_fetched_animation_becomes_one_frame(gateway: Gateway, provider: FakeProvider, shelf: Shelf) -> None:
    """So does one that we fetch."""
    reply = await ask(gateway, CHAT, "own", image_url(shelf.url("/a.gif")))

    assert reply.status == 200
    assert (await seen(provider))[1]["image_url"]["url"].startswith("data:image/png;base64,")


@pytest.mark.parametrize("name", ["m", "chat-abroad"])
async def test_tr_39_a_wrong_claim(gateway: Gateway, provider: FakeProvider, name: str) -> None:
    """Five megabytes of JPEG that are called PNG arrive as JPEG, natively and translated."""
    reply = await ask(gateway, CHAT, name, image_url(data_url(LARGE, "image/png")))

    assert reply.status == 200
    right = image_url(data_url(LARGE, "image/jpeg")) if name == "m" else image(LARGE, "image/jpeg")
    assert await seen(provider) == [TEXT, right]


@pytest.mark.parametrize("picture", [png() + bytes(6_000_000), None, png(50_000, 50_000)], ids=["6 MB", "!!!!", "bomb"])
@pytest.mark.parametrize("path", BOTH)
async def test_tr_39_bad_pictures(gateway: Gateway, provider: FakeProvider, path: str, picture: bytes | None) -> None:
    """Too many bytes or pixels, or no base64: a 400 in the endpoint's envelope, and nothing reaches the provider."""
    asked = len(provider.requests)
    if path == CHAT:
        part = image_url("data:image/png;base64,!!!!" if picture is None else data_url(picture))
    else:
        part = image(picture or b"")
        part["source"] |= {"data": "!!!!"} if picture is None else {}  # type: ignore[operator]

    reply = await ask(gateway, path, "m" if path == CHAT else "claude", part)

    error = error_of(reply)
    place = "messages[0].content[1]." + ("image_url.url" if path == CHAT else "source.data")
    assert (reply.status, error["code"]) == (400, "invalid_request")
    assert place in error["message"]
    assert error.get("param", place) == place
    assert len(provider.requests) == asked


@pytest.mark.parametrize("path", BOTH)
async def test_tr_15_a_blind_model(gateway: Gateway, provider: FakeProvider, path: str) -> None:
    """A picture to a model without images is refused in the endpoint's envelope; without one the model answers."""
    asked = len(provider.requests)

    refused = await ask(gateway, path, "blind", image_url(data_url(png())) if path == CHAT else image(png()))
    answered = await ask(gateway, path, "blind")

    assert (refused.status, error_of(refused)["code"]) == (400, "vision_not_supported")
    assert answered.status == 200
    assert len(provider.requests) == asked + 1


async def test_e8_what_is_not_public_is_not_reached(provider: FakeProvider, shelf: Shelf) -> None:
    """As it is served, the gateway connects to no address of this machine, and answers alike whether one is there."""
    shelf.heads.clear()
    async with Gateway(config(provider, stream=PATIENT)) as plain:
        there = await ask(plain, CHAT, "own", image_url(f"https://127.0.0.1:{shelf.port}/a.jpg"))
        nowhere = await ask(plain, CHAT, "own", image_url("https://127.0.0.1:9/a.jpg"))
        by_http = await ask(plain, CHAT, "own", image_url(f"http://127.0.0.1:{provider.port}/"))

    assert (there.status, nowhere.status, by_http.status) == (400, 400, 400)
    assert error_of(there)["message"] == error_of(nowhere)["message"]
    assert "must be https" in error_of(by_http)["message"]
    assert shelf.heads == []


async def test_workers_convert(provider: FakeProvider) -> None:
    """Under gunicorn, which reaps its own children, a worker starts and ends such a process as well."""
    async with Gateway(config(provider, stream=PATIENT), workers=2, flags=PLAIN) as several:
        before = sorted(proc.tree(several.pid))
        replies = [await ask(several, CHAT, "m", image_url(data_url(gif()))) for _ in range(4)]

        assert [reply.status for reply in replies] == [200] * 4
        assert sorted(proc.tree(several.pid)) == before
