"""Ready-made actions for agents: files, HTTP, MCP servers and other swarms."""
