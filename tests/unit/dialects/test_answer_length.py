"""How long an answer may get, by what its call says."""

from __future__ import annotations

import pytest

from gateway.core.call import CallOptions
from gateway.dialects.answer_length import answer_bound, answers_asked, bound_name
from gateway.dialects.openai_chat import read_call


@pytest.mark.parametrize(
    ("members", "bound", "name"),
    [
        (b"", None, "max_tokens"),
        (b',"max_tokens":null', None, "max_tokens"),
        (b',"max_tokens":5', 5, "max_tokens"),
        (b',"max_completion_tokens":5', 5, "max_completion_tokens"),
        (b',"max_tokens":1,"max_completion_tokens":900', 900, "max_completion_tokens"),
        (b',"max_tokens":900,"max_completion_tokens":1', 900, "max_tokens"),
        (b',"max_tokens":5,"max_completion_tokens":null', 5, "max_tokens"),
    ],
)
def test_the_bound(members: bytes, bound: int | None, name: str) -> None:
    """Of two limits the larger counts, whichever the provider goes by: less might be held than the call comes to."""
    call = read_call(b'{"model":"m","messages":[{"role":"user","content":"Hi"}]%b}' % members, CallOptions(), ())

    assert (answer_bound(call), bound_name(call)) == (bound, name)


@pytest.mark.parametrize(("members", "count"), [(b"", 1), (b',"n":null', 1), (b',"n":3', 3)])
def test_the_answers(members: bytes, count: int) -> None:
    """One, unless the call asks for more."""
    call = read_call(b'{"model":"m","messages":[{"role":"user","content":"Hi"}]%b}' % members, CallOptions(), ())

    assert answers_asked(call) == count
