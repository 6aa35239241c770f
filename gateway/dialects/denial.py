"""What is told of an answer that calls a tool which is denied."""

from __future__ import annotations

import re

from gateway.core.errors import TOOL_DENIED, Failure
from gateway.guards.ruling import Denied, Tool

UNREAD = Denied("it cannot be read")
_WORD = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")  # what all providers take for a name: it is told, and nothing else


def denial(tool: Tool | None, denied: Denied, place: str | None = None) -> Failure:
    """What ends an answer that calls a *tool* that was *denied*."""
    name = tool.names[0] if tool is not None and _WORD.fullmatch(tool.names[0]) else None
    what = f"The tool {name} that the answer calls" if name else "A tool that the answer calls"
    message = f"{what} is not allowed: {denied.reason}."
    return Failure(
        "policy_stop", "tool_denied", TOOL_DENIED, retryable=False, counts=False, public_message=message, param=place
    )
