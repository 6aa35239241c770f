"""What keys are under: their own policy and their tenant's, as one."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, Text, cast, func

from gateway.core.accounts import BadTerms
from gateway.core.guarding import NO_RULES, Rules
from gateway.core.ports import Terms
from gateway.core.strictness import stricter
from gateway.storage.tables import keys, policies, tenants

EVERYBODYS = ""
"""The tenant of policies that are for all."""

own, shared, of_tenant = policies.alias("own"), policies.alias("shared"), policies.alias("of_tenant")

# A key's own policy is its tenant's of that name before everybody's. What the tenant as a whole is under is never its
# own: its managers could change that.
OWN = (own.c.tenant == keys.c.tenant) & (own.c.name == keys.c.policy)
SHARED = (shared.c.tenant == EVERYBODYS) & (shared.c.name == keys.c.policy)
OF_TENANT = (of_tenant.c.tenant == EVERYBODYS) & (of_tenant.c.name == tenants.c.policy)

_MOST = 2_000  # some 10 KB each; beyond, all are read anew


def columns() -> tuple[ColumnElement[Any], ...]:
    """`tenant_policy`, and the texts `policy_rules` and `tenant_policy_rules`: None where the database has none."""
    return (
        tenants.c.policy.label("tenant_policy"),
        func.coalesce(cast(own.c.rules, Text), cast(shared.c.rules, Text)).label("policy_rules"),
        cast(of_tenant.c.rules, Text).label("tenant_policy_rules"),
    )


class KeyRules:
    """
    The rules of keys, by the names and texts of their policies; what was read of late is not read again.

    Args:
        terms: What rules come to, and the policies of the file.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._known: dict[tuple[bytes | str | None, ...], Rules] = {}

    def of(self, row: RowMapping) -> Rules:
        """
        What the key of *row*, which has `columns`, is under.

        Raises:
            BadTerms: A policy that it is under is nowhere, or has rules that this version does not enforce.
        """
        named = ((row["policy"], row["policy_rules"]), (row["tenant_policy"], row["tenant_policy_rules"]))
        mark = tuple([name if text is None else blake2b(text.encode()).digest() for name, text in named])
        found = self._known.get(mark)
        if found is None:
            found = stricter(*(self._read(name, text) for name, text in named))
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[mark] = found
        return found

    def _read(self, name: str | None, text: str | None) -> Rules:
        if name is None:
            return NO_RULES
        if text is None:
            filed = self._terms.filed_policy(name)
            if filed is None:
                raise BadTerms([("policy", f"there is no policy {name}")])
            return filed
        try:
            rules = json.loads(text)
        except (ValueError, RecursionError):  # somebody wrote past us; one key is to suffer for it, and not all
            raise BadTerms([(f"policy {name}", "not JSON")]) from None
        try:
            return self._terms.policy(rules)
        except BadTerms as exc:
            raise BadTerms([(f"policy {name}: {place}", problem) for place, problem in exc.problems]) from None
