"""`curl -N`: what it prints, and when."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from typing import Any

import pytest

from tests.conformance.conftest import Stand
from tests.support.acts import pause_ms, repeat, wait
from tests.support.config import KEY
from tests.support.frames import blocks, chat, messages, parsed, text_of
from tests.support.gateway import CHAT, MESSAGES
from tests.support.notation import CBD, CBS, CBX, DONE, FIN, MD, MS, MX, RST, R, T, U

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("conformance-curl")]

TEXT = "Halo 北🦀é"


async def curl(
    stand: Stand, target: str, body: dict[str, Any], *options: str, key: str = KEY
) -> asyncio.subprocess.Process:
    headers = ["-H", f"Authorization: Bearer {key}", "-H", "Content-Type: application/json"]
    command = ["curl", "-sN", stand.base_url + target, *headers, *options, "-d", json.dumps(body)]
    return await asyncio.create_subprocess_exec(*command, stdout=PIPE)


async def test_stream(stand: Stand) -> None:
    """Every frame is printed when it comes, and the program ends well."""
    go_on = asyncio.Event()
    stand.provider.script("m", [R(), T("Halo "), wait(go_on), T("北🦀é"), FIN(), U(7, 2), DONE])

    process = await curl(stand, CHAT, chat("m"))
    assert process.stdout is not None
    early = await process.stdout.readuntil(b'"Halo "},"finish_reason":null}]}\n\n')
    go_on.set()
    rest = await process.stdout.read()

    assert text_of(blocks(early)) == "Halo "
    assert text_of(blocks(early + rest)) == TEXT
    assert parsed(blocks(rest))[-1] == "[DONE]"
    assert await process.wait() == 0


async def test_silence(stand: Stand) -> None:
    """Pings are comments between whole frames, before the first token and after it."""
    stand.provider.script("m", [pause_ms(650), R(), T("a"), pause_ms(350), T("b"), FIN(), U(7, 2), DONE])

    process = await curl(stand, CHAT, chat("m"))
    out, _ = await process.communicate()

    before, _, after = out.partition(b'"content":"a"')
    assert b": ping\n\n" in before
    assert b": ping\n\n" in after
    assert text_of(blocks(out)) == "ab"


async def test_interruption(stand: Stand) -> None:
    """The frame with the error and the terminator are printed, and the body ends well."""
    stand.provider.script("m", [R(), T("a"), RST])

    process = await curl(stand, CHAT, chat("m"))
    out, _ = await process.communicate()

    *_, failure, done = parsed(blocks(out))
    assert failure["error"]["code"] == "stream_interrupted"
    assert (done, process.returncode) == ("[DONE]", 0)


async def test_anthropic_stream(stand: Stand) -> None:
    """The same by the other endpoint, with the other credential header."""
    stand.provider.script("claude", [MS(7), CBS(0), CBD(0, TEXT), CBX(0), MD("end_turn", 2), MX])

    process = await curl(stand, MESSAGES, messages("claude"), "-H", "Authorization:", "-H", f"x-api-key: {KEY}")
    out, _ = await process.communicate()

    assert text_of(blocks(out)) == TEXT
    assert parsed(blocks(out))[-1]["type"] == "message_stop"


async def test_kill(stand: Stand) -> None:
    """A program that is killed closes the provider's connection."""
    stand.provider.script("m", [R(), repeat(T("a "), pause_ms(5))])
    before = len(stand.provider.requests)
    process = await curl(stand, CHAT, chat("m"))
    assert process.stdout is not None
    await process.stdout.readuntil(b'"content":"a "')

    process.kill()

    await stand.provider.requests[before].gone(within_s=2)
    await process.communicate()


async def test_fail_option(stand: Stand) -> None:
    """`--fail-with-body` ends with 22 on an error before the stream, and prints the envelope."""
    process = await curl(stand, CHAT, chat("nobody"), "--fail-with-body")
    out, _ = await process.communicate()

    assert (process.returncode, json.loads(out)["error"]["code"]) == (22, "model_not_found")
