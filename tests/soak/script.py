"""What a simulated customer has the fake provider do: a note in the prompt's text, which every gateway forwards."""

from __future__ import annotations

import re
from dataclasses import dataclass

import toktok

ENCODING = "o200k_base"  # the vocabulary that the gateway counts with
_PER_MESSAGE = 4  # role and separators, by OpenAI's published counting recipe; the gateway's estimate has them too
_NO_LIMIT = 1 << 40

# A token each, alone and in a row, so that an answer has as many tokens as events however it is cut.
WORDS = (
    " alpha", " river", " stone", " garden", " window", " market",
    " paper", " silver", " morning", " yellow", " bridge", " table",
)  # fmt: skip

_NOTE = re.compile(rb"\[\[soak (\S+) t=(\d+) i=(\d+) w=(\d+) p=(\d+) c=(\d+) f=(\d+) a=([a-z0-9,]+)\]\]")


@dataclass(frozen=True, slots=True)
class Script:
    """
    How one call is to be answered.

    Attributes:
        marker: Names the call in all books; also its `user`.
        tokens: Of the answer in the gateway's vocabulary: one for each event of a stream.
        interval_ms: Between two of them.
        wait_ms: Before the first byte.
        prompt: Tokens of the prompt by the provider's own count.
        cached: How many of them it takes from its cache.
        percent: The model's tokens for a hundred of the vocabulary's.
        acts: What happens to each attempt in turn, the last one again and again: `ok`; `s503` and other statuses;
            `drop` (closed before the head), `mid3` (after three tokens), `fin` (after the last token), `use` (before
            the usage), `end` (before the terminator).
    """

    marker: str
    tokens: int = 4
    interval_ms: int = 0
    wait_ms: int = 0
    prompt: int = 0
    cached: int = 0
    percent: int = 100
    acts: tuple[str, ...] = ("ok",)

    def note(self) -> str:
        """The text to put into a prompt. Its own tokens do not depend on how many it says that the prompt has."""
        return (
            f"[[soak {self.marker} t={self.tokens} i={self.interval_ms} w={self.wait_ms} p={self.prompt:04} "
            f"c={self.cached:04} f={self.percent} a={','.join(self.acts)}]]"
        )

    def act(self, attempt: int) -> str:
        """What becomes of the attempt with that number, from 0."""
        return self.acts[min(attempt, len(self.acts) - 1)]

    def counted(self, events: int) -> int:
        """Tokens of the answer's first *events*, as the model counts."""
        return round(events * self.percent / 100)

    def events(self, tokens: int) -> int:
        """How many of the answer's events come to no more than *tokens*."""
        return int((tokens + 0.5) * 100 / self.percent)

    def words(self, begin: int = 0, end: int | None = None) -> list[str]:
        """Events *begin* to *end* of the answer; where an answer starts in `WORDS` depends on its marker."""
        first = sum(self.marker.encode())
        return [WORDS[(first + at) % len(WORDS)] for at in range(begin, self.tokens if end is None else end)]


def script_of(body: bytes) -> Script | None:
    """The script in a request's body."""
    found = _NOTE.search(body)
    if found is None:
        return None
    marker, *numbers, acts = found.groups()
    return Script(marker.decode(), *map(int, numbers), tuple(acts.decode().split(",")))


def count_prompt(texts: list[str], percent: int = 100) -> int:
    """Tokens of a prompt of *texts* as the gateway estimates them."""
    plain = sum(int(toktok.truncate(text, _NO_LIMIT, ENCODING)[1]) + _PER_MESSAGE for text in texts)
    return round(plain * percent / 100)
