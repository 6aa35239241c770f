"""The stage that has guards look at a call, with engines of its own: what is refused, changed, told and remembered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.core.accounts import Key, Tier
from gateway.core.call import Call, CallOptions
from gateway.core.catalog import ClientDialectName
from gateway.core.errors import GatewayError
from gateway.core.exchange import Exchange
from gateway.core.guarding import Check, Engine, Finding, GuardName, GuardTerms, Rules, Text, Verdict
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.pipeline.scanning import INLINE_BYTES, SLOW_INLINE_BYTES, Means, Memory, Scanner
from gateway.pipeline.stages.guard import Guard, GuardWatch
from gateway.pipeline.turns import Turns
from tests.support.guards import Broken, Endless, Now, Words
from tests.support.virtual_time import START_S

NIK = "3171234567890123"
PII = {"nik": (r"\b\d{16}\b", 1.0), "email": (r"\w+@\w+\.com", 1.0)}
INJECTION = {"override": ("ignore", 0.9), "hint": ("please", 0.2)}
BLOCK, REDACT, MONITOR = GuardTerms("block"), GuardTerms("redact"), GuardTerms("monitor")


@dataclass
class House:
    """A stage with its surroundings; time goes on by `step_s` with each look at the clock."""

    engines: tuple[Engine, ...]
    step_s: float = 0.0
    now_s: float = 0.0
    threads: Now = field(default_factory=Now)
    told: list[tuple[str, str, str]] = field(default_factory=list)
    took: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        scanner = Scanner(
            {engine.name: engine for engine in self.engines}, Memory(b"salt"), Means(Turns(self.threads), self._clock)
        )
        watch = GuardWatch(lambda name, _: self.took.append(name), lambda *said: self.told.append(said))
        self.stage = Guard(scanner, watch, self._clock)

    def _clock(self) -> float:
        self.now_s += self.step_s
        return self.now_s

    async def pass_through(self, call: Call, **terms: GuardTerms) -> Exchange:
        guards: dict[GuardName, GuardTerms] = terms  # type: ignore[assignment]
        key = Key("key_1", "acme", Tier("pro"), rules=Rules(guards))
        passing = Exchange("req_1", "trace_1", "e", call, key, START_S)
        self.last = passing
        await self.stage.admit(passing)
        return passing

    async def refusal(self, call: Call, **terms: GuardTerms) -> GatewayError:
        with pytest.raises(GatewayError) as caught:
            await self.pass_through(call, **terms)
        return caught.value


def chat(*contents: Any, dialect: ClientDialectName = "openai_chat", **more: Any) -> Call:
    """A call with a message for each of *contents*: one of a user, or whole."""
    turns = [one if isinstance(one, dict) else {"role": "user", "content": one} for one in contents]
    body = {"model": "m", "max_tokens": 5, "messages": turns, **more}
    return CLIENT_DIALECTS[dialect].read_call(json.dumps(body).encode(), CallOptions(), ())


def messages(passed: Exchange) -> Any:
    return json.loads(bytes(passed.call.fields["messages"]))


def texts(passed: Exchange) -> list[str]:
    return [message["content"] for message in messages(passed)]


async def test_a_key_without_rules() -> None:
    """Nothing is read, and nothing said."""
    engine = Words(**PII)
    call = chat(NIK)

    passed = await House((engine,)).pass_through(call)

    assert (passed.call, passed.verdicts, engine.read) == (call, {}, [])


async def test_nothing_found() -> None:
    """The very call goes on; the score of what is too little to count is told."""
    house = House((Words("injection", **INJECTION), Words(**PII)))
    call = chat("please tell me")

    passed = await house.pass_through(call, pii=REDACT, injection=BLOCK)

    assert passed.call is call
    assert passed.verdicts == {"injection": Verdict("pass", 0.2), "pii": Verdict("pass", 0.0)}
    assert (list(passed.verdicts), house.took) == (["injection", "pii"], ["injection", "pii"])


async def test_grd_01_any_position() -> None:
    """What is found in an earlier turn is replaced as if it stood in the last one."""
    call = chat(f"card {NIK}", {"role": "assistant", "content": "ok"}, "thanks")

    passed = await House((Words(**PII),)).pass_through(call, pii=REDACT)

    assert texts(passed) == ["card [NIK_1]", "ok", "thanks"]


async def test_grd_02_results_of_tools() -> None:
    """They are redacted and counted like a user's words."""
    call = chat("who?", {"role": "tool", "tool_call_id": "c", "content": f"NIK {NIK}, jane@e.com"})

    passed = await House((Words(**PII),)).pass_through(call, pii=REDACT)

    assert texts(passed)[1] == "NIK [NIK_1], [EMAIL_1]"
    assert passed.verdicts == {"pii": Verdict("redact", 1.0, {"nik": 1, "email": 1}, "messages[1].content")}


