"""Provider sentences made fit for a client: what the caller did wrong stays, where and as whom we called does not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import urlsplit

from gateway.core.catalog import Provider
from gateway.core.errors import Failure

_TELLING = 16  # the first characters of a key are as good as its name, so a key that was cut is taken out too
MAX_PUBLIC_CHARS = 500
_RAW_CHARS = 4_000  # looked at before scrubbing, so that a huge message costs little

# Each pattern is bounded or starts where a run of its characters does, so a hostile message cannot make it quadratic.
_SECRETS = re.compile(
    r"""
      \b[a-z][a-z0-9+.-]{1,20}://[^\s"'<>]*                                # URLs
    | \b(?:sk|pk|rk|xai|gsk|anm)[-_][\w*.-]{2,}                            # keys by prefix
    | \b(?:key|org|proj|req|acct|user|asst)[-_](?=[\w*.-]{0,64}(?:[\d*]|(?-i:[A-Z])))[\w*.-]{2,}  # ids; not user_name
    | \b(?:AKIA|AIza)[\w-]{8,}
    | \b(?-i:ASIA)[A-Z0-9]{12,}                                            # the word has other letters
    | \barn:aws[^\s"'<>]*                                                   # they hold the number of an account
    | \bBearer\s+\S+
    | (?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?![\d.]*\d)           # IPv4
    | (?<![\w:])(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}(?![\w:])                # IPv6 in full
    | (?<![\w:])(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6})?::                # IPv6 with `::`
      (?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6}(?:\.\d{1,3}){0,3})?(?!\w)
    | [\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{1,64}                              # e-mail addresses
    | (?<![\w.-])(?!(?:messages|tools?|metadata|system|content|input|functions?|response_format)[.\[])  # but paths
      (?:[a-z0-9](?:[a-z0-9-]{0,62})\.){1,8}                               # host names
      (?:com|net|org|io|ai|dev|app|cloud|internal|local|localdomain|lan|corp|home|svc|[a-z]{2})\b(?::\d{1,5})?
    | \b[0-9a-f]{24,}\b                                                    # digests
    | \blocalhost(?::\d{1,5})?
    | \b[a-z][a-z0-9-]{0,62}(?:\.[a-z0-9-]{1,63}){0,8}:\d{2,5}\b           # name:port
    | \bip-\d{1,3}(?:-\d{1,3}){3}\b                                       # names that hold an address
    | (?<![\w-])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{32,}                   # long mixed tokens: digests and keys
    """,
    re.VERBOSE | re.IGNORECASE,
)


# For the log, where hosts and names are wanted: only what could be used as a credential.
_KEYS = re.compile(
    r"\b(?:sk|pk|rk|xai|gsk|anm|AKIA|AIza|(?-i:ASIA(?=[A-Z0-9])))[-_]?[\w-]{12,}|\b(Bearer\s+)[^\s\"']{8,}",
    re.IGNORECASE,
)
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")


def redact(text: str, secrets: Iterable[str]) -> str:
    """*text* for the log: without *secrets*, however JSON may have spelled them, and without what looks like a key."""
    plain = _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), text).replace("\\/", "/")
    for secret in secrets:
        plain = plain.replace(secret, "***").replace(secret[:_TELLING], "***")
    return _KEYS.sub("***", plain)


def hide(body: bytes, provider: Provider) -> bytes:
    """*body* without the credential and the address of *provider*: they are ours, whatever they look like.

    JSON is spelled anew first, so that no escape hides a name from the comparison and shows it to a reader of the text.
    """
    try:
        body = json.dumps(json.loads(body), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        pass  # no JSON: the bytes are the text
    address = urlsplit(provider.base_url)
    cut = [secret[:_TELLING] for secret in provider.secrets]  # words are cut to size, some before they come here
    for name in (address.netloc, address.hostname or "", *provider.secrets, *cut):
        if name:
            for spelled in (name, json.dumps(name, ensure_ascii=False)[1:-1]):
                body = body.replace(spelled.encode(), b"[removed]")
    return body


def discreet(failure: Failure, provider: Provider) -> Failure:
    """*failure*, which *provider* told of inside an answer, with nothing in its public words that `hide` would hide."""
    words = failure.public_message
    if words is None:
        return failure
    return replace(failure, public_message=hide(words.encode("utf-8", "replace"), provider).decode("utf-8", "replace"))


def scrub(text: str) -> str:
    """*text* without URLs, hosts, addresses, keys and ids, on one line, at most `MAX_PUBLIC_CHARS` long."""
    if len(text) > _RAW_CHARS:
        text = text[:_RAW_CHARS].rpartition(" ")[0]  # half a key would not be recognised
    shown = _SECRETS.sub("[removed]", text)
    shown = " ".join(part for part in re.split(r"[\x00-\x20\x7f-\x9f\u2028\u2029\ud800-\udfff]+", shown) if part)
    return shown[:MAX_PUBLIC_CHARS]
