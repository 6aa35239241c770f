"""One tool, or one call of it, and what a policy says of it."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.guarding import ArgumentRule, ToolTerms
from gateway.guards.ruling import MAX_ARGUMENT_BYTES, Offer, Tool, judge_call, judge_offer, judge_tool

PAY = Tool(("pay",))
MORE = "is more than the policy allows"
DENIED = "has a value that the policy denies"
NOT_ALLOWED = "has a value that is not among those that the policy allows"


def reason(arguments: str, *rules: ArgumentRule, tool: Tool = PAY) -> str | None:
    denied = judge_call(tool, arguments, ToolTerms(arguments=rules))
    return denied and denied.reason


def rule(path: str = "amount", **members: object) -> ArgumentRule:
    return msgspec.convert({"tool": "pay", "path": path, **members}, ArgumentRule)


@pytest.mark.parametrize(
    ("names", "allow", "deny", "allowed"),
    [
        (("read",), (), (), True),
        (("read",), (("read", "write"),), (), True),
        (("drop",), (("read", "write"),), (), False),
        (("read",), (("read",), ("write",)), (), False),
        (("read_it",), (("read_*",), ("*_it",)), (), True),
        (("read",), (("*",),), ("r*",), False),
        (("READ",), (), ("read",), False),
        (("READ",), (("read",),), (), False),
        (("re\u200bad",), (("*",),), ("read",), False),
        (("web_search", "web_search_20250305"), (("web_search_2025*",),), (), True),
        (("web_search", "web_search_20250305"), (), ("web_search_2025*",), False),
        (("",), (("*",),), (), False),
        (("",), (), ("drop",), False),
        (("",), (), (), True),
        (("",), (("read",),), (), False),
        (("x" * 257,), (), (), False),
    ],
)
def test_names(
    names: tuple[str, ...], allow: tuple[tuple[str, ...], ...], deny: tuple[str, ...], allowed: bool
) -> None:
    """Every list of what is allowed has to have the name as it is; a denied one is denied in any like spelling."""
    assert (judge_tool(Tool(names), ToolTerms(allow, deny)) is None) is allowed


@pytest.mark.parametrize(
    ("arguments", "rules", "expected"),
    [
        ('{"amount": 100}', (rule(maximum=100),), None),
        ('{"amount": 100.01}', (rule(maximum=100),), MORE),
        ('{"amount": -1}', (rule(minimum=0),), "is less than the policy allows"),
        ('{"amount": 1e3}', (rule(maximum=100),), MORE),
        ('{"amount": "1000"}', (rule(maximum=100),), MORE),
        ('{"amount": " 1e1 "}', (rule(maximum=100),), None),
        ('{"amount": "nan"}', (rule(maximum=100),), "is no number"),
        ('{"amount": "1_0"}', (rule(maximum=100),), "is no number"),
        ('{"amount": true}', (rule(maximum=100),), "is no number"),
        ('{"amount": null}', (rule(maximum=100),), "is no number"),
        ('{"amount": [1]}', (rule(maximum=100),), "is a list or an object"),
        ('{"AMOUNT": 1000}', (rule(maximum=100),), MORE),
        ('{"amount": 1, "Amount": 1000}', (rule(maximum=100),), MORE),
        ("{}", (rule(maximum=100),), None),
        ("", (rule(maximum=100),), None),
        ("", (rule(required=True),), "is missing"),
        ('{"Amount": 1}', (rule(required=True),), "is missing"),
        ('{"amount": null}', (rule(required=True),), None),
        ('{"to": "budi"}', (rule("to", allow=["budi", "siti"]),), None),
        ('{"to": "Budi"}', (rule("to", allow=["budi"]),), NOT_ALLOWED),
        ('{"to": "EVIL@x.id"}', (rule("to", deny=["evil@*"]),), DENIED),
        ('{"to": 7}', (rule("to", allow=["7"]),), None),
        ('{"to": 7.0}', (rule("to", deny=["7"]),), DENIED),
        ('{"to": true}', (rule("to", deny=["true"]),), DENIED),
        ('{"order": {"items": [{"n": 1}, {"n": 9}]}}', (rule("order.items.*.n", maximum=5),), MORE),
        ('{"order": {"items": [{"n": 1}, {"n": 2}]}}', (rule("order.items.*.n", maximum=5),), None),
        ('{"order": "x"}', (rule("order.items", maximum=5),), None),
        ('{"order": {}}', (rule("order", required=True),), None),
    ],
)  # fmt: skip
def test_arguments(arguments: str, rules: tuple[ArgumentRule, ...], expected: str | None) -> None:
    """A rule looks at every value its path leads to, in whatever spelling a careless reader would take for it."""
    assert reason(arguments, *rules) == (expected and f"its argument {rules[0].path} {expected}")


@pytest.mark.parametrize(
    "arguments",
    [
        '{"amount": 1, "amount": 1000}',
        '{"other": {"a": 1, "\\u0061": 2}}',
        '{"amount": 1}{"amount": 1000}',
        '{"amount": 1',
        '{"amount": NaN}',
        '{"amount": 1e999}',
        '{"amount": 123456789012345678901234567890}',
        '[{"amount": 1}]',
        '"amount"',
        '{"a": "\\ud800"}',
        '{"a":' + "[" * 65 + "]" * 65 + "}",
        '{"a": [' + "1," * 50_000 + "1]}",
        "amount=1",
    ],
    ids=range(13),
)
def test_arguments_that_can_be_read_in_two_ways(arguments: str) -> None:
    """What one reader takes for one thing and the next for another is denied, where there is a rule, and only there."""
    assert reason(arguments, rule()) == "its arguments are no JSON object that can be read in one way only"
    assert reason(arguments, rule(), tool=Tool(("other",))) is None


def test_long_arguments() -> None:
    """What is too long to be looked at cannot be allowed by a rule."""
    arguments = msgspec.json.encode({"text": "x" * MAX_ARGUMENT_BYTES}).decode()

    assert reason(arguments, rule()) == "its arguments are too long to be judged"


def test_rules_are_for_like_names() -> None:
    """Another case of the tool's name does not take it out of its rules."""
    assert reason('{"amount": 1000}', rule(maximum=1), tool=Tool(("PAY",))) is not None


