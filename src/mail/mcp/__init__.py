"""MAIL as an MCP server: tools over the HTTP API, for any client that speaks MCP."""

from mail.mcp.api import Api
from mail.mcp.tools import PROFILES, McpTool, tools_of

__all__ = ["PROFILES", "Api", "McpTool", "tools_of"]
