"""Tools, prompts and resources of MCP servers, for agents.

The servers are reached over streamable HTTP, at public addresses and those that
``[stdlib.http] allow`` names. Each call connects anew.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

from mail.errors import ToolError
from mail.stdlib.tools import NOTHING, ready_action

if TYPE_CHECKING:
    from mcp.client import Client
    from mcp.types import CallToolResult, Prompt, Resource, ResourceTemplate, Tool

_MAX_PAGES: Final = 50
_Server = Annotated[str, "The address of the MCP server, for example https://example.com/mcp"]


@ready_action(idempotent=True)
async def mcp_ping(server_url: _Server) -> str:
    """Check whether an MCP server answers."""

    async def use(client: "Client") -> str:
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        # The newest protocol has no ping; that the server was discovered says the same.
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await client.session.send_ping()
        return "pong"

    return await _served(server_url, use)


@ready_action(idempotent=True)
async def mcp_list_tools(server_url: _Server) -> str:
    """List the tools of an MCP server, with the JSON Schema of their arguments."""

    async def use(client: "Client") -> str:
        found: list[Tool] = await every_page(client.list_tools, "tools")
        parts = [
            f"{_title(tool.name, tool.description)}\n  arguments: {_json(tool.input_schema)}"
            for tool in found
        ]
        return "\n".join(parts) or "the server has no tools"

    return await _served(server_url, use)


@ready_action()
async def mcp_call_tool(
    server_url: _Server,
    tool_name: Annotated[str, "The tool, as mcp_list_tools names it"],
    tool_input: Annotated[Mapping[str, Any], "The tool's arguments"],
) -> str:
    """Call a tool of an MCP server."""

    async def use(client: "Client") -> str:
        return tool_text(await client.call_tool(tool_name, dict(tool_input)))

    return await _served(server_url, use)


@ready_action(idempotent=True)
async def mcp_list_prompts(server_url: _Server) -> str:
    """List the prompts of an MCP server."""

    async def use(client: "Client") -> str:
        found: list[Prompt] = await every_page(client.list_prompts, "prompts")
        lines = []
        for prompt in found:
            lines.append(_title(prompt.name, prompt.description))
            for argument in prompt.arguments or ():
                needed = "required" if argument.required else "optional"
                lines.append(f"  {_title(argument.name, argument.description)} ({needed})")
        return "\n".join(lines) or "the server has no prompts"

    return await _served(server_url, use)


@ready_action(idempotent=True)
async def mcp_get_prompt(
    server_url: _Server,
    prompt_name: Annotated[str, "The prompt, as mcp_list_prompts names it"],
    prompt_arguments: Annotated[
        Mapping[str, str], "The prompt's arguments, where it has some"
    ] = NOTHING,
) -> str:
    """Get a prompt of an MCP server."""
    if not all(isinstance(value, str) for value in prompt_arguments.values()):
        raise ToolError("the values of `prompt_arguments` must be strings")

    async def use(client: "Client") -> str:
        result = await client.get_prompt(prompt_name, dict(prompt_arguments) or None)
        parts = [f"{message.role}: {_content(message.content)}" for message in result.messages]
        return "\n\n".join(parts) or "the prompt is empty"

    return await _served(server_url, use)


@ready_action(idempotent=True)
async def mcp_list_resources(server_url: _Server) -> str:
    """List the resources of an MCP server."""

    async def use(client: "Client") -> str:
        found: list[Resource] = await every_page(client.list_resources, "resources")
        patterns: list[ResourceTemplate]
        patterns = await every_page(client.list_resource_templates, "resource_templates")
        lines = [
            f"{each.uri} - {_title(each.name, each.description)}{_kind(each.mime_type)}"
            for each in found
        ]
        lines += [
            f"{each.uri_template} (a pattern) - {_title(each.name, each.description)}"
            for each in patterns
        ]
        return "\n".join(lines) or "the server has no resources"

    return await _served(server_url, use)


@ready_action(idempotent=True)
async def mcp_read_resource(
    server_url: _Server,
    resource_uri: Annotated[str, "The resource's URI, as mcp_list_resources gives it"],
) -> str:
    """Read a resource of an MCP server."""

    async def use(client: "Client") -> str:
        result = await client.read_resource(resource_uri)
        return "\n".join(map(_contents, result.contents)) or "the resource is empty"

    return await _served(server_url, use)


async def _served(server_url: str, use: "Callable[[Client], Awaitable[str]]") -> str:
    from mail.stdlib.mcp.connection import with_server  # the SDK is large

    return await with_server(server_url, use)


async def every_page(fetch: Callable[..., Awaitable[Any]], field: str) -> list[Any]:
    """Return what all pages of a server's list hold.

    Args:
        fetch: A method of the client, for example ``list_tools``.
        field: The field of a page that has its part of the list.

    Raises:
        ToolError: there are too many pages.
    """
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await fetch(cursor=cursor)
        found += getattr(page, field)
        cursor = page.next_cursor
        if cursor is None:
            return found
    raise ToolError(f"the server's list has more than {_MAX_PAGES} pages")


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
