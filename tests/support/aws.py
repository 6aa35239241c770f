"""What AWS does with a signed request: signs it again by its own guide, and compares. Nothing here is the gateway's."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime

AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<day>\d{8})/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request, "
    r"SignedHeaders=(?P<names>[^,]+), Signature=(?P<signature>[0-9a-f]{64})"
)
WINDOW_S = 300  # AWS refuses what is older, or newer


def signature_problem(
    target: str, headers: Mapping[str, str], body: bytes, secrets: Mapping[str, str], region: str
) -> str | None:
    """
    Why AWS would refuse a POST to Bedrock, None where it would not.

    Args:
        target: The path as it came.
        headers: Names in lower case.
        secrets: Secret keys by the ids of their keys.
    """
    found = AUTHORIZATION.fullmatch(headers.get("authorization", ""))
    if found is None:
        return "no signature"
    scope = (found["day"], found["region"], found["service"], "aws4_request")
    if found["key"] not in secrets or scope[1:3] != (region, "bedrock"):
        return "another account, region or service"
    sent_at = datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    if abs((datetime.now(UTC) - sent_at).total_seconds()) > WINDOW_S or headers["x-amz-date"][:8] != found["day"]:
        return "expired"
    names = found["names"].split(";")
    wanted = {"host", "x-amz-date"} | ({"x-amz-security-token"} & headers.keys())
    if names != sorted(names) or not wanted <= set(names):
        return "headers that are not signed"
    canonical = ["POST", _quoted(target), "", *(f"{name}:{headers[name].strip()}" for name in names), ""]
    canonical += [found["names"], hashlib.sha256(body).hexdigest()]
    digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    to_sign = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], "/".join(scope), digest])
    key = b"AWS4" + secrets[found["key"]].encode()
    for part in (*scope, to_sign):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return None if hmac.compare_digest(key.hex(), found["signature"]) else "another signature"


def _quoted(path: str) -> str:
    """*path* with every byte but RFC 3986's unreserved ones and slashes as `%XX`."""
    return "".join(
        char if re.fullmatch(r"[A-Za-z0-9/._~-]", char) else "".join(f"%{byte:02X}" for byte in char.encode())
        for char in path
    )
