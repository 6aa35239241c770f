"""URLs of callers: no spelling, name, redirect or size gets further than a public address allows."""

from __future__ import annotations

import asyncio
import gzip
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from gateway.upstream.guarded import FetchFailed, GuardedClient
from tests.chaos.upstream.raw_peer import RawPeer, answer

HTTP = frozenset({"http"})

LOOPBACK_HOSTS = re.findall(
    r"\S+",
    """
127.0.0.1 127.1 127.0.1 127.0.0.01 127.255.255.254 2130706433 017700000001 0x7f000001 0x7f.1 0x7f.0.0.1 0177.0.0.1
0177.1 0x7F.0x0.0x0.0x1 0 0.0.0.0 00 0x0 localhost LOCALHOST localhost. LocalHost.localdomain ip6-localhost
127.0.0.1. [::1] [::] [0:0:0:0:0:0:0:1] [0000::0001] [::127.0.0.1] [::7f00:1] [::ffff:127.0.0.1] [::FFFF:7F00:1]
[::ffff:0:127.0.0.1] [::ffff:0.0.0.0] [0:0:0:0:0:ffff:127.0.0.1] [64:ff9b::127.0.0.1] [64:ff9b::7f00:1]
[64:ff9b:1::7f00:1] [2002:7f00:1::] [2002:7f00:0001::1] [2001:0:7f00:1::] [fe80::1] [fe80::1%25lo] [fe80::1%25eth0]
[::1%25lo] [fc00::1] [fd00:ec2::254] [ff02::1] 10.0.0.1 172.16.0.1 192.168.0.1 100.64.0.1 169.254.169.254
0xa9fea9fe 2852039166 0251.0376.0251.0376 169.254.43518 100.100.100.200 168.63.129.16 192.0.0.192 198.18.0.1
224.0.0.1 255.255.255.255 240.0.0.1 １２７.0.0.1 ①②⑦.0.0.1 127。0。0。1 %31%32%37.0.0.1
""",
)

# not every machine knows these; where they are unknown there is nothing to block
NAMES = frozenset(("localhost", "LOCALHOST", "localhost.", "LocalHost.localdomain", "ip6-localhost", "%31%32%37.0.0.1"))


@asynccontextmanager
async def guarded(
    lookup: Callable[[str], Sequence[str]] | None = None, allowed: Callable[[str], bool] | None = None
) -> AsyncIterator[GuardedClient]:
    client = GuardedClient(
        schemes=HTTP,
        **({"lookup": lookup} if lookup else {}),  # type: ignore[arg-type]
        **({"is_allowed": allowed} if allowed else {}),  # type: ignore[arg-type]
    )
    yield client
    await client.close()


async def refused(client: GuardedClient, url: str, *, max_bytes: int = 1000, timeout_s: float = 1.0) -> str:
    with pytest.raises(FetchFailed) as caught:
        await client.fetch(url, max_bytes=max_bytes, timeout_s=timeout_s)
    return caught.value.reason


@pytest.fixture
def traps() -> object:
    """Listeners on every address of this machine, on one port for IPv4 and IPv6."""
    both = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    both.settimeout(0)
    yield both
    both.close()


async def test_no_spelling_of_a_private_address_connects(traps: socket.socket) -> None:
    """E8, G15: whatever the host looks like, the trap sees no connection."""
    port = traps.getsockname()[1]
    async with guarded() as client:
        reasons = {host: await refused(client, f"http://{host}:{port}/", timeout_s=3.0) for host in LOOPBACK_HOSTS}

    with pytest.raises(BlockingIOError):
        traps.accept()
    assert len(LOOPBACK_HOSTS) >= 60
    assert set(reasons.values()) <= {"blocked", "url", "unreachable"}, reasons
    assert {host for host in reasons if reasons[host] == "unreachable"} <= NAMES, reasons


async def test_trap_works(traps: socket.socket) -> None:
    """The trap would see a connection: a client that allows everything reaches it."""
    port = traps.getsockname()[1]
    async with guarded(allowed=lambda _: True) as client:
        assert await refused(client, f"http://127.0.0.1:{port}/", timeout_s=0.1) == "timeout"

    traps.accept()[0].close()


async def test_name_with_a_private_address(peer: RawPeer) -> None:
    """A name is judged by the address it leads to."""
    async with guarded(lookup=lambda _: ["127.0.0.1"]) as client:
        assert await refused(client, f"http://innocent.example:{peer.port}/") == "blocked"

    assert not peer.has_caller()


