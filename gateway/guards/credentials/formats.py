"""Keys and tokens by the formats that their issuers publish: a row for each.

A row's seed is what a first look at the whole text searches for, its shape what a close look reads there. Each shape is
decided by at most 64 characters, so that a stream can hold back what is needed to tell: where keys are longer, the rest
is read on. Shapes begin with characters that are searched for, and take no character twice.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from typing import NamedTuple

from gateway.core.credentials import is_well_formed
from gateway.guards.credentials.entropy import is_dummy, is_random

Score = Callable[[str], float]
_WORD = r"(?:^|[^0-9A-Za-z])"


class Format(NamedTuple):
    """
    What a credential looks like.

    Attributes:
        kind: Its name among the guard's kinds.
        seed: For RE2, somewhere in every text that has one.
        shape: What it is, as a whole or its first group.
        score: How sure it is, of the text of it; 0 for none.
        reason: What that goes by.
    """

    kind: str
    seed: str
    shape: re.Pattern[str]
    score: Score
    reason: str


def _drawn(least: float = 3.0, score: float = 0.9) -> Score:
    return lambda value: score if is_random(value, least) else 0


def _row(kind: str, prefix: str, body: str, rest: str = "", score: Score | None = None) -> Format:
    """
    A key of *prefix*, which cannot stand inside a word, *body* and *rest*.

    Args:
        prefix: A pattern of a fixed length: behind it, it is looked what stands in front.
        body: What tells that it is a key, also to RE2.
        rest: How it goes on or ends.
    """
    width = len(re.sub(r"\[[^\]]*\]|\\.", "x", prefix))
    shape = re.compile(rf"{prefix}(?<![0-9A-Za-z_].{{{width}}})(?<![0-9A-Za-z]-.{{{width}}}){body}{rest}", re.DOTALL)
    return Format(kind, _WORD + prefix + body, shape, score or _drawn(), "its prefix, length and alphabet, and chance")


_END = "(?![0-9A-Za-z_])"
_64 = "[0-9A-Za-z_-]"  # base64 for URLs
_62 = "[0-9A-Za-z]"


def _checked(value: str) -> float:
    return 1.0 if is_well_formed(value) else 0


def _by_checksum(value: str) -> float:
    # Six digits of base 62 for the CRC of the 30 characters before. Issuers do not say what exactly goes into it, so a
    # value without it is one all the same.
    if not is_random(value.partition("_")[2]):
        return 0
    return 1.0 if len(value) == 40 and _base62(value[-6:]) == binascii.crc32(value[4:-6].encode()) else 0.9


def _base62(digits: str) -> int:
    number = 0
    for digit in digits:
        order = ord(digit)
        number = number * 62 + order - (48 if order < 58 else 55 if order < 91 else 61)
    return number


def _web_token(value: str) -> float:
    """A JSON web token: what its beginning stands for is a header, which says how it is signed."""
    try:
        head = binascii.a2b_base64(value[:16].replace("-", "+").replace("_", "/"))
    except binascii.Error:
        return 0
    if re.match(rb'\{\s?"(?:alg|typ|kid|enc|cty|jku|jwk|x5[a-z]|zip|crit)', head) is None:
        return 0
    return 0.95 if value.count(".") >= 2 else 0.6


def _letters(value: str) -> float:
    return 0.9 if not is_dummy(value) and len(set(value)) >= 12 else 0


_MORE_64 = f"{_64}*+"
_MORE_62 = f"{_62}*+"

FORMATS: tuple[Format, ...] = (
    _row("gateway_key", "anm-[sa]k-", f"{_62}{{49}}", _END, _checked),
    _row("provider_key", "sk-", f"(?:ant-|proj-|svcacct-|admin-|or-v1-)?{_64}{{20}}", _MORE_64),
    _row("provider_key", "gsk_", f"{_62}{{40}}", _MORE_62),
    _row("provider_key", "xai-", f"{_62}{{40}}", _MORE_62),
    _row("aws_key", "A[KS]IA", "[A-Z2-7]{16}", _END, _drawn(2.5)),
    _row("github_token", "gh[pousr]_", f"{_62}{{36}}", "[0-9A-Za-z_]*+", _by_checksum),
    _row("github_token", "github_pat_", f"{_62}{{22}}_{_62}{{20}}", "[0-9A-Za-z_]*+"),
    _row("gitlab_token", "gl[a-z]", f"(?:at|t|tt|bt|oat)-{_64}{{20}}", _MORE_64),
    _row("slack_token", "xox[a-z]-", "[0-9A-Za-z-]{15}", "[0-9A-Za-z-]*+"),
    _row("slack_token", "xapp-", "[0-9]-[0-9A-Z]{9,12}-[0-9A-Za-z-]{12}", "[0-9A-Za-z-]*+"),
    _row("stripe_key", "[sr]k_live_", f"{_62}{{16}}", _MORE_62),
    _row("stripe_key", "whsec_", f"{_62}{{30}}", _MORE_62),
    _row("google_key", "AIza", f"{_64}{{35}}", "(?![0-9A-Za-z_-])"),
    _row("sendgrid_key", r"SG\.", rf"{_64}{{22}}\.{_64}{{20}}", _MORE_64),
    _row("twilio_key", "SK", "[0-9a-f]{32}", _END),
    _row("npm_token", "npm_", f"{_62}{{36}}", _END, _by_checksum),
    _row("pypi_token", "pypi-", f"AgE{_64}{{30}}", _MORE_64),
    _row("huggingface_token", "hf_", f"{_62}{{30}}", _MORE_62, _letters),
    _row("telegram_token", "[0-9]", "[0-9]{7,9}:AA[0-9A-Za-z_-]{33}", "(?![0-9A-Za-z_-])"),
    _row("jwt", "eyJ", f"{_64}{{13}}", rf"{_MORE_64}(?:\.{_64}*+){{0,4}}+", _web_token),
)
