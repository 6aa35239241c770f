"""One receipt, and its renderings."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict, fields

from gateway.core.catalog import Provider
from gateway.core.guarding import Verdict
from gateway.core.money import parse_weight
from gateway.core.receipt import Receipt, Row, extension, precall_extension, row_of
from gateway.core.usage import Usage
from tests.unit.receipts import receipt

USAGE = Usage(101, 102, cached_tokens=103, cache_write_tokens=104, reasoning_tokens=105)


def told_apart() -> Receipt:
    """A receipt no two of whose facts are equal, so that none can stand in another's place."""
    facts: dict[str, Any] = {field.name: field.name for field in fields(Receipt)}
    attempts = (("a", "m/1", "failed"), ("b", "m", "ok"))
    parts = (("a", "m/1", USAGE),)
    verdicts = {"pii": Verdict("redact", 1.0, {"nik": 2}, "user")}
    rendered = {"attempts": attempts, "usage": USAGE, "cost_nano_usd": 7, "parts": parts, "verdicts": verdicts}
    return receipt(**facts | rendered)


def test_row_is_the_receipt() -> None:
    """Every field of the row is the receipt's fact of that name; tokens, cost and attempts are rendered."""
    settled = told_apart()

    row = asdict(row_of(settled))

    rendered = {
        "attempts": ("a/m/1:failed", "b/m:ok"),
        "cost_usd": "0.000000007",
        "continued": True,
        "guards": ("pii: pass redacted 2 entities",),
        "parts": (f"a/m/1:{USAGE.prompt_tokens}+{USAGE.completion_tokens}",),
        **{name: getattr(USAGE, name) for name in asdict(USAGE)},
    }
    assert row == {name: rendered.get(name, name) for name in row}
    assert [field.name for field in fields(Row)][-5:] == ["session_id", "agent_id", "user", "source", "guards"]


def test_extension_begins_as_announced() -> None:
    """What a stream tells before its first token is what its end repeats, but for the cache."""
    provider = Provider("p", "openai_chat", "https://x", "cloud_direct", "us", parse_weight("1"), None)

    before = precall_extension(provider, "ID")
    after = extension(receipt(provider_type="cloud_direct", provider_region="US", region="ID"))

    assert before["routing"] == {
        "mode": "realtime", "region": "id", "provider_type": "cloud_direct", "provider_region": "US",
    }  # fmt: skip
    assert {name: after[name] for name in before} == {**before, "cache": {"hit": True, "type": "provider"}}
    assert list(after)[:3] == list(before)