async def test_rebinding() -> None:
    """H19: a name that leads elsewhere at the second look-up is judged by that, too."""
    answers = iter([["127.0.0.2"], ["127.0.0.1"], ["127.0.0.1"]])

    async with RawPeer() as private, guarded(lambda _: next(answers), lambda address: address == "127.0.0.2") as client:
        first = await refused(client, f"http://rebind.test:{private.port}/")
        second = await refused(client, f"http://rebind.test:{private.port}/")

        assert not private.has_caller()
    assert (first, second) == ("unreachable", "blocked")


async def test_one_private_address_among_public_ones(peer: RawPeer) -> None:
    """Of several addresses only the allowed ones are tried."""
    async with guarded(lambda _: ["127.0.0.2", "127.0.0.1"], lambda address: address == "127.0.0.2") as client:
        assert await refused(client, f"http://mixed.test:{peer.port}/") in ("unreachable", "blocked")

    assert not peer.has_caller()


async def fetched(peer: RawPeer, reply: bytes, *, max_bytes: int = 1000) -> tuple[str, bytes] | str:
    """What comes of a URL that is answered with *reply*: the result, or the reason why there is none."""
    async with guarded(allowed=lambda address: address == "127.0.0.1") as client:
        task = asyncio.create_task(client.fetch(peer.url, max_bytes=max_bytes, timeout_s=0.5))
        conn = await peer.accept()
        head = await asyncio.get_running_loop().sock_recv(conn.sock, 65536)
        assert head.startswith(b"GET /v1/chat/completions HTTP/1.1\r\n")
        await conn.send(reply)
        try:
            return await task
        except FetchFailed as exc:
            return exc.reason
        finally:
            assert (await conn.left())[0] in ("fin", "rst")


async def test_good_answer(peer: RawPeer) -> None:
    """A plain 200 is handed over with its type, lower case and without parameters; the connection is not kept."""
    got = await fetched(peer, answer(b"GIF89a", b"Content-Type: Image/GIF; charset=x"))

    assert got == ("image/gif", b"GIF89a")


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (answer(b"", b"Location: http://127.0.0.1:1/", status=b"302 Found"), "status"),
        (answer(b"", b"Location: http://8.8.8.8/", status=b"307 Found"), "status"),
        (answer(b"gone", status=b"404 Not Found"), "status"),
        (answer(b"x" * 1001), "too_large"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\nx", "too_large"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5000, "too_large"),
        (answer(gzip.compress(bytes(5000)), b"Content-Encoding: gzip"), "encoding"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nslow", "timeout"),
        (b"HTTP/1.1 200", "timeout"),
        (b"220 smtp.example ESMTP\r\n\r\n", "unreachable"),
    ],
)
async def test_other_answers(peer: RawPeer, reply: bytes, reason: str) -> None:
    """A redirect, an error, too many bytes, an encoding or a pause is refused, and the connection dropped."""
    start_s = time.monotonic()

    assert await fetched(peer, reply) == reason
    assert time.monotonic() - start_s < 1


async def test_as_large_as_allowed(peer: RawPeer) -> None:
    """The bound itself is allowed."""
    assert await fetched(peer, answer(b"x" * 1000)) == ("", b"x" * 1000)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1/", "scheme"),
        ("ftp://example.com/", "scheme"),
        ("file:///etc/passwd", "url"),
        ("gopher://example.com/", "scheme"),
        ("data:image/png;base64,AAAA", "url"),
        ("//example.com/", "scheme"),
        ("/etc/passwd", "url"),
        ("", "url"),
        ("https://", "url"),
        ("https://user@example.com/", "credentials"),
        ("https://user:secret@example.com/", "credentials"),
        ("https://:@example.com/", "credentials"),
        ("https://example.com:99999/", "url"),
        ("https://[::1/", "url"),
        ("https://example.com/" + "x" * 9000, "url"),
        ("https://127.0.0.1/", "blocked"),
        ("https://[::ffff:169.254.169.254]/", "blocked"),
    ],
)
async def test_urls(url: str, reason: str) -> None:
    """By default only https URLs without credentials are tried at all."""
    client = GuardedClient()

    assert await refused(client, url) == reason

    await client.close()
