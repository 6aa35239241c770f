"""Servers that the contract tests share."""

from tests.contract.databases import database, url
from tests.support.postgres import postgres

__all__ = ["database", "postgres", "url"]
