"""What guards said of a call, as answers, headers, the log and traces tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.core.guarding import Verdict

# In every answer, whether they looked or not; others are told where they did.
ALWAYS_TOLD = ("injection", "pii", "content", "policy", "response_content")
_SCORED = ("injection", "content", "moderation")  # by degrees: what the others find is there or not
_OFF = {"status": "off"}
_ALL_OFF: dict[str, dict[str, Any]] = dict.fromkeys(ALWAYS_TOLD, _OFF)

Verdicts = Mapping[str, Verdict]
"""By the name of the guard; besides guards there are `policy` and `response_content`."""
NO_VERDICTS: Verdicts = {}


def guardrails(verdicts: Verdicts) -> dict[str, dict[str, Any]]:
    """The block `guardrails` of `_anoman`, in the documents' order."""
    if not verdicts:
        return _ALL_OFF
    told = {name: _block(name, verdicts[name]) if name in verdicts else _OFF for name in ALWAYS_TOLD}
    return told | {name: _block(name, verdict) for name, verdict in verdicts.items() if name not in told}


def _block(name: str, verdict: Verdict) -> dict[str, Any]:
    """What was redacted has passed, and is counted."""
    count = sum(verdict.findings.values())
    block: dict[str, Any] = {"status": "pass" if verdict.status == "redact" else verdict.status}
    if name in _SCORED and verdict.score is not None:
        block["score"] = round(verdict.score, 2)
    if verdict.status == "redact":
        block["redacted"] = count
    return block | ({"findings": dict(verdict.findings)} if count else {})


def summary(name: str, verdict: Verdict) -> str:
    """A verdict on one line: `pass score=0.02`, `pass redacted 2 entities`, `flag found 1 entity`, `error`."""
    count = sum(verdict.findings.values())
    entities = "1 entity" if count == 1 else f"{count} entities"
    if verdict.status == "redact":
        return f"pass redacted {entities}"
    if name in _SCORED and verdict.score is not None:
        return f"{verdict.status} score={verdict.score:.2f}"
    return f"{verdict.status} found {entities}" if count else verdict.status


def lines(verdicts: Verdicts) -> tuple[str, ...]:
    """The verdicts as the log has them: `pii: pass redacted 2 entities`."""
    return tuple([f"{name}: {summary(name, verdict)}" for name, verdict in verdicts.items()])


def kept(verdicts: Verdicts) -> Mapping[str, Mapping[str, Any]] | None:
    """The verdicts as traces have them, with the place of the first finding; None where no guard looked."""
    if not verdicts:
        return None
    return {name: _kept(verdict) for name, verdict in verdicts.items()}


def _kept(verdict: Verdict) -> dict[str, Any]:
    facts = {"score": verdict.score, "findings": dict(verdict.findings), "place": verdict.place}
    return {"status": verdict.status, **{name: value for name, value in facts.items() if value not in (None, {}, "")}}
