"""Servers that the contract tests share."""

from tests.support.postgres import postgres

__all__ = ["postgres"]
