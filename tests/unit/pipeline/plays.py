"""What providers do in more than one of these tests."""

from __future__ import annotations

import pytest

from gateway.core.errors import Failure
from tests.support.notation import DONE, FIN, R, T, U
from tests.support.scripted_provider import EOF, JSON, Play, tell

GOOD = tell(R(), T("Hi"), FIN(), U(3, 1), DONE)
COMPLETION = (
    b'{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop",'
    b'"message":{"role":"assistant","content":"Hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}'
)
WHOLE = Play((COMPLETION, EOF), headers=JSON)
HALF = Play((COMPLETION[:40],), headers=JSON)
CONNECT = Failure("upstream_error", "connect")
RESET = Failure("upstream_error", "reset")

STREAM_AND_JSON = pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
