"""Guards as frozen facts: what they look at, what they find, what is to become of it, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, get_args, runtime_checkable

from msgspec import Struct

GuardName = Literal["injection", "pii", "content", "credentials", "moderation"]
GUARDS: tuple[GuardName, ...] = get_args(GuardName)
"""In the order in which they look and are told of."""
MODERATION: GuardName = "moderation"
"""The one whose eyes are elsewhere: a provider is asked, about what would leave, when all others have looked."""
AnswerGuard = Literal["pii", "content", "credentials"]
ANSWER_GUARDS: tuple[AnswerGuard, ...] = get_args(AnswerGuard)
"""Those that can look at answers."""
RESPONSE_CONTENT = "response_content"
"""What guards say of answers goes by this name."""
GuardMode = Literal["off", "monitor", "redact", "block"]
"""From mild to strict. `redact` is for guards whose findings are pieces of a text; others take it for `block`."""
REDACTING: frozenset[GuardName] = frozenset(("pii", "credentials"))
"""Guards whose findings are pieces of a text."""

Status = Literal["off", "pass", "flag", "redact", "block", "error"]
Role = Literal["system", "user", "assistant", "tool", "definition", "answer"]
"""Whose words a text is: `tool` of its results, `definition` of its descriptions, `answer` of what a provider says."""

Check = Callable[[], None]
"""Called by an engine every some thousand characters; raises where its time is over. Costs next to nothing."""


def never_late() -> None:
    """The check of scans that are too short to be late, or that nobody waits for."""


DEADLINE_S = 0.3
GLANCE_CHARS = 64
HOLD_CHARS = 64
HOLD_S = 0.04


class Text(Struct, frozen=True, gc=False):
    """
    A text that a provider would see.

    Attributes:
        place: Where it stands, in the words of the caller's body: `messages[0].content[1].text`.
    """

    text: str
    role: Role = "user"
    place: str = ""


class Finding(Struct, frozen=True, gc=False):
    """
    A piece of a text that a guard looks for, by its place in characters.

    Attributes:
        kind: What it is, in lower case and underscores: `nik`, `email`, `violence`, `override`.
        score: From 0 to 1, how sure the guard is.
        reason: Why, in the guard's own words; never a piece of the text.
    """

    kind: str
    start: int
    end: int
    score: float = 1.0
    reason: str = ""


class Engine(Protocol):
    """
    One guard's eyes: pure, the same for the same text, and linear in its length. No finding depends on other texts.

    Attributes:
        name: Its guard's.
        version: Part of the key by which verdicts are kept: another one finds other things.
        window_chars: On a stream, how many characters may have to be seen behind one that begins a finding, before it
            can be told whether there is one. None where it has no sight of streams.
        threshold: The score from which on a finding counts, where a policy does not say.
    """

    @property
    def name(self) -> GuardName: ...

    @property
    def version(self) -> str: ...

    @property
    def window_chars(self) -> int | None: ...

    @property
    def threshold(self) -> float: ...

    def scan(self, text: Text, check: Check) -> Sequence[Finding]:
        """What is in *text*, in order and without overlaps, whatever its score."""


@runtime_checkable
class Glancing(Protocol):
    """
    An engine that can tell cheaply that there is nothing: streams are glanced at step by step, and looked at where
    something is seen.
    """

    def glance(self, text: str) -> bool:
        """
        Whether *text* has what a finding cannot be without, whatever stands around it; True where that is not sure.

        It is shown all of a text in pieces that overlap by `GLANCE_CHARS`, so nothing that is looked for may be longer.
        What is seen counts for findings that have it, or begin no more than twice as many characters behind it.
        """


class GuardTerms(Struct, frozen=True):
    """
    What a policy wants of one guard.

    Attributes:
        threshold: The score from which on a finding counts; None for the engine's own.
        kinds: The only kinds that count; None for all.
        reversible: With `redact`, the caller gets the originals back where the answer has a placeholder.
        deadline_s: For all texts of a call together.
        or_own: Whether the engine's own threshold counts where it is the lower one: another policy left it at that.
    """

    mode: GuardMode = "off"
    threshold: float | None = None
    kinds: frozenset[str] | None = None
    reversible: bool = False
    deadline_s: float = DEADLINE_S
    or_own: bool = False

    def threshold_of(self, own: float) -> float:
        """The score from which on a finding counts of an engine whose *own* threshold that is."""
        if self.threshold is None:
            return own
        return min(self.threshold, own) if self.or_own else self.threshold

    def counts(self, finding: Finding, own: float) -> bool:
        """Whether *finding* counts, of an engine whose *own* threshold that is."""
        return finding.score >= self.threshold_of(own) and (self.kinds is None or finding.kind in self.kinds)


def effective_mode(name: GuardName, mode: GuardMode) -> GuardMode:
    """What the guard *name* does in *mode*: where nothing can be put in the place of its findings, it blocks."""
    return "block" if mode == "redact" and name not in REDACTING else mode


OFF = GuardTerms()
OPEN = GuardTerms("monitor")
"""Everything that an engine finds by its own threshold."""


class AnswerTerms(Struct, frozen=True):
    """
    What a policy wants of answers (`response_content`): content, credentials and personal data are looked for.

    Attributes:
        hold_chars: The most characters of a stream that are held back at a time.
        hold_s: How long they are, at most, while nothing more comes.
        sights: By guard, whose thresholds and kinds count, of two policies together: those of calls may be of one that
            wants nothing of answers.
    """

    mode: GuardMode = "off"
    guards: frozenset[GuardName] = frozenset(ANSWER_GUARDS)
    hold_chars: int = HOLD_CHARS
    hold_s: float = HOLD_S
    sights: Mapping[GuardName, GuardTerms] = {}


class ArgumentRule(Struct, frozen=True):
    """
    What the arguments of a tool's calls must be like.

    Attributes:
        tool: A glob of the names it is for.
        path: Members down to the value, joined by dots: `order.amount`; `*` for every element of a list or object.
        allow: Globs, one of which the value has to match as text; None for any.
        deny: Globs, none of which it may match.
        required: Whether a call without the value is denied.
    """

    tool: str
    path: str
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    required: bool = False


class ToolTerms(Struct, frozen=True):
    """
    Which tools may be offered and called.

    Attributes:
        allow: Lists of globs; a name has to match one glob of each list.
        deny: Globs; a name that matches one is denied, whatever else allows it.
    """

    allow: tuple[tuple[str, ...], ...] = ()
    deny: tuple[str, ...] = ()
    arguments: tuple[ArgumentRule, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether there is nothing to judge."""
        return not (self.allow or self.deny or self.arguments)


