"""Provider sentences made fit for a client: what the caller did wrong stays, where and as whom we called does not."""

from __future__ import annotations

import re

MAX_PUBLIC_CHARS = 500
_RAW_CHARS = 4_000  # looked at before scrubbing, so that a huge message costs little

# Each pattern is linear: no nested repetition, so a hostile message cannot make it backtrack.
_SECRETS = re.compile(
    r"""
      \b[a-z][a-z0-9+.-]{1,20}://[^\s"'<>]*                                # URLs
    | \b(?:sk|pk|rk|xai|gsk|anm|key|org|proj|req|acct|user|asst|AKIA|AIza)[-_][\w*.-]{2,}  # keys and ids by prefix
    | \b(?:AKIA|AIza)[\w-]{8,}
    | \bBearer\s+\S+
    | \b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b                             # IPv4
    | \[?\b[0-9a-f]{0,4}:(?:[0-9a-f]{0,4}:){1,6}[0-9a-f]{0,4}\b\]?(?::\d{1,5})?          # IPv6
    | \b(?:[a-z0-9](?:[a-z0-9-]{0,62})\.){1,8}
      (?:com|net|org|io|ai|dev|app|cloud|internal|local|localdomain|lan|svc|id|sg|co)\b(?::\d{1,5})?  # host names
    | \blocalhost(?::\d{1,5})?
    | [\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{1,64}                              # e-mail addresses
    | \b(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{32,}\b                         # long mixed tokens: digests and keys
    """,
    re.VERBOSE | re.IGNORECASE,
)


def scrub(text: str) -> str:
    """*text* without URLs, hosts, addresses, keys and ids, on one line, at most `MAX_PUBLIC_CHARS` long."""
    shown = _SECRETS.sub("[removed]", text[:_RAW_CHARS])
    shown = " ".join(part for part in re.split(r"[\x00-\x20\x7f-\x9f\u2028\u2029\ud800-\udfff]+", shown) if part)
    return shown[:MAX_PUBLIC_CHARS]
