"""Drawn exchanges: whatever a provider, a client and a shutdown do and when, what must always hold does."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.errors import SHUTDOWN, Failure
from gateway.policy.breaker import BreakerRules
from tests.support.notation import DONE, FIN, R, T, U
from tests.support.scale import examples
from tests.support.scripted_provider import EOF, JSON, NEVER, SSE, Play
from tests.support.virtual_time import VirtualLoop
from tests.unit.pipeline.plays import COMPLETION, CONNECT, RESET
from tests.unit.pipeline.scene import Scene, at, elapsed_s, virtual_loop

HEARTBEAT_S, STALL_S = 15.0, 30.0  # of the default deadlines
NOTHING = b": hello\n\n"

# Around the deadlines there are, and on the very instant of many.
seconds = st.sampled_from([0.0, 0.25, 1.0, 2.0, 4.75, 5.0, 14.75, 15.0, 20.0, 29.75, 30.0, 40.0, 60.0, 90.0])
chunks = (R(), T("Hi"), T("Ho"), T("Hi") + FIN(), FIN(), U(3, 1), DONE)
oddities = (NOTHING, b"data: {nonsense\n\n", COMPLETION, RESET, EOF)
pieces = st.sampled_from(chunks + oddities)
bodies = st.lists(seconds | pieces, max_size=8).map(tuple)
heads = seconds | st.just(NEVER)
statuses = st.sampled_from([200, 200, 200, 400, 401, 429, 500])
answers = st.builds(Play, bodies, statuses, st.sampled_from([SSE, JSON]), heads)
refusals = st.builds(
    Play,
    head_s=seconds,
    sent_s=st.sampled_from([0.0, NEVER]),
    failure=st.sampled_from([CONNECT, RESET, Failure("upstream_error", "dns", retryable=False)]),
)
acts = st.sampled_from(["leave", "interrupt", "stop reading", "read on", "vanish"])


async def perform(scene: Scene, act: str) -> None:
    if act == "leave":
        scene.leave()
    elif act == "interrupt":
        scene.interrupt(SHUTDOWN)
    elif act == "stop reading":
        scene.sink.stop_reading()
    elif act == "read on":
        scene.sink.read_on()
    else:
        scene.sink.gone = True


async def run(scene: Scene, events: list[tuple[float, str]]) -> str:
    task = scene.start()
    for when_s, act in events:
        await at(max(when_s, elapsed_s()))
        if not task.done():
            await perform(scene, act)
    return await scene.end()


def check_stream(scene: Scene, outcome: str, *, stalled: bool) -> None:
    """What a client may rely on."""
    words = [word for _, word in scene.heard]
    if not words:
        assert outcome in ("failed", "rejected", "cancelled")
        return
    if stalled and words[-2:] == ["end", "abort"]:
        words.pop()  # it never took the last words: a reset, which nobody takes for the end of a whole answer
    assert outcome in ("completed", "interrupted", "cancelled")
    assert words[0] == "200"
    assert not {"end", "abort", "200"} & set(words[1:-1])
    assert (words[-1] == "end") <= ("[DONE]" in words)
    if "[DONE]" in words:
        last = words[words.index("[DONE]") - 1]
        assert last == ("metadata" if outcome == "completed" else f"error {scene.receipt.failure_class}")
    gaps = [later - sooner for (sooner, _), (later, _) in zip(scene.heard, scene.heard[1:], strict=False)]
    assert max(gaps, default=0.0) <= HEARTBEAT_S + (STALL_S if stalled else 0.0)


def check_attempts(scene: Scene, outcome: str) -> None:
    """What a provider may rely on."""
    hosts = [host for _, host in scene.asked]
    assert all(hosts.count(host) <= 2 for host in hosts)
    assert hosts[:2] in ([], ["a"], ["a", "b"], ["a", "a"])
    # One more when a shutdown comes in the very turn: it is begun, and over before the provider is asked.
    assert len(scene.attempts) - len(hosts) in (0, int(scene.receipt.failure_reason == "shutdown"))
    committed_s = next((second for second, word in scene.heard if word == "200"), NEVER)
    assert all(second <= committed_s for second, _ in scene.asked)
    results = [result for _, result in scene.attempts]
    assert "open" not in results
    assert set(results[:-1]) <= {"failed"}
    if outcome == "completed":
        assert results[-1] == "ok"
    for name in ("a", "b"):  # a probe slot that was taken is free again, or the breaker has its verdict
        breaker, now_s = scene.breaker(name), virtual_loop().time()
        assert (breaker.admit(now_s) is None) == (breaker.state(now_s) == "open")


@pytest.mark.fuzz
@settings(max_examples=examples(400), deadline=None, derandomize=True)
@given(
    plays=st.lists(answers | refusals, min_size=4, max_size=4),
    stream=st.booleans(),
    events=st.lists(st.tuples(seconds, acts), max_size=4).map(sorted),
    failures=st.sampled_from([1, 10]),
    half_open=st.booleans(),
)
def test_what_always_holds(
    *, plays: list[Play], stream: bool, events: list[tuple[float, str]], failures: int, half_open: bool
) -> None:
    """One receipt, nothing left open, no false end, no frame after an end, no silence, at most two attempts a route."""

    async def exchange() -> None:
        scene = Scene(*plays, stream=stream, routes=("a", "b"), breaker=BreakerRules(failures=failures, open_s=5.0))
        if half_open:
            scene.breaks("a")
            await at(5.0)
            scene.begin()
        outcome = await run(scene, events)
        if stream:
            check_stream(scene, outcome, stalled=any(act == "stop reading" for _, act in events))
        check_attempts(scene, outcome)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(exchange())