async def test_one_value_has_one_placeholder() -> None:
    """The same value has the same number wherever it stands, other values others, in the order of the call."""
    part = {"type": "text", "text": "b@e.com"}
    call = chat("a@e.com b@e.com", [part], {"role": "system", "content": "c@e.com a@e.com"})

    passed = await House((Words(**PII),)).pass_through(call, pii=REDACT)

    found = messages(passed)
    assert found[0]["content"] == "[EMAIL_1] [EMAIL_2]"
    assert found[1]["content"][0]["text"] == "[EMAIL_2]"
    assert found[2]["content"] == "[EMAIL_3] [EMAIL_1]"


@pytest.mark.parametrize(("reversible", "expected"), [(False, "[EMAIL_1]"), (True, "[EMAIL_2]")])
async def test_a_placeholder_of_the_callers(reversible: bool, expected: str) -> None:
    """Where originals come back a caller never sees placeholders, so one in the call is not ours: its number is left
    to it. Where they do not, it is an echo of ours."""
    terms = GuardTerms("redact", reversible=reversible)

    passed = await House((Words(**PII),)).pass_through(chat("[EMAIL_1] and a@e.com"), pii=terms)

    assert texts(passed) == [f"[EMAIL_1] and {expected}"]


@pytest.mark.parametrize("reversible", [False, True])
async def test_originals(reversible: bool) -> None:
    """They are kept for the answer where the policy says so, and nowhere else."""
    passed = await House((Words(**PII),)).pass_through(
        chat("a@e.com", NIK), pii=GuardTerms("redact", reversible=reversible)
    )

    assert texts(passed) == ["[EMAIL_1]", "[NIK_1]"]
    assert passed.originals == ({"[EMAIL_1]": "a@e.com", "[NIK_1]": NIK} if reversible else {})


async def test_redacted_once_more() -> None:
    """A call that has been redacted has nothing left to be found."""
    house = House((Words(**PII),))
    first = await house.pass_through(chat(f"{NIK} a@e.com"), pii=REDACT)

    second = await house.pass_through(first.call, pii=REDACT)

    assert second.call is first.call
    assert second.verdicts["pii"].status == "pass"


async def test_two_guards_in_one_text() -> None:
    """Findings that overlap are taken together, by the kind of the longer one; each guard has its own verdict."""
    secret = Words("credentials", token=(r"key-\w+@\w+", 1.0))

    passed = await House((Words(**PII), secret)).pass_through(
        chat("key-jane@e.com, b@e.com"), pii=GuardTerms("redact", reversible=True), credentials=REDACT
    )

    assert texts(passed) == ["[TOKEN_1], [EMAIL_1]"]
    assert passed.originals == {"[EMAIL_1]": "b@e.com"}
    assert passed.verdicts["pii"].findings == {"email": 2}
    assert passed.verdicts["credentials"].findings == {"token": 1}


@pytest.mark.parametrize(
    ("name", "text", "code", "message"),
    [
        ("injection", "ignore that", "prompt_injection", "(override)."),
        ("content", "ignore that", "content_violation", "(override)."),
        ("pii", f"a@e.com b@e.com {NIK}", "pii_blocked", "(email, nik)."),
        ("credentials", "a@e.com", "pii_blocked", "(email)."),
    ],
)
async def test_blocking(name: GuardName, text: str, code: str, message: str) -> None:
    """The call is refused with the guard's own code, the kinds and the place; no word of the text is repeated."""
    house = House((Words(name, **PII, override=("ignore", 0.9)),))

    error = await house.refusal(chat("hello", [{"type": "text", "text": text}]), **{name: BLOCK})

    assert (error.kind.status, error.kind.code, error.param) == (403, code, "messages[1].content[0].text")
    assert error.message.endswith(message)
    assert house.last.verdicts[name].status == "block"
    assert "@" not in error.message


async def test_watching() -> None:
    """What a guard only watches goes on unchanged, with a verdict."""
    call = chat(NIK)

    passed = await House((Words(**PII),)).pass_through(call, pii=MONITOR)

    assert passed.call is call
    assert passed.verdicts == {"pii": Verdict("flag", 1.0, {"nik": 1}, "messages[0].content")}


