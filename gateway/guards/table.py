"""The guards there are: a row for each, and what makes its engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.core.guarding import Engine, GuardName
from gateway.guards.content.engine import ContentEngine
from gateway.guards.credentials import CredentialsEngine
from gateway.guards.injection import InjectionEngine
from gateway.guards.pii import PiiEngine

ENGINES: Mapping[GuardName, Callable[[], Engine]] = {
    "injection": InjectionEngine,
    "pii": PiiEngine,
    "content": ContentEngine,
    "credentials": CredentialsEngine,
}
"""How each engine is made. Making one may take a tenth of a second: patterns are compiled and weights read then."""


def make_engines() -> Mapping[GuardName, Engine]:
    """An engine of each guard, in the order in which verdicts are told."""
    return {name: make() for name, make in ENGINES.items()}
