"""What judges calls of tools on streams, by the client's dialect."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.core.catalog import ClientDialectName
from gateway.dialects.anthropic_tool_frames import AnthropicToolFrames
from gateway.dialects.openai_tool_frames import OpenAIToolFrames
from gateway.dialects.tool_frames import ToolFrames

TOOL_EDITORS: Mapping[ClientDialectName, type[ToolFrames]] = {
    "openai_chat": OpenAIToolFrames,
    "anthropic_messages": AnthropicToolFrames,
}
