"""`gateway guard`: what guards say of a text, with their reasons."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

import click

from gateway.commands.configured import config_option, load_or_exit
from gateway.commands.stored import fail
from gateway.commands.words import TextGroup
from gateway.core.guarding import GUARDS, Engine, Finding, GuardName, GuardTerms, Role, Text, never_late
from gateway.core.verdicts import summary
from gateway.guards.table import make_engines
from gateway.policy.guards import Found, Judged, Placeholders, judge
from gateway.settings.policies import rules_of_policy

TOLD = 20  # findings of a guard; of the others there is only the number
_WATCH = GuardTerms("monitor")


@click.group(cls=TextGroup)
def guard() -> None:
    """The guards that read calls."""


@guard.command("try")
@config_option
@click.argument("text")
@click.option("--policy", metavar="NAME", help="A policy of the file; without one every guard looks, and only tells.")
@click.option(
    "--role",
    type=click.Choice(get_args(Role)),
    default="user",
    show_default=True,
    help="Whose words they are; `tool` for what a tool gives back, `definition` for how one is described.",
)
def try_text(config: str | None, text: str, policy: str | None, role: Role) -> None:
    """What every guard says of TEXT, or of standard input where TEXT is a dash, and why."""
    said = Text(sys.stdin.read() if text == "-" else text, role)
    terms = _terms_or_exit(config, policy) if policy is not None else dict.fromkeys(GUARDS, _WATCH)
    click.echo("\n".join(_lines(said, terms, make_engines())))


def _terms_or_exit(config: str | None, policy: str) -> Mapping[GuardName, GuardTerms]:
    policies = load_or_exit(config).policies
    if policy not in policies:
        fail(f"The file has no policy {policy}; it has: {', '.join(policies) or 'none'}.")
    return rules_of_policy(policies[policy]).guards


def _lines(text: Text, terms: Mapping[GuardName, GuardTerms], engines: Mapping[GuardName, Engine]) -> Iterator[str]:
    redacted: list[tuple[Finding, bool]] = []
    for name in GUARDS:
        if name not in engines:
            continue
        if name not in terms:
            yield f"{name}: off"
            continue
        engine, term = engines[name], terms[name]
        findings = engine.scan(text, never_late)
        judged = judge(name, [Found((0, 0), finding) for finding in findings], term, engine.threshold)
        yield f"{name}: {summary(name, judged.verdict)}"
        yield from _reasons(findings, judged, term.threshold_of(engine.threshold))
        if judged.verdict.status == "redact":
            redacted += [(one.finding, term.reversible) for one in judged.counted]
    if redacted:
        yield f"sent: {Placeholders().redact(text.text, redacted)}"


def _reasons(findings: Sequence[Finding], judged: Judged, threshold: float) -> Iterator[str]:
    """What was found, and where, by number of character; what does not count is told as well."""
    counted = {id(one.finding) for one in judged.counted}
    for one in findings[:TOLD]:
        why_not = f"below {threshold:.2f}" if one.score < threshold else "a kind that is not asked for"
        aside = "" if id(one) in counted else f" ({why_not})"
        reason = f": {one.reason}" if one.reason else ""
        yield f"  {one.kind} {one.score:.2f} at {one.start}-{one.end}{reason}{aside}"
    if len(findings) > TOLD:
        yield f"  and {len(findings) - TOLD} more"
