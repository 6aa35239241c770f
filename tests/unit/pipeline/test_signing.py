"""Providers that want their requests signed."""

from __future__ import annotations

import asyncio
from hashlib import sha256

from gateway.core.call import CallOptions
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.pipeline.digest import PIECE_BYTES, Digest
from gateway.providers.requests import build_request
from gateway.providers.sigv4 import Credential, Signer, timestamp
from tests.support.scripted_provider import EOF, status
from tests.unit.pipeline.plays import GOOD
from tests.unit.pipeline.scene import EPOCH_S, Scene

SIGNER = Signer(Credential("AKIDEXAMPLE", "secret"), "us-east-1", "bedrock")


async def test_every_attempt_is_signed_as_it_leaves() -> None:
    """A second attempt has a signature of its own, of the time at which it is made; nothing else differs."""
    scene = Scene(status(503, b"{}", EOF, head_s=2.0), GOOD, signer=SIGNER)

    outcome = await scene.end()

    first, second = scene.upstream.headers
    assert (outcome, scene.asked) == ("completed", [(0.0, "a"), (2.25, "a")])
    assert (first["X-Amz-Date"], second["X-Amz-Date"]) == (timestamp(EPOCH_S), timestamp(EPOCH_S + 2.25))
    assert first["Authorization"] != second["Authorization"]
    assert first["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")


async def test_nothing_is_added_where_none_is_wanted() -> None:
    """A provider with a fixed credential, or none, gets no further headers."""
    scene = Scene(GOOD)

    await scene.end()

    assert [*scene.upstream.headers[0]] == ["Content-Type", "Accept"]


def long_call(scene: Scene) -> None:
    """Give *scene* a call whose digest takes several pieces."""
    body = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"%b"}]}' % (b"x" * 5 * PIECE_BYTES)
    scene.exchange.call = CLIENT_DIALECTS["openai_chat"].read_call(body, CallOptions(), ())


async def test_others_have_their_turn_while_a_long_body_is_signed() -> None:
    """A body of megabytes is taken in pieces, with a turn of the loop after each; the digest is that of the whole."""
    scene = Scene(GOOD, signer=SIGNER)
    long_call(scene)
    scene.start()
    turns = 0
    while not scene.upstream.asked:
        await asyncio.sleep(0)
        turns += 1

    outcome = await scene.end()

    assert scene.exchange.model is not None
    request = build_request(scene.exchange.call, scene.exchange.candidates[0], scene.exchange.model)
    added = dict(SIGNER(request.url, request.headers, sha256(request.body).hexdigest(), EPOCH_S))
    assert (outcome, scene.upstream.headers[0]["Authorization"]) == ("completed", added["Authorization"])
    assert turns > 5


async def test_a_client_that_leaves_while_its_body_is_signed() -> None:
    """Nobody is asked any more, nothing is charged, and the breaker has its permit back."""
    scene = Scene(GOOD, signer=SIGNER)
    long_call(scene)
    scene.start()
    for _ in range(3):
        await asyncio.sleep(0)
    scene.leave()

    outcome = await scene.end()

    assert (outcome, scene.asked, scene.attempts) == ("cancelled", [], [("a", "cancelled")])
    assert scene.receipt.usage.total_tokens == 0


async def test_a_wake_up_does_not_begin_the_digest_anew() -> None:
    """Whoever is woken up in the middle goes on where it stood."""
    body = b"x" * 3 * PIECE_BYTES
    digest = Digest(body)
    task = asyncio.ensure_future(digest.complete())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    await digest.complete()

    assert digest.text == sha256(body).hexdigest()
