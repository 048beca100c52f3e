"""Tools, prompts and resources of MCP servers, for agents.

The servers are reached over streamable HTTP, at public addresses and those that
``[stdlib.http] allow`` names. Each call connects anew.
"""

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from mail.errors import ToolError
from mail.stdlib.tools import make_action, object_argument, text_argument

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcp.client import Client
    from mcp.types import (
        CallToolResult,
        GetPromptResult,
        Prompt,
        ReadResourceResult,
        Resource,
        ResourceTemplate,
        Tool,
    )

_MAX_PAGES: Final = 50
_SERVER: Final[dict[str, Any]] = {
    "type": "string",
    "description": "The address of the MCP server, for example https://example.com/mcp",
}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


async def _mcp_ping(args: dict[str, Any]) -> str:
    """Check whether an MCP server answers."""

    async def use(client: "Client") -> str:
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        # The newest protocol has no ping; that the server was discovered says the same.
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await client.session.send_ping()
        return "pong"

    return await _served(args, use)


async def _mcp_list_tools(args: dict[str, Any]) -> str:
    """List the tools of an MCP server, with the JSON Schema of their arguments."""

    async def use(client: "Client") -> str:
        return _shown_tools(await _every(client.list_tools, "tools"))

    return await _served(args, use)


async def _mcp_call_tool(args: dict[str, Any]) -> str:
    """Call a tool of an MCP server."""
    text_argument(args, "server_url")
    name = text_argument(args, "tool_name")
    given = object_argument(args, "tool_input")

    async def use(client: "Client") -> str:
        return tool_text(await client.call_tool(name, given))

    return await _served(args, use)


async def _mcp_list_prompts(args: dict[str, Any]) -> str:
    """List the prompts of an MCP server."""

    async def use(client: "Client") -> str:
        return _shown_prompts(await _every(client.list_prompts, "prompts"))

    return await _served(args, use)


async def _mcp_get_prompt(args: dict[str, Any]) -> str:
    """Get a prompt of an MCP server."""
    text_argument(args, "server_url")
    name = text_argument(args, "prompt_name")
    given = object_argument(args, "prompt_arguments", required=False)
    if not all(isinstance(value, str) for value in given.values()):
        raise ToolError("the values of `prompt_arguments` must be strings")

    async def use(client: "Client") -> str:
        return _prompt_text(await client.get_prompt(name, given or None))

    return await _served(args, use)


async def _mcp_list_resources(args: dict[str, Any]) -> str:
    """List the resources of an MCP server."""

    async def use(client: "Client") -> str:
        return _shown_resources(
            await _every(client.list_resources, "resources"),
            await _every(client.list_resource_templates, "resource_templates"),
        )

    return await _served(args, use)


async def _mcp_read_resource(args: dict[str, Any]) -> str:
    """Read a resource of an MCP server."""
    text_argument(args, "server_url")
    uri = text_argument(args, "resource_uri")

    async def use(client: "Client") -> str:
        return _resource_text(await client.read_resource(uri))

    return await _served(args, use)


async def _served(args: dict[str, Any], use: "Callable[[Client], Awaitable[str]]") -> str:
    server_url = text_argument(args, "server_url")
    from mail.stdlib.mcp.connection import with_server  # the SDK is large

    return await with_server(server_url, use)


async def _every(fetch: Callable[..., Awaitable[Any]], field: str) -> list[Any]:
    """Return what all pages of a list hold."""
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await fetch(cursor=cursor)
        found += getattr(page, field)
        cursor = page.next_cursor
        if cursor is None:
            return found
    raise ToolError(f"the server's list has more than {_MAX_PAGES} pages")


_ONLY_SERVER: Final = {"server_url": _SERVER}

mcp_ping: Final = make_action(_mcp_ping, _ONLY_SERVER, ("server_url",), idempotent=True)
mcp_list_tools: Final = make_action(_mcp_list_tools, _ONLY_SERVER, ("server_url",), idempotent=True)
mcp_call_tool: Final = make_action(
    _mcp_call_tool,
    {
        "server_url": _SERVER,
        "tool_name": _text("The tool, as mcp_list_tools names it"),
        "tool_input": {"type": "object", "description": "The tool's arguments"},
    },
    ("server_url", "tool_name", "tool_input"),
)
mcp_list_prompts: Final = make_action(
    _mcp_list_prompts, _ONLY_SERVER, ("server_url",), idempotent=True
)
mcp_get_prompt: Final = make_action(
    _mcp_get_prompt,
    {
        "server_url": _SERVER,
        "prompt_name": _text("The prompt, as mcp_list_prompts names it"),
        "prompt_arguments": {
            "type": "object",
            "description": "The prompt's arguments, where it has some",
            "additionalProperties": {"type": "string"},
        },
    },
    ("server_url", "prompt_name"),
    idempotent=True,
)
mcp_list_resources: Final = make_action(
    _mcp_list_resources, _ONLY_SERVER, ("server_url",), idempotent=True
)
mcp_read_resource: Final = make_action(
    _mcp_read_resource,
    {
        "server_url": _SERVER,
        "resource_uri": _text("The resource's URI, as mcp_list_resources gives it"),
    },
    ("server_url", "resource_uri"),
    idempotent=True,
)


def _shown_tools(found: "Iterable[Tool]") -> str:
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


def _shown_prompts(found: "Iterable[Prompt]") -> str:
    """List prompts with their arguments."""
    lines = []
    for prompt in found:
        lines.append(_title(prompt.name, prompt.description))
        for argument in prompt.arguments or ():
            needed = "required" if argument.required else "optional"
            lines.append(f"  {_title(argument.name, argument.description)} ({needed})")
    return "\n".join(lines) or "the server has no prompts"


def _prompt_text(result: "GetPromptResult") -> str:
    """Return the messages of a prompt."""
    parts = [f"{message.role}: {_content(message.content)}" for message in result.messages]
    return "\n\n".join(parts) or "the prompt is empty"


def _shown_resources(found: "Iterable[Resource]", templates: "Iterable[ResourceTemplate]") -> str:
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


def _resource_text(result: "ReadResourceResult") -> str:
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
