"""
Which tools may be offered and called, and with what arguments: a policy's `ToolTerms` applied to one tool.

What is allowed has to match to the letter; what is denied may not match in whatever a name can be dressed in. A reason
names the rule and the place that it is about, never a name or a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from msgspec import Raw, Struct

from gateway.core.guarding import ArgumentRule, ToolTerms
from gateway.guards.globs import in_any_spelling, is_like_one_of, is_one_of
from gateway.wire.body import BadBody, BodyLimits, parse_object
from gateway.wire.values import decode_values

MAX_NAME_CHARS = 256  # twice what OpenAI and Anthropic take
MAX_ARGUMENT_BYTES = 128 * 1024  # what most models can say at all; the worst of it takes 20 ms for a rule (measured)
LIMITS = BodyLimits(max_depth=64, max_structural=20_000)  # a rule looks at the worst of it in 30 ms (measured)

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,308})(?:\.[0-9]{1,308})?(?:[eE][+-]?[0-9]{1,3})?")

Found = tuple[object, bool]
"""A value, and whether its path is the rule's to the letter."""


class Tool(Struct, frozen=True, gc=False):
    """
    A tool by all that it is known as.

    Attributes:
        names: The name first that its calls have; each of the others is as good to be allowed by, or denied.
        runs_there: The provider runs it: a call of it is seen when it has been done.
    """

    names: tuple[str, ...]
    runs_there: bool = False


class Offer(Struct, frozen=True, gc=False):
    """
    A tool that a request offers to the model, or wants it to call.

    Attributes:
        place: Where, in the words of the request's body.
        and_others: There are more behind it, whose names the request does not tell.
    """

    place: str
    tool: Tool
    and_others: bool = False


class Denied(Struct, frozen=True, gc=False):
    """`reason` goes on from "is not allowed: "."""

    reason: str


def judge_tool(tool: Tool, terms: ToolTerms) -> Denied | None:
    """Whether *terms* deny *tool* whatever its arguments."""
    if any(len(name) > MAX_NAME_CHARS for name in tool.names):
        return Denied("its name is too long")
    if not (all(tool.names) or terms.is_open):
        return Denied("it has no name that could be judged")
    if any(is_like_one_of(name, terms.deny) for name in tool.names):
        return Denied("the policy denies its name")
    if not all(any(is_one_of(name, globs) for name in tool.names) for globs in terms.allow):
        return Denied("its name is not among those that the policy allows")
    return None


def judge_offer(offer: Offer, terms: ToolTerms) -> Denied | None:
    """Whether *terms* deny an *offer*; what runs at the provider is seen too late to be denied then."""
    if offer.and_others and (terms.deny or terms.arguments):
        return Denied("the policy may deny some of its tools, so the request has to name those that it offers")
    denied = judge_tool(offer.tool, terms)
    if denied is None and offer.tool.runs_there and rules_of(offer.tool, terms):
        return Denied("the policy has rules for its arguments, and it would run before they are seen")
    return denied


def rules_of(tool: Tool, terms: ToolTerms) -> tuple[ArgumentRule, ...]:
    """The rules that arguments of *tool* are under."""
    if not terms.arguments:
        return ()
    return tuple(rule for rule in terms.arguments if any(is_like_one_of(name, (rule.tool,)) for name in tool.names))


def judge_call(tool: Tool, arguments: str, terms: ToolTerms) -> Denied | None:
    """Whether *terms* deny a call of *tool* with *arguments*, which are JSON, or nothing where there are none."""
    return judge_tool(tool, terms) or judge_arguments(arguments, rules_of(tool, terms))


def judge_arguments(arguments: str, rules: Sequence[ArgumentRule]) -> Denied | None:
    """Whether one of *rules* denies *arguments*. What two readers could take for two different things is denied."""
    if not rules:
        return None
    data = (arguments.strip() or "{}").encode("utf-8", "surrogatepass")
    if len(data) > MAX_ARGUMENT_BYTES:
        return Denied("its arguments are too long to be judged")
    try:
        parse_object(data, LIMITS)
    except BadBody:
        return Denied("its arguments are no JSON object that can be read in one way only")
    tree = _Tree(decode_values(data))
    return next((denied for rule in rules if (denied := _judge(tree, rule)) is not None), None)


class _Tree:
    """Arguments, and what their members are called in any spelling."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._members: dict[int, dict[str, list[tuple[str, object]]]] = {}  # by the object's identity

    def at(self, path: str) -> list[Found]:
        """The values that *path* leads to, those included that a careless reader would find there."""
        level: list[Found] = [(self._root, True)]
        for part in path.split("."):
            level = [below for node, exact in level for below in self._below(node, part, exact)]
        return level

    def _below(self, node: object, part: str, exact: bool) -> Iterator[Found]:
        if part == "*":
            values = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
            yield from ((value, exact) for value in values)
        elif isinstance(node, dict):
            for name, value in self._folded(node).get(in_any_spelling(part), ()):
                yield value, exact and name == part

    def _folded(self, node: dict[str, object]) -> dict[str, list[tuple[str, object]]]:
        found = self._members.get(id(node))
        if found is None:
            found = self._members[id(node)] = {}
            for name, value in node.items():
                found.setdefault(in_any_spelling(name), []).append((name, value))
        return found


def _judge(tree: _Tree, rule: ArgumentRule) -> Denied | None:
    values = tree.at(rule.path)
    if rule.required and not any(exact for _, exact in values):
        return Denied(f"its argument {rule.path} is missing")
    for value, _ in values:
        problem = _problem(value, rule)
        if problem:
            return Denied(f"its argument {rule.path} {problem}")
    return None


def _problem(value: object, rule: ArgumentRule) -> str:
    """What is wrong with *value*, as a phrase; "" where nothing is."""
    if isinstance(value, dict | list):
        is_ruled = rule.allow is not None or rule.deny or rule.minimum is not None or rule.maximum is not None
        return "is a list or an object" if is_ruled else ""
    texts = _texts(value)
    if any(is_like_one_of(text, rule.deny) for text in texts):
        return "has a value that the policy denies"
    if rule.allow is not None and not is_one_of(texts[0], rule.allow):
        return "has a value that is not among those that the policy allows"
    return _beyond(value, rule)


def _beyond(value: object, rule: ArgumentRule) -> str:
    if rule.minimum is None and rule.maximum is None:
        return ""
    number = _number(value)
    if number is None:
        return "is no number"
    if rule.minimum is not None and not number >= rule.minimum:
        return "is less than the policy allows"
    if rule.maximum is not None and not number <= rule.maximum:
        return "is more than the policy allows"
    return ""


def _texts(value: object) -> tuple[str, ...]:
    """*value* as text: as it is written, and for numbers with a fraction or an exponent also as others write it."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, bool) or value is None:
        return ({True: "true", False: "false", None: "null"}[value],)
    if isinstance(value, Raw):
        written, number = bytes(value).decode(), float(bytes(value))
        return (written, f"{number:.0f}" if number.is_integer() else repr(number))
    return (str(value),)


def _number(value: object) -> Decimal | int | None:
    """*value* as a number, from text too: many a tool converts it."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    text = bytes(value).decode() if isinstance(value, Raw) else value.strip() if isinstance(value, str) else ""
    return Decimal(text) if _NUMBER.fullmatch(text) else None  # a double is the limit for more than that number