def test_a_tool_that_runs_elsewhere() -> None:
    """What runs before its call is seen may not be offered where its arguments are ruled."""
    terms = ToolTerms(arguments=(rule(maximum=1),))

    assert judge_offer(Offer("", PAY), terms) is None
    assert judge_offer(Offer("", Tool(("pay",), runs_there=True)), terms) is not None
    assert judge_offer(Offer("", Tool(("look",), runs_there=True)), terms) is None


@pytest.mark.parametrize(
    ("terms", "allowed"),
    [
        (ToolTerms((("mcp__hub__*",),)), True),
        (ToolTerms((("*",),)), True),
        (ToolTerms((("mcp__hub__read",),)), False),
        (ToolTerms((("*",),), ("drop",)), False),
        (ToolTerms(arguments=(rule(maximum=1),)), False),
    ],
)
def test_tools_whose_names_are_not_told(terms: ToolTerms, allowed: bool) -> None:
    """They may be offered only where the policy allows any that there could be."""
    offer = Offer("", Tool(("mcp__hub__*",), runs_there=True), and_others=True)

    assert (judge_offer(offer, terms) is None) is allowed


@pytest.mark.fuzz
@given(st.dictionaries(st.text(max_size=4), st.integers(-5, 5) | st.text(max_size=4) | st.none()), st.integers(-5, 5))
def test_no_value_beyond_a_bound_passes(members: dict[str, object], most: int) -> None:
    """Whatever else there is: an allowed call has no number above the bound in the ruled place."""
    arguments = msgspec.json.encode(members).decode()

    if reason(arguments, rule(maximum=most)) is None and isinstance(value := members.get("amount"), int):
        assert value <= most


HOSTILE = {
    "long": '{"amount": "' + "a" * (MAX_ARGUMENT_BYTES - 20) + '"}',
    "accents": '{"amount": "' + "\u0301\u0316" * (MAX_ARGUMENT_BYTES // 4 - 10) + '"}',
    "many": '{"a": [' + ",".join(['{"amount":1}'] * 4_900) + "]}",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_arguments(kind: str) -> None:
    """A hundred rules on arguments of the greatest length and number are judged in bounded time."""
    rules = [rule("amount", deny=["*" + "a" * 100 + "b*"])] * 50 + [rule("*.*.amount", maximum=1)] * 50
    began_s = time.perf_counter()

    denied = reason(HOSTILE[kind], *rules)

    assert denied is None
    assert time.perf_counter() - began_s < 30.0  # 1 s alone
