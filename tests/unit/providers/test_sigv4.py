"""Signature Version 4: AWS's published test vectors, and what a request of ours looks like when it is signed."""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import sha256
from urllib.parse import quote

import pytest

from gateway.providers.sigv4 import Credential, Headers, Message, Signer, timestamp

# The suite's credential, region and service; 2015-08-30T12:36:00Z.
SUITE = Signer(Credential("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"), "us-east-1", "service")
WHEN_EPOCH_S = 1_440_938_160
TOKEN = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267"
FORM_SHA256 = "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e"

HOST: Headers = (("Host", "example.amazonaws.com"),)
DATE: Headers = (("X-Amz-Date", "20150830T123600Z"),)
FORM: Headers = (("Content-Length", "13"), ("x-amz-content-sha256", FORM_SHA256))


def to_sign(method: str, path: str, headers: Headers, body: bytes) -> Message:
    """What is signed, with the digest of *body*."""
    return Message(method, path, headers, sha256(body).hexdigest())


# The "AWS Signature Version 4 Test Suite" in the form that AWS publishes with its library aws-c-auth (folder
# aws-signing-test-suite/v4, files header-signed-request.txt): those without a query, which we never send.
VECTORS: dict[str, tuple[Message, str]] = {
    "get-vanilla": (
        to_sign("GET", "/", HOST + DATE, b""),
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    ),
    "post-vanilla": (
        to_sign("POST", "/", HOST + DATE, b""),
        "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
    ),
    "get-vanilla-with-session-token": (
        to_sign("GET", "/", (*HOST, *DATE, ("X-Amz-Security-Token", TOKEN)), b""),
        "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8",
    ),
    "get-header-value-trim": (
        to_sign("GET", "/", (*HOST, ("My-Header1", " value1"), ("My-Header2", ' "a   b   c"'), *DATE), b""),
        "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
    ),
    "get-header-key-duplicate": (
        to_sign("GET", "/", (*HOST, *(("My-Header1", f"value{n}") for n in (2, 2, 1)), *DATE), b""),
        "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
    ),
    "get-header-value-order": (
        to_sign("GET", "/", (*HOST, *(("My-Header1", f"value{n}") for n in (4, 1, 3, 2)), *DATE), b""),
        "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01",
    ),
    "get-unreserved": (
        to_sign("GET", "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", HOST + DATE, b""),
        "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
    ),
    "get-utf8": (
        to_sign("GET", "/ሴ", HOST + DATE, b""),
        "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
    ),
    "get-space-unnormalized": (
        to_sign("GET", "/example space/", HOST + DATE, b""),
        "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741",
    ),
    "post-x-www-form-urlencoded": (
        to_sign(
            "POST", "/", (("Content-Type", "application/x-www-form-urlencoded"), *HOST, *FORM, *DATE), b"Param1=value1"
        ),
        "d3875051da38690788ef43de4db0d8f280229d82040bfac253562e56c3f20e0b",
    ),
    "post-x-www-form-urlencoded-parameters": (
        to_sign(
            "POST",
            "/",
            (("Content-Type", "application/x-www-form-urlencoded; charset=utf-8"), *HOST, *FORM, *DATE),
            b"Param1=value1",
        ),
        "328d1b9eaadca9f5818ef05e8392801e091653bafec24fcab71e7344e7f51422",
    ),
}

BEDROCK = Signer(Credential("AKIDEXAMPLE", "secret"), "ap-southeast-3", "bedrock")
BODY = b'{"messages":[]}'
OTHER = Credential("AKIDEXAMPLE", "other")
BODY_SHA256 = sha256(BODY).hexdigest()
JSON: Headers = (("Content-Type", "application/json"), ("Accept", "application/json"))


@pytest.mark.parametrize(("message", "signature"), VECTORS.values(), ids=VECTORS)
def test_published_vectors(message: Message, signature: str) -> None:
    """Credential, names of headers and signature are those of the published request."""
    names = ";".join(sorted({name.lower() for name, _ in message.headers}))

    assert SUITE.authorization(message) == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders={names}, Signature={signature}"
    )


def test_the_time_is_the_senders() -> None:
    """The time of sending, in seconds of UTC, is in the date header and in the scope."""
    headers = dict(SUITE("https://example.amazonaws.com/", (), sha256(b"").hexdigest(), WHEN_EPOCH_S + 0.9))

    assert timestamp(WHEN_EPOCH_S) == "20150830T123600Z"
    assert headers["X-Amz-Date"] == "20150830T123600Z"
    assert headers["Authorization"] == SUITE.authorization(to_sign("POST", "/", HOST + DATE, b""))


