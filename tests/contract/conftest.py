"""Servers that the contract tests share."""

from tests.contract.databases import database, tabled, url
from tests.support.postgres import postgres
from tests.support.redis import redis, shared_redis

__all__ = ["database", "postgres", "redis", "shared_redis", "tabled", "url"]
