"""Actions that use the tools, prompts and resources of MCP servers."""
