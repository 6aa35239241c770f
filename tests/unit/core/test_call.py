"""Facts of a call."""

from __future__ import annotations

import pytest
from msgspec import Raw

from gateway.core.call import Call, CallOptions, tool_members


@pytest.mark.parametrize(
    ("fields", "members"),
    [
        ({}, ()),
        ({"tools": b"null", "functions": b"[]"}, ()),
        ({"tools": b"[ \t\r\n ]"}, ()),
        ({"tools": b"[{}]"}, ("tools",)),
        ({"tools": b"[]", "functions": b"[ {} ]"}, ("functions",)),
        ({"functions": b"[{}]", "tools": b"[0]"}, ("tools", "functions")),
    ],
)
def test_tools(fields: dict[str, bytes], members: tuple[str, ...]) -> None:
    """A call has tools by a list that is not empty, however that is spaced, under their name or the older one."""
    raw = {name: Raw(value) for name, value in fields.items()}
    call = Call("openai_chat", raw, "m", stream=False, options=CallOptions())

    assert tool_members(call) == members
