"""Servers that the contract tests share."""

from tests.contract.databases import database, tabled, url
from tests.support.postgres import postgres

__all__ = ["database", "postgres", "tabled", "url"]