@pytest.mark.parametrize(
    ("terms", "status"),
    [
        (GuardTerms("block", threshold=0.95), "pass"),
        (GuardTerms("block", threshold=0.9), "block"),
        (GuardTerms("block", threshold=0.95, or_own=True), "block"),
        (GuardTerms("block", kinds=frozenset({"hint"})), "pass"),
        (GuardTerms("block", threshold=0.1, kinds=frozenset({"hint"})), "block"),
        (GuardTerms("redact"), "block"),  # of a text as a whole nothing can be replaced
        (GuardTerms("off"), None),
    ],
)
async def test_terms(terms: GuardTerms, status: str | None) -> None:
    """The policy says from which score on a finding counts, and of which kind; else the engine does."""
    house = House((Words("injection", **INJECTION),))

    with suppress(GatewayError):
        await house.pass_through(chat("please ignore"), injection=terms)

    verdict = house.last.verdicts.get("injection")
    assert (verdict.status if verdict else None) == status


async def test_what_nothing_can_stand_for() -> None:
    """Where a name of a member or a tool would have to be redacted, the call is refused instead."""
    asked = {"id": "c", "type": "function", "function": {"name": "post", "arguments": '{"jane@e.com": 1}'}}
    house = House((Words(**PII),))

    error = await house.refusal(chat({"role": "assistant", "tool_calls": [asked]}), pii=REDACT)

    assert (error.kind.code, error.param) == ("pii_blocked", "messages[0].tool_calls[0].function.arguments")
    assert house.last.verdicts["pii"].status == "block"


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic_messages"])
@pytest.mark.parametrize("mode", ["block", "redact"])
@pytest.mark.parametrize("engine", [Broken, Endless])
async def test_grd_13_a_guard_that_fails(dialect: ClientDialectName, mode: Any, engine: type[Words]) -> None:
    """What was to be refused or changed is refused where the guard cannot tell; nothing of the text is told."""
    house = House((engine("pii", **PII),), step_s=0.01)

    error = await house.refusal(chat("secret", dialect=dialect), pii=GuardTerms(mode))

    assert (error.kind.status, error.kind.code) == (503, "guards_unavailable")
    assert house.last.verdicts == {"pii": Verdict("error")}
    assert house.told == [("req_1", "pii", "ValueError" if engine is Broken else "late")]


@pytest.mark.parametrize("engine", [Broken, Endless])
async def test_a_watching_guard_that_fails(engine: type[Words]) -> None:
    """The call goes on, its verdict says `error`, and the guards behind look all the same."""
    house = House((engine("injection"), Words(**PII)), step_s=0.01)

    passed = await house.pass_through(chat(NIK), injection=MONITOR, pii=REDACT)

    assert texts(passed) == ["[NIK_1]"]
    assert [(name, one.status) for name, one in passed.verdicts.items()] == [("injection", "error"), ("pii", "redact")]


async def test_a_guard_that_is_not_there() -> None:
    """A policy of another version may name one: nobody can say that it has passed."""
    error = await House((Words(**PII),)).refusal(chat("hello"), content=BLOCK)

    assert error.kind.code == "guards_unavailable"


async def test_a_growing_chat() -> None:
    """Each turn is read once, whatever follows; verdicts are the same as if all were read again."""
    engine = Words(**PII)
    house = House((engine,))
    turns = [f"NIK {NIK}", {"role": "assistant", "content": "[NIK_1]?"}, "yes", "jane@e.com"]

    passed = [await house.pass_through(chat(*turns[:number]), pii=REDACT) for number in range(1, 5)]

    assert [text.text for text in engine.read] == [f"NIK {NIK}", "[NIK_1]?", "yes", "jane@e.com"]
    assert texts(passed[-1]) == ["NIK [NIK_1]", "[NIK_1]?", "yes", "[EMAIL_1]"]
    assert passed[-1].verdicts["pii"].findings == {"nik": 1, "email": 1}


class Stumbling(Words):
    """An engine that has no time left when it comes to the word `long`, until it is told to hurry."""

    hurries = False

    def scan(self, text: Text, check: Check) -> Sequence[Finding]:
        if "long" in text.text and not self.hurries:
            while True:
                check()
        return super().scan(text, check)


async def test_what_was_read_before_it_was_late() -> None:
    """It is known when the call is tried again: a long chat passes in the end."""
    engine = Stumbling("pii", **PII)
    house = House((engine,), step_s=0.01)

    error = await house.refusal(chat("one", "two", "long"), pii=BLOCK)
    engine.hurries = True
    await house.pass_through(chat("one", "two", "long"), pii=BLOCK)

    assert error.kind.code == "guards_unavailable"
    assert [text.text for text in engine.read] == ["one", "two", "long"]


async def test_what_another_tenant_has_sent() -> None:
    """It is read again: nobody can tell by the time that it is known here."""
    engine = Words(**PII)
    scanner = Scanner({"pii": engine}, Memory(b"salt"), Means(Turns(Now()), lambda: 0.0))

    for tenant in ("acme", "umbrella", "acme"):
        await scanner.look("pii", scanner.read(chat("hello"), tenant), BLOCK)

    assert [text.text for text in engine.read] == ["hello", "hello"]


