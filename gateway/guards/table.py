"""The guards there are: a row for each, and what makes its engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from gateway.core.guarding import Engine, GuardName
from gateway.guards.content import lexicon as content_kinds
from gateway.guards.content.engine import ContentEngine
from gateway.guards.credentials import CredentialsEngine
from gateway.guards.credentials import kinds as credential_kinds
from gateway.guards.injection import InjectionEngine
from gateway.guards.injection import engine as injection_kinds
from gateway.guards.pii import PiiEngine
from gateway.guards.pii import kinds as pii_kinds

ENGINES: Mapping[GuardName, Callable[[], Engine]] = {
    "injection": InjectionEngine,
    "pii": PiiEngine,
    "content": ContentEngine,
    "credentials": CredentialsEngine,
}
"""How each engine is made. Making one may take a tenth of a second: patterns are compiled and weights read then."""

KINDS: Mapping[str, Collection[str]] = {
    "injection": injection_kinds.KINDS,
    "pii": pii_kinds.KINDS,
    "content": content_kinds.KINDS,
    "credentials": credential_kinds.KINDS,
}
"""What the findings of each guard may be of. What a provider's moderation says is the provider's."""


def make_engines() -> Mapping[GuardName, Engine]:
    """An engine of each guard, in the order in which verdicts are told."""
    return {name: make() for name, make in ENGINES.items()}
