"""Providers that want their requests signed."""

from __future__ import annotations

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
