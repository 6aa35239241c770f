"""Tools and the choice among them in a Converse body."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from gateway.dialects.anthropic_body_tools import ANSWER, answers_by_tool
from gateway.dialects.anthropic_body_tools import write_tools as write_anthropic_tools
from gateway.dialects.bedrock_body_blocks import Blocks
from gateway.dialects.neutral import Notes, Prompt
from gateway.dialects.validate import refuse

_ANY = {"type": "auto"}  # where nothing was said
_GONE = "Not available any more."  # of a tool that was called earlier and is no longer offered


def write_tools(
    prompt: Prompt, called: tuple[str, ...], own: dict[str, Any] | None, blocks: Blocks, notes: Notes
) -> dict[str, Any]:  # fmt: skip
    """
    `toolConfig`; nothing where there are no tools. Where the conversation has calls, Converse wants tools, as
    Anthropic's API does.

    Converse knows no choice of none, and nothing of parallel calls. A model that takes members of its own (*own*) gets
    such a choice there, whole, since Converse refuses one that is in both places.

    Raises:
        GatewayError: JSON mode where no tool can enforce it.
    """
    if own is None and answers_by_tool(prompt):  # not every model there can be made to call a tool
        name = prompt.names.get("response_format", "response_format")
        raise refuse(name, f"{name}: this model keeps to a JSON schema only; send one as json_schema.")
    if own is None and prompt.parallel_tools is False and prompt.tools:
        notes.drop(prompt.names.get("parallel_tools", "parallel_tools"))
        prompt = structs.replace(prompt, parallel_tools=None)
    written = write_anthropic_tools(prompt, called, notes)
    if not written:
        return {}
    tools: list[dict[str, Any]] = []
    for tool in written["tools"]:
        spec = _spec(tool, is_gone=not prompt.tools and tool["name"] != ANSWER)
        tools += blocks.marked({"toolSpec": spec}, tool.get("cache_control"))
    config: dict[str, Any] = {"tools": tools}
    choice = written.get("tool_choice", _ANY)
    if own is not None and (choice["type"] == "none" or "disable_parallel_tool_use" in choice):
        own["tool_choice"] = choice
    elif choice["type"] != "none":
        config |= {"toolChoice": _choice(choice)} if choice is not _ANY else {}
    elif not called:
        return {}  # what is not offered is not called
    elif prompt.tools:
        notes.drop(prompt.names.get("tool_choice", "tool_choice"))
    return config


def _spec(tool: dict[str, Any], *, is_gone: bool) -> dict[str, Any]:
    spec: dict[str, Any] = {"name": tool["name"]}
    description = _GONE if is_gone else tool.get("description")
    if description:
        spec["description"] = description
    spec["inputSchema"] = {"json": tool["input_schema"]}
    if tool.get("strict"):
        spec["strict"] = True
    return spec


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    kind: str = choice["type"]
    return {kind: {"name": choice["name"]} if kind == "tool" else {}}
