"""Every dialect by name: those of clients, and those that some provider speaks, which are all of them."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.core.catalog import ClientDialectName, DialectName
from gateway.dialects.anthropic_messages import ANTHROPIC_MESSAGES
from gateway.dialects.base import ClientDialect, Dialect
from gateway.dialects.bedrock_converse import BEDROCK_CONVERSE
from gateway.dialects.gemini_content import GEMINI_CONTENT
from gateway.dialects.openai_chat import OPENAI_CHAT

CLIENT_DIALECTS: Mapping[ClientDialectName, ClientDialect] = {
    "openai_chat": OPENAI_CHAT,
    "anthropic_messages": ANTHROPIC_MESSAGES,
}
DIALECTS: Mapping[DialectName, Dialect] = {
    row.name: row for row in (OPENAI_CHAT, ANTHROPIC_MESSAGES, GEMINI_CONTENT, BEDROCK_CONVERSE)
}
