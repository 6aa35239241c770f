"""A fake Amazon Bedrock for wire tests: checks signatures as AWS does, and says what a model of it says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.acts import Answer, Script, head, status
from tests.support.aws import signature_problem
from tests.support.eventstream import CONTENT_TYPE, event
from tests.support.stage import Seen

HEAD = head(CONTENT_TYPE)
START = event("messageStart", {"role": "assistant"})


def text(piece: str, index: int = 0) -> bytes:
    """A piece of text."""
    return event("contentBlockDelta", {"contentBlockIndex": index, "delta": {"text": piece}, "p": "abcd"})


def begins(call_id: str, name: str, index: int = 0) -> bytes:
    """The model begins to call a tool."""
    return event(
        "contentBlockStart", {"contentBlockIndex": index, "start": {"toolUse": {"toolUseId": call_id, "name": name}}}
    )


def argues(piece: str, index: int = 0) -> bytes:
    """A piece of a call's arguments."""
    return event("contentBlockDelta", {"contentBlockIndex": index, "delta": {"toolUse": {"input": piece}}})


def closes(index: int = 0) -> bytes:
    """The end of a block."""
    return event("contentBlockStop", {"contentBlockIndex": index})


def stop(reason: str = "end_turn") -> bytes:
    """How the model stopped."""
    return event("messageStop", {"stopReason": reason})


def usage(prompt: int, completion: int, **cached: int) -> dict[str, int]:
    """Token counts; *prompt* without what was cached."""
    total = prompt + completion + sum(cached.values())
    return {"inputTokens": prompt, "outputTokens": completion, "totalTokens": total, **cached}


def metadata(prompt: int, completion: int, **cached: int) -> bytes:
    """The last event of a stream."""
    return event("metadata", {"usage": usage(prompt, completion, **cached), "metrics": {"latencyMs": 9}})


def converse(content: Sequence[dict[str, Any]], reason: str, counts: dict[str, int]) -> Script:
    """A whole answer."""
    message = {"role": "assistant", "content": list(content)}
    return [
        status(
            200,
            (),
            {"output": {"message": message}, "stopReason": reason, "usage": counts, "metrics": {"latencyMs": 9}},
        )
    ]


def refusal(code: int, kind: str, message: str) -> Script:
    """An exception as an answer."""
    return [status(code, {"x-amzn-errortype": f"{kind}:http://internal.amazon.com/coral/"}, {"message": message})]


def signed(answer: Script, secrets: dict[str, str], region: str) -> Answer:
    """*answer*, to a request that AWS would take; to any other what AWS says to such."""

    def judge(seen: Seen) -> Script:
        problem = signature_problem(seen.target, dict(seen.headers), seen.body, secrets, region)
        return answer if problem is None else refusal(403, "InvalidSignatureException", problem)

    return judge
