"""Provider sentences made fit for a client: what the caller did wrong stays, where and as whom we called does not."""

from __future__ import annotations

import re

MAX_PUBLIC_CHARS = 500
_RAW_CHARS = 4_000  # looked at before scrubbing, so that a huge message costs little

# Each pattern is bounded or starts where a run of its characters does, so a hostile message cannot make it quadratic.
_SECRETS = re.compile(
    r"""
      \b[a-z][a-z0-9+.-]{1,20}://[^\s"'<>]*                                # URLs
    | \b(?:sk|pk|rk|xai|gsk|anm)[-_][\w*.-]{2,}                            # keys by prefix
    | \b(?:key|org|proj|req|acct|user|asst)[-_](?=[\w*.-]{0,64}(?:[\d*]|(?-i:[A-Z])))[\w*.-]{2,}  # ids; not user_name
    | \b(?:AKIA|AIza)[\w-]{8,}
    | \bBearer\s+\S+
    | (?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?![\d.]*\d)           # IPv4
    | (?<![\w:])(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}(?![\w:])                # IPv6 in full
    | (?<![\w:])(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6})?::                # IPv6 with `::`
      (?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6}(?:\.\d{1,3}){0,3})?(?!\w)
    | [\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{1,64}                              # e-mail addresses
    | (?<![\w.-])(?!(?:messages|tools?|metadata|system|content|input|functions?|response_format)[.\[])  # but paths
      (?:[a-z0-9](?:[a-z0-9-]{0,62})\.){1,8}                               # host names
      (?:com|net|org|io|ai|dev|app|cloud|internal|local|localdomain|lan|svc|id|sg|co)\b(?::\d{1,5})?
    | \blocalhost(?::\d{1,5})?
    | (?<![\w-])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{32,}                   # long mixed tokens: digests and keys
    """,
    re.VERBOSE | re.IGNORECASE,
)


def scrub(text: str) -> str:
    """*text* without URLs, hosts, addresses, keys and ids, on one line, at most `MAX_PUBLIC_CHARS` long."""
    if len(text) > _RAW_CHARS:
        text = text[:_RAW_CHARS].rpartition(" ")[0]  # half a key would not be recognised
    shown = _SECRETS.sub("[removed]", text)
    shown = " ".join(part for part in re.split(r"[\x00-\x20\x7f-\x9f\u2028\u2029\ud800-\udfff]+", shown) if part)
    return shown[:MAX_PUBLIC_CHARS]
