"""The verdict as a table for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .conductor import Soaked
from .records import Told
from .rest import judge_rest
from .verdict import Verdict, judge

_SHOWN = 40  # offences; the rest is counted


def verdict_on(soaked: Soaked) -> Verdict:
    """The books, what was left behind, and how the processes behaved."""
    verdict = judge(soaked.evidence)
    judge_rest(soaked.rest, verdict)
    for problem in soaked.problems:
        verdict.blame("process", "-", problem)
    verdict.figures["seconds"] = round(soaked.took_s, 1)
    verdict.figures["done to the service"] = ", ".join(
        f"{kind} {len(took)} (each {sum(took) / len(took):.1f} s)" for kind, took in soaked.done_s.items()
    )
    verdict.figures["answers"] = _counted(_kind(told) for told in soaked.evidence.told)
    return verdict


def rendered(title: str, verdict: Verdict) -> str:
    """Figures, then offences."""
    lines = [title, ""]
    lines += [f"  {name:<42} {value}" for name, value in verdict.figures.items()]
    rules = _counted(offence.rule for offence in verdict.offences)
    lines += ["", f"  offences: {len(verdict.offences)} {rules}".rstrip()]
    lines += [f"    {offence}" for offence in verdict.offences[:_SHOWN]]
    return "\n".join(lines)


def _kind(told: Told) -> str:
    return f"{told.seen} {told.code or told.status}" if told.seen in ("refused", "broken") else told.seen


def _counted(names: Iterable[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in Counter(names).most_common())