class CallTerms(Struct, frozen=True):
    """
    What a call may be; None for no limit.

    Attributes:
        models: Lists of slugs with an optional `*` at the end; a model has to match one of each list.
        regions: Provider regions, in upper case, one of which has to serve the call.
        max_tokens: The most that a call may ask an answer to be; one that does not say gets this.
        max_prompt_chars: The longest prompt, all its texts together.
        log_bodies: False keeps bodies from being kept, whatever the key says.
    """

    models: tuple[tuple[str, ...], ...] = ()
    classes: frozenset[str] | None = None
    regions: frozenset[str] | None = None
    max_tokens: int | None = None
    max_prompt_chars: int | None = None
    log_bodies: bool | None = None


class Rules(Struct, frozen=True):
    """All that a policy says, or a tenant's and a key's together: the stricter of the two each time."""

    guards: Mapping[GuardName, GuardTerms]
    answers: AnswerTerms = AnswerTerms()
    tools: ToolTerms = ToolTerms()
    calls: CallTerms = CallTerms()

    def sight(self, name: GuardName) -> GuardTerms:
        """By what threshold and kinds the guard *name* looks at answers: as at calls, if one policy alone says so."""
        found = self.answers.sights.get(name) or self.guards.get(name, OFF)
        return OPEN if found.mode == "off" else found


NO_RULES = Rules({})


class Verdict(Struct, frozen=True, gc=False):
    """
    What one guard said of a call, or of its answer.

    Attributes:
        score: The highest of any finding, counted or not; None where nothing was scored.
        findings: How many counted, by kind.
        place: Where the first that counted stands.
    """

    status: Status
    score: float | None = None
    findings: Mapping[str, int] = {}
    place: str = ""
