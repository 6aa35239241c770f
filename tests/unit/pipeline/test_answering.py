"""Answers under guards, in time: silences, stops, books, second providers, clients that leave, whole answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.catalog import Drain
from gateway.core.errors import SHUTDOWN, GatewayError
from gateway.core.exchange import Answer
from gateway.core.guarding import AnswerTerms, GuardMode, Verdict
from gateway.core.usage import Usage
from gateway.pipeline.scanning import INLINE_BYTES, Means
from gateway.pipeline.services import Deadlines
from gateway.pipeline.turns import Turns
from tests.support.guards import Endless, Faulty, Now, Spotter
from tests.support.notation import DONE, FIN, R, T, U, chunk
from tests.support.scripted_provider import EOF, JSON, Play, tell
from tests.unit.pipeline.plays import RESET
from tests.unit.pipeline.scene import Scene, at, virtual_loop

MAIL = (R(), T("mail jane."), T("doe@exam"), T("ple.com now"))
END = (FIN(), U(3, 7), DONE)
LONG = "so it goes " * 30


def guarded(*plays: Play, mode: GuardMode = "redact", engine: Spotter | None = None, **more: Any) -> Scene:
    scene = Scene(*plays, **more)
    scene.guard_answers(AnswerTerms(mode), engine or Spotter())
    return scene


def said(scene: Scene) -> str:
    """What the client could read."""
    words = {"role", "finish", "metadata", "[DONE]", "end", "200", "ping"}
    return "".join(word for _, word in scene.heard if word not in words and not word.startswith("error"))


# -- streams --


async def test_masks() -> None:
    """A value in three pieces is masked as one; the verdict is in the receipt, and the answer is a completed one."""
    scene = guarded(tell(*MAIL, *END))

    assert (await scene.end(), said(scene)) == ("completed", "mail [EMAIL_1] now")
    assert scene.receipt.verdicts["response_content"] == Verdict(
        "redact", 1.0, {"email": 1}, "choices[0].message.content"
    )
    assert scene.receipt.usage == Usage(3, 7)


async def test_monitor() -> None:
    """What is only watched leaves at once, and the verdict says what was seen."""
    scene = guarded(tell(*MAIL, *END), mode="monitor")

    assert (await scene.end(), said(scene)) == ("completed", "mail jane.doe@example.com now")
    assert scene.receipt.verdicts["response_content"].status == "flag"


async def test_stop() -> None:
    """
    A finding that blocks ends the stream: what stands in front of it, the typed frame, the terminator. The provider is
    left at once; what it gave is paid for, by the count so far, and it is not to blame.
    """
    scene = guarded(tell(*MAIL, T(LONG), 5.0, T("more"), *END), mode="block")

    outcome = await scene.end()

    assert [word for _, word in scene.heard] == ["200", "role", "mail ", "error policy_stop", "[DONE]", "end"]
    receipt = scene.receipt
    assert (outcome, receipt.failure_class, receipt.error_code) == ("interrupted", "policy_stop", "content_violation")
    assert receipt.verdicts["response_content"].status == "block"
    assert (receipt.usage_basis, receipt.usage.completion_tokens > 50) == ("estimated", True)
    assert receipt.cost_nano_usd > 0
    assert (scene.left_s, scene.attempts, scene.failures) == (0.0, [("a", "cancelled")], [])
    assert scene.breaker("a").state(0) == "closed"


async def test_stop_at_the_end() -> None:
    """What is found when the answer is complete ends it still: it is looked at before it is settled."""
    scene = guarded(tell(R(), T("so kim@x.id"), *END), mode="block")

    assert await scene.end() == "interrupted"
    assert [word for _, word in scene.heard] == ["200", "role", "so ", "error policy_stop", "[DONE]", "end"]
    assert (scene.receipt.usage, scene.receipt.usage_basis) == (Usage(3, 7), "provider_final")


async def test_stop_in_the_first_frame() -> None:
    """A stream that may not say a word has the 200 and the typed frame; no other provider is asked."""
    scene = guarded(tell(T(f"kim@x.id {LONG}"), *END), tell(*END), mode="block", routes=("a", "b"))

    assert await scene.end() == "interrupted"
    assert [word for _, word in scene.heard][-3:] == ["error policy_stop", "[DONE]", "end"]
    assert len(scene.asked) == 1


async def test_silence() -> None:
    """Words leave after 30 to 40 ms of silence, but not what could be half a value; one timer is all that it takes."""
    scene = guarded(tell(R(), T("Well, mail jane."), 1.0, T("doe@x.id or "), 1.0, T("not"), 1.0, *END))

    assert await scene.end() == "completed"
    assert [(round(at_s, 2), word) for at_s, word in scene.heard][1:-3] == [
        (0.0, "role"), (0.03, "Well, mail "), (1.03, "[EMAIL_1] or "), (3.0, "not"), (3.0, "finish"),
    ]  # fmt: skip


async def test_no_silence() -> None:
    """While words come, what is held back waits for more of them."""
    words = [piece for word in LONG.split() for piece in (T(f"{word} "), 0.013)]
    scene = guarded(tell(R(), *words, *END))

    assert await scene.end() == "completed"
    first = next(at_s for at_s, word in scene.heard if word not in ("200", "role"))
    assert (said(scene), first > 0.1) == (LONG, True)


async def test_silence_that_stops() -> None:
    """A finding that a silence decides ends the stream then, not when the provider speaks again."""
    scene = guarded(tell(R(), T("kim@x.id and so on "), 9.0, *END), mode="block")

    assert await scene.end() == "interrupted"
    assert [(round(at_s, 2), word) for at_s, word in scene.heard][-3:] == [
        (0.03, "error policy_stop"), (0.03, "[DONE]"), (0.03, "end"),
    ]  # fmt: skip
    assert scene.left_s == pytest.approx(0.03)


async def test_heartbeats() -> None:
    """What is held back is no reason to be silent: heartbeats come as before."""
    scene = guarded(tell(R(), T("jane."), 40.0, *END), deadlines=Deadlines(heartbeat_s=15.0))

    assert await scene.end() == "completed"
    assert [at_s for at_s, word in scene.heard if word == "ping"] == [15.0, 30.0]


async def test_broken() -> None:
    """A stream that breaks ends with what could leave; half a value does not."""
    scene = guarded(tell(R(), T("so mail jane.doe@exam"), 1.0, RESET))

    assert (await scene.end(), said(scene)) == ("interrupted", "so mail ")
    assert scene.receipt.verdicts["response_content"].status == "pass"


async def test_broken_on_a_find() -> None:
    """One that breaks while it holds what would have ended it says nothing of that, and ends as streams end."""
    scene = guarded(tell(R(), T("kim@x.id is here"), RESET), mode="block")

    assert (await scene.end(), said(scene)) == ("interrupted", "")
    assert [word for _, word in scene.heard][-3:] == ["error upstream_error", "[DONE]", "end"]


async def test_shutdown() -> None:
    """So does one that we end ourselves."""
    scene = guarded(tell(R(), T("so mail jane."), 10.0, *END))
    scene.start()
    await at(1.0)

    scene.interrupt(SHUTDOWN)

    assert (await scene.end(), said(scene)) == ("interrupted", "so mail ")


async def test_continued() -> None:
    """A value whose halves come from two providers is masked as one; both parts are in the books."""
    first = tell(R(), T("so mail jane.doe@exam"), 1.0, RESET)
    second = tell(chunk({"content": "ple.com now"}, id="c2"), chunk({}, finish="stop", id="c2"), U(5, 7), DONE)
    scene = guarded(first, second, routes=("a", "b"), on_interrupt="continue", model="mistral-large")

    assert (await scene.end(), said(scene)) == ("completed", "so mail [EMAIL_1] now")
    assert len(scene.receipt.parts) == 2


async def test_client_leaves() -> None:
    """A client that leaves is settled as ever, with the verdict so far; a provider that is read on has its end."""
    for drain, outcome in ((None, "cancelled"), (Drain(60.0, 1000), "cancelled")):
        scene = guarded(tell(*MAIL, T(LONG), 10.0, *END), drain=drain)
        scene.begin()
        scene.start()
        await at(virtual_loop().elapsed_s + 1.0)
        scene.leave()
        assert await scene.end(alone=False) == outcome
        assert scene.receipt.verdicts["response_content"].findings == {"email": 1}


async def test_engine_fails() -> None:
    """An engine that fails ends an answer that has to pass it, and is reported; one that is watched goes on."""
    scene = guarded(tell(*MAIL, T(LONG), 5.0, *END), mode="block", engine=Faulty())
    assert await scene.end() == "interrupted"
    assert (scene.receipt.error_code, scene.failures) == ("guards_unavailable", [("pii", "ValueError")])
    assert said(scene) == ""

    scene = guarded(tell(*MAIL, *END), mode="monitor", engine=Faulty())
    scene.begin()
    assert (await scene.end(), said(scene)) == ("completed", "mail jane.doe@example.com now")
    assert scene.receipt.verdicts["response_content"].status == "error"


async def test_originals() -> None:
    """Originals of the call come back without any guard of answers, which then has no verdict."""
    scene = Scene(tell(R(), T("of [NI"), T("K_1]!"), *END))
    scene.exchange.originals = {"[NIK_1]": "317101"}

    assert (await scene.end(), said(scene)) == ("completed", "of 317101!")
    assert "response_content" not in scene.receipt.verdicts


async def test_masks_count_on() -> None:
    """Masks of an answer have no number that a placeholder of the call has, whether its original comes back or not."""
    scene = guarded(tell(*MAIL, *END))
    scene.exchange.verdicts["pii"] = Verdict("redact", 1.0, {"email": 2})

    assert (await scene.end(), said(scene)) == ("completed", "mail [EMAIL_3] now")


# -- whole answers --


def whole(text: str) -> Play:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    body = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    body["usage"] = {"prompt_tokens": 3, "completion_tokens": 7}
    return Play((json.dumps(body).encode(), EOF), headers=JSON)


async def answer_of(scene: Scene) -> dict[str, Any]:
    answer = await scene.start()
    assert isinstance(answer, Answer)
    body: dict[str, Any] = json.loads(answer.body)
    return body


async def test_whole() -> None:
    """A whole answer is masked, and says so."""
    scene = guarded(whole("mail kim@x.id"), stream=False)

    body = await answer_of(scene)

    assert body["choices"][0]["message"]["content"] == "mail [EMAIL_1]"
    assert body["_anoman"]["guardrails"]["response_content"]["status"] == "pass"
    assert await scene.end() == "completed"


async def test_whole_stop() -> None:
    """An answer that may not be given is a plain 403; it was made, so it is paid for, and no other is asked for."""
    scene = guarded(whole("mail kim@x.id"), whole("so"), stream=False, mode="block", routes=("a", "b"))

    with pytest.raises(GatewayError) as caught:
        await scene.start()

    assert (caught.value.kind.code, caught.value.kind.status) == ("content_violation", 403)
    assert await scene.end() == "interrupted"
    receipt = scene.receipt
    assert (receipt.usage, receipt.status, receipt.error_code) == (Usage(3, 7), 403, "content_violation")
    assert (receipt.cost_nano_usd > 0, scene.attempts) == (True, [("a", "ok")])


async def test_whole_engine_fails() -> None:
    """Where an engine fails, or is late, the answer is refused and costs nothing; one that is watched is given."""
    threads = Means(Turns(Now()), lambda: next(ticks))
    for engine in (Faulty(), Endless()):
        ticks = iter(range(10_000))
        scene = Scene(whole("so"), stream=False)
        scene.begin()
        scene.guard_answers(AnswerTerms("redact"), engine, means=threads)
        with pytest.raises(GatewayError) as caught:
            await scene.start()
        assert caught.value.kind.code == "guards_unavailable"
        assert (await scene.end(), scene.receipt.cost_nano_usd) == ("failed", 0)
        assert scene.failures == [("pii", "ValueError" if isinstance(engine, Faulty) else "late")]

    scene = Scene(whole("so"), stream=False)
    scene.begin()
    scene.guard_answers(AnswerTerms("monitor"), Faulty())
    assert (await answer_of(scene))["_anoman"]["guardrails"]["response_content"]["status"] == "error"
    assert await scene.end() == "completed"


async def test_long_whole_answers_take_a_thread() -> None:
    """One that takes its time is looked at where it holds nobody up."""
    threads = Now()
    for text in ("so", "so it is. " * INLINE_BYTES):
        scene = Scene(whole(f"{text} kim@x.id"), stream=False)
        scene.begin()
        scene.guard_answers(AnswerTerms("redact"), Spotter(), means=Means(Turns(threads), lambda: 0.0))
        assert (await answer_of(scene))["choices"][0]["message"]["content"].endswith(" [EMAIL_1]")
        assert await scene.end() == "completed"

    assert threads.asked == 1
