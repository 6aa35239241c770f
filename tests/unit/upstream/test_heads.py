"""Heads of requests to providers."""

from __future__ import annotations

import pytest

from gateway.core.call import UpstreamRequest
from gateway.providers.sigv4 import Credential, Signer
from gateway.upstream.heads import Heads

FIRST = "POST /a HTTP/1.1\r\nHost: a.test\r\n"
SIGNER = Signer(Credential("AKIDEXAMPLE", "secret"), "us-east-1", "bedrock")


def request(key: str = "k", signer: Signer | None = None) -> UpstreamRequest:
    return UpstreamRequest("https://a.test/a", (("Accept", "*/*"), ("x-api-key", key)), b"{}", signer=signer)


def test_a_head() -> None:
    """The first lines, the headers, the length of the body and an empty line."""
    assert Heads().head(FIRST, request()) == (
        FIRST.encode() + b"Accept: */*\r\nx-api-key: k\r\nContent-Length: 2\r\n\r\n"
    )


def test_a_signature_is_sent_and_not_kept() -> None:
    """However many requests are signed, one set of headers is kept for them, and no signature."""
    heads = Heads()

    sent = [heads.head(FIRST, request(signer=SIGNER).signed("0" * 64, float(second))) for second in range(3)]

    assert len(heads) == 1
    assert len(set(sent)) == 3
    assert all(b"\r\nAuthorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/19700101/" in head for head in sent)


def test_nothing_is_kept_of_old_settings() -> None:
    """After a reload no credential is left of those that were sent before it."""
    heads = Heads()
    for key in ("old", "older"):
        heads.head(FIRST, request(key))

    heads.forget()

    assert len(heads) == 0


@pytest.mark.parametrize("name", ["headers", "signature"])
def test_a_line_break_is_not_sent(name: str) -> None:
    """It would begin a header, or a request, of somebody else's."""
    parts = {"headers": (), "signature": (), name: (("x", "1\r\nX-Admin: 1"),)}

    with pytest.raises(ValueError, match="line break"):
        Heads().head(FIRST, UpstreamRequest("https://a.test/a", body=b"", **parts))
