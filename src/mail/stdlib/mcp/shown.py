"""What MCP servers answer, as texts for agents."""

import json
from typing import TYPE_CHECKING, Any

from mail.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcp.types import (
        CallToolResult,
        GetPromptResult,
        Prompt,
        ReadResourceResult,
        Resource,
        ResourceTemplate,
        Tool,
    )

__all__ = ["prompt_text", "prompts", "resource_text", "resources", "tool_text", "tools"]


def tools(found: "Iterable[Tool]") -> str:
    """List tools with their arguments."""
    parts = [
        f"{_title(tool.name, tool.description)}\n  arguments: {_json(tool.input_schema)}"
        for tool in found
    ]
    return "\n".join(parts) or "the server has no tools"


def tool_text(result: "CallToolResult") -> str:
    """Return what a tool said.

    Raises:
        ToolError: the tool says that it failed.
    """
    text = "\n".join(_content(block) for block in result.content)
    if result.is_error:
        raise ToolError(f"the tool failed: {text}" if text else "the tool failed")
    if not text and result.structured_content is not None:
        return _json(result.structured_content)
    return text or "the tool returned nothing"


def prompts(found: "Iterable[Prompt]") -> str:
    """List prompts with their arguments."""
    lines = []
    for prompt in found:
        lines.append(_title(prompt.name, prompt.description))
        for argument in prompt.arguments or ():
            needed = "required" if argument.required else "optional"
            lines.append(f"  {_title(argument.name, argument.description)} ({needed})")
    return "\n".join(lines) or "the server has no prompts"


def prompt_text(result: "GetPromptResult") -> str:
    """Return the messages of a prompt."""
    parts = [f"{message.role}: {_content(message.content)}" for message in result.messages]
    return "\n\n".join(parts) or "the prompt is empty"


def resources(found: "Iterable[Resource]", templates: "Iterable[ResourceTemplate]") -> str:
    """List resources, and the patterns of addresses that can be filled in."""
    lines = [
        f"{each.uri} - {_title(each.name, each.description)}{_kind(each.mime_type)}"
        for each in found
    ]
    lines += [
        f"{each.uri_template} (a pattern) - {_title(each.name, each.description)}"
        for each in templates
    ]
    return "\n".join(lines) or "the server has no resources"


def resource_text(result: "ReadResourceResult") -> str:
    """Return the contents of a resource."""
    return "\n".join(_contents(part) for part in result.contents) or "the resource is empty"


def _content(block: Any) -> str:
    """Return one block of content: text as it is, anything else described."""
    kind = block.type
    if kind == "text":
        return str(block.text)
    if kind in ("image", "audio"):
        return f"[{kind}: {block.mime_type}, {_size(block.data)}]"
    if kind == "resource_link":
        return f"[resource: {block.uri} {block.name}]"
    return _contents(block.resource)


def _contents(part: Any) -> str:
    text = getattr(part, "text", None)
    if text is not None:
        return str(text)
    return f"[binary: {part.uri}{_kind(part.mime_type)}, {_size(part.blob)}]"


def _size(encoded: str) -> str:
    return f"{len(encoded.rstrip('=')) * 3 // 4} bytes"


def _kind(mime_type: str | None) -> str:
    return f" ({mime_type})" if mime_type else ""


def _title(name: str, description: str | None) -> str:
    return f"{name}: {' '.join(description.split())}" if description else name


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