async def test_whose_words_they_are() -> None:
    """The same text in another role is read for itself: it may mean something else there."""
    engine = Words("injection", **INJECTION)
    house = House((engine,))

    await house.pass_through(chat("a b", {"role": "system", "content": "a b"}, dialect="openai_chat"), injection=BLOCK)

    assert [(text.text, text.role, text.place) for text in engine.read] == [("a b", "user", ""), ("a b", "system", "")]


@pytest.mark.parametrize(("name", "most"), [("pii", INLINE_BYTES), ("injection", SLOW_INLINE_BYTES["injection"])])
async def test_long_texts(name: GuardName, most: int) -> None:
    """They are read in a thread, short ones at once; what is long depends on how much work the guard has."""
    house = House((Words(name, **PII),))

    await house.pass_through(chat("x" * (most - 100)), **{name: BLOCK})
    short = house.threads.asked
    await house.pass_through(chat("x" * most), **{name: BLOCK})

    assert (short, house.threads.asked) == (0, 1)


async def test_what_is_forgotten() -> None:
    """What has not been used for longest is, however much is found in one piece."""
    engine = Words(**PII)
    memory = Memory(b"salt", max_weight=3)
    scanner = Scanner({"pii": engine}, memory, Means(Turns(Now()), lambda: 0.0))

    for content in ("one", "two", "one", "a@e.com b@e.com", "one", "two", "a@e.com " * 9):
        await scanner.look("pii", scanner.read(chat(content), "acme"), BLOCK)

    assert [text.text for text in engine.read] == ["one", "two", "a@e.com b@e.com", "one", "two", "a@e.com " * 9]


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic_messages"])
async def test_grd_12_what_is_no_text(dialect: ClientDialectName) -> None:
    """A picture, a time and an id that hold digits leave as they came."""
    picture = "data:image/png;base64," + NIK
    parts = [
        {"type": "image_url", "image_url": {"url": picture}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": NIK}},
        {"type": "tool_result", "tool_use_id": NIK, "content": "order 2026-08-31 10:22:33"},
    ]
    call = chat(parts, dialect=dialect)

    passed = await House((Words(**PII),)).pass_through(call, pii=REDACT)

    assert passed.call is call


async def test_members_besides_messages() -> None:
    """A user's name that is an address, and words in a member that nobody knows, leave as placeholders too."""
    call = chat("hi", user="jane@e.com", documents=[{"title": "Mail of bob@e.com"}], metadata={"for": "jane@e.com"})

    passed = await House((Words(**PII),)).pass_through(call, pii=REDACT)

    fields = {name: json.loads(bytes(raw)) for name, raw in passed.call.fields.items()}
    assert (fields["user"], fields["metadata"]) == ("[EMAIL_1]", {"for": "[EMAIL_1]"})
    assert fields["documents"] == [{"title": "Mail of [EMAIL_2]"}]
    assert {name: fields[name] for name in ("model", "max_tokens")} == {"model": "m", "max_tokens": 5}


@pytest.mark.parametrize(
    ("dialect", "said"),
    [
        ("openai_chat", {"user": "jane@a.com", "metadata": {"nik": NIK}}),
        ("anthropic_messages", {"metadata": {"user_id": "jane@a.com"}}),
    ],
)
async def test_the_caller_as_it_leaves(dialect: ClientDialectName, said: dict[str, Any]) -> None:
    """What books and logs are told of the caller is what the provider gets: with placeholders."""
    passed = await House((Words(**PII),)).pass_through(chat("hello", dialect=dialect, **said), pii=REDACT)

    user, metadata = passed.caller
    assert user == "[EMAIL_1]"
    assert dict(metadata) in ({}, {"nik": "[NIK_1]"})


async def test_the_caller_of_a_refused_call() -> None:
    """Whatever refuses it, nothing is told of the caller that a guard has not let pass."""
    house = House((Words(**PII),))

    await house.refusal(chat("hello", user="jane@a.com", metadata={"a": "b"}), pii=BLOCK)
    unread = Exchange("r", "t", "e", house.last.call, house.last.key, START_S)

    assert house.last.caller == unread.caller == (None, {})


@pytest.mark.parametrize("terms", [MONITOR, GuardTerms("off")])
async def test_the_caller_that_nobody_holds_back(terms: GuardTerms) -> None:
    """Guards that only watch change nothing of what is told of the caller."""
    passed = await House((Words(**PII),)).pass_through(chat("hello", user="jane@a.com"), pii=terms)

    assert passed.caller == ("jane@a.com", {})
