"""Every dialect by name."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.core.catalog import DialectName
from gateway.dialects.anthropic_messages import ANTHROPIC_MESSAGES
from gateway.dialects.base import Dialect
from gateway.dialects.openai_chat import OPENAI_CHAT

DIALECTS: Mapping[DialectName, Dialect] = {row.name: row for row in (OPENAI_CHAT, ANTHROPIC_MESSAGES)}
