"""What the admin API says of a field that does not fit."""

from __future__ import annotations

import pytest

from gateway.core.errors import GatewayError
from gateway.http.admin.bodies import read_as
from gateway.http.admin.forms import NewKey


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"budgets": [{"scope": "key", "period": "day", "limit_usd": 1}]},
            "budgets[0].limit_usd: this is a whole number where a text is expected.",
        ),
        (
            {"budgets": [{"scope": "key", "period": "day", "usd": "1"}]},
            "budgets[0].usd: is not a field of this request; its name is limit_usd.",
        ),
        ({"tier": []}, "tier: this is a list where a text or null is expected."),
    ],
)
def test_messages(fields: dict[str, object], message: str) -> None:
    """A field of another kind, or of the file's name, is told in words, without those of a library."""
    with pytest.raises(GatewayError) as refused:
        read_as(NewKey, fields)

    assert refused.value.message == message