def test_what_of_a_request_is_signed() -> None:
    """Host, date and content type; the token of temporary keys is sent and signed as well."""
    signer = Signer(Credential("ASIAEXAMPLE", "secret", "the-token"), "eu-west-1", "bedrock")

    headers = dict(signer("https://h.example/model/m/converse", JSON, BODY_SHA256, WHEN_EPOCH_S))

    assert [*headers] == ["X-Amz-Date", "X-Amz-Security-Token", "Authorization"]
    assert headers["X-Amz-Security-Token"] == "the-token"
    assert "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token," in headers["Authorization"]
    assert headers["Authorization"].startswith(
        "AWS4-HMAC-SHA256 Credential=ASIAEXAMPLE/20150830/eu-west-1/bedrock/aws4_request, "
    )


@pytest.mark.parametrize("part", ["url", "type", "body", "time", "secret", "region"])
def test_everything_matters(part: str) -> None:
    """Another path, host, content type, body, time, secret or region gives another signature."""
    url = "https://h.example/model/m/converse"
    reference = BEDROCK(url, JSON, BODY_SHA256, WHEN_EPOCH_S)
    others = {
        "url": BEDROCK(url + "-stream", JSON, BODY_SHA256, WHEN_EPOCH_S),
        "type": BEDROCK(url, (("content-type", "text/plain"),), BODY_SHA256, WHEN_EPOCH_S),
        "body": BEDROCK(url, JSON, sha256(BODY + b" ").hexdigest(), WHEN_EPOCH_S),
        "time": BEDROCK(url, JSON, BODY_SHA256, WHEN_EPOCH_S + 1),
        "secret": replace(BEDROCK, credential=OTHER)(url, JSON, BODY_SHA256, WHEN_EPOCH_S),
        "region": replace(BEDROCK, region="ap-southeast-1")(url, JSON, BODY_SHA256, WHEN_EPOCH_S),
    }

    signatures = [re.findall("Signature=(.*)", dict(headers)["Authorization"]) for headers in (reference, others[part])]

    assert signatures[0] != signatures[1]
    assert BEDROCK(url, (*JSON[:1], ("Accept", "text/x")), BODY_SHA256, WHEN_EPOCH_S) == reference


def test_a_path_is_quoted_twice() -> None:
    """A path is signed quoted once more than it is sent: as AWS's own Python SDK (botocore 1.44) signs the request."""
    signer = Signer(SUITE.credential, "us-east-1", "bedrock")
    model = quote("arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-sonnet-4-6", safe="")
    url = f"https://bedrock-runtime.us-east-1.amazonaws.com/model/{model}/converse"

    headers = dict(signer(url, JSON, BODY_SHA256, WHEN_EPOCH_S))

    assert headers["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/bedrock/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date, "
        "Signature=e9cb845ce219ac35bb2135f38b7f91067117b7d17874fa3bc5e4f336febeceb7"
    )


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://H.example/a", "h.example"),
        ("https://h.example:443/a", "h.example"),
        ("http://h.example:80/a", "h.example"),
        ("http://h.example:443/a", "h.example:443"),
        ("http://127.0.0.1:8080/a", "127.0.0.1:8080"),
        ("http://[::1]:8080/a", "[::1]:8080"),
    ],
)
def test_the_host_as_it_is_sent(url: str, host: str) -> None:
    """The host that is signed is the `Host` header of a request to that URL."""
    headers = dict(BEDROCK(url, (), BODY_SHA256, WHEN_EPOCH_S))

    assert headers["Authorization"] == BEDROCK.authorization(
        to_sign("POST", "/a", (("host", host), ("x-amz-date", headers["X-Amz-Date"])), BODY)
    )


def test_secrets_show_themselves_to_nobody() -> None:
    """Neither the secret key nor the token is in a `repr`; both, and the key's id, are named for the log's filter."""
    signer = Signer(Credential("AKIDEXAMPLE", "s3cret", "t0ken"), "us-east-1", "bedrock")

    assert "s3cret" not in repr(signer)
    assert "t0ken" not in repr(signer)
    assert signer.secrets == ("AKIDEXAMPLE", "s3cret", "t0ken")
    assert BEDROCK.secrets == ("AKIDEXAMPLE", "secret")
