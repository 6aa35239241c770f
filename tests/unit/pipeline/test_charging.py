"""What an exchange whose client left is charged for."""

from __future__ import annotations

import pytest

from tests.support.notation import T
from tests.support.scripted_provider import NEVER, Play, fail, tell
from tests.unit.pipeline.plays import RESET, STREAM_AND_JSON
from tests.unit.pipeline.scene import Scene, at


@STREAM_AND_JSON
@pytest.mark.parametrize(("sent_s", "basis"), [(0.0, "estimated"), (2.0, "estimated"), (4.0, "none"), (NEVER, "none")])
async def test_the_prompt_is_charged_once_it_was_sent(sent_s: float, basis: str, stream: bool) -> None:
    """A provider that has the whole request may bill its prompt, though it never answered; one that has half cannot."""
    scene = Scene(Play(head_s=NEVER, sent_s=sent_s), stream=stream)
    scene.start()
    await at(3.0)
    scene.leave()

    await scene.end()

    assert (scene.receipt.usage_basis, scene.receipt.usage.prompt_tokens > 0) == (basis, basis == "estimated")
    assert scene.receipt.usage.completion_tokens == 0


@STREAM_AND_JSON
async def test_only_the_running_attempt_is_charged(stream: bool) -> None:
    """That an earlier one was sent does not count when the running one was not."""
    scene = Scene(fail(RESET), Play(head_s=NEVER, sent_s=NEVER), stream=stream)
    scene.start()
    await at(3.0)
    scene.leave()

    await scene.end()

    assert (scene.attempts, scene.receipt.usage_basis) == ([("a", "failed"), ("a", "cancelled")], "none")


async def test_tokens_that_came_are_charged() -> None:
    """Prompt and the pieces received, by our own count."""
    scene = Scene(tell(T("Hi"), 1.0, T(" there")))
    scene.start()
    await at(3.0)
    scene.leave()

    await scene.end()

    assert scene.receipt.usage.prompt_tokens > 0
    assert (scene.receipt.usage.completion_tokens, scene.receipt.routing_mode) == (2, "streaming_cancelled")
