"""What a client is asked to do and what it lived through: the same few facts for every client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tests.support.notation import Dialect

TOOL: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "units": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
    "required": ["city"],
}
"""The schema of the tool `get_weather`."""

Fault = Literal["invalid", "unauthorized", "limited", "unavailable", "interrupted"]


@dataclass(frozen=True, slots=True)
class Ask:
    """
    One request.

    Attributes:
        base_url: The gateway's address without a path.
        retries: What the client is told; None leaves its default.
        wants: "text", a call of the tool `get_weather`, or "json" mode (OpenAI dialect).
        leave_after: Cancel after that many pieces of text, the way the client's documentation says.
    """

    base_url: str
    key: str
    model: str
    prompt: str = "Hi"
    headers: Mapping[str, str] = field(default_factory=dict)
    retries: int | None = 0
    stream: bool = True
    wants: Literal["text", "tool", "json"] = "text"
    leave_after: int | None = None

    @property
    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Outcome:
    """
    What came of it.

    Attributes:
        usage: Prompt and completion tokens.
        usages: How many frames (or whole answers) carried a usage; libraries that add would count each.
        extension: The `_anoman` block, where the client lets one see it.
        errors: Names of the exception's class and of those above it: what the client's users can catch.
        left: Whether it cancelled, and came out of that without a surprise.
    """

    text: str = ""
    finish: str | None = None
    usage: tuple[int, int] | None = None
    usages: int = 0
    tool: tuple[str, str] | None = None
    extension: dict[str, Any] | None = None
    errors: list[str] = field(default_factory=list)
    status: int | None = None
    code: str | None = None
    left: bool = False


@dataclass(frozen=True, slots=True)
class Client:
    """
    A way to talk to the gateway.

    Attributes:
        ask: None for those that the Node process asks.
        errors: What its users catch for each fault.
        finish: How it spells the end of an answer and of one that is a tool call.
        counts_usages: Whether it lets one see every frame's usage, instead of a total only.
        shows_extension: Whether `_anoman` can be got at.
        shows_code: Whether its exceptions have the gateway's code.
        obeys_should_retry: Whether `x-should-retry: false` stops it.
    """

    name: str
    dialect: Dialect
    ask: Callable[[Ask], Awaitable[Outcome]] | None
    errors: Mapping[Fault, str]
    finish: tuple[str, str]
    counts_usages: bool = True
    shows_extension: bool = True
    shows_code: bool = True
    obeys_should_retry: bool = True
