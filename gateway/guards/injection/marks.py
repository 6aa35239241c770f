"""
What stands between words and means something: turns of a conversation, addresses, commands, hiding places, quotes.

Each is put into words of our own (`xturnx`), which the lexicon of concepts then knows like any other. A stranger who
writes them gains nothing but suspicion.
"""

from __future__ import annotations

import re

import re2

_ROLE = r"(?:system|sistem|developer|admin(?:istrator)?|root|operator)"
_SAYS = r"(?:[ _-](?:message|prompt|note|notice|update|override|instructions?|command|alert|pesan|catatan))?"
_NAMED = r"(?:pesan |catatan |instruksi )?" + _ROLE + _SAYS
_ENDED = "user|assistant|human|context|document|data|input|query|prompt|instructions|pengguna|asisten|dokumen"
_KINDS = {
    "setup": (
        r"<\|(?:im_start|start_header_id|start|header)?\|?>?\s*" + _ROLE,
        r"<<\s*/?sys\s*>>|\[\s*/?inst\s*\]",
        r"<\s*/?\s*" + _ROLE + _SAYS + r"\s*>",
        r"[\[({]\s*/?" + _NAMED + r"\s*[\])}]",
        r"(?:^|\n|[.!?]\s)[\s#*>=-]*" + _NAMED + r"\s*:",
        r"(?:^|\n)[`#=*-]{2,}\s*(?:new )?(?:instructions?|instruksi|" + _ROLE + r")(?: baru| update)?\b",
        r"\"?role\"?\s*[:=]\s*[\"']?" + _ROLE,
    ),
    "turn": (
        r"<\|[a-z_]{2,20}\|>",
        r"<\s*/\s*(?:" + _ENDED + r")\s*>",
        r"(?:^|\n)[\s#*>-]*(?:assistant|user|human|ai|asisten|pengguna|response|jawaban)\s*:",
        r"\b(?:end of|akhir)(?: the)? (?:user |system |masukan |new |data |dokumen )?"
        r"(?:input|prompt|instructions?|query|context|masukan|pengguna|konteks|instruksi)\b",
        r"\b(?:begin|awal)(?: of)? (?:new |the )?(?:prompt|instructions?|instruksi) (?:baru)?",
    ),
    "image": (r"!\[[^\]\n]{0,80}\]\s?\(\s?https?://", r"<img[^>\n]{0,60}https?://"),
    "mailto": (r"[a-z0-9._%+-]{1,64}@[a-z0-9-]{1,63}\.[a-z0-9.-]{2,64}",),
    "link": (
        r"https?://[^\s\"'<>)\]]{1,300}",
        r"\b(?:[a-z0-9-]{1,63}\.){1,4}(?:com|net|org|io|example|xyz|co\.id|ru|info|site|online)\b"
        r"(?:/[^\s\"'<>)\]]{0,300})?",
    ),
    "option": (r"(?:^|[\s\"'`(])--[a-z][a-z-]{1,40}",),
    "number": (r"\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b",),
    "danger": (
        r"\brm -[rf]{2}|\|\s*(?:ba|z)?sh\b|\bcurl (?:-[a-z]+ )*https?://|\bwget https?://|\bsudo \w",
        r"\bdrop table\b|\bchmod \+x|\bchmod [0-7]{3}|\beval\(|\bnc -|\bos\.system\(",
    ),
    "keyfile": (
        r"~?/?\.ssh\b|\bid_rsa\b|(?:^|[\s/~\"'`(])\.env\b|/etc/(?:passwd|shadow)",
        r"\.aws/credentials|\b[a-z_]*(?:api|secret)_key\b|\bauthorized_keys\b",
    ),
    "comment": (r"<!--|/\*|\{#|\{%",),
    "unseen": (
        r"display\s?:\s?none|font-size\s?:\s?0|visibility\s?:\s?hidden|color\s?:\s?(?:white|#fff)",
        r"\[hidden\]|\[tersembunyi\]",
    ),
}
_MARKED = re2.compile("|".join(f"(?P<{name}>{'|'.join(patterns)})" for name, patterns in _KINDS.items()))
_WORDS = {name: f" x{name}x " for name in _KINDS}
_SIGNS = frozenset("<>@[]{}/|:#*_")
_SIGN_WORDS = ("--", "rm -", "nc -", "chmod", "end of", "akhir", "begin", "awal", "sudo", "drop")

# The standard library's are used where what may repeat is bounded and stops at its own end: they cannot backtrack.
_QUOTED = re.compile(r"\"([^\"\n]{3,280})\"|`{1,3}([^`]{3,280})`{1,3}|(?<![a-z])'([^'\n]{3,280})'(?![a-z])")
_JSON = re.compile(r"\"\s?:|\\\"")

OPENED, CLOSED, ENDED = "xquotex", "xunquotex", "xendx"


def worded(text: str) -> str:
    """*text*, in lower case, with words for the marks in it."""
    if not _may_be_marked(text):
        return text
    return str(_MARKED.sub(lambda found: _WORDS[found.lastgroup], text))


def _may_be_marked(text: str) -> bool:
    """Whether to look at *text* at all: most sentences have nothing that a mark begins with."""
    if not _SIGNS.isdisjoint(text) or "." in text.rstrip()[:-1]:
        return True
    return any(word in text for word in _SIGN_WORDS)


def ended(text: str) -> str:
    """*text* with a word for the end of each sentence but the last."""
    for mark in (". ", "! ", "? ", ".\n"):
        if mark in text:
            text = text.replace(mark, f" {ENDED} ")
    return text


def quoted(text: str) -> str:
    """*text* with words around what it quotes, unless it is nothing but one quote, or an object's members."""
    if ('"' not in text and "'" not in text and "`" not in text) or _JSON.search(text):
        return text
    return _QUOTED.sub(lambda found: f" {OPENED} {found[1] or found[2] or found[3]} {CLOSED} ", text)
