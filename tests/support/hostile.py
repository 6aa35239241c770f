"""Seeded hostile HTTP: requests that are nearly right, wrong in one of the ways the corpora know, or noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.support.door import CANARY


@dataclass(slots=True)
class Draft:
    """A request before it is bytes. *lines* are header lines without their ends."""

    method: bytes
    target: bytes
    version: bytes
    lines: list[bytes]
    body: bytes
    eol: bytes = b"\r\n"

    def bytes(self) -> bytes:
        """The draft as it goes on the wire."""
        first = self.method + b" " + self.target + b" " + self.version
        return self.eol.join([first, *self.lines, b"", b""]) + self.body


METHODS = (
    b"GET",
    b"HEAD",
    b"PUT",
    b"DELETE",
    b"OPTIONS",
    b"TRACE",
    b"CONNECT",
    b"PRI",
    b"M-SEARCH",
    b"get",
    b"",
    b"P\0ST",
    b"X" * 300,
)
TARGETS = (
    b"*",
    b"//",
    b"//evil.test/v1",
    b"/..",
    b"/../../etc/passwd",
    b"/%00",
    b"/%",
    b"/%zz",
    b"/v1/%2e%2e/admin",
    b"/v1/..%2fx",
    b"/v1\\x",
    b"http://evil.test/",
    b"http://[::1/",
    b"http://a:99999/",
    b"https://u:p@evil.test/v1",
    b"evil.test:443",
    b"/#x",
    b"/?" + b"a=b&" * 500,
    b"/" + b"a" * 8180,
    b"/" + b"a" * 9000,
    b"",
    b" ",
    b"/v1 /v2",
    b"/\x00",
    b"/\xff\xfe",
    b"/\r\nX: y",
    b"/v1?x=\x7f",
    b"http:/v1",
    b"file:///etc/passwd",
    b"http://\xe2\x82\xac.test/",
    b"foo://",
    b"http://xn--/",
    b"/anthropic",
    b"/anthropic/v1/messages?beta=true",
)
VERSIONS = (
    b"HTTP/1.0",
    b"HTTP/0.9",
    b"HTTP/2.0",
    b"HTTP/1.9",
    b"HTTP/11",
    b"http/1.1",
    b"HTTP/1.1 ",
    b"",
    b"ICY/1.0",
    b"HTTP/1.1\0",
)
HOSTS = (
    b"",
    b"a/b",
    b"a:99999",
    b"a:b",
    b"u@a",
    b"[::1",
    b"[::1]:80",
    b"a\x00",
    b"\xff",
    b"a,b",
    b"a " * 20,
    b"x" * 5000,
    b"../..",
    b"%41",
)
CODINGS = (
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: chunked, gzip",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding:\tchunked",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding: chunked\r\n x",
    b"Transfer-Encoding: Chunked",
    b"Transfer-Encoding: chunked\x0b",
    b"transfer-encoding: identity",
    b"Transfer-Encoding:",
    b"Transfer_Encoding: chunked",
    b" Transfer-Encoding: chunked",
)
LENGTHS = (
    b"Content-Length: 0",
    b"Content-Length: 1",
    b"Content-Length: 3, 3",
    b"Content-Length: +3",
    b"Content-Length: -1",
    b"Content-Length: 0x3",
    b"Content-Length: 3.0",
    b"Content-Length: 99999999999999999999",
    b"Content-Length: 18446744073709551615",
    b"Content-Length: 1000000",
    b"Content-Length:",
    b"Content-Length: 3 3",
    b"Content-Length: 03",
    b"Content-Length: \xb2",
    b"Content-Length: 300000",
)
CHUNKS = (
    b"3\r\nabc\r\n0\r\n\r\n",
    b"3;x=y\r\nabc\r\n0\r\n\r\n",
    b"3\nabc\n0\n\n",
    b"0\r\nTrailer: x\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"fffffffffffffffff\r\n",
    b"-1\r\n",
    b"3\r\nabcd\r\n0\r\n\r\n",
    b"3 \r\nabc\r\n0\r\n\r\n",
    b"0x3\r\nabc\r\n0\r\n\r\n",
    b"\r\n",
    b"3\r\nab",
    b"3\r\nabc\r\n",
    b"1\r\na\r\n" * 300,
    b"3;" + b"x" * 9000 + b"\r\nabc\r\n",
    b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
    b"00000003\r\nabc\r\n000\r\n\r\n",
    b"3\r\rabc\r\n0\r\n\r\n",
)
KEYS = (
    b"Authorization: Bearer " + CANARY.encode(),
    b"x-api-key: " + CANARY.encode(),
    b"x-api-key: other-" + CANARY.encode(),
    b"Authorization: Basic " + CANARY.encode(),
    b"Authorization: " + CANARY.encode(),
    b"Authorization: Bearer " + CANARY.encode() * 500,
    b"Authorization: Bearer \xff" + CANARY.encode(),
    b"Authorization: Bearer \x00" + CANARY.encode(),
    b"Authorization : Bearer " + CANARY.encode(),
    b"Authorization\r\n : " + CANARY.encode(),
    CANARY.encode(),
    CANARY.encode() + b": x",
)
ODD_LINES = (
    b"Expect: 100-continue", b"Expect: nothing", b"Expect:", b"Upgrade: websocket\r\nConnection: Upgrade",
    b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AA",
    b"Content-Encoding: gzip", b"Content-Encoding: br, gzip", b"Connection: close", b"Connection: keep-alive",
    b"Connection: x, \xff", b"a b: c", b": c", b"nocolon", b"\tfold", b"A: b\r\n fold",
    b"A: \x00", b"A: \x7f\x1b[31m", b"A:" + b" " * 5000, b"Content-Type: multipart/form-data; boundary=x",
    b"Content-Type: \xff", b"Cookie: a=b; " * 50, b"Range: bytes=0-",
    b"Sec-WebSocket-Key1: x", b"X-Forwarded-For: 1.2.3.4", b"x" * 8185 + b": y", b"A: " + b"y" * 9000, b"Trailer: x",
    b"TE: trailers", b"Keep-Alive: timeout=1e9", b"Upgrade: \xff\r\nConnection: upgrade",
)  # fmt: skip
NOISE = (
    b"", b"\r\n" * 50, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\n\r\n",
    b"\x00" * 100, b"\xff" * 100, b"GET", b"GET ", b"GET /", b"GET / HTTP/1.1", b"GET / HTTP/1.1\r\n",
    b"GET /\r\n\r\n", b"\n\n\n", b"*1\r\n$4\r\nPING\r\n", b"EHLO x\r\n",
)  # fmt: skip


def _valid(rng: Random) -> Draft:
    target = rng.choice((b"/v1/chat/completions", b"/anthropic/v1/messages", b"/v1/models"))
    lines = [b"Host: gateway.test", b"Authorization: Bearer " + CANARY.encode(), b"Content-Type: application/json"]
    body = b'{"model":"m","messages":[],"pad":"' + b"x" * rng.randrange(200) + b'"}'
    lines.append(b"Content-Length: %d" % len(body))
    return Draft(b"POST", target, b"HTTP/1.1", lines, body)


def _method(draft: Draft, rng: Random) -> None:
    draft.method = rng.choice(METHODS)


def _target(draft: Draft, rng: Random) -> None:
    draft.target = rng.choice(TARGETS)


def _version(draft: Draft, rng: Random) -> None:
    draft.version = rng.choice(VERSIONS)


def _host(draft: Draft, rng: Random) -> None:
    if rng.random() < 0.3:
        draft.lines.append(draft.lines[0])
    else:
        draft.lines[0] = b"Host: " + rng.choice(HOSTS)


def _framing(draft: Draft, rng: Random) -> None:
    if rng.random() < 0.6:
        draft.lines = [line for line in draft.lines if not line.startswith(b"Content-Length")]
    draft.lines.append(rng.choice(CODINGS if rng.random() < 0.6 else LENGTHS))
    if rng.random() < 0.7:
        draft.body = rng.choice(CHUNKS)


def _key(draft: Draft, rng: Random) -> None:
    draft.lines.insert(rng.randrange(len(draft.lines) + 1), rng.choice(KEYS))


def _odd_line(draft: Draft, rng: Random) -> None:
    draft.lines.insert(rng.randrange(len(draft.lines) + 1), rng.choice(ODD_LINES))


def _many_lines(draft: Draft, rng: Random) -> None:
    draft.lines += [b"a%d: b" % number for number in range(rng.choice((100, 130, 1000)))]


def _line_ends(draft: Draft, rng: Random) -> None:
    draft.eol = rng.choice((b"\n", b"\r", b"\r\r\n", b"\n\r"))


def _no_key(draft: Draft, _rng: Random) -> None:
    draft.lines = [line for line in draft.lines if not line.startswith(b"Authorization")]


_MUTATIONS: tuple[Callable[[Draft, Random], None], ...] = (
    _method, _target, _version, _host, _framing, _framing, _key, _odd_line, _odd_line, _many_lines, _line_ends, _no_key,
)  # fmt: skip


def _scratch(data: bytes, rng: Random) -> bytes:
    """A handful of byte-level accidents."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            out[at:at] = rng.choice((b"\0", b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b"\xff", b"\r\n\r\n"))
        elif kind == 1 and at < len(out):
            out[at] = rng.randrange(256)
        elif kind == 2:
            del out[at : at + rng.randrange(1, 20)]
        elif kind == 3:
            out[at:at] = out[max(0, at - rng.randrange(1, 60)) : at]
        else:
            del out[at:]
    return bytes(out)


def hostile(rng: Random) -> bytes:
    """One input; every one that holds a request holds the canary credential, unless it was cut out by accident."""
    dice = rng.random()
    if dice < 0.04:
        return rng.choice(NOISE) + (CANARY.encode() if rng.random() < 0.5 else b"")
    if dice < 0.06:
        return rng.randbytes(rng.randrange(300)) + CANARY.encode()
    if dice < 0.14:
        return b"".join(hostile(rng) for _ in range(rng.randrange(2, 5)))
    draft = _valid(rng)
    for _ in range(rng.randrange(3)):
        rng.choice(_MUTATIONS)(draft, rng)
    data = draft.bytes()
    return _scratch(data, rng) if rng.random() < 0.4 else data
